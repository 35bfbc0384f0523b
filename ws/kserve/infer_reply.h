// What an inference answers: tensors in JSON and binary form, a text, or a stream of text.
#pragma once
#include "ws/kserve/infer.h"

#define INFER_TEXT_BYTES (64 << 20) // of a whole text

// The beginning of an answer's object.
void infer_reply_head(const struct infer_request *r, struct json_writer *w);
// Sends JSON with the binary tensors behind it; takes the bytes.
void infer_reply_body(struct http *h, struct buf *body, size_t json_len);
// The whole answer, or the error. i->status says which.
void infer_reply(struct infer *i, struct http *h);
// A piece of text of a generate request; drawn_us: when it was drawn, 0: not counted.
void infer_reply_text(struct infer *i, const char *text, size_t len, int64_t drawn_us);
