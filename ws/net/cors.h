// Requests of pages from other origins. A browser sends a page's POST without asking first if its body is
// plain text, so a server without tokens would serve every page that its user opens; such requests are
// refused here. A page whose Origin stands in allowed_origins may send requests and read the answers
// (the CORS protocol of the Fetch standard). Programs send no Origin.
#pragma once
#include "base/buf.h"
#include "ws/net/http_head.h"

struct net;

// Whether a page of another origin sent the request, and allowed_origins lists it.
bool cors_is_listed(const struct net *n, const struct http_head *h);
// Whether a page of another origin asks, before a request, if it may send it.
bool cors_is_preflight(const struct http_head *h);
// Refuses a preflight of a page that is not listed, and without tokens whatever it sends but GET and HEAD.
struct http_refusal cors_judge(const struct net *n, const struct http_head *h);

// Header lines of a reply to a listed page, and the further ones of a reply to its preflight.
void cors_put_headers(const struct http_head *h, struct buf *out);
void cors_put_permission(const struct http_head *h, struct buf *out);
