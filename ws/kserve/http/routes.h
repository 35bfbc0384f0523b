// The routes of KServe v2 over HTTP, for the table in server.c. user is the struct service. Net thread;
// kserve_decode and kserve_release on any thread.
#pragma once
#include "ws/kserve/http/reply.h"

// GET, and below them POST, in the table's order. kserve_infer also generates and streams.
void kserve_live(void *user, struct http *h);
void kserve_ready(void *user, struct http *h);
void kserve_server(void *user, struct http *h);
void kserve_model(void *user, struct http *h);
void kserve_other(void *user, struct http *h); // every other path under /v2/
void *kserve_decode(void *user, const struct http_payload *p);
void kserve_release(void *decoded);
void kserve_infer(void *user, struct http *h);
size_t kserve_longest_body(void *user, const char *path); // of a POST to a model

#define KSERVE_GET(route, is_guarded, handler)                                                     \
    {                                                                                              \
        .path = route, .methods = HTTP_METHOD(HTTP_GET), .guarded = is_guarded,                    \
        .write_error = kserve_write_error, .handle = handler                                       \
    }
#define KSERVE_ROUTES                                                                              \
    KSERVE_GET("/v2/health/live", false, kserve_live),                                             \
        KSERVE_GET("/v2/health/ready", false, kserve_ready),                                       \
        KSERVE_GET("/v2", true, kserve_server), KSERVE_GET("/v2/models/*", true, kserve_model),    \
        {.path = "/v2/models/*",                                                                   \
         .methods = HTTP_METHOD(HTTP_POST),                                                        \
         .guarded = true,                                                                          \
         .max_body = HTTP_BODY_AS_MESSAGES,                                                        \
         .longest_body = kserve_longest_body,                                                      \
         .handle = kserve_infer,                                                                   \
         .decode = kserve_decode,                                                                  \
         .release = kserve_release,                                                                \
         .write_error = kserve_write_error},                                                       \
    {                                                                                              \
        .path = "/v2/*", .methods = HTTP_METHOD(HTTP_GET) | HTTP_METHOD(HTTP_POST),                \
        .guarded = true, .max_body = 1 << 20, .body_optional = true, .handle = kserve_other,       \
        .write_error = kserve_write_error                                                          \
    }
