// Latent attention's products around its softmax (latent.cu), and where it leaves what they take (attention_wide.cu).
#pragma once
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// Blocks that share a row's keys, at most.
enum { WIDE_SPLITS_MOST = 64 };

// What splits of the keys give of a few rows, where attention leaves their sum to others. Split s of line l (a head of unit u:
// chunk l / lines) is at ((u * n_chunks + chunk) * n_splits + s) * lines + l % lines.
struct latent_parts {
    // (.., dim); NULL: the results are whole, in attention's output
    const float *parts;
    // (..) two F32: the largest score (base 2), the sum; sum 0: it saw nothing, its part holds anything
    const void *ends;
    const int32_t *rows; // (units) each unit's row, or -1
    int32_t n_splits, n_chunks, lines, dim;
    int32_t skip; // first columns, which are no values
};

// rows (n, n_heads + 1, rope + rank) of `dtype` from a->q and a->latents; their vectors go to the cache.
int cuda_latent_before(void *rows, const struct latent_args *a, const struct cuda_kv *kv,
                       const struct cuda_batch *b, enum dtype dtype, int32_t n,
                       cudaStream_t stream);
// out (n, n_heads * v_dim) of attended (n, n_heads, rope + rank), or of n units' splits.
int cuda_latent_behind(void *out, const void *attended, const struct latent_parts *splits,
                       const struct latent_args *a, enum dtype dtype, int32_t n,
                       cudaStream_t stream);

#ifdef __cplusplus
}
#endif
