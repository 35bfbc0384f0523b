// Attention of a->n_tiles tiles on sm_90, by products of warpgroups (attention_hopper.cu).
// CUDA_UNSUPPORTED for shapes and devices that it does not cover. a->work as for the other kernels.
#pragma once
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C"
#endif
    int
    cuda_attention_hopper(const struct cuda_attention *a, cudaStream_t stream);
