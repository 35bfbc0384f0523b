// Norms and rotation of q, k and v (qkv_head.cuh) and the cache write, in one pass: a warp for each
// (row, head). For an 8-bit cache it quantises the rounded values (kernels/kv_quant.h).
#include "kernels/cuda/kv_vector.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/qkv_head.cuh"

enum { WARPS = 4 };

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
    if (h < a.n_heads || !a.store) return;
    const int32_t vector = (h >= n_qk) * n_kv + (h - a.n_heads) % n_kv;
    store_vector(a.kv, vector_place_of(a.kv, a.b, a.layer, row, vector), head, lane);
}

int cuda_kv_write(const struct cuda_kv_write *a, cudaStream_t stream) {
    if (a->n_rows == 0) return 0;
    int32_t heads = a->n_heads + (a->kv.latent ? 1 : 2) * a->kv.n_kv_heads;
    dim3 grid((unsigned)a->n_rows, (unsigned)((heads + WARPS - 1) / WARPS));
    size_t shared = WARPS * (size_t)a->kv.head_dim * sizeof(float);
    DISPATCH(a->dtype, pdl_launch(kv_write_kernel<T>, grid, dim3(WARPS * 32), shared, stream, *a));
    return cuda_launched("kv_write");
}
