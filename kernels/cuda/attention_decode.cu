// Attention of single rows over the block ring: out (row, n_heads * head_dim) = softmax(scale q.k +
// alibi) v over what each row sees. bf16 and f16, head_dim a multiple of 8 up to 256; their caches
// or, head_dim a multiple of 16, those of 8 bits (attention_8bit.cuh).
//
// Bound by reading the cache once: bytes = visible keys * n_kv_heads * head_dim * 2 * sizeof(C) for
// each row (8 bits: and two scales), all query heads of a group share what is read. To expect: 80
// to 90 % of the read ceiling where all rows together see more than some 50 MB; a lone short row
// takes 3 microseconds of latency. With 8 bits about half of the ceiling (README.md).
//
//   - What a row sees is a list of runs of 16 keys at absolute multiples of 16: those that its
//   sinks
//     lie in, then its window's, ascending. The list is cut into splits. (row, kv head, up to 16 of
//     its query heads, split) is an item; a fixed number of blocks takes the items in turn, so the
//     grid is the same for all positions and a recorded graph serves any.
//   - How long a split is depends on what else is in the batch (attention_exact.cu is for the same
//     bits in any): a full one gets longer ones, and where all rows together keep every block busy
//     for long, each block simply takes an equal share of all runs, laid end to end: no block then
//     waits for another's last item.
//   - In an item, the 4 warps take runs in turn, each with a queue of asynchronous copies of its
//   own
//     into shared memory: no barrier until the item's end. Eight neighbouring lanes copy 128 bytes
//     of one key: with less, L2 is busier with requests than memory with bytes. q is the tensor
//     core's A (mma.cuh), K is B as it lies; V's rows of two keys are interleaved in registers.
//     16-byte words are swizzled so that eight lanes read from all banks.
//   - Probabilities enter the product as two T, value and remainder: 16 bits of them, not 8.
//   - The warps' parts are merged in order, then the splits' parts in order by the block that comes
//     last. That block is found by a counter, so which one it is changes nothing.
//   - Keys of earlier steps are fetched before the predecessor has ended (pdl.cuh).
#include "kernels/cuda/attention_8bit.cuh"
#include "kernels/cuda/attention_exact.h"
#include "kernels/cuda/attention_fresh.h"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/qkv_head.cuh"
#include <algorithm>
#include <math.h>
#include <type_traits>

namespace {

constexpr int WARPS = 4, THREADS = WARPS * 32, RUN = 16, MAX_SPLITS = 64;
constexpr int SPLIT_RUNS = 16;  // at least
constexpr int SHARE_LEAST = 40; // runs
constexpr int VIEWS = 64;       // that are kept in shared memory
constexpr size_t TILE_COUNTERS = CUDA_TILE_COUNTERS * sizeof(int32_t); // not this kernel's
constexpr float LOG2E = 1.4426950408889634f;

struct decode {
    struct cuda_attention a;
    int32_t n_rows;             // decode rows
    int32_t n_chunks;           // of at most 8 * HALVES query heads, of each kv head
    int32_t heads_at;           // FRESH: in shared memory
    int32_t *counters;          // (n_rows, n_kv_heads, n_chunks), zero before and after
    struct cuda_kv_write fresh; // FRESH: what q, k and v go through first
};

// Runs of a split of a list of n runs, by the list alone. One split for short lists: merging would
// take longer.
__host__ __device__ __forceinline__ int split_runs(int n) {
    int runs = SPLIT_RUNS;
    if (n <= runs + 1) return runs + 1;
    while (runs * MAX_SPLITS < n) runs *= 2;
    return runs;
}

// What a row sees: [sink_first, sink_end) and [first, position] (kv_map.h has the rule), and the
// runs that these lie in.
struct view {
    int32_t row, position, sink_first, sink_end, first;
    int32_t fresh; // positions from here on are written in this step
    int32_t sink_run, n_sink_runs, window_run, n_runs;
    struct cuda_seq seq;
};

__device__ __forceinline__ struct view view_of(const struct decode &j, int row) {
    struct view v;
    v.row = row;
    v.n_runs = 0;
    int32_t s = row < 0 ? -1 : j.a.b.row_seq[row];
    if (s < 0) return v;
    v.seq = j.a.b.seqs[s];
    v.position = j.a.b.positions[row];
    v.fresh = j.a.b.positions[v.seq.first_row];
    int32_t t = v.position, window = j.a.window;
    v.sink_first = window > 0 ? max(t - window + 1, 0) : 0;
    v.sink_end = min(v.seq.sink_len, t + 1);
    v.first = max(max(t - (v.seq.memory_len - v.seq.sink_len) + 1, v.sink_end), v.sink_first);
    v.window_run = v.first / RUN;
    v.sink_run = v.sink_first / RUN;
    v.n_sink_runs = v.sink_first < v.sink_end
                        ? max(min((v.sink_end + RUN - 1) / RUN, v.window_run) - v.sink_run, 0)
                        : 0;
    v.n_runs = v.n_sink_runs + max(t / RUN + 1 - v.window_run, 0);
    return v;
}

__device__ __forceinline__ int position_of(const struct view &v, int run) {
    return (run < v.n_sink_runs ? v.sink_run + run : v.window_run + run - v.n_sink_runs) * RUN;
}
__device__ __forceinline__ bool sees(const struct view &v, int p) {
    return (p >= v.first && p <= v.position) || (p >= v.sink_first && p < v.sink_end);
}
__device__ __forceinline__ bool sees_whole_run(const struct view &v, int p) {
    return (p >= v.first && p + RUN - 1 <= v.position) ||
           (p >= v.sink_first && p + RUN <= v.sink_end);
}

// Softmax under way for one query head: the largest score so far (in powers of two), and the sum.
template <int HALVES> struct progress { float top[HALVES], sum[HALVES]; };

// C: what the cache holds, T of 16 bits or one of the tags of 8 bits.
template <typename C>
constexpr bool is_8bit = std::is_same_v<C, kv_i8> || std::is_same_v<C, kv_e4m3>;

template <typename C, int WIDE, int HALVES> // WIDE: head_dim / 64, rounded up
struct shape {
    static constexpr int stages = is_8bit<C> ? 3 : 2;
    static constexpr int blocks = WIDE == 1 ? 4 : WIDE == 2 ? 3 : 1; // of a multiprocessor
    static constexpr int row = WIDE * 128;   // bytes of a key, or value, in shared memory
    static constexpr int values = RUN * row; // a run: keys, then values
    static constexpr int run = is_8bit<C> ? run_8bit<WIDE>::bytes : 2 * values;
    static constexpr int heads = 8 * HALVES;
    static constexpr int pitch = WIDE * 64 + 2; // floats of a head's part: sums, top, sum
    static constexpr size_t queue_bytes = (size_t)stages * WARPS * run;
    static constexpr size_t part_bytes = (size_t)WARPS * heads * pitch * sizeof(float);
    static constexpr size_t bytes = queue_bytes > part_bytes ? queue_bytes : part_bytes;
};

// --- one item
// ------------------------------------------------------------------------------------------------
struct item {
    struct view v;
    int32_t slot, kv_head, chunk, split, n_splits;
    int32_t begin, end; // runs
};

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

__device__ __forceinline__ uint32_t word_of(uint4 v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
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
            uint32_t b0 = __byte_perm(word_of(v[0], i / 2), word_of(v[1], i / 2), half);
            uint32_t b1 = __byte_perm(word_of(v[2], i / 2), word_of(v[3], i / 2), half);
            mma(out[c][i], high, b0, b1, T());
            mma(out[c][i], low, b0, b1, T());
        }
    }
}

// Scores to probabilities of this run, and what was summed before scaled to the new top.
template <int WIDE, int HALVES>
__device__ __forceinline__ void softmax_run(const struct decode &j, const struct item &it,
                                            float (&score)[2][4], float (&out)[WIDE][8][4],
                                            struct progress<HALVES> &done, int p,
                                            const float (&slope)[HALVES]) {
    const int t = (int)threadIdx.x % 4;
    const bool whole = sees_whole_run(it.v, p);
    bool moved = false;
    float factor[HALVES];
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        float top = done.top[h];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = p + i / 2 * 8 + 2 * t + i % 2;
            float &s = score[i / 2][h * 2 + i % 2];
            s *= j.a.scale * LOG2E;
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
            put<T, C>(a, to + i, value / sum);
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
                put<T, C>(a, to + i, value / sum);
            }
            if (threadIdx.x == 0) j.counters[unit] = 0;
        }
    }
    __syncthreads(); // the next item's copies overwrite the parts
}

// What attention begins with where q, k and v come as the linear left them (FRESH): the item's
// query heads, then the row's own k and v, normed, rotated and rounded, to `to` (heads + 2, dim). A
// warp for each head, its F32 and the row's cosines at `scratch`. All that is asked of memory is
// asked for at once, and the code is short: what a step runs once a layer is often not in the
// caches.
template <typename T>
__device__ __forceinline__ void prepare(const struct decode &j, const struct item &it,
                                        int first_head, int n_heads, T *to, float *scratch) {
    constexpr int EACH = 8; // elements of a lane
    const struct cuda_kv_write &w = j.fresh;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, dim = w.kv.head_dim;
    const int n_kv = w.kv.n_kv_heads;
    const T *row = (const T *)w.qkv + (int64_t)it.v.row * (w.n_heads + 2 * n_kv) * dim + lane;
    const float *cos_sin = w.cos_sin + (int64_t)it.v.row * w.rot_dim + lane;
    float *head = scratch + warp * (dim + w.rot_dim), *turn = head + dim, angles[EACH];
    T raw[EACH];
    auto load = [&](int h) {
        const T *from =
            row + (h < n_heads ? first_head + h : w.n_heads + (h - n_heads) * n_kv + it.kv_head) *
                      (int64_t)dim;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (h < n_heads + 2 && e * 32 + lane < dim) raw[e] = from[e * 32];
    };
    load(warp);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (e * 32 + lane < w.rot_dim) angles[e] = cos_sin[e * 32];
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (e * 32 + lane < w.rot_dim) turn[e * 32 + lane] = angles[e];
#pragma unroll 1
    for (int h = warp; h < n_heads + 2; h += WARPS) {
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (e * 32 + lane < dim) head[e * 32 + lane] = to_float(raw[e]);
        load(h + WARPS);
        __syncwarp();
        if (h <= n_heads && w.q_weight)
            norm_head<T>(head, dim, h < n_heads ? w.q_weight : w.k_weight, w.eps, lane);
        if (h <= n_heads && w.rot_dim > 0) rotate_head<T>(head, w.style, w.rot_dim, turn, lane);
        for (int i = lane; i < dim; i += 32) to[h * dim + i] = from_float<T>(head[i]);
        __syncwarp();
    }
    __syncthreads();
}

// The row's own key and value into the run of them at `from`, which begins at position p: what was
// copied there is what the cache held before. And into the cache, by the one item of the kv head
// that has them and its first heads.
template <typename T, int WIDE>
__device__ __forceinline__ void put_fresh(const struct decode &j, const struct item &it, int p,
                                          uint32_t from, const T *key, char *place,
                                          int64_t values) {
    using S = shape<T, WIDE, 1>;
    const int lane = (int)threadIdx.x % 32, dim = j.a.kv.head_dim, r = it.v.position - p;
    if (lane * 8 < dim) {
        uint4 k = *(const uint4 *)(key + lane * 8), v = *(const uint4 *)(key + dim + lane * 8);
        from += (uint32_t)(r * S::row + lane / 8 * 128);
        store_shared(from + (uint32_t)((lane % 8 ^ (r & 1) << 2) * 16), k);
        store_shared(from + (uint32_t)(S::values + (lane % 8 ^ (r & 6)) * 16), v);
        if (it.chunk == 0) {
            *(uint4 *)(place + lane * 16) = k;
            *(uint4 *)(place + values + lane * 16) = v;
        }
    }
    __syncwarp();
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
    struct unit unit = {0}; // of what is summed, 8 bits
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        int in_group = it.chunk * S::heads + h * 8 + g, head = it.kv_head * group + in_group;
        const T *from =
            FRESH ? heads + (h * 8 + g) * dim
                  : (const T *)a.qkv +
                        ((int64_t)it.v.row * (a.n_heads + 2 * a.kv.n_kv_heads) + head) * dim;
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
    finish<T, C, WIDE, HALVES>(j, it, shared, out, done);
}

// Splits of all rows if none has fewer than `least` runs; for one warp.
__device__ __forceinline__ int count_splits(const struct decode &j, const int *runs, int least) {
    int n = 0;
    for (int i = (int)threadIdx.x; i < j.n_rows; i += 32) {
        int each = max(split_runs(runs[i]), least);
        n += (runs[i] + each - 1) / each;
    }
    for (int step = 16; step > 0; step /= 2) n += __shfl_xor_sync(0xffffffffu, n, step);
    return n;
}

// The least length of a split with which the items fill the blocks best: whole waves, but few of
// them, since each item costs some microseconds to begin and to end.
__device__ int fill(const struct decode &j, const int *runs, int units) {
    int total = 0, best = 1 << 20; // one split for each row
    for (int i = (int)threadIdx.x; i < j.n_rows; i += 32) total += runs[i];
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    float most = -INFINITY; // a lone row fills little and is split all the same
    for (int waves = 1; waves <= 6; waves++) {
        // So many items at most, since a row's last split may be short.
        int room = waves * (int)gridDim.x / units - j.n_rows;
        if (room <= 0) continue;
        int least = (total + room - 1) / room;
        float items = (float)count_splits(j, runs, least) * (float)units / (float)gridDim.x;
        float score = items / ceilf(items) - 0.15f * (float)waves;
        if (score > most) most = score, best = least;
    }
    return best;
}

// Every block's share of all rows' runs, or 0 where shares would be so short that merging them
// costs more than they even out. No row is in more blocks than it has splits.
__device__ int share_of(const struct decode &j, const int *runs, int units) {
    if (j.n_rows * units < (int)gridDim.x) return 0; // a few long rows: whole waves of equal splits
    int total = 0, most = 0;
    for (int i = (int)threadIdx.x; i < j.n_rows; i += 32)
        total += runs[i], most = max(most, runs[i]);
    for (int step = 16; step > 0; step /= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, step);
        most = max(most, __shfl_xor_sync(0xffffffffu, most, step));
    }
    int share = (int)(((int64_t)total * units + gridDim.x - 1) / gridDim.x);
    share = max(share, (most + MAX_SPLITS - 3) / (MAX_SPLITS - 2));
    return share >= SHARE_LEAST ? share : 0;
}

template <typename T, typename C, int WIDE, int HALVES>
__global__ void __launch_bounds__(THREADS, (shape<C, WIDE, HALVES>::blocks))
    decode_kernel(const __grid_constant__ struct decode j) {
    extern __shared__ __align__(128) char shared[];
    using S = shape<C, WIDE, HALVES>;
    int *ends = (int *)(shared + S::bytes); // (n_rows) splits, or runs, of all rows up to each
    __shared__ struct view views[VIEWS];
    __shared__ int share;
    pdl_trigger();
    for (int i = (int)threadIdx.x; i < j.n_rows; i += THREADS) {
        struct view v = view_of(j, j.a.b.decode_rows[i]);
        ends[i] = v.n_runs;
        if (i < VIEWS) views[i] = v;
    }
    __syncthreads();
    const int units = j.a.kv.n_kv_heads * j.n_chunks;
    if (threadIdx.x < 32) { // the number of runs, then where each row's splits end
        int each = share_of(j, ends, units), least = each ? 0 : fill(j, ends, units);
        int carry = 0;
        for (int at = 0; at < j.n_rows; at += 32) {
            int i = at + (int)threadIdx.x, n = i < j.n_rows ? ends[i] : 0;
            if (!each) n = (n + max(split_runs(n), least) - 1) / max(split_runs(n), least);
            for (int step = 1; step < 32; step *= 2) {
                int other = __shfl_up_sync(0xffffffffu, n, step);
                if ((int)threadIdx.x >= step) n += other;
            }
            if (i < j.n_rows) ends[i] = carry + n;
            carry += __shfl_sync(0xffffffffu, n, 31);
        }
        if (threadIdx.x == 0) share = each;
    }
    __syncthreads();

    // Items, or runs: of all units of a row one after the other.
    const int each = share, all = ends[j.n_rows - 1] * units;
    const int stop = each ? min(((int)blockIdx.x + 1) * each, all) : all;
    bool waited = false;
    for (int at = (int)blockIdx.x * max(each, 1); at < stop;) {
        struct item it;
        int low = 0, high = j.n_rows - 1; // the row: the first with ends > at / units
        while (low < high) {
            int middle = (low + high) / 2;
            if (ends[middle] > at / units)
                high = middle;
            else
                low = middle + 1;
        }
        int before = low ? ends[low - 1] : 0, in_row = at - before * units, unit;
        it.slot = low;
        it.v = low < VIEWS ? views[low] : view_of(j, j.a.b.decode_rows[low]);
        if (each) {
            unit = in_row / it.v.n_runs;
            it.begin = in_row % it.v.n_runs;
            it.end = min(it.begin + stop - at, it.v.n_runs);
            int first = at - it.begin; // the unit's first run
            it.split = (int)blockIdx.x - first / each;
            it.n_splits = (first + it.v.n_runs - 1) / each - first / each + 1;
            at += it.end - it.begin;
        } else {
            it.n_splits = ends[low] - before;
            unit = in_row / it.n_splits;
            it.split = in_row % it.n_splits;
            int length = (it.v.n_runs + it.n_splits - 1) / it.n_splits;
            // With n = ceil(runs / most) splits of ceil(runs / n), none is empty.
            it.begin = it.split * length;
            it.end = min(it.begin + length, it.v.n_runs);
            at += (int)gridDim.x;
        }
        it.kv_head = unit / j.n_chunks;
        it.chunk = unit % j.n_chunks;
        attend<T, C, WIDE, HALVES, false>(j, it, shared, waited);
    }
    if (!waited) pdl_wait();
}

// Few rows, whose q, k and v are prepared here. An item for each block: the grid says how many
// splits a row may have, and its own length how many it has.
template <typename T, int WIDE>
__global__ void __launch_bounds__(THREADS, (shape<T, WIDE, 1>::blocks))
    fresh_kernel(const __grid_constant__ struct decode j) {
    extern __shared__ __align__(128) char shared[];
    pdl_trigger();
    const int unit = (int)blockIdx.x;
    struct item it;
    it.slot = (int)blockIdx.y;
    it.split = (int)blockIdx.z;
    it.v = view_of(j, j.a.b.decode_rows[it.slot]);
    it.kv_head = unit % j.a.kv.n_kv_heads;
    it.chunk = unit / j.a.kv.n_kv_heads;
    const int length =
        max((it.v.n_runs + (int)gridDim.z - 1) / (int)gridDim.z, min(it.v.n_runs, SPLIT_RUNS + 1));
    bool waited = false;
    if (it.split * length < it.v.n_runs) {
        it.n_splits = (it.v.n_runs + length - 1) / length;
        it.begin = it.split * length;
        it.end = min(it.begin + length, it.v.n_runs);
        attend<T, T, WIDE, 1, true>(j, it, shared, waited);
    }
    if (!waited) pdl_wait();
}

template <typename T, typename C, int WIDE, int HALVES>
void launch(struct decode &j, cudaStream_t stream) {
    using S = shape<C, WIDE, HALVES>;
    auto kernel = decode_kernel<T, C, WIDE, HALVES>;
    int group = j.a.n_heads / j.a.kv.n_kv_heads;
    j.n_chunks = (group + S::heads - 1) / S::heads;
    size_t bytes = S::bytes + (size_t)j.n_rows * sizeof(int);
    static size_t raised; // as asked for so far; a failure shows at the launch
    if (bytes > raised && cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               (int)bytes) == cudaSuccess)
        raised = bytes;
    int64_t items = (int64_t)j.n_rows * j.a.kv.n_kv_heads * j.n_chunks *
                    (j.a.max_position <= SPLIT_RUNS * RUN ? 1 : MAX_SPLITS);
    int64_t blocks = (int64_t)multiprocessors() * S::blocks;
    pdl_launch(kernel, dim3((unsigned)(items < blocks ? items : blocks)), dim3(THREADS), bytes,
               stream, j);
}

template <typename T, typename C, int WIDE>
void launch_wide(struct decode &j, cudaStream_t stream) {
    if (j.a.n_heads / j.a.kv.n_kv_heads <= 8)
        launch<T, C, WIDE, 1>(j, stream);
    else
        launch<T, C, WIDE, 2>(j, stream);
}

template <typename T, typename C> void launch_cached(struct decode &j, cudaStream_t stream) {
    int wide = (j.a.kv.head_dim + 63) / 64;
    if (wide <= 1)
        launch_wide<T, C, 1>(j, stream);
    else if (wide == 2)
        launch_wide<T, C, 2>(j, stream);
    else if (wide == 3 && !is_8bit<C>) // rare: 8 bits have no kernel of their own for it
        launch_wide<T, C, is_8bit<C> ? 4 : 3>(j, stream);
    else
        launch_wide<T, C, 4>(j, stream);
}

void launch_typed(struct decode &j, cudaStream_t stream) {
    if (j.a.kv.dtype == DTYPE_I8)
        launch_cached<__half, kv_i8>(j, stream);
    else if (j.a.kv.dtype == DTYPE_F8_E4M3)
        launch_cached<__half, kv_e4m3>(j, stream);
    else if (j.a.dtype == DTYPE_BF16)
        launch_cached<__nv_bfloat16, __nv_bfloat16>(j, stream);
    else
        launch_cached<__half, __half>(j, stream);
}

template <typename T, int WIDE> void launch_fresh(struct decode &j, cudaStream_t stream) {
    using S = shape<T, WIDE, 1>;
    auto kernel = fresh_kernel<T, WIDE>;
    const int group = j.a.n_heads / j.a.kv.n_kv_heads, dim = j.a.kv.head_dim;
    j.n_chunks = (group + S::heads - 1) / S::heads;
    j.heads_at = (int32_t)S::bytes;
    size_t bytes = S::bytes + (size_t)(std::min(group, S::heads) + 2) * (size_t)dim * sizeof(T) +
                   (size_t)WARPS * (size_t)(dim + j.fresh.rot_dim) * sizeof(float);
    static size_t raised; // as asked for so far; a failure shows at the launch
    if (bytes > raised && cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               (int)bytes) == cudaSuccess)
        raised = bytes;
    // Blocks that are there at once, if they can; a split for each 256 positions at most.
    int items = j.n_rows * j.a.kv.n_kv_heads * j.n_chunks;
    int splits = std::max(1, multiprocessors() * S::blocks / items);
    splits =
        std::min(splits, std::min(MAX_SPLITS, std::max(1, j.a.max_position / (SPLIT_RUNS * RUN))));
    pdl_launch(
        kernel,
        dim3((unsigned)(j.a.kv.n_kv_heads * j.n_chunks), (unsigned)j.n_rows, (unsigned)splits),
        dim3(THREADS), bytes, stream, j);
}

template <typename T> void launch_fresh_typed(struct decode &j, cudaStream_t stream) {
    if (j.a.kv.head_dim <= 64)
        launch_fresh<T, 1>(j, stream);
    else if (j.a.kv.head_dim <= 128)
        launch_fresh<T, 2>(j, stream);
    else
        launch_fresh<T, 4>(j, stream);
}

// Of one row: the parts of every head at every split, and a counter for each group of heads. Heads
// of 129 to 192 may go to the kernel for up to 256 (launch_cached), whose parts are as long.
size_t row_bytes(int32_t n_heads, int32_t n_kv_heads, int32_t head_dim) {
    int group = n_heads / n_kv_heads, heads = group <= 8 ? 8 : 16;
    size_t units = (size_t)n_kv_heads * (size_t)((group + heads - 1) / heads);
    size_t pitch = (size_t)(head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256) + 2;
    size_t held = (size_t)(group < heads ? group : heads);
    return units * ((size_t)MAX_SPLITS * held * pitch * sizeof(float) + sizeof(int));
}

bool covers(const struct cuda_attention *a) {
    const bool eight = kv_is_8bit(a->kv.dtype);
    return (a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16) &&
           (eight || a->kv.dtype == a->dtype) && a->kv.head_dim % (eight ? 16 : 8) == 0 &&
           a->kv.head_dim <= 256 && a->kv.block_tokens % RUN == 0 &&
           a->n_heads % a->kv.n_kv_heads == 0;
}

} // namespace

size_t cuda_attention_work_bytes(int32_t max_rows, int32_t n_heads, int32_t n_kv_heads,
                                 int32_t head_dim) {
    return (size_t)max_rows * row_bytes(n_heads, n_kv_heads, head_dim) + TILE_COUNTERS;
}

static int describe(struct decode *j, const struct cuda_attention *a) {
    size_t mine = a->work_bytes > TILE_COUNTERS ? a->work_bytes - TILE_COUNTERS : 0;
    size_t room = mine / row_bytes(a->n_heads, a->kv.n_kv_heads, a->kv.head_dim);
    if (!covers(a) || (size_t)a->n_decode > room) return CUDA_NOT_MINE;
    j->a = *a;
    j->n_rows = a->n_decode;
    // From the end, so that they are the same words for every number of rows.
    int group = a->n_heads / a->kv.n_kv_heads, heads = group <= 8 ? 8 : 16;
    int units = a->kv.n_kv_heads * ((group + heads - 1) / heads);
    j->counters = (int32_t *)((char *)a->work + mine / 4 * 4) - (int)room * units;
    return 0;
}

int cuda_attention_decode(const struct cuda_attention *a, cudaStream_t stream) {
    struct decode j = {};
    if (describe(&j, a) != 0) return CUDA_NOT_MINE;
    launch_typed(j, stream);
    return cuda_launched("attention_decode");
}

int cuda_attention_fresh(const struct cuda_attention *a, const struct cuda_kv_write *fresh,
                         cudaStream_t stream) {
    struct decode j = {};
    if (describe(&j, a) != 0 || kv_is_8bit(a->kv.dtype) || fresh->rot_dim > 256 ||
        a->n_heads / a->kv.n_kv_heads > 8)
        return CUDA_NOT_MINE;
    j.fresh = *fresh;
    if (a->dtype == DTYPE_BF16)
        launch_fresh_typed<__nv_bfloat16>(j, stream);
    else
        launch_fresh_typed<__half>(j, stream);
    return cuda_launched("attention_fresh");
}
