// OpenAI's HTTP interface. user is the struct service.
#pragma once
#include "ws/completion/completion.h"
#include "ws/net/http.h"
#include "ws/openai/prompts_request.h"
#include "ws/service.h"

// Members of the routes in server.c (struct http_route). Net thread; *_decode and *_release on any thread.
void *openai_chat_decode(void *user, const struct http_payload *p);
void openai_models_handle(void *user, struct http *h);
void openai_model_handle(void *user, struct http *h);
void openai_chat_release(void *decoded);
void openai_chat_handle(void *user, struct http *h);
void *openai_completions_decode(void *user, const struct http_payload *p);
void openai_completions_handle(void *user, struct http *h);
void *openai_embeddings_decode(void *user, const struct http_payload *p);
void openai_embeddings_handle(void *user, struct http *h);
void openai_write_error(struct buf *out, int status, const char *code,
                        const char *message); // of no parameter
// x-request-id, and x-ratelimit-* of the owner's rates that are limited. In every reply of these routes.
void openai_put_headers(const struct http *h, struct buf *out);

#define OPENAI_POST_ROUTE(address, name, free_request)                                             \
    {                                                                                              \
        .path = (address), .methods = HTTP_METHOD(HTTP_POST), .guarded = true, HTTP_CONVERSATION,  \
        .handle = name##_handle, .decode = name##_decode, .is_costly = completion_is_costly,       \
        .release = free_request, .write_error = openai_write_error,                                \
        .put_headers = openai_put_headers                                                          \
    }
#define OPENAI_ROUTES                                                                              \
    {.path = "/v1/models",                                                                         \
     .methods = HTTP_METHOD(HTTP_GET),                                                             \
     .guarded = true,                                                                              \
     .handle = openai_models_handle,                                                               \
     .write_error = openai_write_error,                                                            \
     .put_headers = openai_put_headers},                                                           \
        {.path = "/v1/models/*",                                                                   \
         .methods = HTTP_METHOD(HTTP_GET),                                                         \
         .guarded = true,                                                                          \
         .handle = openai_model_handle,                                                            \
         .write_error = openai_write_error,                                                        \
         .put_headers = openai_put_headers},                                                       \
        OPENAI_POST_ROUTE("/v1/chat/completions", openai_chat, openai_chat_release),               \
        OPENAI_POST_ROUTE("/v1/completions", openai_completions, prompts_request_free),            \
        OPENAI_POST_ROUTE("/v1/embeddings", openai_embeddings, prompts_request_free)
