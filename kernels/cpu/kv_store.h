// Addresses of one layer's kv head in a block of the CPU's cache (layout: kv_store.c), for writing
// and reading.
#pragma once
#include "kernels/cpu/cpu.h"
#include "kernels/kv_quant.h"

struct cpu_kv_head {
    char *k;        // (head_dim, block_tokens) of the cache's type; NULL: of latents, v is both
    char *v;        // (block_tokens, head_dim)
    float *k_scale; // (block_tokens), of 8-bit types only, else NULL
    float *v_scale; // likewise; of latents both are one
};

static inline size_t cpu_kv_values_bytes(const struct kv_store *kv) { // K's or V's of a head
    return (size_t)kv->head_dim * (size_t)kv->block_tokens * dtype_size(kv->dtype);
}

// K, V and their scales of one head in one layer of one block; blocks hold (n_layers, n_kv_heads) of these.
static inline size_t cpu_kv_head_bytes(const struct kv_store *kv) {
    const size_t vectors = kv->latent ? 1 : 2, values = vectors * cpu_kv_values_bytes(kv);
    if (!kv_is_8bit(kv->dtype)) return values;
    return ((values + 3) & ~(size_t)3) + vectors * (size_t)kv->block_tokens * sizeof(float);
}

// block: in [0, n_blocks); the caller holds it.
static inline struct cpu_kv_head cpu_kv_head(const struct kv_store *kv, int32_t block,
                                             int32_t layer, int32_t head) {
    size_t values = cpu_kv_values_bytes(kv), index = (size_t)layer * (size_t)kv->n_kv_heads;
    char *at = (char *)kv->data + (size_t)block * kv->block_bytes +
               (index + (size_t)head) * cpu_kv_head_bytes(kv);
    struct cpu_kv_head h = {.k = at, .v = at + values};
    if (kv->latent) {
        h = (struct cpu_kv_head){.v = at};
        if (kv_is_8bit(kv->dtype))
            h.k_scale = h.v_scale = (float *)(void *)(at + ((values + 3) & ~(size_t)3));
        return h;
    }
    if (kv_is_8bit(kv->dtype)) {
        h.k_scale = (float *)(void *)(at + ((2 * values + 3) & ~(size_t)3));
        h.v_scale = h.k_scale + kv->block_tokens;
    }
    return h;
}
