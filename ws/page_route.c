// The page over HTTP. See page.h.
#include "ws/net/http.h"
#include "ws/net/http_reply.h"
#include "ws/page.h"
#include <stdio.h>

static void reply_asset(struct http *h, const struct page_asset *a) {
    char etag[72], extra[1024];
    unsigned char *plain;
    const char *known = http_header(h, HEADER_IF_NONE_MATCH);
    bool gzip = page_accepts_gzip(http_header(h, HEADER_ACCEPT_ENCODING));
    page_etag(a, gzip, etag);
    // no-cache: kept, but asked for again each time; a new build shows at the next reload. A new
    // build of an immutable file has another name.
    snprintf(extra, sizeof(extra),
             "etag: %s\r\ncache-control: %s\r\nvary: accept-encoding\r\n%s" CONTENT_POLICY, etag,
             a->immutable ? "max-age=31536000, immutable" : "no-cache",
             gzip ? "content-encoding: gzip\r\n" : "", page_scripts, page_styles);
    if (*known && page_etag_matches(known, etag))
        http_reply(h, 304, NULL, extra, NULL, 0, false);
    else if (gzip)
        http_reply(h, 200, a->content_type, extra, a->gz, a->gz_len, false);
    else if (page_inflate(a, &plain) < 0)
        http_reply_error(h, 500, "internal", "no memory for the page", 0);
    else
        http_reply(h, 200, a->content_type, extra, plain, a->raw_len, true);
}

bool page_is_here(const char *path) {
    return page_find(path) != NULL;
}

void page_handle(void *user, struct http *h) {
    reply_asset(h, page_find(http_path(h)));
}
