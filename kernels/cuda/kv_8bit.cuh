// The scales of an 8-bit cache: F32, after a layer's part of a block (struct cuda_kv), of K
// (n_kv_heads, block_tokens), then of V likewise. A scale has the index of its vector.
// Latents have one vector for both.
#pragma once
#include "kernels/cuda/cuda.h"
#include "kernels/kv_quant.h"

// Bytes from a layer's part of a block to them.
__host__ __device__ inline int64_t cuda_kv_scales(const struct cuda_kv &kv) {
    int64_t values = (int64_t)kv.n_kv_heads * kv.block_tokens * kv.head_dim * (kv.latent ? 1 : 2);
    return (values + 15) / 16 * 16;
}
