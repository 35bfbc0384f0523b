// One step's rows, packed: no padding, and the tokens of a sequence are adjacent.
#include "engine/run/batch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int batch_init(struct batch_builder *b, int32_t max_rows, int32_t max_seqs, struct err *err) {
    *b = (struct batch_builder){.max_rows = max_rows, .max_seqs = max_seqs};
    b->ids = malloc((size_t)max_rows * sizeof *b->ids);
    b->positions = malloc((size_t)max_rows * sizeof *b->positions);
    b->logit_rows = malloc((size_t)max_rows * sizeof *b->logit_rows);
    b->logit_seqs = malloc((size_t)max_rows * sizeof *b->logit_seqs);
    b->virtuals = malloc((size_t)max_rows * sizeof *b->virtuals);
    b->seqs = malloc((size_t)max_seqs * sizeof *b->seqs);
    if (!b->ids || !b->positions || !b->logit_rows || !b->logit_seqs || !b->seqs || !b->virtuals) {
        batch_release(b);
        return err_set(err, E_NOMEM, "no memory for a batch of %d tokens", max_rows);
    }
    b->batch = (struct batch){.ids = b->ids,
                              .positions = b->positions,
                              .logit_rows = b->logit_rows,
                              .seqs = b->seqs,
                              .virtuals = b->virtuals};
    return 0;
}

void batch_release(struct batch_builder *b) {
    free(b->ids);
    free(b->positions);
    free(b->logit_rows);
    free(b->logit_seqs);
    free(b->seqs);
    free(b->virtuals);
    *b = (struct batch_builder){0};
}

void batch_reset(struct batch_builder *b) {
    b->batch.n_rows = b->batch.n_seqs = b->batch.n_logits = 0;
    b->batch.load = NULL;
    b->batch.n_virtual = 0;
}

void batch_add(struct batch_builder *b, const int32_t *ids, int64_t first, int32_t n,
               enum batch_logits logits, int32_t memory_len, int32_t sink_len,
               const struct kv_map *maps, const struct prompt *prompt, bool short_rope) {
    struct batch *out = &b->batch;
    int32_t row = out->n_rows, seq = out->n_seqs;
    assert(n >= 1 && row + n <= b->max_rows && seq < b->max_seqs && first + n <= INT32_MAX);
    memcpy(b->ids + row, ids, (size_t)n * sizeof *ids);
    for (int32_t i = 0; i < n; i++) b->positions[row + i] = (int32_t)(first + i);
    for (int32_t i = 0; prompt && i < n; i++) {
        if (!prompt_is_virtual(ids[i])) continue;
        b->ids[row + i] = 0;
        b->virtuals[out->n_virtual++] = (struct batch_virtual){row + i, prompt_row(prompt, ids[i])};
    }
    int32_t from = logits == BATCH_LOGITS_ALL ? 0 : logits == BATCH_LOGITS_LAST ? n - 1 : n;
    for (int32_t i = from; i < n; i++) {
        b->logit_rows[out->n_logits] = row + i;
        b->logit_seqs[out->n_logits++] = seq;
    }
    b->seqs[seq] = (struct batch_seq){.first_row = row,
                                      .n_rows = n,
                                      .memory_len = memory_len,
                                      .sink_len = sink_len,
                                      .maps = maps,
                                      .short_rope = short_rope};
    out->n_rows += n;
    out->n_seqs++;
}
