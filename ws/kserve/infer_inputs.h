// The inputs of all models, one row of a table each: what metadata says of it, and how it is read. An
// input that has a value for each row of the batch needs nothing else. Any thread.
#pragma once
#include "ws/kserve/infer_request.h"

struct infer_reading {
    struct infer_request *r;
    const struct engine *engine;
    const struct tensor *tensor; // the input that is read
    // Which outputs come although no output is named.
    bool return_log_probs, return_context_log_probs, return_embeddings;
};

// Input i, or NULL behind the last one.
const struct infer_field *infer_input(size_t i);
// Every input is one of the model's and has its type, and none is missing. E_INVAL.
int infer_inputs_check(const struct infer_request *r, const struct tensors *all, struct err *err);
// Reads the inputs of r->model into r->rows, which exist. E_INVAL names the input.
int infer_inputs_read(struct infer_reading *g, const struct tensors *all, struct err *err);
