// Decode attention that begins where the linear before it ends (attention_fresh.cu).
#pragma once
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// n_decode rows of a->b.decode_rows, few, whose qkv is as the linear left it: cuda_kv_write's work
// on them is done on the way, but for qkv itself, which stays as it is. CUDA_NOT_MINE for what it
// does not cover.
int cuda_attention_fresh(const struct cuda_attention *a, const struct cuda_kv_write *fresh,
                         cudaStream_t stream);

#ifdef __cplusplus
}
#endif
