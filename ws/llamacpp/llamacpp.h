// The addresses of llama.cpp's server that its tools use beside chatting: /tokenize, /detokenize, /apply-template, /props,
// /health. In its forms, errors too: {"error":{"code","message","type"}}. user is the struct service.
#pragma once
#include "ws/completion/completion.h"
#include "ws/net/http.h"
#include "ws/service.h"

void llamacpp_health(void *user, struct http *h); // 503 as /readyz
void llamacpp_props(void *user, struct http *h);  // of ?model=NAME, or the default
// The three texts are made by decode: long bodies on a worker.
void *llamacpp_text_decode(void *user, const struct http_payload *p);
void llamacpp_text_release(void *decoded);
void llamacpp_text_handle(void *user, struct http *h);
void llamacpp_write_error(struct buf *out, int status, const char *code, const char *message);

#define LLAMACPP_TEXT_ROUTE(address)                                                               \
    {                                                                                              \
        .path = (address), .methods = HTTP_METHOD(HTTP_POST), .guarded = true, HTTP_CONVERSATION,  \
        .handle = llamacpp_text_handle, .decode = llamacpp_text_decode,                            \
        .is_costly = completion_is_costly, .release = llamacpp_text_release,                       \
        .write_error = llamacpp_write_error                                                        \
    }
#define LLAMACPP_ROUTES                                                                            \
    {.path = "/health", .methods = HTTP_METHOD(HTTP_GET), .handle = llamacpp_health},              \
        {.path = "/v1/health", .methods = HTTP_METHOD(HTTP_GET), .handle = llamacpp_health},       \
        {.path = "/props",                                                                         \
         .methods = HTTP_METHOD(HTTP_GET),                                                         \
         .guarded = true,                                                                          \
         .handle = llamacpp_props,                                                                 \
         .write_error = llamacpp_write_error},                                                     \
        LLAMACPP_TEXT_ROUTE("/tokenize"), LLAMACPP_TEXT_ROUTE("/detokenize"),                      \
        LLAMACPP_TEXT_ROUTE("/apply-template")
