// The end of an item of fused attention (attention_fresh.cu): the warps' parts become the item's, and
// the splits' parts become the row's output. A step of one session waits for this end, so a thread
// loads four neighbouring values at a time, and those of several splits together. This takes registers from
// the loop over the keys. attention_decode.cu spends its time in that loop, so it keeps a simpler end
// (attention_item.cuh).
#pragma once
#include "kernels/cuda/attention_rows.cuh"

namespace {

__device__ __forceinline__ void add_scaled(float4 &to, float by, float4 v) {
    to.x += by * v.x, to.y += by * v.y, to.z += by * v.z, to.w += by * v.w;
}
template <typename T> __device__ __forceinline__ void put_four(T *to, float4 v) {
    *(uint2 *)to = make_uint2(pack2<T>(v.x, v.y), pack2<T>(v.z, v.w));
}

// A row's output, from its splits' parts in the work space: (splits, held, pitch_fresh). By all threads
// of the block that ends last. First every split's top and sum, a warp for a head and a lane for a
// split, whose factors go to `factors` (heads, n_splits); then the values.
template <typename T, typename S>
__device__ __forceinline__ void merge_splits(const struct cuda_attention &a, int first_head, T *to,
                                             const float *work, float *factors, int n_splits,
                                             int n_heads, int held) {
    constexpr int EACH = MAX_SPLITS / 32, pitch = S::pitch_fresh;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, dim = a.kv.head_dim;
    for (int head = warp; head < n_heads; head += WARPS) {
        float2 end[EACH]; // top and sum
        float top = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int split = i * 32 + lane;
            end[i] = make_float2(-INFINITY, 0.0f);
            if (split < n_splits)
                end[i] = __ldcg((const float2 *)(work + (split * held + head) * pitch + S::top));
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) top = fmaxf(top, end[i].x);
        for (int step = 16; step > 0; step /= 2)
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            end[i].x = power_of_two(end[i].x - top);
            sum += end[i].x * end[i].y;
        }
        sum = warp_sum(sum) + sink_of(a, first_head + head, top);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (i * 32 + lane < n_splits) factors[head * n_splits + i * 32 + lane] = end[i].x / sum;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x * 4; i < n_heads * dim; i += THREADS * 4) {
        const int head = i / dim;
        const float *from = work + head * pitch + i % dim, *factor = factors + head * n_splits;
        float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
        for (int split = 0; split < n_splits; split++)
            add_scaled(value, factor[split], __ldcg((const float4 *)(from + split * held * pitch)));
        put_four(to + i, value);
    }
}

// The warps' parts in shared memory become the item's: the row's output, or a part in the work space;
// and there, by the block that finds all splits done, the row's output. `top` and `sum` are this lane's
// of head lane / 4.
template <typename T, int WIDE>
__device__ __forceinline__ void finish_fresh(const struct decode &j, const struct item &it,
                                             char *shared, const float (&out)[WIDE][8][4],
                                             float warp_top, float sum_of_lane) {
    using S = shape<T, WIDE, 1>;
    constexpr int pitch = S::pitch_fresh;
    __shared__ bool last;
    const struct cuda_attention &a = j.a;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4, dim = a.kv.head_dim;
    const int group = a.n_heads / a.kv.n_kv_heads, held = min(group, S::heads);
    const int n_heads = min(group - it.chunk * S::heads, S::heads);
    const int first_head = it.kv_head * group + it.chunk * S::heads;
    float *parts = (float *)shared; // (WARPS, heads, pitch): the queues are empty by now
    copy_wait<0>();
    __syncthreads();
    float *mine = parts + (warp * S::heads + g) * pitch;
    sum_of_lane += __shfl_xor_sync(0xffffffffu, sum_of_lane, 1);
    sum_of_lane += __shfl_xor_sync(0xffffffffu, sum_of_lane, 2);
#pragma unroll
    for (int c = 0; c < WIDE; c++) {
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
            const int e = i / 8, f = i % 8;
            *(float4 *)(mine + c * 64 + 16 * t + i) =
                make_float4(out[c][f][e], out[c][f + 1][e], out[c][f + 2][e], out[c][f + 3][e]);
        }
    }
    if (t == 0) *(float2 *)(mine + S::top) = make_float2(warp_top, sum_of_lane);
    __syncthreads();
    const int64_t unit = ((int64_t)it.slot * a.kv.n_kv_heads + it.kv_head) * j.n_chunks + it.chunk;
    float *work = (float *)a.work + unit * MAX_SPLITS * held * pitch;
    T *to = (T *)a.out + ((int64_t)it.v.row * a.n_heads + first_head) * dim;
    for (int i = (int)threadIdx.x * 4; i < n_heads * dim; i += THREADS * 4) {
        const int head = i / dim, d = i % dim;
        const float *from = parts + head * pitch;
        float top = -INFINITY, sum = 0.0f;
        float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, from[w * S::heads * pitch + S::top]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float *part = from + w * S::heads * pitch;
            const float2 end = *(const float2 *)(part + S::top);
            const float factor = power_of_two(end.x - top);
            add_scaled(value, factor, *(const float4 *)(part + d));
            sum += factor * end.y;
        }
        if (it.n_splits == 1) {
            sum += sink_of(a, first_head + head, top);
            put_four(to + i,
                     make_float4(value.x / sum, value.y / sum, value.z / sum, value.w / sum));
            continue;
        }
        float *part = work + (it.split * held + head) * pitch;
        __stcg((float4 *)(part + d), value);
        if (d == 0) __stcg((float2 *)(part + S::top), make_float2(top, sum));
    }
    if (it.n_splits == 1) return;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(j.counters + unit, 1) == it.n_splits - 1;
    __syncthreads();
    if (!last) return;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    merge_splits<T, S>(a, first_head, to, work, parts, it.n_splits, n_heads, held);
    if (threadIdx.x == 0) j.counters[unit] = 0;
}

} // namespace
