// Anthropic's HTTP interface: POST /v1/messages, POST /v1/messages/count_tokens, and GET /v1/models in
// its form for requests with the header anthropic-version. user is the struct service. Net thread; *_decode and
// *_release on any thread.
#pragma once
#include "ws/completion/completion.h"
#include "ws/net/http.h"
#include "ws/service.h"

// Members of the table in server.c (struct http_route). Both decoders make what anthropic_messages_handle takes.
void *anthropic_messages_decode(void *user, const struct http_payload *p);
void anthropic_messages_release(void *decoded);
void anthropic_messages_handle(void *user, struct http *h);
void *anthropic_count_decode(void *user, const struct http_payload *p);
void anthropic_models_handle(void *user, struct http *h);
void anthropic_model_handle(void *user, struct http *h);
// Gives the error of a refused request Anthropic's status, body and headers.
void anthropic_shape_error(struct http *h, struct http_error *e, struct buf *body,
                           struct buf *extra);

#define ANTHROPIC_POST_ROUTE(address, reader)                                                      \
    {                                                                                              \
        .path = (address), .methods = HTTP_METHOD(HTTP_POST), .guarded = true, HTTP_CONVERSATION,  \
        .handle = anthropic_messages_handle, .decode = reader, .is_costly = completion_is_costly,  \
        .release = anthropic_messages_release, .shape_error = anthropic_shape_error                \
    }
#define ANTHROPIC_GET_ROUTE(address, handler)                                                      \
    {                                                                                              \
        .path = (address), .only_with = HEADER_ANTHROPIC_VERSION,                                  \
        .methods = HTTP_METHOD(HTTP_GET), .guarded = true, .handle = handler,                      \
        .shape_error = anthropic_shape_error                                                       \
    }
// Before OPENAI_ROUTES, whose /v1/models serves all others.
#define ANTHROPIC_ROUTES                                                                           \
    ANTHROPIC_POST_ROUTE("/v1/messages", anthropic_messages_decode),                               \
        ANTHROPIC_POST_ROUTE("/v1/messages/count_tokens", anthropic_count_decode),                 \
        ANTHROPIC_GET_ROUTE("/v1/models", anthropic_models_handle),                                \
        ANTHROPIC_GET_ROUTE("/v1/models/*", anthropic_model_handle)
