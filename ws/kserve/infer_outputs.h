// The outputs of all models. Each is one row of a table, which describes the output for the metadata, gives
// its shape, and names the function that fills in a row of the batch from its turn. The table: any thread;
// turns: net thread.
#pragma once
#include "ws/kserve/infer.h"

#define INFER_TEXT_BYTES (64 << 20) // the longest text

enum infer_width { // the last dimension
    WIDTH_NONE,    // there is none: one element for each row
    WIDTH_LOG,     // the longest possible row: earlier log, input and answer
    WIDTH_ANSWER,  // the longest request_output_len
    WIDTH_HIDDEN,  // engine_info.width
};
enum infer_made_when { // when the output is sent if the client names none
    MADE_ALWAYS,
    MADE_WITH_LOG_PROBS,  // with is_return_log_probs
    MADE_WITH_EMBEDDINGS, // with is_return_context_embeddings
};
struct shown;
struct infer_output_row {
    struct infer_field field;
    enum infer_width width;
    bool has_beams; // true: dimensions rows, beams; false: one dimension, rows * beams
    // Fills in a beam's elements, (width) from at * width on, which are zero before. NULL: an output of
    // the models that compute nothing (text_models.h).
    int (*fill)(const struct infer *i, const struct shown *beam, size_t at, size_t width,
                struct tensor_out *t, struct err *err);
    enum infer_made_when when;
};
extern const struct infer_output_row infer_outputs[INFER_OUTPUTS];
// The output of this name, NULL included; -1: the model has none.
int infer_output_find(const char *name, enum infer_model model);

// Makes all outputs that i->request asks for, from the tokens that its turns have so far. E_NOMEM, or an
// error while decoding the text.
int infer_outputs_make(const struct infer *i, struct tensors_out *out, struct err *err);
