// linear for wide batches on sm_90: up to CUDA_STREAM_ROWS rows, W read once; and any number, bound
// by the tensor cores. One order of each sum in both, whatever n is: the same bits. CUDA_NOT_MINE
// for what they do not cover.
#pragma once
#include "kernels/cuda/cuda.h"

enum { CUDA_STREAM_ROWS = 128 };

#ifdef __cplusplus
extern "C" {
#endif
int cuda_linear_stream(const struct cuda_linear *a, cudaStream_t stream);
int cuda_linear_tiles(const struct cuda_linear *a, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
