// Replies of KServe over HTTP. See reply.h.
#include "ws/kserve/http/reply.h"
#include "base/json_form.h"
#include "ws/kserve/http/tensor_json.h"
#include <stdio.h>

#define ERROR_MAX_BYTES 8192

void kserve_reply_head(const struct infer_request *r, struct json_writer *w) {
    json_open(w, NULL, '{');
    if (r->id) json_put_string(w, "id", r->id);
    json_form(w, "model_name:%s,model_version:'1'", r->name);
}

bool kserve_encode_outputs(const struct infer_request *r, const struct tensors_out *outputs,
                           struct buf *body, size_t *json_len) {
    struct json_writer w;
    struct buf raw;
    buf_init(body, REPLY_MAX_BYTES);
    buf_init(&raw, REPLY_MAX_BYTES);
    json_writer_init(&w, body);
    kserve_reply_head(r, &w);
    json_open(&w, "outputs", '[');
    for (size_t i = 0; i < outputs->n; i++) tensor_write(&w, &outputs->list[i], &raw);
    json_form(&w, "]}");
    *json_len = body->len;
    buf_add(body, raw.data, raw.len);
    bool fits = !body->error && !raw.error;
    buf_release(&raw);
    return fits;
}

void kserve_reply_body(struct http *h, struct buf *body, size_t json_len) {
    char extra[96] = "";
    bool binary = body->len > json_len;
    if (binary) snprintf(extra, sizeof extra, "inference-header-content-length: %zu\r\n", json_len);
    http_reply_buf(h, 200, binary ? "application/octet-stream" : "application/json", extra, body);
}

void kserve_write_error(struct buf *out, int status, const char *code, const char *message) {
    json_form_to(out, "{error:%s}", message);
}

void kserve_reply_status(struct http *h, int status, const char *message) {
    http_reply_error(h, status, NULL, message, 0);
}

void kserve_reply_error(struct http *h, enum kserve_code code, const char *message) {
    kserve_reply_refusal(h, code, message, 0);
}

void kserve_reply_refusal(struct http *h, enum kserve_code code, const char *message,
                          int64_t retry_after_ms) {
    http_reply_error(h, kserve_statuses[code].http, NULL, message, retry_after_ms);
}
