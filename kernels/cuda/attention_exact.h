// Decode rows and tiles of a step, a row's bits the same whichever it is in, whatever the batch,
// the chunks and the history: every sum in an order that depends on absolute positions alone.
// CUDA_NOT_MINE for what it does not cover (attention_exact.cu); work as for the decode kernel.
#pragma once
#include "kernels/cuda/cuda.h"

enum { CUDA_TILE_COUNTERS = 16 * 1024 }; // int32_t each, at the end of the work space

#ifdef __cplusplus
extern "C"
#endif
    int
    cuda_attention_exact(const struct cuda_attention *a, cudaStream_t stream);
