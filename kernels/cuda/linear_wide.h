// linear for wide batches on sm_90. linear_stream: up to CUDA_STREAM_ROWS rows, bound by reading W
// once. linear_tiles: any number of rows, bound by the tensor cores. Both sum in the same order for
// any n, so their bits are equal. CUDA_UNSUPPORTED for shapes that they do not cover.
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
