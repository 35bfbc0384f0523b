// The KServe v2 protocol over HTTP, with the models and tensors of FasterTransformer's Triton backend:
// its clients work unchanged (README.md). user of the routes is the struct service.
#pragma once
#include "ws/kserve/infer_request.h"
#include "ws/kserve/reply.h"
#include "ws/kserve/sequences.h"
#include "ws/net/http.h"

struct service;

struct kserve_stats { // of a model
    int64_t n_done, n_failed, done_us, queue_us, infer_us, last_ms;
};

struct kserve {
    struct sequences sequences;
    struct kserve_stats stats[INFER_MODELS]; // by enum infer_model
};

int kserve_open(struct kserve **out);
void kserve_close(struct kserve *k); // after its exchanges; NULL is fine

// What a path under /v2/models/ names.
enum kserve_verb {
    VERB_METADATA,
    VERB_READY,
    VERB_CONFIG,
    VERB_STATS,
    VERB_INFER,
    VERB_GENERATE,
    VERB_GENERATE_STREAM,
    VERB_NONE
};
struct kserve_target {
    enum kserve_verb verb; // VERB_NONE: there is no such address
    enum infer_model model;
    char name[65]; // the model's, as the client calls it
    bool known;    // a model of this name is served
};
struct kserve_target kserve_target_of(const struct service *s, const char *path);

void kserve_live(void *user, struct http *h);
void kserve_ready(void *user, struct http *h);
void kserve_server(void *user, struct http *h);
void kserve_model(void *user, struct http *h);
void *kserve_decode(void *user, const struct http_payload *p);
void kserve_release(void *decoded);
void kserve_infer(void *user, struct http *h);

#define KSERVE_GET(route, is_guarded, handler)                                                     \
    {                                                                                              \
        .path = route, .methods = HTTP_METHOD(HTTP_GET), .guarded = is_guarded,                    \
        .write_error = kserve_write_error, .handle = handler                                       \
    }
#define KSERVE_ROUTES                                                                              \
    KSERVE_GET("/v2/health/live", false, kserve_live),                                             \
        KSERVE_GET("/v2/health/ready", false, kserve_ready),                                       \
        KSERVE_GET("/v2", true, kserve_server), KSERVE_GET("/v2/models/*", true, kserve_model), {  \
        .path = "/v2/models/*", .methods = HTTP_METHOD(HTTP_POST), .guarded = true,                \
        .max_body = HTTP_BODY_AS_MESSAGES, .handle = kserve_infer, .decode = kserve_decode,        \
        .release = kserve_release, .write_error = kserve_write_error                               \
    }
