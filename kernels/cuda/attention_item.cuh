// One item of decode attention, by one block (attention_decode.cu). FRESH: q, k and v are prepared
// here (attention_own.cuh).
#pragma once
#include "kernels/cuda/attention_own.cuh"
#include "kernels/cuda/attention_splits.cuh"
#include <math.h>

namespace {

// Softmax under way for one query head: the largest score so far (in powers of two), and the sum.
template <int HALVES> struct progress { float top[HALVES], sum[HALVES]; };

// Queues the copies of the run at position p, whose first key is at `from`, its value `values`
// bytes further: lane l copies word l % 8 of rows l / 8, l / 8 + 4, ... Word w of key r goes to
// place w ^ (4 if r is odd) of its 128 bytes, of value r to w ^ (r & 6).
template <typename T, int WIDE>
__device__ __forceinline__ void request(const struct decode &j, const struct item &it, int p,
                                        const char *from, int64_t values, uint32_t to) {
    using S = shape<T, WIDE, 1>;
    const int lane = (int)threadIdx.x % 32, r = lane / 8, w = lane % 8, dim = j.a.kv.head_dim;
    const int row_bytes = dim * 2;
    const bool whole = sees_whole_run(it.v, p);
    const uint32_t key_to = to + (uint32_t)(r * S::row + (w ^ (r & 1) << 2) * 16);
    const uint32_t value_to = to + (uint32_t)(S::values + r * S::row + (w ^ (r & 2)) * 16);
    from += r * row_bytes + w * 16;
#pragma unroll
    for (int i = 0; i < RUN / 4; i++) {
        // Values out of sight must be zeros: there may be anything, and 0 times anything is not 0.
        bool held = whole || sees(it.v, p + i * 4 + r);
#pragma unroll
        for (int c = 0; c < WIDE; c++) {
            bool in_row = (c * 8 + w) * 8 < dim;
            copy_async(key_to + (uint32_t)(i * 4 * S::row + c * 128), from + c * 128, in_row);
            copy_async((value_to ^ (i % 2 ? 64u : 0u)) + (uint32_t)(i * 4 * S::row + c * 128),
                       from + values + c * 128, in_row && held);
        }
        from += 4 * row_bytes;
    }
}

// The scores of 16 keys for this lane's heads g (+ 8): score[octet][c] as the product leaves them.
template <typename T, int WIDE, int HALVES>
__device__ __forceinline__ void score_run(float (&score)[2][4],
                                          const uint32_t (&q)[2 * WIDE][HALVES][4], uint32_t from) {
    using S = shape<T, WIDE, HALVES>;
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    from += (uint32_t)(g * S::row + (t ^ (g & 1) << 2) * 16);
#pragma unroll
    for (int o = 0; o < 2; o++) {
#pragma unroll
        for (int c = 0; c < 2 * WIDE; c++) {
            uint4 k =
                load_shared((from ^ (c % 2 ? 64u : 0u)) + (uint32_t)(o * 8 * S::row + c / 2 * 128));
            const uint32_t zero = 0;
            uint32_t a0[4] = {q[c][0][0], HALVES > 1 ? q[c][HALVES - 1][0] : zero, q[c][0][1],
                              HALVES > 1 ? q[c][HALVES - 1][1] : zero};
            uint32_t a1[4] = {q[c][0][2], HALVES > 1 ? q[c][HALVES - 1][2] : zero, q[c][0][3],
                              HALVES > 1 ? q[c][HALVES - 1][3] : zero};
            mma(score[o], a0, k.x, k.y, T());
            mma(score[o], a1, k.z, k.w, T());
        }
    }
}

// Adds the 16 keys' values, weighted. A lane's columns 2t, 2t+1 of product j are dimensions 8 * 2t
// + j and 8 * (2t + 1) + j of each 64.
template <typename T, int WIDE, int HALVES>
__device__ __forceinline__ void add_values(float (&out)[WIDE][8][4], const float (&p)[2][4],
                                           uint32_t from) {
    using S = shape<T, WIDE, HALVES>;
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    from += (uint32_t)(S::values + 2 * t * S::row + (g ^ 2 * t) * 16);
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float a = p[i / 2][i % 2 * 2], b = p[i / 2][i % 2 * 2 + 1];
        high[i] = pack2<T>(a, b);
        float2 r = unpack2(high[i], T());
        low[i] = pack2<T>(a - r.x, b - r.y);
        if (HALVES == 1 && i % 2 == 1) high[i] = low[i] = 0;
    }
#pragma unroll
    for (int c = 0; c < WIDE; c++) {
        uint4 v[4];
#pragma unroll
        for (int o = 0; o < 4; o++)
            v[o] = load_shared(from + (uint32_t)((o / 2 * 8 + o % 2) * S::row + c * 128));
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t half = i % 2 ? 0x7632 : 0x5410;
            uint32_t b0 = __byte_perm(word_at(v[0], i / 2), word_at(v[1], i / 2), half);
            uint32_t b1 = __byte_perm(word_at(v[2], i / 2), word_at(v[3], i / 2), half);
            mma(out[c][i], high, b0, b1, T());
            mma(out[c][i], low, b0, b1, T());
        }
    }
}

// Turns this run's scores into probabilities, and scales the earlier sums to the new top.
template <int WIDE, int HALVES>
__device__ __forceinline__ void softmax_run(const struct decode &j, const struct item &it,
                                            float (&score)[2][4], float (&out)[WIDE][8][4],
                                            struct progress<HALVES> &done, int p,
                                            const float (&slope)[HALVES]) {
    const int t = (int)threadIdx.x % 4;
    const bool whole = sees_whole_run(it.v, p);
    const float unit = j.a.scale * LOG2E;
    const float inverse_cap = j.a.soft_cap != 0.0f ? 1.0f / (j.a.soft_cap * LOG2E) : 0.0f;
    bool moved = false;
    float factor[HALVES];
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        float top = done.top[h];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = p + i / 2 * 8 + 2 * t + i % 2;
            float &s = score[i / 2][h * 2 + i % 2];
            s *= unit;
            if (j.a.soft_cap != 0.0f) s = soft_capped(s, j.a.soft_cap * LOG2E, inverse_cap);
            if (j.a.alibi_slopes) s += slope[h] * (float)(at - it.v.position);
            if (!whole && !sees(it.v, at)) s = -INFINITY;
            top = fmaxf(top, s);
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top,
                    __shfl_xor_sync(0xffffffffu, top, 2)); // finite: a run has a key that is seen
        factor[h] = power_of_two(done.top[h] - top);
        moved |= top != done.top[h];
        done.top[h] = top;
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float &s = score[i / 2][h * 2 + i % 2];
            s = power_of_two(s - top);
            sum += s;
        }
        done.sum[h] = done.sum[h] * factor[h] + sum;
    }
    if (!__any_sync(0xffffffffu, moved)) return;
#pragma unroll
    for (int c = 0; c < WIDE; c++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int h = 0; h < HALVES; h++)
                out[c][i][2 * h] *= factor[h], out[c][i][2 * h + 1] *= factor[h];
        }
    }
}

// Sums `n` parts of a head, part i at parts + i * stride, in ascending order: the value of
// dimension d, and (by reference) the top and the sum that go with it.
__device__ __forceinline__ float merge(const float *parts, int n, int64_t stride, int pitch, int d,
                                       float &top, float &sum) {
    top = -INFINITY;
    for (int i = 0; i < n; i++) top = fmaxf(top, __ldcg(parts + i * stride + pitch - 2));
    float value = 0.0f;
    sum = 0.0f;
#pragma unroll 4
    for (int i = 0; i < n; i++) {
        const float *part = parts + i * stride;
        float factor = power_of_two(__ldcg(part + pitch - 2) - top);
        value += factor * __ldcg(part + d);
        sum += factor * __ldcg(part + pitch - 1);
    }
    return value;
}

// The same over the warps' parts in shared memory.
__device__ __forceinline__ float merge_shared(const float *parts, int n, int stride, int pitch,
                                              int d, float &top, float &sum) {
    top = -INFINITY;
    for (int i = 0; i < n; i++) top = fmaxf(top, parts[i * stride + pitch - 2]);
    float value = 0.0f;
    sum = 0.0f;
    for (int i = 0; i < n; i++) {
        const float *part = parts + i * stride;
        float factor = power_of_two(part[pitch - 2] - top);
        value += factor * part[d];
        sum += factor * part[pitch - 1];
    }
    return value;
}

// An output. T is the activations' type, but with 8 bits one kernel does for both of 16.
template <typename T, typename C>
__device__ __forceinline__ void put(const struct cuda_attention &a, T *to, float v) {
    if constexpr (is_8bit<C>)
        store_from_float(to, a.dtype, 0, v);
    else
        *to = from_float<T>(v);
}

// The warps' parts become the item's: the row's output, or a part in the work space; and there, by
// the block that finds all splits done, the row's output.
template <typename T, typename C, int WIDE, int HALVES>
__device__ __forceinline__ void finish(const struct decode &j, const struct item &it, char *shared,
                                       const float (&out)[WIDE][8][4],
                                       struct progress<HALVES> &done) {
    using S = shape<C, WIDE, HALVES>;
    __shared__ bool last;
    const struct cuda_attention &a = j.a;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4, dim = a.kv.head_dim;
    const int group = a.n_heads / a.kv.n_kv_heads;
    const int n_heads = min(group - it.chunk * S::heads, S::heads);
    const int first_head = it.kv_head * group + it.chunk * S::heads;
    float *parts = (float *)shared; // (WARPS, heads, pitch): the queues are empty by now
    copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        float *part = parts + (warp * S::heads + h * 8 + g) * S::pitch;
        done.sum[h] += __shfl_xor_sync(0xffffffffu, done.sum[h], 1);
        done.sum[h] += __shfl_xor_sync(0xffffffffu, done.sum[h], 2);
#pragma unroll
        for (int c = 0; c < WIDE; c++) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                part[c * 64 + 16 * t + i] = out[c][i][2 * h];
                part[c * 64 + 16 * t + 8 + i] = out[c][i][2 * h + 1];
            }
        }
        if (t == 0) part[S::pitch - 2] = done.top[h], part[S::pitch - 1] = done.sum[h];
    }
    __syncthreads();
    int64_t unit = ((int64_t)it.slot * a.kv.n_kv_heads + it.kv_head) * j.n_chunks + it.chunk;
    const int held = min(group, S::heads); // heads of a part in the work space
    float *work = (float *)a.work + unit * MAX_SPLITS * held * S::pitch;
    T *to = (T *)a.out + ((int64_t)it.v.row * a.n_heads + first_head) * dim;
    for (int i = (int)threadIdx.x; i < n_heads * dim; i += THREADS) {
        int head = i / dim, d = i % dim;
        float top, sum;
        float value = merge_shared(parts + head * S::pitch, WARPS, S::heads * S::pitch, S::pitch, d,
                                   top, sum);
        if (it.n_splits == 1) {
            put<T, C>(a, to + i, value / (sum + sink_of(a, first_head + head, top)));
            continue;
        }
        float *part = work + (it.split * held + head) * S::pitch;
        __stcg(part + d, value);
        if (d == 0) __stcg(part + S::pitch - 2, top), __stcg(part + S::pitch - 1, sum);
    }
    if (it.n_splits > 1) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) last = atomicAdd(j.counters + unit, 1) == it.n_splits - 1;
        __syncthreads();
        if (last) {
            asm volatile("fence.acq_rel.gpu;" ::: "memory");
            for (int i = (int)threadIdx.x; i < n_heads * dim; i += THREADS) {
                float top, sum;
                float value = merge(work + i / dim * S::pitch, it.n_splits,
                                    (int64_t)held * S::pitch, S::pitch, i % dim, top, sum);
                put<T, C>(a, to + i, value / (sum + sink_of(a, first_head + i / dim, top)));
            }
            if (threadIdx.x == 0) j.counters[unit] = 0;
        }
    }
    __syncthreads(); // the next item's copies overwrite the parts
}

template <typename T, typename C, int WIDE, int HALVES, bool FRESH>
__device__ __forceinline__ void attend(const struct decode &j, const struct item &it, char *shared,
                                       bool &waited) {
    using S = shape<C, WIDE, HALVES>;
    const struct cuda_attention &a = j.a;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    const int dim = a.kv.head_dim, group = a.n_heads / a.kv.n_kv_heads;
    const struct cuda_kv &kv = a.kv;
    // The copies land 128-byte aligned: the swizzle works on the address's bits.
    const uint32_t queue = shared_address(shared) + (uint32_t)(warp * S::run);
    constexpr uint32_t stage_bytes = WARPS * S::run;
    const int row_bytes = dim * (is_8bit<C> ? 1 : (int)sizeof(T));
    const int64_t values = (int64_t)kv.n_kv_heads * kv.block_tokens * row_bytes;
    const char *layer = (const char *)kv.data + a.layer * (int64_t)kv.layer_bytes;
    const char *head = layer + (int64_t)it.kv_head * kv.block_tokens * row_bytes;
    // The next run to queue; its block is looked up a turn before it is wanted. Blocks lie in a
    // ring: a step along it needs no division.
    const int shift = 31 - __clz(kv.block_tokens), in_block = kv.block_tokens - 1;
    const int32_t *ring = a.b.maps + it.v.seq.map + it.v.seq.n_sink_blocks;
    int ahead = it.begin + warp, logical = -1, slot = 0, block = 0;
    auto look_up = [&] {
        int now = position_of(it.v, ahead) >> shift;
        if (now == logical) return;
        int passed = now - logical;
        if (now < it.v.seq.n_sink_blocks)
            slot = now - it.v.seq.n_sink_blocks; // before the ring
        else if (logical >= it.v.seq.n_sink_blocks && passed < it.v.seq.n_ring_blocks)
            slot +=
                slot + passed < it.v.seq.n_ring_blocks ? passed : passed - it.v.seq.n_ring_blocks;
        else
            slot = (now - it.v.seq.n_sink_blocks) % it.v.seq.n_ring_blocks;
        logical = now;
        block = ring[slot];
    };
    if (ahead < it.end) look_up();
    auto queue_next = [&](int stage) {
        if (ahead < it.end) {
            int p = position_of(it.v, ahead);
            const char *from = head + block * (int64_t)kv.block_bytes + (p & in_block) * row_bytes;
            if (!FRESH && !waited && p + RUN > it.v.fresh) {
                pdl_wait();
                waited = true;
            }
            const uint32_t to = queue + (uint32_t)stage * stage_bytes;
            if constexpr (is_8bit<C>) {
                const char *scales = layer + block * (int64_t)kv.block_bytes + cuda_kv_scales(kv) +
                                     (it.kv_head * kv.block_tokens + (p & in_block)) * 4;
                const bool whole = sees_whole_run(it.v, p);
                request_8bit<WIDE>(from, values, scales, kv.n_kv_heads * kv.block_tokens * 4, dim,
                                   to, [&](int i) { return whole || sees(it.v, p + i); });
            } else {
                request<T, WIDE>(j, it, p, from, values, to);
            }
            ahead += WARPS;
            if (ahead < it.end) look_up();
        }
        copy_commit();
    };
#pragma unroll
    for (int stage = 0; stage < S::stages; stage++) queue_next(stage);
    char *own = NULL; // FRESH: the row's own key in the cache
    if constexpr (FRESH)
        own = (char *)head + kv_block(a.b, it.v.seq, it.v.position) * (int64_t)kv.block_bytes +
              (it.v.position & in_block) * row_bytes;
    if (!waited) pdl_wait();
    waited = true;

    const int held = min(group - it.chunk * S::heads, S::heads);
    T *heads = (T *)(shared + j.heads_at);
    if constexpr (FRESH)
        prepare<T>(j, it, it.kv_head * group + it.chunk * S::heads, held, heads,
                   (float *)(heads + (min(group, S::heads) + 2) * dim));

    uint32_t q[2 * WIDE][HALVES][4], q8[HALVES][WIDE][8]; // one of them
    float slope[HALVES], q_unit[HALVES];
    struct unit unit = {0}; // of the sums; 8 bits only
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        int in_group = it.chunk * S::heads + h * 8 + g, head = it.kv_head * group + in_group;
        const T *from = FRESH ? heads + (h * 8 + g) * dim
                              : (const T *)a.qkv + ((int64_t)it.v.row * a.row_heads + head) * dim;
        slope[h] = a.alibi_slopes && in_group < group ? a.alibi_slopes[head] * LOG2E : 0.0f;
        if constexpr (is_8bit<C>) {
            load_query<WIDE>(q8[h], from, a.dtype, dim, in_group < group, q_unit[h]);
        } else {
#pragma unroll
            for (int c = 0; c < 2 * WIDE; c++) {
                uint4 v = make_uint4(0, 0, 0, 0);
                if (in_group < group && (t + 4 * c) * 8 < dim)
                    v = *(const uint4 *)(from + (t + 4 * c) * 8);
                q[c][h][0] = v.x, q[c][h][1] = v.y, q[c][h][2] = v.z, q[c][h][3] = v.w;
            }
        }
    }

    float out[WIDE][8][4] = {};
    struct progress<HALVES> done;
#pragma unroll
    for (int h = 0; h < HALVES; h++) done.top[h] = -INFINITY, done.sum[h] = 0.0f;
    int stage = 0;
    for (int run = it.begin + warp; run < it.end; run += WARPS) {
        copy_wait<S::stages - 1>();
        __syncwarp(); // other lanes' copies
        const uint32_t from = queue + (uint32_t)stage * stage_bytes;
        const int p = position_of(it.v, run);
        if constexpr (FRESH)
            if (run == it.v.n_runs - 1)
                put_fresh<T, WIDE>(j, it, p, from, heads + held * dim, own, values);
        float score[2][4] = {};
        if constexpr (is_8bit<C>) {
            float scale[2][2];
            score_run_8bit<C, WIDE, HALVES>(score, q8, from);
            scales_of_run<WIDE>(scale, from, false);
#pragma unroll
            for (int i = 0; i < 4 * HALVES; i++)
                score[i / 2 % 2][i / 4 * 2 + i % 2] *= scale[i / 2 % 2][i % 2] * q_unit[i / 4];
            softmax_run<WIDE, HALVES>(j, it, score, out, done, p, slope);
            weigh_run<WIDE, HALVES>(score, out, unit, from);
            add_values_8bit<C, WIDE, HALVES>(out, score, from);
        } else {
            score_run<T, WIDE, HALVES>(score, q, from);
            softmax_run<WIDE, HALVES>(j, it, score, out, done, p, slope);
            add_values<T, WIDE, HALVES>(out, score, from);
        }
        __syncwarp(); // all lanes have read
        queue_next(stage);
        if (++stage == S::stages) stage = 0;
    }
    if constexpr (is_8bit<C>) scale_sums<WIDE, HALVES>(out, unit.factor());
    if constexpr (FRESH)
        finish_fresh<T, WIDE>(j, it, shared, out, done.top[0], done.sum[0]);
    else
        finish<T, C, WIDE, HALVES>(j, it, shared, out, done);
}

} // namespace
