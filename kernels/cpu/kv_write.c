// Stores a step's keys and values in the cache, and the fused form: q/k norm, rotation and store in
// one pass while a row is in L1. The same inner loops, so the same bits.
#include "kernels/cpu/cpu.h"

struct kv_job {
    struct cpu_backend *cpu;
    const struct kv_store *kv;
    const struct batch *b;
    int32_t layer, n_heads;
    float *qkv;
    const struct qkv_args *finish; // of qkv_finish; NULL: store only
};

static void finish_row(const struct kv_job *j, int32_t row, float *q) {
    const struct cpu_kernels *kernels = j->cpu->kernels;
    const struct qkv_args *a = j->finish;
    const struct qkv_shape s = {j->n_heads, j->kv->n_kv_heads, j->kv->head_dim};
    if (!a->norm_late) cpu_qk_norm_row(kernels, &s, a, q);
    cpu_rope_row(kernels, &s, a, row, q);
    if (a->norm_late) cpu_qk_norm_row(kernels, &s, a, q);
}

static const struct batch_seq *seq_of_row(const struct batch *b, int32_t row) {
    const struct batch_seq *s = b->seqs;
    while (row >= s->first_row + s->n_rows) s++;
    return s;
}

// Rows of one chunk may share a block with rows of another worker's, but never a position: their
// stores do not overlap.
static void kv_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct kv_job *j = ctx;
    const int32_t vectors = j->kv->latent ? 1 : 2;
    int64_t hd = j->kv->head_dim, stride = (j->n_heads + vectors * j->kv->n_kv_heads) * hd;
    const struct batch_seq *seq = seq_of_row(j->b, row);
    for (int32_t r = row; r < row + n_rows; r++) {
        while (r >= seq->first_row + seq->n_rows) seq++;
        float *q = j->qkv + r * stride, *k = q + j->n_heads * hd;
        if (j->finish) finish_row(j, r, q);
        const struct kv_map *map = &seq->maps[j->kv->group];
        int32_t position = j->b->positions[r], slot = position & (map->block_tokens - 1);
        int32_t block = map->blocks[kv_map_slot(map, position)];
        j->cpu->kernels->kv_put(j->kv, block, j->layer, slot, k,
                                j->kv->latent ? k : k + j->kv->n_kv_heads * hd);
    }
}

// Every row must have a block; checked before anything is written.
static int check_blocks(const struct kv_store *kv, const struct batch *b) {
    for (int32_t s = 0; s < b->n_seqs; s++) {
        const struct batch_seq *seq = &b->seqs[s];
        const struct kv_map *map = &seq->maps[kv->group];
        if (map->block_tokens != kv->block_tokens) return E_INVAL;
        for (int32_t r = seq->first_row; r < seq->first_row + seq->n_rows; r++) {
            int32_t block = map->blocks[kv_map_slot(map, b->positions[r])];
            if (block < 0 || block >= kv->n_blocks) return E_INVAL;
        }
    }
    return 0;
}

static int run(struct kv_job *j) {
    TRY(check_blocks(j->kv, j->b));
    // Each value of a key is stored to a cache line of its own, which is rarely in the near caches.
    const int64_t line = 32;
    int64_t work =
        (int64_t)(line * j->kv->n_kv_heads + (j->finish ? j->n_heads : 0)) * j->kv->head_dim;
    cpu_for_rows(j->cpu, j->b->n_rows, work, kv_chunk, j);
    return 0;
}

int cpu_kv_write(struct backend *be, const struct kv_store *kv, int32_t layer, const void *qkv,
                 const struct batch *b, int32_t n_heads) {
    struct kv_job j = {.cpu = cpu_of(be),
                       .kv = kv,
                       .b = b,
                       .layer = layer,
                       .n_heads = n_heads,
                       .qkv = (float *)(uintptr_t)qkv};
    return run(&j);
}

int cpu_qkv_finish(struct backend *be, void *qkv, const struct kv_store *kv, const struct batch *b,
                   int32_t layer, int32_t n_heads, const struct qkv_args *args) {
    struct kv_job j = {.cpu = cpu_of(be),
                       .kv = kv,
                       .b = b,
                       .layer = layer,
                       .n_heads = n_heads,
                       .qkv = qkv,
                       .finish = args};
    return run(&j);
}
