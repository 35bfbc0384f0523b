// The models preprocessing and postprocessing: text to ids and back, without a session. Any thread.
#pragma once
#include "ws/kserve/infer_request.h"

// Writes r->answer from the inputs, which were checked against the table of inputs.
int text_model_run(struct infer_request *r, const struct engine *e, const struct tensors *in,
                   struct err *err);
