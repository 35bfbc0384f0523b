// Replies of KServe over HTTP. Net thread, except where a function says otherwise.
#pragma once
#include "base/json.h"
#include "ws/kserve/infer_request.h"
#include "ws/net/http.h"

#define REPLY_MAX_BYTES (256 << 20)

// The beginning of an answer's object.
void kserve_reply_head(const struct infer_request *r, struct json_writer *w);
// Writes the outputs as a body: JSON of *json_len bytes, then the outputs wanted in raw form. Any thread.
// false: no memory.
bool kserve_encode_outputs(const struct infer_request *r, const struct tensors_out *outputs,
                           struct buf *body, size_t *json_len);
// Sends such a body; takes the bytes.
void kserve_reply_body(struct http *h, struct buf *body, size_t json_len);
// Writes the body of an error, which has the message alone. Any thread.
void kserve_write_error(struct buf *out, int status, const char *code, const char *message);
void kserve_reply_error(struct http *h, enum kserve_code code, const char *message);
// retry_after_ms: when the client may try again; 0: unknown.
void kserve_reply_refusal(struct http *h, enum kserve_code code, const char *message,
                          int64_t retry_after_ms);
void kserve_reply_status(struct http *h, int status, const char *message); // status: HTTP's
