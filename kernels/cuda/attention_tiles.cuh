// Attention of tiles of query rows over the block ring: out = softmax(scale q.k + alibi) v over
// what each row sees. bf16 and f16, with a cache of the same or of 8 bits, head_dim a multiple of
// 16 up to 256. EXACT: in an order that follows from absolute positions alone, for decode rows as
// well (attention_exact.cu).
//
// Bound by the tensor cores: 4 * keys * head_dim operations for each (row, head). mma.sync with 16
// query rows a warp is held back by shared memory (each word of K and V feeds one product a warp).
//
//   - A block takes 64 query rows of one kv head: (token, head of the group) pairs, tokens
//     outermost, so that a group's heads share the keys and values in shared memory and a short
//     tile wastes little.
//   - K and V each have two buffers, filled by asynchronous copies while the other is worked on; 8
//     bits one, since the next run's bytes have a place of their own meanwhile.
//   - Online softmax in F32 (Dao et al., FlashAttention-2); the scores' registers become the
//     probabilities' operand without a shuffle. A run in which a row sees no key does not change the
//     row's sums (factor 1, probabilities 0), so a row's bits do not depend on other rows.
//   - A few rows on a long context (a later turn, a decode row) are fewer blocks than fit. Then
//     several blocks share rows, each with a part of the runs, and the last block merges the parts
//     in the order of the runs. EXACT: the softmax restarts at absolute multiples of PART_RUNS runs,
//     whether blocks share or not, and these parts are merged in ascending order, by the same
//     operations in registers and in memory.
#pragma once
#include "kernels/cuda/attention_exact.h"
#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/pdl.cuh"
#include <math.h>

namespace {

constexpr int PART_RUNS = 256 / KEYS;
constexpr float LOG2E = 1.4426950408889634f;

// Blocks that share a unit's runs (a unit: 64 rows of a kv head), and where their parts meet.
struct sharing {
    int32_t splits;    // blocks of a unit; 1: not shared
    int32_t capacity;  // parts that there is room for, of each unit
    float *held;       // (units, capacity, rows, part_pitch)
    int32_t *counters; // (units), zero before and after
};
template <int DIM>
constexpr int part_pitch = DIM + 8; // sums, largest score, four lanes' sums of probabilities

// The parts of a unit's list of runs.
struct parts {
    int n;
    int each;    // runs of one, but the last one's may be fewer; EXACT:
    int n_sinks; // parts that begin among the sinks
    int first_sink, first_window;
    bool joint; // the last of the sinks' is the window's first
};

__device__ __forceinline__ struct parts even_parts(int n_runs, int splits) {
    struct parts p = {};
    p.each = (n_runs + splits - 1) / splits;
    p.n = (n_runs + p.each - 1) / p.each; // none is empty
    return p;
}
__device__ __forceinline__ struct parts fixed_parts(const struct runs &r) {
    struct parts p = {};
    p.first_sink = r.sinks.begin / PART_RUNS, p.first_window = r.window.begin / PART_RUNS;
    p.n_sinks = r.sinks.end > r.sinks.begin ? (r.sinks.end - 1) / PART_RUNS - p.first_sink + 1 : 0;
    p.joint = p.n_sinks > 0 && p.first_sink + p.n_sinks - 1 == p.first_window;
    p.n = p.n_sinks + (r.window.end - 1) / PART_RUNS - p.first_window + 1 - (int)p.joint;
    return p;
}
// Where part i begins in the list.
__device__ __forceinline__ int part_begin(const struct parts &p, const struct runs &r, int i) {
    const int n_sinks = r.sinks.end - r.sinks.begin;
    if (i >= p.n) return n_sinks + r.window.end - r.window.begin;
    if (p.each) return i * p.each;
    if (i < p.n_sinks) return max((p.first_sink + i) * PART_RUNS - r.sinks.begin, 0);
    const int part = p.first_window + i - p.n_sinks + (int)p.joint;
    return n_sinks + max(part * PART_RUNS - r.window.begin, 0);
}

// Merges a later part: the factors of the sums so far and of the part, from their largest scores.
struct merging {
    float top, old_factor, new_factor;
};
__device__ __forceinline__ struct merging merging_of(float top, float other, float unit) {
    float high = fmaxf(top, other), from = high == -INFINITY ? 0.0f : __fmul_rn(high, unit);
    return {high, power_of_two(__fsub_rn(__fmul_rn(top, unit), from)),
            power_of_two(__fsub_rn(__fmul_rn(other, unit), from))};
}
__device__ __forceinline__ float merged(const struct merging &m, float old, float part) {
    return __fmaf_rn(old, m.old_factor, __fmul_rn(part, m.new_factor));
}

// A block's rows: `n_rows` of a kv head, (token, head of the group) pairs from the tile's
// `first`-th on.
struct block_rows {
    int first, n_rows, token, head, group; // token: the tile's first; head: the group's first
};
__device__ __forceinline__ int64_t output_of(const struct cuda_attention &a,
                                             const struct block_rows &b, int row) {
    row += b.first;
    return ((int64_t)(b.token + row / b.group) * a.n_heads + b.head + row % b.group) *
           a.kv.head_dim;
}

// What the sink of a row's head adds to its sum of powers of two, of which `top` is the largest.
__device__ __forceinline__ float sink_of(const struct cuda_attention &a, const struct block_rows &b,
                                         int row, float top) {
    if (!a.sinks) return 0.0f;
    return power_of_two(__fmaf_rn(a.sinks[b.head + (row + b.first) % b.group], LOG2E, -top));
}

// A unit's parts, all of them held, to the output.
template <typename T, int DIM>
__device__ __forceinline__ void merge_held(const struct cuda_attention &a, const float *held,
                                           int n_parts, int held_rows, const struct block_rows &b,
                                           float unit) {
    constexpr int pitch = part_pitch<DIM>;
    const int pairs = a.kv.head_dim / 2;
    for (int i = (int)threadIdx.x; i < b.n_rows * pairs; i += THREADS) {
        const int row = i / pairs, d = i % pairs * 2;
        const float *from = held + row * pitch;
        float top = -INFINITY, x = 0.0f, y = 0.0f, sum[4] = {};
#pragma unroll 4
        for (int part = 0; part < n_parts; part++, from += held_rows * pitch) {
            const float2 v = __ldcg((const float2 *)(from + d));
            const float4 s = __ldcg((const float4 *)(from + DIM + 4));
            struct merging m = merging_of(top, __ldcg(from + DIM), unit);
            top = m.top;
            x = merged(m, x, v.x), y = merged(m, y, v.y);
            sum[0] = merged(m, sum[0], s.x), sum[1] = merged(m, sum[1], s.y);
            sum[2] = merged(m, sum[2], s.z), sum[3] = merged(m, sum[3], s.w);
        }
        const float all = __fadd_rn(__fadd_rn(sum[0], sum[1]), __fadd_rn(sum[2], sum[3]));
        float inverse = 1.0f / __fadd_rn(all, sink_of(a, b, row, __fmul_rn(top, unit)));
        *(uint32_t *)((T *)a.out + output_of(a, b, row) + d) =
            pack2<T>(__fmul_rn(x, inverse), __fmul_rn(y, inverse));
    }
}

// The last block of a unit, which finds all of its parts; the others are done. For all threads.
__device__ __forceinline__ bool comes_last(int32_t *counter, int blocks) {
    __shared__ bool last;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1) == blocks - 1;
        if (last) *counter = 0;
    }
    __syncthreads();
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    return last;
}

// EIGHT: the cache has 8 bits, else T. decode: EXACT's blocks are for decode rows, else for tiles.
template <typename T, bool EIGHT, int DIM, bool EXACT>
__global__ void __launch_bounds__(THREADS, DIM <= 128 ? 2 : 1)
    tiles_kernel(const __grid_constant__ struct cuda_attention a, int m_blocks, bool decode,
                 const __grid_constant__ struct sharing by) {
    using S = shape<DIM>;
    extern __shared__ __align__(128) char shared[];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    const int dim = a.kv.head_dim, group = a.n_heads / a.kv.n_kv_heads;
    pdl_trigger();
    // Heads innermost, so that blocks with the same keys run together; the last tokens, which see
    // most, first.
    const int n_units = (int)gridDim.x / by.splits, block = (int)blockIdx.x % n_units;
    const int split = (int)blockIdx.x / n_units;
    const int kv_head = block % a.kv.n_kv_heads, at = block / a.kv.n_kv_heads;
    const int m_block = m_blocks - 1 - at % m_blocks;
    struct cuda_tile tile;
    if (EXACT && decode) {
        tile.row = a.b.decode_rows[at / m_blocks], tile.n_rows = 1;
        tile.seq = tile.row < 0 ? -1 : a.b.row_seq[tile.row];
    } else {
        tile = a.b.tiles[a.n_tiles - 1 - at / m_blocks];
    }
    const int n_rows = tile.n_rows * group; // query rows of this kv head
    // A decode row's keys of earlier steps are requested before the wait.
    bool waited = !(EXACT && decode);
    if (waited) pdl_wait();
    if (tile.seq < 0 || m_block * ROWS >= n_rows) {
        if (!waited) pdl_wait();
        return;
    }
    const struct cuda_seq seq = a.b.seqs[tile.seq];
    const int first_position = a.b.positions[tile.row];

    // This lane's two rows, and the block's first and last token.
    const int last_row = min(m_block * ROWS + ROWS, n_rows) - 1;
    const struct block_rows rows = {m_block * ROWS, last_row + 1 - m_block * ROWS, tile.row,
                                    kv_head * group, group};
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
        q_from[h] = (const T *)a.qkv + ((int64_t)(tile.row + token) * a.row_heads + head) * dim;
    }

    const uint32_t k_buffer = shared_address(shared);
    const uint32_t v_buffer = k_buffer + (EIGHT ? 1 : 2) * S::buffer_bytes;
    const struct runs runs = runs_of(oldest, newest);
    const int n_sinks = runs.sinks.end - runs.sinks.begin;
    const int n_runs = n_sinks + runs.window.end - runs.window.begin;
    auto run_at = [&](int i) {
        return i < n_sinks ? runs.sinks.begin + i : runs.window.begin + i - n_sinks;
    };
    // This block's part of the list, and the first of its parts.
    int begin = 0, end = n_runs, part = 0, blocks = 1; // blocks that share
    struct parts parts;
    if (by.splits > 1) {
        parts = EXACT ? fixed_parts(runs) : even_parts(n_runs, by.splits);
        if (parts.n > 1 && parts.n <= by.capacity) blocks = min(by.splits, parts.n);
        if (split >= blocks) {
            if (!waited) pdl_wait();
            return;
        }
        part = split * parts.n / blocks;
        if (blocks > 1) {
            begin = part_begin(parts, runs, part);
            end = part_begin(parts, runs, (split + 1) * parts.n / blocks);
        }
    }
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
    if (!waited && (run_at(begin) + 1) * KEYS > first_position) {
        pdl_wait();
        waited = true;
    }
    request_run(run_at(begin), 0);
    if (!waited) pdl_wait();

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
    // Scores in powers of two: score * unit.
    const float unit = a.alibi_slopes || a.soft_cap != 0.0f ? 1.0f : a.scale * LOG2E;
    const float inverse_cap = a.soft_cap != 0.0f ? a.scale / a.soft_cap : 0.0f;
    const bool works = warp * 16 < rows.n_rows; // a decode row fills one warp; the others fetch
    const int held_rows = EXACT && decode ? min(group, ROWS) : ROWS;
    auto hold_part = [&] {
        float *to = by.held + ((int64_t)block * by.capacity + part) * held_rows * part_pitch<DIM>;
        part++;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = warp * 16 + h * 8 + g;
            if (row >= rows.n_rows) continue;
            float *mine_to = to + row * part_pitch<DIM>;
#pragma unroll
            for (int d = 0; d < DIM / 8; d++)
                __stcg((float2 *)(mine_to + d * 8 + 2 * t),
                       make_float2(out[d][2 * h], out[d][2 * h + 1]));
            __stcg(mine_to + DIM + 4 + t, sum[h]);
            if (t == 0) __stcg(mine_to + DIM, top[h]);
        }
    };
    // The sums of the parts before this one.
    float total[EXACT ? DIM / 8 : 1][4] = {};
    float total_top[2] = {-INFINITY, -INFINITY}, total_sum[2] = {0.0f, 0.0f};
    auto end_part = [&] {
        if (blocks > 1) hold_part();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            struct merging m = merging_of(total_top[h], top[h], unit);
            total_top[h] = m.top, total_sum[h] = merged(m, total_sum[h], sum[h]);
            top[h] = -INFINITY, sum[h] = 0.0f;
#pragma unroll
            for (int d = 0; d < DIM / 8; d++) {
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    float &all = total[EXACT ? d : 0][e];
                    all = merged(m, all, out[d][e]);
                    out[d][e] = 0.0f;
                }
            }
        }
    };
    for (int i = begin; i < end; i++) {
        const int run = run_at(i), buffer = EIGHT ? 0 : (i - begin) % 2;
        if (EXACT && i > begin && run / PART_RUNS != run_at(i - 1) / PART_RUNS) end_part();
        if constexpr (EIGHT) {
            copy_wait<0>();
            __syncthreads();
            widen_run<T, DIM>(shared, a.kv.dtype == DTYPE_I8);
            __syncthreads(); // widened, and the next run's bytes may come
            if (i + 1 < end) request_run(run_at(i + 1), 0);
        } else {
            if (i + 1 < end)
                request_run(run_at(i + 1), 1 - buffer);
            else
                copy_commit();
            copy_wait<1>();
            __syncthreads();
        }
        const uint32_t k = k_buffer + (uint32_t)(buffer * S::buffer_bytes);
        const uint32_t v = v_buffer + (uint32_t)(buffer * S::buffer_bytes);
        if (!EXACT || works) {
            float score[KEYS / 8][4] = {};
#pragma unroll
            for (int c = 0; c < DIM / 16; c++) {
#pragma unroll
                for (int n = 0; n < KEYS / 16; n++) {
                    // Matrices: keys 0-7 and k 0-7, keys 0-7 and k 8-15, keys 8-15 likewise.
                    uint32_t b[4];
                    load_matrices(b, k + swizzled<DIM>(n * 16 + lane / 16 * 8 + lane % 8,
                                                       c * 2 + lane / 8 % 2));
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
            if (a.soft_cap != 0.0f) {
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        score[n][e] = soft_capped(score[n][e], a.soft_cap * LOG2E, inverse_cap);
                }
            }
            if (a.alibi_slopes) {
                const float before = a.soft_cap != 0.0f ? 1.0f : a.scale * LOG2E;
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        int p = p0 + n * 8 + 2 * t + e % 2;
                        score[n][e] =
                            score[n][e] * before + slope[e / 2] * (float)(p - mine[e / 2].position);
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
                float from = high == -INFINITY ? 0.0f : __fmul_rn(high, unit);
                factor[h] = power_of_two(
                    __fsub_rn(__fmul_rn(top[h], unit), from)); // 1 where nothing is new
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
                    load_matrices_transposed(
                        b, v + swizzled<DIM>(n * 16 + lane % 16, d * 2 + lane / 16));
                    mma(out[2 * d], p, b[0], b[1], T());
                    mma(out[2 * d + 1], p, b[2], b[3], T());
                }
            }
        }
        __syncthreads(); // the buffer is filled again next
    }
    if (EXACT)
        end_part();
    else if (blocks > 1)
        hold_part();
    if (blocks > 1) {
        if (comes_last(by.counters + block, blocks))
            merge_held<T, DIM>(a,
                               by.held + (int64_t)block * by.capacity * held_rows * part_pitch<DIM>,
                               parts.n, held_rows, rows, unit);
        return;
    }

#pragma unroll
    for (int h = 0; h < 2; h++) {
        float all = EXACT ? total_sum[h] : sum[h];
        all += __shfl_xor_sync(0xffffffffu, all, 1);
        all += __shfl_xor_sync(0xffffffffu, all, 2);
        int row = warp * 16 + h * 8 + g;
        if (row >= rows.n_rows) continue;
        T *to = (T *)a.out + output_of(a, rows, row);
        const float highest = EXACT ? total_top[h] : top[h];
        float inverse = 1.0f / __fadd_rn(all, sink_of(a, rows, row, __fmul_rn(highest, unit)));
#pragma unroll
        for (int d = 0; d < DIM / 8; d++) {
            const float(&v)[4] = EXACT ? total[EXACT ? d : 0] : out[d];
            int at = d * 8 + 2 * t;
            if (at < dim)
                *(uint32_t *)(to + at) =
                    pack2<T>(__fmul_rn(v[2 * h], inverse), __fmul_rn(v[2 * h + 1], inverse));
        }
    }
}

// Bytes of the work space before the counters.
inline size_t parts_room(const struct cuda_attention *a) {
    const size_t counters = (size_t)(CUDA_TILE_COUNTERS + CUDA_DECODE_COUNTERS) * sizeof(int32_t);
    return a->work_bytes > counters ? (a->work_bytes - counters) & ~(size_t)255 : 0;
}

// Blocks run in waves, as many at once as there is room for. The number of parts, `most` at most,
// with the shortest waves in sum; a part costs about 2 % of a unit beside its keys. It depends on
// the step, so `deterministic` does not use it.
inline int parts_in_waves(int64_t units, int64_t room, int most) {
    double least = INFINITY;
    int best = 1;
    for (int s = 1; s <= most; s++) {
        const int64_t waves = (units * s + room - 1) / room;
        const double cost = (double)waves * (1.0 / s + 0.02);
        if (cost < least * 0.98) least = cost, best = s;
    }
    return best;
}

// The decode rows if `decode`, else the tiles. share(units, bytes of a part): how units are
// divided.
template <typename T, bool EIGHT, int DIM, bool EXACT, typename Share>
void launch(const struct cuda_attention *a, bool decode, Share share, cudaStream_t stream) {
    auto kernel = tiles_kernel<T, EIGHT, DIM, EXACT>;
    constexpr size_t bytes = EIGHT ? shape<DIM>::bytes_8bit : shape<DIM>::bytes;
    cuda_allow_shared((const void *)kernel, bytes);
    const int group = a->n_heads / a->kv.n_kv_heads;
    const int m_blocks = ((decode ? 1 : CUDA_TILE_ROWS) * group + ROWS - 1) / ROWS;
    const int held_rows = decode && group < ROWS ? group : ROWS;
    const int64_t units =
        (int64_t)(decode ? a->n_decode : a->n_tiles) * a->kv.n_kv_heads * m_blocks;
    const size_t counters = CUDA_TILE_COUNTERS * sizeof(int32_t);
    const size_t room = parts_room(a);
    const size_t each = (size_t)held_rows * part_pitch<DIM> * sizeof(float);
    struct sharing by = {1, 0, (float *)a->work, NULL};
    if (room > 0 && units <= CUDA_TILE_COUNTERS) {
        const size_t most = room / ((size_t)units * each);
        by.capacity = most < (1 << 20) ? (int32_t)most : 1 << 20;
        by.counters = (int32_t *)((char *)a->work + (a->work_bytes - counters) / 4 * 4);
        by.splits = share(units, by.capacity, DIM <= 128 ? 2 : 1);
    }
    pdl_launch(kernel, dim3((unsigned)(units * by.splits)), dim3(THREADS), bytes, stream, *a,
               m_blocks, decode, by);
}

template <typename T, bool EIGHT, bool EXACT, typename Share>
void launch_sized(const struct cuda_attention *a, bool decode, Share share, cudaStream_t stream) {
    const int dim = a->kv.head_dim;
    if (dim <= 64)
        launch<T, EIGHT, 64, EXACT>(a, decode, share, stream);
    else if (dim <= 128)
        launch<T, EIGHT, 128, EXACT>(a, decode, share, stream);
    else
        launch<T, EIGHT, 256, EXACT>(a, decode, share, stream);
}

template <bool EXACT, typename Share>
void launch_typed(const struct cuda_attention *a, bool decode, Share share, cudaStream_t stream) {
    const bool eight = kv_is_8bit(a->kv.dtype);
    if (a->dtype == DTYPE_BF16)
        eight ? launch_sized<__nv_bfloat16, true, EXACT>(a, decode, share, stream)
              : launch_sized<__nv_bfloat16, false, EXACT>(a, decode, share, stream);
    else
        eight ? launch_sized<__half, true, EXACT>(a, decode, share, stream)
              : launch_sized<__half, false, EXACT>(a, decode, share, stream);
}

template <int DIM> size_t shared_of(bool eight) {
    return eight ? shape<DIM>::bytes_8bit : shape<DIM>::bytes;
}

// Heads over 128 need more shared memory than a block has on sm_86, sm_89 and sm_120 (99 KB).
bool tiles_have_room(const struct cuda_attention *a) {
    const size_t most = (size_t)cuda_current_device().shared_per_block;
    const bool eight = kv_is_8bit(a->kv.dtype);
    const int dim = a->kv.head_dim;
    return (dim <= 64    ? shared_of<64>(eight)
            : dim <= 128 ? shared_of<128>(eight)
                         : shared_of<256>(eight)) <= most;
}

bool tiles_cover(const struct cuda_attention *a) {
    return (a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16) &&
           (a->kv.dtype == a->dtype || kv_is_8bit(a->kv.dtype)) && a->kv.head_dim % 16 == 0 &&
           a->kv.head_dim <= 256 && a->n_heads % a->kv.n_kv_heads == 0 && tiles_have_room(a);
}

} // namespace
