// Common parts of answers. See reply.h.
#include "ws/kserve/reply.h"
#include <stdio.h>

#define ERROR_MAX_BYTES 8192

void kserve_reply_head(const struct infer_request *r, struct json_writer *w) {
    json_open(w, NULL, '{');
    if (r->id) json_put_string(w, "id", r->id);
    json_put_string(w, "model_name", r->name);
    json_put_string(w, "model_version", "1");
}

void kserve_reply_body(struct http *h, struct buf *body, size_t json_len) {
    char extra[96] = "";
    bool binary = body->len > json_len;
    if (binary) snprintf(extra, sizeof extra, "inference-header-content-length: %zu\r\n", json_len);
    http_reply_buf(h, 200, binary ? "application/octet-stream" : "application/json", extra, body);
}

void kserve_write_error(struct buf *out, int status, const char *code, const char *message) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_put_string(&w, "error", message);
    json_close(&w, '}');
}

void kserve_reply_error(struct http *h, int status, const char *message) {
    struct buf out;
    buf_init(&out, ERROR_MAX_BYTES);
    kserve_write_error(&out, status, NULL, message);
    http_reply_buf(h, status, "application/json", "", &out);
    buf_release(&out);
}
