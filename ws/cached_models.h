// GET /models/cached: the models in the hub's cache, for administrators. Read only: no client can load or
// download a model by it. A worker thread reads the folders.
#pragma once
#include "ws/hub/cached.h"
#include "ws/net/http.h"

// Fills in what the formats of the folders' weights are called.
void cached_models_name_weights(struct hub_cached_list *l);

void *cached_models_decode(void *user, const struct http_payload *p);
bool cached_models_is_costly(const char *body, size_t len);
void cached_models_release(void *decoded);
void cached_models_handle(void *user, struct http *h);

#define CACHED_MODELS_ROUTE                                                                        \
    {                                                                                              \
        .path = "/models/cached", .methods = HTTP_METHOD(HTTP_GET), .guarded = true,               \
        .admin = true, .decode = cached_models_decode, .is_costly = cached_models_is_costly,       \
        .release = cached_models_release, .handle = cached_models_handle                           \
    }
