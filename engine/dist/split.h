// Divides a model between ranks: pure arithmetic, no communication. Tensor parallel ranks own
// contiguous heads and contiguous slices of the feed-forward; pipeline ranks own contiguous layers.
#pragma once
#include "base/err.h"
#include <stdint.h>

struct split {
    int32_t tp_rank, tp_size; // within a layer
    int32_t pp_rank, pp_size; // over layers
};
extern const struct split split_single; // one rank owns everything

struct range {
    int32_t first, count;
};

// E_INVAL with a sentence when the sizes do not divide (heads by tp, key/value heads by tp or tp by
// them).
int split_check(const struct split *s, int32_t n_layers, int32_t n_heads, int32_t n_kv_heads,
                int32_t ffn_width, struct err *err);
struct range split_layers(const struct split *s, int32_t n_layers);
struct range split_heads(const struct split *s, int32_t n_heads); // query heads of this rank
// At least one: shared where tp > heads
struct range split_kv_heads(const struct split *s, int32_t n_kv_heads);
struct range split_even(const struct split *s, int32_t n); // ffn rows, vocabulary rows
