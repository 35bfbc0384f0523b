// GET /share/TOKEN: a session as its link shows it, without an access token (sharing). Tokens that are
// malformed, wrong or revoked get the same 404, and so does every token while sharing is off.
#pragma once
#include "ws/net/http.h"

void shared_handle(void *service, struct http *h);
void shared_put_headers(const struct http *h, struct buf *out);

#define SHARED_PATH "/share/"
#define SHARED_ROUTE                                                                               \
    {                                                                                              \
        .path = SHARED_PATH "*", .methods = HTTP_METHOD(HTTP_GET), .handle = shared_handle,        \
        .put_headers = shared_put_headers                                                          \
    }
