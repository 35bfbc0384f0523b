// The Responses API over HTTP. user is the struct service.
//     POST   /v1/responses                     responses.c
//     POST   /v1/responses/input_tokens        responses.c
//     POST   /v1/responses/compact             responses.c
//     GET    /v1/responses/{id}[?stream=true&starting_after=N]
//     DELETE /v1/responses/{id}
//     POST   /v1/responses/{id}/cancel
//     GET    /v1/responses/{id}/input_items    responses_stored.c
// The same over a WebSocket: responses_socket.c.
#pragma once
#include "ws/openai/openai.h"
#include "ws/openai/responses_id.h"
#include "ws/openai/responses_request.h"

struct responses_page { // of items
    char after[RESPONSES_ID_MAX];
    int64_t limit;
    bool ascending;
};
// Of the query: limit, order, after. NULL, or the parameter at fault.
const char *responses_page_read(struct responses_page *page, const struct http *h);

struct responses_output;

// Members of struct http_route; `count` is input_tokens, `stored` the addresses with an id. Net thread;
// *_decode and *_release on any thread.
void *openai_responses_decode(void *user, const struct http_payload *p);
void openai_responses_handle(void *user, struct http *h);
void *openai_responses_compact_decode(void *user, const struct http_payload *p);
void *openai_responses_count_decode(void *user, const struct http_payload *p);
void openai_responses_count_handle(void *user, struct http *h);
void openai_responses_stored_handle(void *user, struct http *h);

// --- for the files of this API ---

// The whole response; 503 if there is no memory for it.
void responses_http_reply(struct http *h, const struct responses_output *o);
// One event of a stream.
void responses_http_event(struct http *h, const char *type, const struct buf *json);

#define OPENAI_RESPONSES_ROUTES                                                                    \
    OPENAI_POST_ROUTE("/v1/responses", openai_responses_decode, openai_responses_handle,           \
                      responses_request_free),                                                     \
        OPENAI_POST_ROUTE("/v1/responses/input_tokens", openai_responses_count_decode,             \
                          openai_responses_count_handle, http_completion_request_free),            \
        OPENAI_POST_ROUTE("/v1/responses/compact", openai_responses_compact_decode,                \
                          openai_responses_handle, responses_request_free),                        \
        OPENAI_ROUTE("/v1/responses/*",                                                            \
                     HTTP_METHOD(HTTP_GET) | HTTP_METHOD(HTTP_DELETE) | HTTP_METHOD(HTTP_POST),    \
                     .max_body = 1024, .handle = openai_responses_stored_handle)
