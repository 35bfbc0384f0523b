// Attention of tiles of rows over the block ring: for rows of one sequence with consecutive
// positions, out = softmax(scale q.k + alibi) v over what each row sees. bf16 and f16, with a cache
// of the same or of 8 bits, head_dim a multiple of 16 up to 256.
//
// Bound by the tensor cores: 4 * keys * head_dim operations for each (row, head). mma.sync with 16
// query rows a warp is held back by shared memory (each word of K and V feeds one product a warp):
// expect some 300 TFLOP/s at head_dim 128 for long chunks, a few percent of a prefill's time.
//
//   - A block takes 64 query rows of one kv head: (token, head of the group) pairs, tokens
//   outermost, so
//     that a group's heads share the keys and values in shared memory and a short tile wastes
//     little.
//   - Keys come in runs of 64 at absolute multiples of 64, in ascending order: first those that
//   sinks
//     lie in, then the window's. K and V each have two buffers, filled by asynchronous copies while
//     the other is worked on. What no row of the block may see is not read (its block may be gone).
//   - Online softmax in F32 (Dao et al., FlashAttention-2); the scores' registers become the
//     probabilities' operand as they are.
//   - A cache of 8 bits comes as it is and is widened to T in shared memory, once for all rows of
//   the
//     block: keys without their scale, which is exact, and the scores get it; values with theirs.
//     One buffer for each, since the next run's bytes have a place of their own meanwhile.
//   - A few rows on a long context (a later turn) are fewer blocks than there is room for: then
//     several share a block's rows, each with a part of the runs, and the one that comes last
//     merges the parts in the order of the runs. How many depends on the step, so not where the
//     same bits are asked for.
//   - 16-byte words of a row of shared memory are swizzled by the row's number: the 8 rows that
//     ldmatrix takes at once lie in different banks.
#include "kernels/cuda/attention_8bit.cuh"
#include "kernels/cuda/pdl.cuh"
#include <math.h>

namespace {

constexpr int WARPS = 4, THREADS = WARPS * 32, ROWS = WARPS * 16, KEYS = 64;
constexpr int MAX_SPLITS = 4, SPLIT_POSITIONS = 1024; // below it a part would be too short
constexpr float LOG2E = 1.4426950408889634f;

template <int DIM> struct shape {         // DIM: head_dim rounded up to 64, 128 or 256
    static constexpr int words = DIM / 8; // of 16 bytes in a row of shared memory
    static constexpr size_t buffer_bytes = (size_t)KEYS * DIM * 2;
    static constexpr size_t bytes = 4 * buffer_bytes; // K, K, V, V
    // 8 bits: K and V widened, the keys' scales; then both as they came, and their scales.
    static constexpr size_t scales_8bit = 2 * buffer_bytes, raw_8bit = scales_8bit + KEYS * 4;
    static constexpr size_t raw_scales_8bit = raw_8bit + 2 * KEYS * DIM;
    static constexpr size_t bytes_8bit = raw_scales_8bit + 2 * KEYS * 4;
};

// Where the parts of a block's rows meet, if several blocks share them.
struct parts {
    // (blocks, splits, ROWS, DIM + 2): sums of values, then the highest score and the weights' sum
    float *data;
    int *counters; // (blocks) zero before the launch
    int splits;    // 1: nobody shares
};

// What a query row sees: [sink_first, sink_end) and [first, position].
struct sight {
    int32_t position, sink_first, sink_end, first;
};

__device__ __forceinline__ struct sight sight_of(const struct cuda_seq &s, int32_t t,
                                                 int32_t window) {
    struct sight v;
    v.position = t;
    v.sink_first = window > 0 ? max(t - window + 1, 0) : 0;
    v.sink_end = min(s.sink_len, t + 1);
    v.first = max(max(t - (s.memory_len - s.sink_len) + 1, v.sink_end), v.sink_first);
    return v;
}

__device__ __forceinline__ bool sees(const struct sight &v, int p) {
    return (p >= v.sink_first && p < v.sink_end) || (p >= v.first && p <= v.position);
}

// Byte offset in shared memory of 16-byte word w of row r.
template <int DIM> __device__ __forceinline__ uint32_t swizzled(int r, int w) {
    return (uint32_t)(r * shape<DIM>::words + (w ^ (r & 7))) * 16;
}

struct span { // of runs of KEYS keys
    int32_t begin, end;
};

// The runs that the block's rows see, as a list: [0, sinks.end - sinks.begin) of the sinks, then
// the window's.
struct runs {
    struct span sinks, window;
};

__device__ __forceinline__ struct runs runs_of(const struct sight &oldest,
                                               const struct sight &newest) {
    struct runs r;
    r.window = {oldest.first / KEYS, newest.position / KEYS + 1};
    r.sinks = {oldest.sink_first / KEYS, (newest.sink_end + KEYS - 1) / KEYS};
    if (oldest.sink_first >= newest.sink_end) r.sinks = {0, 0};
    if (r.sinks.end > r.window.begin) r.sinks.end = max(r.window.begin, r.sinks.begin);
    return r;
}

// Queues the copies of one run's K and V into their buffers; zeros for keys out of sight.
template <int DIM>
__device__ __forceinline__ void request(const struct cuda_attention &a, const struct cuda_seq &seq,
                                        int kv_head, const struct sight &oldest,
                                        const struct sight &newest, int run, uint32_t k_to,
                                        uint32_t v_to) {
    constexpr int words = shape<DIM>::words, step = THREADS / words; // rows apart
    const struct cuda_kv &kv = a.kv;
    const int r0 = (int)threadIdx.x / words, w = (int)threadIdx.x % words, p0 = run * KEYS;
    const int row_bytes = kv.head_dim * 2;
    const bool in_row = w * 8 < kv.head_dim;
    const int64_t values = (int64_t)kv.n_kv_heads * kv.block_tokens * row_bytes;
    const char *head = (const char *)kv.data + a.layer * (int64_t)kv.layer_bytes +
                       (int64_t)kv_head * kv.block_tokens * row_bytes + w * 16;
    // May be seen by some row: between the oldest's first and the newest's last of either part.
    auto held = [&](int p) {
        return (p >= oldest.sink_first && p < newest.sink_end) ||
               (p >= oldest.first && p <= newest.position);
    };
    if (kv.block_tokens % KEYS == 0) { // one block, which some row sees
        bool whole = (p0 >= oldest.first && p0 + KEYS - 1 <= newest.position) ||
                     (p0 >= oldest.sink_first && p0 + KEYS <= newest.sink_end);
        const char *from = head + kv_block(a.b, seq, p0) * (int64_t)kv.block_bytes +
                           (p0 % kv.block_tokens + r0) * row_bytes;
        if (!in_row) from = head;
#pragma unroll
        for (int i = 0; i < KEYS / step; i++) {
            bool valid = in_row && (whole || held(p0 + r0 + i * step));
            uint32_t to = swizzled<DIM>(r0 + i * step, w);
            copy_async(k_to + to, from, valid);
            copy_async(v_to + to, from + values, valid);
            from += step * row_bytes;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < KEYS / step; i++) {
        int p = p0 + r0 + i * step;
        bool valid = in_row && held(p);
        const char *from = head;
        if (valid)
            from +=
                kv_block(a.b, seq, p) * (int64_t)kv.block_bytes + p % kv.block_tokens * row_bytes;
        uint32_t to = swizzled<DIM>(r0 + i * step, w);
        copy_async(k_to + to, from, valid);
        copy_async(v_to + to, from + values, valid);
    }
}

// The same for a cache of 8 bits, to `raw` (keys, values) and their scales.
template <int DIM>
__device__ __forceinline__ void request_8bit(const struct cuda_attention &a,
                                             const struct cuda_seq &seq, int kv_head,
                                             const struct sight &oldest, const struct sight &newest,
                                             int run, uint32_t raw, uint32_t raw_scales) {
    constexpr int words = DIM / 16, step = THREADS / words; // rows apart
    const struct cuda_kv &kv = a.kv;
    const int r0 = (int)threadIdx.x / words, at = (int)threadIdx.x % words * 16, p0 = run * KEYS;
    const int dim = kv.head_dim, bt = kv.block_tokens;
    const int64_t values = (int64_t)kv.n_kv_heads * bt * dim;
    const char *layer = (const char *)kv.data + a.layer * (int64_t)kv.layer_bytes;
    auto held = [&](int p) { // as above
        return (p >= oldest.sink_first && p < newest.sink_end) ||
               (p >= oldest.first && p <= newest.position);
    };
    auto block_of = [&](int p) { return layer + kv_block(a.b, seq, p) * (int64_t)kv.block_bytes; };
    // One block, which some row sees; else each key's own.
    const char *common = bt % KEYS == 0 ? block_of(p0) : NULL;
#pragma unroll
    for (int i = 0; i < KEYS / step; i++) {
        const int r = r0 + i * step, p = p0 + r;
        const bool valid = at < dim && held(p);
        const char *from = layer;
        if (valid)
            from = (common ? common : block_of(p)) + ((int64_t)kv_head * bt + p % bt) * dim + at;
        copy_async(raw + (uint32_t)(r * DIM + at), from, valid);
        copy_async(raw + (uint32_t)((KEYS + r) * DIM + at), from + values, valid);
    }
    const int r = (int)threadIdx.x % KEYS, of_value = (int)threadIdx.x / KEYS, p = p0 + r;
    const bool valid = held(p);
    const char *from = layer;
    if (valid)
        from = (common ? common : block_of(p)) + cuda_kv_scales(kv) +
               (((int64_t)of_value * kv.n_kv_heads + kv_head) * bt + p % bt) * 4;
    copy_async_4(raw_scales + threadIdx.x * 4, from, valid);
}

// Two f16, times the scale, as T.
template <typename T> __device__ __forceinline__ uint32_t rescaled(uint32_t pair, float scale) {
    float2 v = unpack2(pair, __half());
    return pack2<T>(v.x * scale, v.y * scale);
}

// 16 bytes as two words of T.
template <typename T, typename C>
__device__ __forceinline__ void widen_word(uint4 (&out)[2], uint4 raw, float scale, C c) {
    const uint32_t four[4] = {raw.x, raw.y, raw.z, raw.w};
    uint32_t *to = (uint32_t *)out;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = rescaled<T>(low_pair(four[i], c), scale);
        to[2 * i + 1] = rescaled<T>(high_pair(four[i], c), scale);
    }
}

// A run's bytes to K and V as the products want them.
template <typename T, int DIM> __device__ __forceinline__ void widen_run(char *shared, bool int8) {
    using S = shape<DIM>;
    constexpr int words = DIM / 16, step = THREADS / words;
    const int r0 = (int)threadIdx.x / words, w = (int)threadIdx.x % words;
    const char *raw = shared + S::raw_8bit;
    const float *scales = (const float *)(shared + S::raw_scales_8bit);
#pragma unroll 4
    for (int i = 0; i < 2 * KEYS / step; i++) { // keys, then values
        const int r = r0 + i * step;
        const float scale = r < KEYS ? 1.0f : scales[r];
        const uint4 from = *(const uint4 *)(raw + r * DIM + w * 16);
        char *to = shared + (r < KEYS ? 0 : S::buffer_bytes);
        uint4 out[2];
        if (int8)
            widen_word<T>(out, from, scale, kv_i8());
        else
            widen_word<T>(out, from, scale, kv_e4m3());
        *(uint4 *)(to + swizzled<DIM>(r % KEYS, 2 * w)) = out[0];
        *(uint4 *)(to + swizzled<DIM>(r % KEYS, 2 * w + 1)) = out[1];
    }
    if (threadIdx.x < KEYS) ((float *)(shared + S::scales_8bit))[threadIdx.x] = scales[threadIdx.x];
}

template <typename T, bool EIGHT, int DIM> // EIGHT: the cache has 8 bits, else T
__global__ void __launch_bounds__(THREADS, DIM <= 128 ? 2 : 1)
    prefill_kernel(const __grid_constant__ struct cuda_attention a, int m_blocks,
                   const __grid_constant__ struct parts parts) {
    using S = shape<DIM>;
    extern __shared__ __align__(128) char shared[];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    const int dim = a.kv.head_dim, group = a.n_heads / a.kv.n_kv_heads;
    pdl_trigger();
    // Heads innermost, so that blocks with the same keys run together; the last tokens, which see
    // most, first.
    const int n_shared = (int)gridDim.x / parts.splits, block = (int)blockIdx.x % n_shared;
    const int kv_head = block % a.kv.n_kv_heads, at = block / a.kv.n_kv_heads;
    const int m_block = m_blocks - 1 - at % m_blocks;
    const struct cuda_tile tile = a.b.tiles[a.n_tiles - 1 - at / m_blocks];
    const int n_rows = tile.n_rows * group; // query rows of this kv head
    pdl_wait();
    if (tile.seq < 0 || m_block * ROWS >= n_rows) return;
    const struct cuda_seq seq = a.b.seqs[tile.seq];
    const int first_position = a.b.positions[tile.row];

    // This lane's two rows, and the block's first and last token.
    const int last_row = min(m_block * ROWS + ROWS, n_rows) - 1;
    const struct sight oldest = sight_of(seq, first_position + m_block * ROWS / group, a.window);
    const struct sight newest = sight_of(seq, first_position + last_row / group, a.window);
    struct sight mine[2];
    float slope[2];
    const T *q_from[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = min(m_block * ROWS + warp * 16 + h * 8 + g, last_row);
        int token = row / group, head = kv_head * group + row % group;
        mine[h] = sight_of(seq, first_position + token, a.window);
        slope[h] = a.alibi_slopes ? a.alibi_slopes[head] * LOG2E : 0.0f;
        q_from[h] = (const T *)a.qkv +
                    ((int64_t)(tile.row + token) * (a.n_heads + 2 * a.kv.n_kv_heads) + head) * dim;
    }

    const uint32_t k_buffer = shared_address(shared);
    const uint32_t v_buffer = k_buffer + (EIGHT ? 1 : 2) * S::buffer_bytes;
    const struct runs runs = runs_of(oldest, newest);
    const int n_sinks = runs.sinks.end - runs.sinks.begin;
    const int all_runs = n_sinks + runs.window.end - runs.window.begin;
    // With parts of ceil(runs / splits) runs, the last ones may be empty: `used` are not.
    const int each = (all_runs + parts.splits - 1) / parts.splits;
    const int used = (all_runs + each - 1) / each, split = (int)blockIdx.x / n_shared;
    if (split >= used) return;
    const int first_run = split * each, n_runs = min(each, all_runs - first_run);
    auto run_at = [&](int i) {
        i += first_run;
        return i < n_sinks ? runs.sinks.begin + i : runs.window.begin + i - n_sinks;
    };
    auto request_run = [&](int run, int buffer) {
        if constexpr (EIGHT)
            request_8bit<DIM>(a, seq, kv_head, oldest, newest, run,
                              k_buffer + (uint32_t)S::raw_8bit,
                              k_buffer + (uint32_t)S::raw_scales_8bit);
        else
            request<DIM>(a, seq, kv_head, oldest, newest, run,
                         k_buffer + (uint32_t)(buffer * S::buffer_bytes),
                         v_buffer + (uint32_t)(buffer * S::buffer_bytes));
        copy_commit();
    };
    request_run(run_at(0), 0);

    // Q stays in registers as A: words 2 of 16 k in the order in which ldmatrix gives K.
    uint32_t q[DIM / 16][4];
#pragma unroll
    for (int c = 0; c < DIM / 16; c++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = c * 16 + i / 2 * 8 + 2 * t;
            q[c][i] = at < dim ? *(const uint32_t *)(q_from[i % 2] + at) : 0;
        }
    }

    float out[DIM / 8][4] = {};
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
    for (int i = 0; i < n_runs; i++) {
        const int run = run_at(i), buffer = EIGHT ? 0 : i % 2;
        if constexpr (EIGHT) {
            copy_wait<0>();
            __syncthreads();
            widen_run<T, DIM>(shared, a.kv.dtype == DTYPE_I8);
            __syncthreads(); // widened, and the next run's bytes may come
            if (i + 1 < n_runs) request_run(run_at(i + 1), 0);
        } else {
            if (i + 1 < n_runs)
                request_run(run_at(i + 1), 1 - buffer);
            else
                copy_commit();
            copy_wait<1>();
            __syncthreads();
        }
        const uint32_t k = k_buffer + (uint32_t)(buffer * S::buffer_bytes);
        const uint32_t v = v_buffer + (uint32_t)(buffer * S::buffer_bytes);

        float score[KEYS / 8][4] = {};
#pragma unroll
        for (int c = 0; c < DIM / 16; c++) {
#pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {
                // Matrices: keys 0-7 and k 0-7, keys 0-7 and k 8-15, keys 8-15 likewise.
                uint32_t b[4];
                load_matrices(
                    b, k + swizzled<DIM>(n * 16 + lane / 16 * 8 + lane % 8, c * 2 + lane / 8 % 2));
                mma(score[2 * n], q[c], b[0], b[1], T());
                mma(score[2 * n + 1], q[c], b[2], b[3], T());
            }
        }

        if constexpr (EIGHT) {
            const float *scales = (const float *)(shared + S::scales_8bit);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
                const float2 two = *(const float2 *)(scales + n * 8 + 2 * t);
                score[n][0] *= two.x, score[n][1] *= two.y;
                score[n][2] *= two.x, score[n][3] *= two.y;
            }
        }
        const int p0 = run * KEYS;
        const bool all_seen = (p0 >= newest.first && p0 + KEYS - 1 <= oldest.position) ||
                              (p0 >= newest.sink_first && p0 + KEYS <= oldest.sink_end);
        // Scores in powers of two: score * unit.
        const float unit = a.alibi_slopes ? 1.0f : a.scale * LOG2E;
        if (a.alibi_slopes) {
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int p = p0 + n * 8 + 2 * t + e % 2;
                    score[n][e] = score[n][e] * (a.scale * LOG2E) +
                                  slope[e / 2] * (float)(p - mine[e / 2].position);
                }
            }
        }
        if (!all_seen) {
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    if (!sees(mine[e / 2], p0 + n * 8 + 2 * t + e % 2)) score[n][e] = -INFINITY;
                }
            }
        }
        float factor[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float high = top[h];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
                high = fmaxf(high, fmaxf(score[n][2 * h], score[n][2 * h + 1]));
            high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
            high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
            // A row may see nothing of its first runs.
            float from = high == -INFINITY ? 0.0f : high * unit;
            factor[h] = power_of_two(top[h] * unit - from);
            top[h] = high;
            float part = 0.0f;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    score[n][e] = power_of_two(__fmaf_rn(score[n][e], unit, -from));
                    part += score[n][e];
                }
            }
            sum[h] = sum[h] * factor[h] + part;
        }
#pragma unroll
        for (int d = 0; d < DIM / 8; d++) {
            out[d][0] *= factor[0], out[d][1] *= factor[0];
            out[d][2] *= factor[1], out[d][3] *= factor[1];
        }

#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            uint32_t p[4] = {pack2<T>(score[2 * n][0], score[2 * n][1]),
                             pack2<T>(score[2 * n][2], score[2 * n][3]),
                             pack2<T>(score[2 * n + 1][0], score[2 * n + 1][1]),
                             pack2<T>(score[2 * n + 1][2], score[2 * n + 1][3])};
#pragma unroll
            for (int d = 0; d < DIM / 16; d++) {
                // Matrices: keys 0-7 and 8-15 of dimensions 0-7, then of dimensions 8-15.
                uint32_t b[4];
                load_matrices_transposed(b,
                                         v + swizzled<DIM>(n * 16 + lane % 16, d * 2 + lane / 16));
                mma(out[2 * d], p, b[0], b[1], T());
                mma(out[2 * d + 1], p, b[2], b[3], T());
            }
        }
        __syncthreads(); // the buffer is filled again next
    }

#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
    }
    if (used > 1) {
        constexpr int pitch = DIM + 2;
        float *mine_at = parts.data + (size_t)block * parts.splits * ROWS * pitch;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float *to = mine_at + (size_t)(split * ROWS + warp * 16 + h * 8 + g) * pitch;
#pragma unroll
            for (int d = 0; d < DIM / 8; d++)
                *(float2 *)(to + d * 8 + 2 * t) = make_float2(out[d][2 * h], out[d][2 * h + 1]);
            if (t == 0) *(float2 *)(to + DIM) = make_float2(top[h], sum[h]);
        }
        __threadfence();
        __syncthreads();
        int *last = (int *)shared; // K and V are done with
        if (threadIdx.x == 0) *last = atomicAdd(parts.counters + block, 1) == used - 1;
        __syncthreads();
        if (!*last) return;
        __threadfence();
        const float unit = a.alibi_slopes ? 1.0f : a.scale * LOG2E;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float *from = mine_at + (size_t)(warp * 16 + h * 8 + g) * pitch;
            float highest = -INFINITY, weight[MAX_SPLITS];
            for (int s = 0; s < used; s++)
                highest = fmaxf(highest, __ldcg(from + (size_t)s * ROWS * pitch + DIM));
            sum[h] = 0.0f;
#pragma unroll
            for (int d = 0; d < DIM / 8; d++) out[d][2 * h] = out[d][2 * h + 1] = 0.0f;
#pragma unroll
            for (int s = 0; s < MAX_SPLITS; s++) {
                if (s >= used) break;
                const float *part = from + (size_t)s * ROWS * pitch;
                float2 end = __ldcg((const float2 *)(part + DIM));
                weight[s] = power_of_two((end.x - highest) * unit);
                sum[h] += end.y * weight[s];
#pragma unroll
                for (int d = 0; d < DIM / 8; d++) {
                    float2 v = __ldcg((const float2 *)(part + d * 8 + 2 * t));
                    out[d][2 * h] += v.x * weight[s];
                    out[d][2 * h + 1] += v.y * weight[s];
                }
            }
        }
    }

#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = m_block * ROWS + warp * 16 + h * 8 + g;
        if (row > last_row) continue;
        T *to =
            (T *)a.out +
            ((int64_t)(tile.row + row / group) * a.n_heads + kv_head * group + row % group) * dim;
        float inverse = 1.0f / sum[h];
#pragma unroll
        for (int d = 0; d < DIM / 8; d++) {
            int at = d * 8 + 2 * t;
            if (at < dim)
                *(uint32_t *)(to + at) =
                    pack2<T>(out[d][2 * h] * inverse, out[d][2 * h + 1] * inverse);
        }
    }
}

int multiprocessors(void) {
    static int n;
    int device = 0;
    if (n == 0 &&
        (cudaGetDevice(&device) != cudaSuccess ||
         cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) != cudaSuccess))
        n = 1;
    return n;
}

// As many parts as there is room for blocks, on the device and in the work space, whose end the
// decode kernel's counters have (cuda.h).
struct parts parts_for(const struct cuda_attention *a, int64_t blocks, int at_once, int pitch,
                       cudaStream_t stream) {
    struct parts p = {nullptr, nullptr, 1};
    if (a->max_position < SPLIT_POSITIONS) return p;
    size_t head = ((size_t)blocks * sizeof(int) + 127) & ~(size_t)127;
    int splits = (int)min((int64_t)MAX_SPLITS, (int64_t)multiprocessors() * at_once / blocks);
    while (splits > 1 && head + (size_t)(blocks * splits * ROWS * pitch) * sizeof(float) >
                             a->work_bytes / 16 * 15)
        splits--;
    if (splits < 2 || cudaMemsetAsync(a->work, 0, head, stream) != cudaSuccess) return p;
    p.counters = (int *)a->work;
    p.data = (float *)((char *)a->work + head);
    p.splits = splits;
    return p;
}

template <typename T, bool EIGHT, int DIM>
void launch(const struct cuda_attention *a, cudaStream_t stream) {
    auto kernel = prefill_kernel<T, EIGHT, DIM>;
    constexpr size_t bytes = EIGHT ? shape<DIM>::bytes_8bit : shape<DIM>::bytes;
    static bool raised; // a failure shows at the launch
    if (!raised)
        raised = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)bytes) == cudaSuccess;
    int group = a->n_heads / a->kv.n_kv_heads;
    int m_blocks = (CUDA_TILE_ROWS * group + ROWS - 1) / ROWS;
    int64_t blocks = (int64_t)a->n_tiles * a->kv.n_kv_heads * m_blocks;
    struct parts parts = parts_for(a, blocks, DIM <= 128 ? 2 : 1, DIM + 2, stream);
    pdl_launch(kernel, dim3((unsigned)(blocks * parts.splits)), dim3(THREADS), bytes, stream, *a,
               m_blocks, parts);
}

template <typename T, bool EIGHT>
void launch_cached(const struct cuda_attention *a, cudaStream_t stream) {
    int dim = a->kv.head_dim;
    if (dim <= 64)
        launch<T, EIGHT, 64>(a, stream);
    else if (dim <= 128)
        launch<T, EIGHT, 128>(a, stream);
    else
        launch<T, EIGHT, 256>(a, stream);
}

template <typename T> void launch_typed(const struct cuda_attention *a, cudaStream_t stream) {
    if (kv_is_8bit(a->kv.dtype))
        launch_cached<T, true>(a, stream);
    else
        launch_cached<T, false>(a, stream);
}

} // namespace

int cuda_attention_prefill(const struct cuda_attention *a, cudaStream_t stream) {
    if (a->n_tiles == 0) return 0;
    if ((a->dtype != DTYPE_BF16 && a->dtype != DTYPE_F16) ||
        (a->kv.dtype != a->dtype && !kv_is_8bit(a->kv.dtype)) || a->kv.head_dim % 16 != 0 ||
        a->kv.head_dim > 256 || a->n_heads % a->kv.n_kv_heads != 0)
        return CUDA_NOT_MINE;
    if (a->dtype == DTYPE_BF16)
        launch_typed<__nv_bfloat16>(a, stream);
    else
        launch_typed<__half>(a, stream);
    return cuda_launched("attention_prefill");
}
