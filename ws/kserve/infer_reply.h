// What an inference answers: tensors in JSON and binary form, a text, or a stream of text.
#pragma once
#include "ws/kserve/infer.h"

#define INFER_TEXT_BYTES (64 << 20) // of a whole text

// The whole answer, or the error. i->status says which.
void infer_reply(struct infer *i, struct http *h);
// A piece of text of a generate request; drawn_us: when it was drawn, 0: not counted.
void infer_reply_text(struct infer *i, const char *text, size_t len, int64_t drawn_us);
