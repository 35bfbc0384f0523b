// One step's work: ragged tokens of many sequences, each with its position and its map of cache
// blocks. Plain data, built by engine/run/batch.c, read by every kernel. The builder owns all
// arrays and does not move them until the step has ended.
#pragma once
#include "kernels/kv_map.h"
#include <stdbool.h>
#include <stdint.h>

struct batch_seq {
    int32_t first_row; // its tokens are rows [first_row, first_row + n_rows) of the batch
    int32_t n_rows;    // consecutive positions, ascending
    int32_t memory_len, sink_len;
    const struct kv_map *maps; // one for each cache group (struct kv_store's group)
    // Its rows turn by the frequencies for short texts (kernels/backend.h, rope_angles).
    bool short_rope;
};

// How a device draws the token after a wanted row (kernels/backend.h, draw): the sampling
// parameters that need only the row's logits. u is the draw's random number.
enum draw_kind { DRAW_NONE, DRAW_GREEDY, DRAW_SAMPLE };
struct batch_draw {
    int32_t kind, top_k;                // top_k 0: off
    float temperature, top_p, min_p, u; // SAMPLE only
};
// A draw that changes its row's logits first (kernels/backend.h, draw_adjust), in this order: penalties
// on tokens of the log, biases, then the mask of allowed tokens.
struct batch_penalty {
    int32_t id;
    uint32_t count; // how often this turn has generated it
};
struct batch_bias {
    int32_t id;
    float bias; // finite
};
struct batch_adjusted {
    int32_t row;            // of the wanted ones
    struct batch_draw draw; // not DRAW_NONE
    // Of the penalties' tokens, each logit l becomes l < 0 ? l * repetition : l / repetition, and where
    // count > 0 then l - presence - frequency * count.
    float repetition, presence, frequency;
    const struct batch_penalty *penalties; // (n_penalties) distinct ids
    int32_t n_penalties;
    const struct batch_bias *biases; // (n_biases) added in this order
    int32_t n_biases;
    bool biases_distinct;    // their ids are distinct
    const uint64_t *allowed; // ((vocab + 63) / 64) a bit for each token; NULL: all may be drawn
    // Rows with the same serial have equal masks; 0: no other row shares this mask.
    uint64_t allowed_serial;
    const int32_t *ends; // (n_ends) ids that are allowed as well
    int32_t n_ends;
};
struct batch_drawn {
    int32_t id;    // -1: not drawn; the host draws from the logits
    float logprob; // the model's own
};
// An id of a batch that follows the step before (struct batch's follows): the token that the step before
// draws from this wanted row. Of such an id it is the row.
#define BATCH_DRAWN(wanted_row) (-1 - (wanted_row))

// Cache blocks that are copied from host memory during a step whose rows read them
// (kernels/backend.h, kv_layer_wait).
struct kv_store;
struct kv_load {
    const struct kv_store *kv;
    const int32_t *blocks; // (n)
    void *const *host;     // (n) as kv_blocks_load's
    int32_t n;
};

// A row whose embedding does not come from the model's table.
struct batch_virtual {
    int32_t row;
    const float *embedding; // (embed_width) host memory
};

struct batch {
    int32_t n_rows; // tokens in this step
    int32_t n_seqs;
    int32_t n_logits;               // rows whose logits are wanted
    const int32_t *ids;             // (n_rows) below 0: BATCH_DRAWN
    const int32_t *positions;       // (n_rows) absolute: index in the token log
    const int32_t *logit_rows;      // (n_logits) ascending row numbers
    const struct batch_seq *seqs;   // (n_seqs)
    const struct batch_draw *draws; // (n_logits), or NULL: the device draws none
    // Rows of virtual tokens, ascending; their ids are 0. A device that records steps does not record
    // one with such rows.
    const struct batch_virtual *virtuals; // (n_virtual)
    int32_t n_virtual;
    const struct kv_load *load; // or NULL: nothing has to be loaded
    // The step before may still run when this one begins, and its draws are read later
    // (kernels/backend.h, draws_read_before). Ids of this step may be its draws.
    bool follows;
    bool is_followed; // the next step may follow this one, so every rank needs this one's draws
    // The step is computed in parts (engine/run/parts.h), and this is one of them or their end. A device
    // neither pads nor records it.
    bool is_part;
};
