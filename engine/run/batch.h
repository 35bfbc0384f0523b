// Builds one step's struct batch (kernels/batch.h) in arrays that are allocated once. Engine thread
// only.
#pragma once
#include "base/err.h"
#include "engine/model/prompt.h"
#include "kernels/batch.h"
#include <stdint.h>

enum batch_logits { BATCH_LOGITS_NONE, BATCH_LOGITS_LAST, BATCH_LOGITS_ALL };

struct batch_builder {
    struct batch batch; // for the kernels: points into the arrays below
    int32_t max_rows, max_seqs;
    int32_t *ids, *positions;       // (max_rows)
    int32_t *logit_rows;            // (max_rows)
    int32_t *logit_seqs;            // (max_rows) the batch's sequence of each wanted row
    struct batch_seq *seqs;         // (max_seqs)
    struct batch_virtual *virtuals; // (max_rows)
};

// E_NOMEM
int batch_init(struct batch_builder *b, int32_t max_rows, int32_t max_seqs, struct err *err);
void batch_release(struct batch_builder *b);
void batch_reset(struct batch_builder *b);
// Appends one sequence's next n tokens: ids (n), at positions [first, first + n). The maps
// stay borrowed until the step is over. The caller adds at most max_rows tokens and max_seqs
// sequences. prompt: of the log's virtual tokens, or NULL. short_rope: struct batch_seq's.
void batch_add(struct batch_builder *b, const int32_t *ids, int64_t first, int32_t n,
               enum batch_logits logits, int32_t memory_len, int32_t sink_len,
               const struct kv_map *maps, const struct prompt *prompt, bool short_rope);
