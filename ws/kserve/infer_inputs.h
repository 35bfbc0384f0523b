// The inputs of all models. Each is one row of a table, which describes the input for the metadata and names
// the function that reads it. Any thread.
#pragma once
#include "ws/kserve/infer_request.h"

struct infer_reading {
    struct infer_request *r;
    const struct engine *engine;
    const struct tensor *tensor; // the input that is read
    // Which further outputs to send if the client names none.
    bool return_log_probs, return_context_log_probs, return_embeddings;
};

// Refuses the input that is read: "input 'NAME' WHAT". E_INVAL.
int infer_refuse_value(const struct infer_reading *g, const char *what, struct err *err);

// Input i; NULL after the last one.
const struct infer_field *infer_input(size_t i);
// Checks that the model has every given input, that the types match, and that none is missing. E_INVAL.
int infer_inputs_check(const struct infer_request *r, const struct tensors *all, struct err *err);
// Reads the inputs of r->model into r->rows, which exist. E_INVAL names the input.
int infer_inputs_read(struct infer_reading *g, const struct tensors *all, struct err *err);
