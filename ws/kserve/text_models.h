// The models preprocessing and postprocessing: text to ids and back, without a session. Any thread.
#pragma once
#include "ws/kserve/infer_request.h"

// Makes r->answer from the inputs, which infer_inputs_check has accepted.
int text_model_run(struct infer_request *r, const struct engine *e, const struct tensors *in,
                   struct err *err);
// Appends the text of ids, without special tokens and without ids that the tokenizer does not have (a
// model may have more of them than its tokenizer). Changes ids.
int text_model_decode(const struct engine *e, int32_t *ids, size_t n, struct buf *out,
                      struct err *err);
