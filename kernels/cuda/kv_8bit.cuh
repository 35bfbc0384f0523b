// Where a cache of 8 bits has its scales: behind a layer's part of a block (struct cuda_kv), F32,
// of K (n_kv_heads, block_tokens), then of V likewise. A vector's scale has the vector's number.
#pragma once
#include "kernels/cuda/cuda.h"
#include "kernels/kv_quant.h"

// Bytes from a layer's part of a block to them.
__host__ __device__ inline int64_t cuda_kv_scales(const struct cuda_kv &kv) {
    int64_t values = (int64_t)kv.n_kv_heads * kv.block_tokens * kv.head_dim;
    return (2 * values + 15) / 16 * 16;
}
