// OpenAI's HTTP interface. user is the struct service.
#pragma once
#include "ws/completion/http_completion.h"
#include "ws/net/http.h"
#include "ws/openai/prompts_request.h"
#include "ws/service.h"

// Members of the routes in server.c (struct http_route). Net thread; *_decode and *_release on any thread.
void *openai_chat_decode(void *user, const struct http_payload *p);
void openai_models_handle(void *user, struct http *h);
void openai_model_handle(void *user, struct http *h);
void openai_chat_handle(void *user, struct http *h);
void *openai_completions_decode(void *user, const struct http_payload *p);
void openai_completions_handle(void *user, struct http *h);
void *openai_embeddings_decode(void *user, const struct http_payload *p);
void openai_embeddings_handle(void *user, struct http *h);
void openai_write_error(struct buf *out, int status, const char *code,
                        const char *message); // of no parameter
// x-request-id, and x-ratelimit-* of the owner's rates that are limited. In every reply of these routes.
void openai_put_headers(const struct http *h, struct buf *out);

// A guarded route in OpenAI's form of errors and headers; its other members follow its methods.
#define OPENAI_ROUTE(address, which, ...)                                                          \
    {                                                                                              \
        .path = (address), .methods = (which), .guarded = true, .write_error = openai_write_error, \
        .put_headers = openai_put_headers, __VA_ARGS__                                             \
    }
// One whose body has a conversation, or as much text.
#define OPENAI_POST_ROUTE(address, reader, handler, free_request)                                  \
    OPENAI_ROUTE(address, HTTP_METHOD(HTTP_POST), HTTP_CONVERSATION, .handle = handler,            \
                 .decode = reader, .is_costly = completion_is_costly, .release = free_request)
#define OPENAI_ROUTES                                                                              \
    OPENAI_ROUTE("/v1/models", HTTP_METHOD(HTTP_GET), .handle = openai_models_handle),             \
        OPENAI_ROUTE("/v1/models/*", HTTP_METHOD(HTTP_GET), .handle = openai_model_handle),        \
        OPENAI_POST_ROUTE("/v1/chat/completions", openai_chat_decode, openai_chat_handle,          \
                          http_completion_request_free),                                           \
        OPENAI_POST_ROUTE("/v1/completions", openai_completions_decode, openai_completions_handle, \
                          prompts_request_free),                                                   \
        OPENAI_POST_ROUTE("/v1/embeddings", openai_embeddings_decode, openai_embeddings_handle,    \
                          prompts_request_free)
