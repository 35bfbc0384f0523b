// Bad words and stop words of a row, as FasterTransformer's tensors list them. Ids come as [rows, 2, n], or
// [2, n] for all rows: the first line has the ids of all items, the second where each item ends, padded with
// -1. Text is separated by commas. Any thread. E_INVAL with a sentence that names the input.
#pragma once
#include "sessions/sessions.h"
#include "ws/kserve/tensor.h"

struct word_reading { // which row's words to read, and from what
    const struct tensor *tensor;
    const struct engine *engine;
    size_t row, n_rows;
    struct sampling_words *words; // get them
};
// Each adds the words of one row; the tensor's shape is checked first.
int word_lists_ids(const struct word_reading *r, struct err *err);
int word_lists_text(const struct word_reading *r, struct err *err);

// Calls add() with each word that is not empty. A backslash makes the next character literal.
int word_lists_split(const char *text, size_t len,
                     int (*add)(void *ctx, const char *word, size_t len, struct err *err),
                     void *ctx, struct err *err);
