// See warm.h. A GPU's driver loads a kernel at its first launch, which takes a millisecond or more,
// and the kernel of a product depends on the number of rows. So one prompt of each width runs
// through one layer (layers differ in weights, not in kernels), and one decode step of each width
// through all layers. The decode step of one session runs three times: the second is recorded, the
// third launched from the recording.
#include "engine/run/warm.h"

#include <stdlib.h>

struct warm {
    int32_t *ids, *positions, *logit_rows, *blocks; // (max_rows)
    struct batch_seq *seqs;                         // (max_rows)
    struct kv_map *maps; // (max_rows, n_groups) those of a sequence's groups are equal
    int32_t n_groups;
};

static int warm_init(struct warm *w, int32_t max_rows, int32_t n_blocks, int32_t n_groups,
                     struct err *err) {
    size_t n = (size_t)(max_rows > n_blocks ? max_rows : n_blocks);
    *w = (struct warm){.ids = calloc(n * 4, sizeof *w->ids),
                       .seqs = calloc(n, sizeof *w->seqs),
                       .maps = calloc(n * (size_t)n_groups, sizeof *w->maps),
                       .n_groups = n_groups};
    if (!w->ids || !w->seqs || !w->maps)
        return err_set(err, E_NOMEM, "no memory for the first steps");
    w->positions = w->ids + n;
    w->logit_rows = w->positions + n;
    w->blocks = w->logit_rows + n;
    for (size_t i = 0; i < n; i++) w->blocks[i] = (int32_t)i;
    return 0;
}

static void warm_release(struct warm *w) {
    free(w->ids);
    free(w->seqs);
    free(w->maps);
}

static const struct kv_map *map_of(struct warm *w, const struct kv_store *kv, int32_t block,
                                   int32_t n_rows) {
    struct kv_map *maps = w->maps + (size_t)block * (size_t)w->n_groups;
    for (int32_t g = 0; g < w->n_groups; g++)
        maps[g] =
            (struct kv_map){.blocks = w->blocks + block,
                            .n_ring_blocks = (n_rows + kv->block_tokens - 1) / kv->block_tokens,
                            .block_tokens = kv->block_tokens};
    return maps;
}

static int run(struct forward *f, const struct batch *b) {
    const struct backend_ops *ops = f->backend->ops;
    int rc = forward_run(f, b);
    // A read of nothing waits for the step.
    if (rc == 0)
        rc = ops->logits_read(f->backend, f->host, f->logits, 0, f->model->config.vocab_size);
    int done = forward_done(f);
    return rc < 0 ? rc : done;
}

// One sequence's first n tokens, the last one's logits wanted.
static int prompt(struct forward *f, struct warm *w, int32_t n) {
    for (int32_t i = 0; i < n; i++) w->positions[i] = i;
    w->logit_rows[0] = n - 1;
    w->seqs[0] =
        (struct batch_seq){.n_rows = n, .memory_len = n, .maps = map_of(w, &f->kv->arena, 0, n)};
    const struct batch b = {.n_rows = n,
                            .n_seqs = 1,
                            .n_logits = 1,
                            .ids = w->ids,
                            .positions = w->positions,
                            .logit_rows = w->logit_rows,
                            .seqs = w->seqs};
    f->one_layer = true;
    int rc = run(f, &b);
    f->one_layer = false;
    return rc;
}

// One token of each of n sequences.
static int decode(struct forward *f, struct warm *w, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        w->positions[i] = 0;
        w->logit_rows[i] = i;
        w->seqs[i] = (struct batch_seq){
            .first_row = i, .n_rows = 1, .memory_len = 1, .maps = map_of(w, &f->kv->arena, i, 1)};
    }
    const struct batch b = {.n_rows = n,
                            .n_seqs = n,
                            .n_logits = n,
                            .ids = w->ids,
                            .positions = w->positions,
                            .logit_rows = w->logit_rows,
                            .seqs = w->seqs};
    return run(f, &b);
}

static int warm_all(struct forward *f, struct warm *w) {
    const struct kv_store *kv = &f->kv->arena;
    int64_t room = (int64_t)kv->n_blocks * kv->block_tokens;
    if (room > f->model->config.max_positions) room = f->model->config.max_positions;
    // Widths grow by a third to a half: a library's choice of kernel does not change more often.
    for (int32_t n = 2; n <= f->max_rows && n <= room; n += n < 4 ? 1 : n / 3) TRY(prompt(f, w, n));
    for (int i = 0; i < 3; i++) TRY(decode(f, w, 1));
    for (int32_t n = 2; n <= f->max_logits && n <= kv->n_blocks; n *= 2) TRY(decode(f, w, n));
    return 0;
}

int forward_warm(struct forward *f, struct err *err) {
    struct warm w;
    if (!f->backend->ops->mem_info || !f->backend->ops->logits_read) return 0;
    int rc = warm_init(&w, f->max_rows, f->kv->arena.n_blocks, f->kv->groups->n, err);
    if (rc == 0) {
        rc = warm_all(f, &w);
        if (rc < 0) err_set(err, rc, "the device failed in its first steps");
    }
    warm_release(&w);
    return rc;
}
