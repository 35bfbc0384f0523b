// A vector of one position into the cache, by a warp that has it in shared memory as F32 (kv_write.cu, latent.cu).
#pragma once
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kv_8bit.cuh"
#include <cuda_fp8.h>

namespace {

// A vector of 8 bits, and its scale: `vector` is its number in the block, `to` the block's layer.
__device__ __forceinline__ void store_8bit(const struct cuda_kv &kv, char *to, int64_t vector,
                                           const float *head, int32_t lane) {
    uint32_t largest = 0;
    int32_t dim = kv.head_dim;
    for (int32_t i = lane; i < dim; i += 32)
        largest = max(largest, __float_as_uint(head[i]) & 0x7fffffff);
    for (int step = 16; step > 0; step >>= 1)
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    struct kv_scale s = kv_scale_of(kv.dtype, largest);
    uint8_t *row = (uint8_t *)to + vector * dim;
    for (int32_t i = lane; i < dim; i += 32) {
        float q = head[i] * s.inverse;
        row[i] = kv.dtype == DTYPE_I8 ? (uint8_t)__float2int_rn(q)
                                      : __nv_cvt_float_to_fp8(q, __NV_SATFINITE, __NV_E4M3);
    }
    if (lane == 0) ((float *)(to + cuda_kv_scales(kv)))[vector] = s.scale;
}

// Where a vector of row `row` of the step goes: its number in the block, whose layer begins at `to`. to NULL: a row without a
// sequence, or a position without a block. May be found before the wait (pdl.cuh).
struct vector_place {
    char *to;
    int64_t at;
};
// vector: its number among those of a position, keys first.
__device__ __forceinline__ struct vector_place vector_place_of(const struct cuda_kv &kv,
                                                               const struct cuda_batch &b,
                                                               int32_t layer, int32_t row,
                                                               int64_t vector) {
    const int32_t seq = b.row_seq[row], position = b.positions[row];
    if (seq < 0) return {NULL, 0};
    const struct cuda_seq s = b.seqs[seq];
    const int32_t block = kv_block(b, s, position);
    if (block < 0) return {NULL, 0};
    return {(char *)kv.data + (size_t)layer * kv.layer_bytes + (size_t)block * kv.block_bytes,
            vector * s.block_tokens + position % s.block_tokens};
}

__device__ __forceinline__ void store_vector(const struct cuda_kv &kv, struct vector_place p,
                                             const float *head, int32_t lane) {
    const int32_t dim = kv.head_dim;
    if (!p.to) return;
    if (kv_is_8bit(kv.dtype)) {
        store_8bit(kv, p.to, p.at, head, lane);
        return;
    }
    for (int32_t i = lane; i < dim; i += 32)
        store_from_float(p.to, kv.dtype, p.at * dim + i, head[i]);
}

} // namespace
