// Decode attention fused with the work between it and the projection (attention_fresh.cu).
#pragma once
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// For few rows: a->n_decode rows of a->b.decode_rows, whose qkv is the projection's result. Does
// cuda_kv_write's work for them, but does not write qkv back. CUDA_UNSUPPORTED for shapes that it
// does not cover.
int cuda_attention_fresh(const struct cuda_attention *a, const struct cuda_kv_write *fresh,
                         cudaStream_t stream);

// Blocks that run at once, a row's keys of one kv head each where rows are not divided.
int32_t cuda_attention_fresh_at_once(int32_t head_dim);

#ifdef __cplusplus
}
#endif
