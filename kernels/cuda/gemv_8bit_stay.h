#pragma once
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// cuda_gemv_stay for W of 8 bits with a scale for each row: one row, normed, and a W of so many rows that
// blocks take several parts each. CUDA_UNSUPPORTED for shapes that it does not cover. ticket: as there.
int cuda_gemv_8bit_stay(const struct cuda_linear *a, uint32_t *ticket, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
