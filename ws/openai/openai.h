// OpenAI's HTTP interface, in its simplest form: POST /v1/chat/completions. user is the struct
// service.
#pragma once
#include "ws/net/http.h"

void *openai_chat_decode(void *user, const struct http_payload *p);
void openai_models_handle(void *user, struct http *h);
void openai_chat_release(void *decoded);
void openai_chat_handle(void *user, struct http *h);
void openai_write_error(struct buf *out, int status, const char *code, const char *message);

#define OPENAI_ROUTES                                                                              \
    {.path = "/v1/models",                                                                         \
     .methods = HTTP_METHOD(HTTP_GET),                                                             \
     .guarded = true,                                                                              \
     .handle = openai_models_handle},                                                              \
    {                                                                                              \
        .path = "/v1/chat/completions", .methods = HTTP_METHOD(HTTP_POST), .guarded = true,        \
        .max_body = HTTP_BODY_AS_MESSAGES, .handle = openai_chat_handle,                           \
        .decode = openai_chat_decode, .release = openai_chat_release,                              \
        .write_error = openai_write_error                                                          \
    }
