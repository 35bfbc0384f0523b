// Looking up and negotiating the embedded page. See page.h.
#include "ws/page.h"
#include "base/err.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

const struct page_asset *page_find(const char *path) {
    if (strcmp(path, "/") == 0) path = "/index.html";
    for (size_t i = 0; i < page_n_assets; i++)
        if (strcmp(page_assets[i].path, path) == 0) return &page_assets[i];
    return NULL;
}

void page_etag(const struct page_asset *a, bool gzip, char out[72]) {
    snprintf(out, 72, "\"%.60s%s\"", a->hash, gzip ? "" : "-i");
}

bool page_etag_matches(const char *if_none_match, const char *etag) {
    size_t len = strlen(etag);
    for (const char *p = if_none_match; *p;) {
        p += strspn(p, ", \t");
        if (*p == '*') return true;
        if (strncmp(p, "W/", 2) == 0) p += 2; // If-None-Match compares weakly
        size_t n = strcspn(p, ", \t");
        if (n == len && memcmp(p, etag, n) == 0) return true;
        p += n;
    }
    return false;
}

// "q=0", "q=0.0": the one weight that means no.
static bool refused(const char *params, size_t len) {
    const char *q = NULL;
    for (size_t i = 0; i + 1 < len; i++)
        if ((params[i] == 'q' || params[i] == 'Q') && params[i + 1] == '=') q = params + i + 2;
    if (!q) return false;
    while (q < params + len && (*q == '0' || *q == '.')) q++;
    return q == params + len || *q == ' ';
}

bool page_accepts_gzip(const char *accept_encoding) {
    bool any = false;
    for (const char *p = accept_encoding; *p;) {
        p += strspn(p, ", \t");
        size_t len = strcspn(p, ","), name = strcspn(p, ",; \t");
        bool yes = !refused(p + name, len - name);
        if ((name == 4 && strncasecmp(p, "gzip", 4) == 0) ||
            (name == 6 && strncasecmp(p, "x-gzip", 6) == 0))
            return yes;
        if (name == 1 && *p == '*') any = yes;
        p += len;
    }
    return any;
}

int page_inflate(const struct page_asset *a, unsigned char **out) {
    z_stream z = {.next_in = (unsigned char *)(size_t)a->gz, .avail_in = (unsigned)a->gz_len};
    unsigned char *plain = malloc(a->raw_len + 1);
    if (!plain || inflateInit2(&z, 15 + 16) != Z_OK) { // 16: a gzip header
        free(plain);
        return E_NOMEM;
    }
    z.next_out = plain;
    z.avail_out = (unsigned)a->raw_len + 1;
    int rc = inflate(&z, Z_FINISH);
    size_t n = z.total_out;
    inflateEnd(&z);
    if (rc != Z_STREAM_END || n != a->raw_len) {
        free(plain);
        return E_CORRUPT;
    }
    *out = plain;
    return 0;
}
