// Bodies. See http_body.h.
#include "ws/net/http_body.h"
#include "base/err.h"
#include <string.h>
#include <zlib.h>

#define TRAILER_BYTES 4096
#define UNZIP_STEP 16384

int http_body_begin(struct http_body *b, const struct http_head *h, size_t max) {
    memset(b, 0, sizeof(*b));
    buf_init(&b->data, max);
    if (h->framing == HTTP_CHUNKED) {
        b->chunked = true;
        b->state = BODY_CHUNK_SIZE;
        return 0;
    }
    if (h->content_length > (int64_t)max) return E_LIMIT;
    b->left = h->content_length;
    b->state = b->left > 0 ? BODY_DATA : BODY_COMPLETE;
    return 0;
}

void http_body_release(struct http_body *b) {
    buf_release(&b->data);
}

// Gathers a line up to CR LF. 1: it is complete in b->line, 0: more must come.
static int gather_line(struct http_body *b, const char *bytes, size_t len, size_t *used) {
    while (*used < len) {
        char c = bytes[(*used)++];
        if (c == '\n') {
            if (b->line_len == 0 || b->line[b->line_len - 1] != '\r') return E_FORMAT;
            b->line[--b->line_len] = '\0';
            return 1;
        }
        if (c == '\0' || b->line_len + 1 >= sizeof(b->line)) return E_FORMAT;
        if (b->line_len > 0 && b->line[b->line_len - 1] == '\r') return E_FORMAT; // CR alone
        b->line[b->line_len++] = c;
    }
    return 0;
}

// "1a3" or "1a3;extension". Extensions are ignored.
static int parse_chunk_size(struct http_body *b) {
    int64_t size = 0;
    size_t n = strspn(b->line, "0123456789abcdefABCDEF");
    if (n == 0 || n > 15 || (b->line[n] && b->line[n] != ';' && b->line[n] != ' ')) return E_FORMAT;
    for (size_t i = 0; i < n; i++) {
        char c = b->line[i];
        size = size << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    b->line_len = 0;
    if (size > (int64_t)(b->data.max - b->data.len)) return E_LIMIT;
    b->left = size;
    b->state = size > 0 ? BODY_DATA : BODY_TRAILERS;
    return 0;
}

static int feed_data(struct http_body *b, const char *bytes, size_t len, size_t *used) {
    size_t n = len - *used;
    if ((int64_t)n > b->left) n = (size_t)b->left;
    TRY(buf_add(&b->data, bytes + *used, n));
    *used += n;
    b->left -= (int64_t)n;
    if (b->left == 0) b->state = b->chunked ? BODY_CHUNK_END : BODY_COMPLETE;
    return 0;
}

// A line of the framing: a size, the end of a chunk, a trailer (dropped) or the end.
static int feed_line(struct http_body *b, const char *bytes, size_t len, size_t *used) {
    int rc = gather_line(b, bytes, len, used);
    if (rc <= 0) return rc;
    if (b->state == BODY_CHUNK_SIZE) return parse_chunk_size(b);
    size_t n = b->line_len;
    b->line_len = 0;
    if (b->state == BODY_CHUNK_END) {
        b->state = BODY_CHUNK_SIZE;
        return n == 0 ? 0 : E_FORMAT;
    }
    b->trailer_bytes += n;
    if (n == 0) b->state = BODY_COMPLETE;
    return b->trailer_bytes > TRAILER_BYTES ? E_FORMAT : 0;
}

int http_body_feed(struct http_body *b, const char *bytes, size_t len, size_t *used) {
    *used = 0;
    while (b->state != BODY_COMPLETE && *used < len)
        TRY(b->state == BODY_DATA ? feed_data(b, bytes, len, used)
                                  : feed_line(b, bytes, len, used));
    return b->state == BODY_COMPLETE;
}

int http_body_unzip(const char *data, size_t len, struct buf *out) {
    char step[UNZIP_STEP];
    z_stream z = {.next_in = (unsigned char *)(size_t)data, .avail_in = (unsigned)len};
    int rc = 0, z_rc = Z_OK;
    if (inflateInit2(&z, 15 + 32) != Z_OK) return E_NOMEM; // 32: gzip or zlib, by its header
    while (rc == 0 && z_rc == Z_OK) {
        z.next_out = (unsigned char *)step;
        z.avail_out = sizeof(step);
        z_rc = inflate(&z, Z_NO_FLUSH);
        if (z_rc == Z_OK || z_rc == Z_STREAM_END)
            rc = buf_add(out, step, sizeof(step) - z.avail_out);
    }
    bool whole = z_rc == Z_STREAM_END && z.avail_in == 0;
    inflateEnd(&z);
    return rc < 0 ? rc : whole ? 0 : E_FORMAT;
}
