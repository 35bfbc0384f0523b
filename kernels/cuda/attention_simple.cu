// Attention for any shape and dtype, a block for each (row, head): the reference for the fast ones.
// Keys are walked in ascending order in runs of 128 that begin at absolute multiples of 128, with
// an online softmax (Milakov and Gimelshein 2018) from run to run; a key that the row does not see
// adds nothing. So the bits depend on the row's position, window, query and cache alone. Keys of 8
// bits are multiplied unscaled. Their scale is applied to the score, that of values to the probability.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kv_8bit.cuh"

enum { RUN = 128 };

__device__ __forceinline__ float block_max(float v) {
    __shared__ float part[RUN / 32];
    v = warp_max(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int i = 1; i < RUN / 32; i++) v = fmaxf(v, part[i]);
    __syncthreads();
    return v;
}

// dims: each thread's share of the head's dimensions, (head_dim + RUN - 1) / RUN of them.
template <typename T, int DIMS>
__global__ void attention_simple_kernel(const __grid_constant__ struct cuda_attention a,
                                        const int32_t *rows) {
    extern __shared__ float query[]; // (head_dim)
    __shared__ float weight[RUN];
    __shared__ const char *key_at[RUN];
    int32_t row = rows ? rows[blockIdx.x] : (int32_t)blockIdx.x, head = blockIdx.y;
    int32_t dim = a.kv.head_dim, n_kv = a.kv.n_kv_heads, kv_head = head / (a.n_heads / n_kv);
    int32_t seq = row < 0 ? -1 : a.b.row_seq[row];
    if (seq < 0) return;
    const struct cuda_seq s = a.b.seqs[seq];
    int32_t t = a.b.positions[row];
    const T *q = (const T *)a.qkv + ((int64_t)row * a.row_heads + head) * dim;
    for (int32_t i = threadIdx.x; i < dim; i += RUN) query[i] = to_float(q[i]);
    __syncthreads();

    struct kv_span see = kv_visible(t, s.memory_len, s.sink_len, a.window);
    // From a key to its value and its scale, elements.
    const int64_t v_offset = a.kv.latent ? 0 : (int64_t)n_kv * s.block_tokens * dim;
    const int64_t v_scale = a.kv.latent ? 0 : (int64_t)n_kv * s.block_tokens;
    const bool eight = kv_is_8bit(a.kv.dtype);
    float max = -INFINITY, sum = 0.0f, out[DIMS] = {};
    bool sinks = see.sink_first < see.sink_end;
    int64_t begin = (sinks ? see.sink_first : see.first) / RUN * RUN;
    for (int64_t run = begin; run <= t; run += RUN) {
        if (sinks && run >= see.sink_end && run + RUN <= see.first) { // the gap after the sinks
            run = see.first / RUN * RUN - RUN;
            continue;
        }
        int64_t p = run + threadIdx.x;
        bool visible = p <= t && (p >= see.first || (p >= see.sink_first && p < see.sink_end));
        float score = -INFINITY, value_scale = 1.0f;
        const char *k = NULL;
        if (visible) {
            int64_t at = (int64_t)kv_head * s.block_tokens + p % s.block_tokens;
            const char *part = (const char *)a.kv.data + (size_t)a.layer * a.kv.layer_bytes +
                               (size_t)kv_block(a.b, s, (int32_t)p) * a.kv.block_bytes;
            k = part + at * dim * (a.kv.dtype == DTYPE_F32 ? 4 : eight ? 1 : 2);
            float dot = 0.0f;
            for (int32_t i = 0; i < dim; i++) dot += query[i] * load_as_float(k, a.kv.dtype, i);
            if (eight) {
                const float *scale = (const float *)(part + cuda_kv_scales(a.kv)) + at;
                dot *= scale[0];
                value_scale = scale[v_scale];
            }
            score = dot * a.scale;
            if (a.soft_cap != 0.0f) score = a.soft_cap * tanhf(score / a.soft_cap);
            if (a.alibi_slopes) score += a.alibi_slopes[head] * (float)(p - t);
        }
        float top = fmaxf(max, block_max(score));
        float e = visible ? expf(score - top) : 0.0f;
        float factor = max == -INFINITY ? 0.0f : expf(max - top);
        weight[threadIdx.x] = visible ? e * value_scale : 0.0f;
        key_at[threadIdx.x] = k;
        sum = sum * factor + block_sum(e); // ends with a barrier
        max = top;
        for (int32_t j = 0; j < DIMS; j++) {
            int32_t d = threadIdx.x + j * RUN;
            if (d >= dim) break;
            float o = out[j] * factor;
            for (int32_t i = 0; i < RUN; i++)
                if (weight[i] != 0.0f) // also a scale that is no number
                    o += weight[i] * load_as_float(key_at[i], a.kv.dtype, v_offset + d);
            out[j] = o;
        }
        __syncthreads();
    }
    if (a.sinks) sum += expf(a.sinks[head] - max);
    T *to = (T *)a.out + ((int64_t)row * a.n_heads + head) * dim;
    for (int32_t j = 0; j < DIMS; j++) {
        int32_t d = threadIdx.x + j * RUN;
        if (d < dim) to[d] = from_float<T>(out[j] / sum);
    }
}

template <typename T>
static void launch(const struct cuda_attention *a, const int32_t *rows, int32_t n,
                   cudaStream_t stream) {
    dim3 grid((unsigned)n, (unsigned)a->n_heads);
    // Whole words of 16 bytes: the compiler reads the query in such words, also past its end.
    size_t shared = ((size_t)a->kv.head_dim * sizeof(float) + 15) & ~(size_t)15;
    if (a->kv.head_dim <= RUN)
        attention_simple_kernel<T, 1><<<grid, RUN, shared, stream>>>(*a, rows);
    else
        attention_simple_kernel<T, 8><<<grid, RUN, shared, stream>>>(*a, rows);
}

int cuda_attention_simple(const struct cuda_attention *a, const int32_t *rows, int32_t n,
                          cudaStream_t stream) {
    if (n == 0) return 0;
    if (a->kv.head_dim > 8 * RUN) return CUDA_UNSUPPORTED;
    DISPATCH(a->dtype, launch<T>(a, rows, n, stream));
    return cuda_launched("attention");
}
