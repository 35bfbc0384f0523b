// Attention over latents (one kv head, whose vectors are both keys and values: struct kv_store, latent) and of heads of more
// than 256.
#pragma once
#include "kernels/cuda/latent.h"

#ifdef __cplusplus
extern "C" {
#endif

// All rows: a->n_decode of b.decode_rows, a->n_tiles of b.tiles. deterministic: a row's bits depend on that
// row alone. CUDA_UNSUPPORTED for shapes that it does not cover.
// parts not NULL: of a few decode rows alone it may leave the splits' parts in a->work and say so there.
int cuda_attention_wide(const struct cuda_attention *a, bool deterministic,
                        struct latent_parts *parts, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
