// Attention of a step's decode rows and tiles for `deterministic`. A row's bits are the same as a
// decode row and in a tile, for any batch, any chunks and any history: the order of every sum
// depends on absolute positions only. CUDA_UNSUPPORTED for shapes that it does not cover
// (attention_exact.cu). a->work as for the decode kernel.
#pragma once
#include "kernels/cuda/cuda.h"

// int32_t each, at the end of the work space: before those of tiles, those of decode rows. Their places are
// the same for all shapes, since layers of several shapes use one work space and leave the counters zero, but
// nothing else.
enum { CUDA_TILE_COUNTERS = 16 * 1024, CUDA_DECODE_COUNTERS = 64 * 1024 };

#ifdef __cplusplus
extern "C"
#endif
    int
    cuda_attention_exact(const struct cuda_attention *a, cudaStream_t stream);
