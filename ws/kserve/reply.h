// What all answers of KServe have in common.
#pragma once
#include "ws/kserve/infer_request.h"
#include "ws/net/http.h"

// The beginning of an answer's object.
void kserve_reply_head(const struct infer_request *r, struct json_writer *w);
// Sends JSON with the binary tensors behind it; takes the bytes.
void kserve_reply_body(struct http *h, struct buf *body, size_t json_len);
void kserve_write_error(struct buf *out, int status, const char *code, const char *message);
void kserve_reply_error(struct http *h, int status, const char *message);
