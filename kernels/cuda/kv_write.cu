// Norms and rotation of q, k and v (qkv_head.cuh) and the cache write, in one pass: a warp for each
// (row, head). For an 8-bit cache it quantises the rounded values (kernels/kv_quant.h).
#include "kernels/cuda/kv_8bit.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/qkv_head.cuh"
#include <cuda_fp8.h>

enum { WARPS = 4 };

// A vector of 8 bits, and its scale: `vector` is its number in the block, `to` the block's layer.
__device__ void store_8bit(const struct cuda_kv &kv, char *to, int64_t vector, const float *head,
                           int32_t lane) {
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

// Heads are numbered q, k, v, as they lie in qkv.
template <typename T>
__global__ void kv_write_kernel(const __grid_constant__ struct cuda_kv_write a) {
    extern __shared__ float heads[];
    int32_t dim = a.kv.head_dim, n_kv = a.kv.n_kv_heads, n_qk = a.n_heads + n_kv;
    int32_t n_all = n_qk + (a.kv.latent ? 0 : n_kv), lane = threadIdx.x % 32,
            warp = threadIdx.x / 32;
    int32_t row = blockIdx.x, h = blockIdx.y * WARPS + warp;
    float *head = heads + warp * dim;
    pdl_trigger();
    pdl_wait();
    if (h >= n_all) return;
    T *x = (T *)a.qkv + ((int64_t)row * n_all + h) * dim;
    for (int32_t i = lane; i < dim; i += 32) head[i] = to_float(x[i]);
    __syncwarp();
    const float *weight = h < a.n_heads ? a.q_weight : h < n_qk ? a.k_weight : a.v_weight;
    const bool turns = h < n_qk && a.rot_dim > 0, late = h < n_qk && a.norm_late;
    const bool scaled = h < a.n_heads && a.query_beta != 0.0f;
    const bool clips = a.clip > 0.0f;
    const bool changed = weight || turns || scaled || clips;
    if (weight && !late) norm_head<T>(head, dim, weight, a.eps, lane);
    if (clips && !late) clip_head<T>(head, dim, a.clip, lane);
    if (turns) rotate_head<T>(head, a.style, a.rot_dim, a.cos_sin + (int64_t)row * a.rot_dim, lane);
    if (weight && late) norm_head<T>(head, dim, weight, a.eps, lane);
    if (clips && late) clip_head<T>(head, dim, a.clip, lane);
    if (scaled) scale_head<T>(head, dim, a.query_beta, a.query_length, a.positions[row], lane);
    if (changed)
        for (int32_t i = lane; i < dim; i += 32) x[i] = from_float<T>(head[i]);
    int32_t seq = a.store ? a.b.row_seq[row] : -1;
    if (h < a.n_heads || seq < 0) return;
    const struct cuda_seq s = a.b.seqs[seq];
    int32_t position = a.b.positions[row], kv_head = (h - a.n_heads) % n_kv;
    int32_t block = kv_block(a.b, s, position), slot = position % s.block_tokens;
    if (block < 0) return;
    int64_t at = ((int64_t)(h >= n_qk) * n_kv + kv_head) * s.block_tokens + slot;
    char *to =
        (char *)a.kv.data + (size_t)a.layer * a.kv.layer_bytes + (size_t)block * a.kv.block_bytes;
    if (kv_is_8bit(a.kv.dtype)) {
        store_8bit(a.kv, to, at, head, lane);
        return;
    }
    for (int32_t i = lane; i < dim; i += 32)
        store_from_float(to, a.kv.dtype, at * dim + i, head[i]);
}

int cuda_kv_write(const struct cuda_kv_write *a, cudaStream_t stream) {
    if (a->n_rows == 0) return 0;
    int32_t heads = a->n_heads + (a->kv.latent ? 1 : 2) * a->kv.n_kv_heads;
    dim3 grid((unsigned)a->n_rows, (unsigned)((heads + WARPS - 1) / WARPS));
    size_t shared = WARPS * (size_t)a->kv.head_dim * sizeof(float);
    DISPATCH(a->dtype, pdl_launch(kv_write_kernel<T>, grid, dim3(WARPS * 32), shared, stream, *a));
    return cuda_launched("kv_write");
}
