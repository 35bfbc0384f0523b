// Attention whose bits do not depend on the batch, the chunks and the history (`deterministic`), of
// tiles and decode rows alike: the products of attention_prefill.cu, 16 bits alone, in an order that
// follows from absolute positions.
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
//   - 16-byte words of a row of shared memory are swizzled by the row's number: the 8 rows that
//     ldmatrix takes at once lie in different banks.
//
// Runs in which a row sees nothing leave what it has untouched (factor 1, probabilities 0), so its bits do not
// depend on the rows beside it. The softmax starts anew at absolute multiples of 512 positions, and
// these parts are merged in ascending order: a decode row is a tile of one row whose parts several
// blocks may compute, and the last one that is done merges them in the same order, by the same
// operations.
#include "kernels/cuda/attention_exact.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pdl.cuh"
#include <math.h>

namespace {

constexpr int WARPS = 4, THREADS = WARPS * 32, ROWS = WARPS * 16, KEYS = 64;
constexpr float LOG2E = 1.4426950408889634f;
constexpr int PART_RUNS = 512 / KEYS; // runs of a part
constexpr int COUNTERS = 16 * 1024;   // of units under way; the end of the work space
constexpr int BLOCKS_WANTED = 1000;   // of decode rows, before parts are no longer divided

template <int DIM> struct shape {         // DIM: head_dim rounded up to 64, 128 or 256
    static constexpr int words = DIM / 8; // of 16 bytes in a row of shared memory
    static constexpr size_t buffer_bytes = (size_t)KEYS * DIM * 2;
    static constexpr size_t bytes = 4 * buffer_bytes; // K, K, V, V
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

// The parts that a list of runs falls into, numbered as they come.
struct parts {
    int n, n_sinks; // of all; of those that begin among the sinks
    int first_sink, first_window;
    bool joint; // the last of the sinks' is the window's first
};

__device__ __forceinline__ struct parts parts_of(const struct runs &r) {
    struct parts p;
    p.first_sink = r.sinks.begin / PART_RUNS, p.first_window = r.window.begin / PART_RUNS;
    p.n_sinks = r.sinks.end > r.sinks.begin ? (r.sinks.end - 1) / PART_RUNS - p.first_sink + 1 : 0;
    p.joint = p.n_sinks > 0 && p.first_sink + p.n_sinks - 1 == p.first_window;
    p.n = p.n_sinks + (r.window.end - 1) / PART_RUNS - p.first_window + 1 - (int)p.joint;
    return p;
}
// Where part i begins in the list.
__device__ __forceinline__ int part_begin(const struct parts &p, const struct runs &r, int i) {
    int n_sinks = r.sinks.end - r.sinks.begin;
    if (i >= p.n) return n_sinks + r.window.end - r.window.begin;
    if (i < p.n_sinks) return max((p.first_sink + i) * PART_RUNS - r.sinks.begin, 0);
    int part = p.first_window + i - p.n_sinks + (int)p.joint;
    return n_sinks + max(part * PART_RUNS - r.window.begin, 0);
}

// Decode rows by tiles: how their parts are divided.
struct division {
    int32_t splits;    // blocks for a row's heads; 0: the tiles
    int32_t capacity;  // parts that there is room for, of each unit (row, kv head, block of heads)
    float *held;       // (units, capacity, rows, pitch)
    int32_t *counters; // (COUNTERS), zero before and after
};
template <int DIM>
constexpr int part_pitch = DIM + 8; // sums, largest score, four lanes' sums of probabilities

// What a later part does to what is there: factors of either, from the largest scores so far.
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

// A unit's parts, all of them held, to the output.
template <typename T, int DIM>
__device__ __forceinline__ void merge_held(const struct cuda_attention &a, const float *held,
                                           int n_parts, int rows, T *out, float unit) {
    constexpr int pitch = part_pitch<DIM>;
    const int dim = a.kv.head_dim;
    for (int i = (int)threadIdx.x; i < rows * dim; i += THREADS) {
        const float *from = held + i / dim * pitch;
        float top = -INFINITY, value = 0.0f, sum[4] = {};
        for (int part = 0; part < n_parts; part++, from += rows * pitch) {
            struct merging m = merging_of(top, __ldcg(from + DIM), unit);
            top = m.top;
            value = merged(m, value, __ldcg(from + i % dim));
#pragma unroll
            for (int t = 0; t < 4; t++) sum[t] = merged(m, sum[t], __ldcg(from + DIM + 1 + t));
        }
        float inverse = 1.0f / __fadd_rn(__fadd_rn(sum[0], sum[1]), __fadd_rn(sum[2], sum[3]));
        out[i] = from_float<T>(__fmul_rn(value, inverse));
    }
}

template <typename T, int DIM, bool EXACT>
__global__ void __launch_bounds__(THREADS, DIM <= 128 ? 2 : 1)
    exact_kernel(const __grid_constant__ struct cuda_attention a, int m_blocks,
                   const __grid_constant__ struct division by) {
    using S = shape<DIM>;
    extern __shared__ __align__(128) char shared[];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    const int dim = a.kv.head_dim, group = a.n_heads / a.kv.n_kv_heads;
    pdl_trigger();
    // Heads innermost, so that blocks with the same keys run together; the last tokens, which see
    // most, first.
    const bool decode = EXACT && by.splits > 0;
    const int block = decode ? (int)blockIdx.x / by.splits : (int)blockIdx.x;
    const int kv_head = block % a.kv.n_kv_heads, at = block / a.kv.n_kv_heads;
    const int m_block = m_blocks - 1 - at % m_blocks;
    struct cuda_tile tile;
    if (decode) {
        tile.row = a.b.decode_rows[at / m_blocks], tile.n_rows = 1;
        tile.seq = tile.row < 0 ? -1 : a.b.row_seq[tile.row];
    } else {
        tile = a.b.tiles[a.n_tiles - 1 - at / m_blocks];
    }
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

    const uint32_t k_buffer = shared_address(shared), v_buffer = k_buffer + 2 * S::buffer_bytes;
    const struct runs runs = runs_of(oldest, newest);
    const int n_sinks = runs.sinks.end - runs.sinks.begin;
    const int n_runs = n_sinks + runs.window.end - runs.window.begin;
    auto run_at = [&](int i) {
        return i < n_sinks ? runs.sinks.begin + i : runs.window.begin + i - n_sinks;
    };
    // This block's part of the list, and the first of its parts.
    int begin = 0, end = n_runs, part = 0;
    bool divided = false;
    struct parts parts;
    if (EXACT && by.splits > 1) {
        parts = parts_of(runs);
        const int split = (int)blockIdx.x % by.splits;
        divided = parts.n <= by.capacity && parts.n > 1;
        if (!divided && split > 0) return;
        if (divided) {
            part = split * parts.n / by.splits;
            begin = part_begin(parts, runs, part);
            end = part_begin(parts, runs, (split + 1) * parts.n / by.splits);
        }
    }
    if (begin < end)
        request<DIM>(a, seq, kv_head, oldest, newest, run_at(begin), k_buffer, v_buffer);
    copy_commit();

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
    const float unit = a.alibi_slopes ? 1.0f : a.scale * LOG2E;
    const bool works =
        warp * 16 < n_rows - m_block * ROWS; // a decode row fills one warp; the others fetch
    const int held_rows = min(group, ROWS);
    // Of what has been summed: the parts before this one.
    float total[EXACT ? DIM / 8 : 1][4] = {};
    float total_top[2] = {-INFINITY, -INFINITY}, total_sum[2] = {0.0f, 0.0f};
    auto end_part = [&] {
        if (divided) {
            float *to =
                by.held + ((int64_t)block * by.capacity + part) * held_rows * part_pitch<DIM>;
            part++;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int row = warp * 16 + h * 8 + g;
                if (m_block * ROWS + row >= n_rows) continue;
                float *mine_to = to + row * part_pitch<DIM>;
#pragma unroll
                for (int d = 0; d < DIM / 8; d++)
                    __stcg((float2 *)(mine_to + d * 8 + 2 * t),
                           make_float2(out[d][2 * h], out[d][2 * h + 1]));
                __stcg(mine_to + DIM + 1 + t, sum[h]);
                if (t == 0) __stcg(mine_to + DIM, top[h]);
            }
        }
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
        const int run = run_at(i), buffer = (i - begin) % 2;
        if (EXACT && i > begin && run / PART_RUNS != run_at(i - 1) / PART_RUNS) end_part();
        if (i + 1 < end)
            request<DIM>(a, seq, kv_head, oldest, newest, run_at(i + 1),
                         k_buffer + (uint32_t)((1 - buffer) * S::buffer_bytes),
                         v_buffer + (uint32_t)((1 - buffer) * S::buffer_bytes));
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        const uint32_t k = k_buffer + (uint32_t)(buffer * S::buffer_bytes);
        const uint32_t v = v_buffer + (uint32_t)(buffer * S::buffer_bytes);
        if (EXACT && !works) {
            __syncthreads();
            continue;
        }

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

        const int p0 = run * KEYS;
        const bool all_seen = (p0 >= newest.first && p0 + KEYS - 1 <= oldest.position) ||
                              (p0 >= newest.sink_first && p0 + KEYS <= oldest.sink_end);
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
            float from = high == -INFINITY ? 0.0f : __fmul_rn(high, unit);
            factor[h] =
                power_of_two(__fsub_rn(__fmul_rn(top[h], unit), from)); // 1 where nothing is new
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
    if (EXACT) {
        if (begin < end) end_part();
        if (divided) {
            __shared__ bool last;
            asm volatile("fence.acq_rel.gpu;" ::: "memory");
            __syncthreads();
            if (threadIdx.x == 0) last = atomicAdd(by.counters + block, 1) == by.splits - 1;
            __syncthreads();
            if (!last) return;
            asm volatile("fence.acq_rel.gpu;" ::: "memory");
            if (threadIdx.x == 0) by.counters[block] = 0;
            const int head = kv_head * group + m_block * ROWS;
            merge_held<T, DIM>(a,
                               by.held + (int64_t)block * by.capacity * held_rows * part_pitch<DIM>,
                               parts.n, min(held_rows, n_rows - m_block * ROWS),
                               (T *)a.out + ((int64_t)tile.row * a.n_heads + head) * dim, unit);
            return;
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sum[h] = total_sum[h];
#pragma unroll
            for (int d = 0; d < DIM / 8; d++)
                out[d][2 * h] = total[EXACT ? d : 0][2 * h],
                           out[d][2 * h + 1] = total[EXACT ? d : 0][2 * h + 1];
        }
    }

#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
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
                *(uint32_t *)(to + at) = pack2<T>(__fmul_rn(out[d][2 * h], inverse),
                                                  __fmul_rn(out[d][2 * h + 1], inverse));
        }
    }
}

// The decode rows if `decode`, else the tiles.
template <typename T, int DIM, bool EXACT>
void launch(const struct cuda_attention *a, bool decode, cudaStream_t stream) {
    auto kernel = exact_kernel<T, DIM, EXACT>;
    static bool raised; // a failure shows at the launch
    if (!raised)
        raised = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)shape<DIM>::bytes) == cudaSuccess;
    int group = a->n_heads / a->kv.n_kv_heads;
    int m_blocks = ((decode ? 1 : CUDA_TILE_ROWS) * group + ROWS - 1) / ROWS;
    int units = (decode ? a->n_decode : a->n_tiles) * a->kv.n_kv_heads * m_blocks;
    struct division by = {};
    if (decode) {
        // What a row is divided into changes its speed, not its bits.
        size_t held = (size_t)(group < ROWS ? group : ROWS) * part_pitch<DIM> * sizeof(float);
        size_t counters = COUNTERS * sizeof(int32_t), room = a->work_bytes / 16 * 16;
        int most = (a->max_position + 511) / 512, splits = (BLOCKS_WANTED + units - 1) / units;
        by.splits = splits < most ? splits : most;
        by.held = (float *)a->work;
        if (units <= COUNTERS && room > counters) {
            size_t each = (room - counters) / (size_t)units / held;
            by.capacity = each < (1 << 20) ? (int32_t)each : 1 << 20;
            by.counters = (int32_t *)((char *)a->work + room - counters);
        } else {
            by.splits = 1;
        }
    }
    pdl_launch(kernel, dim3((unsigned)(units * (decode ? by.splits : 1))), dim3(THREADS),
               shape<DIM>::bytes, stream, *a, m_blocks, by);
}

template <typename T, bool EXACT>
void launch_typed(const struct cuda_attention *a, bool decode, cudaStream_t stream) {
    int dim = a->kv.head_dim;
    if (dim <= 64)
        launch<T, 64, EXACT>(a, decode, stream);
    else if (dim <= 128)
        launch<T, 128, EXACT>(a, decode, stream);
    else
        launch<T, 256, EXACT>(a, decode, stream);
}

// Of heads beyond 128, those of 256 alone: with 192 rows were seen whose bits depended on their
// company (f16, blocks of 128), and why is not known.
bool covers(const struct cuda_attention *a) {
    int dim = a->kv.head_dim;
    return (a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16) && a->kv.dtype == a->dtype &&
           dim % 16 == 0 && (dim <= 128 || dim == 256) && a->n_heads % a->kv.n_kv_heads == 0;
}

} // namespace

int cuda_attention_exact(const struct cuda_attention *a, cudaStream_t stream) {
    if (!covers(a)) return CUDA_NOT_MINE;
    for (int decode = 0; decode < 2; decode++) {
        if ((decode ? a->n_decode : a->n_tiles) == 0) continue;
        if (a->dtype == DTYPE_BF16)
            launch_typed<__nv_bfloat16, true>(a, decode, stream);
        else
            launch_typed<__half, true>(a, decode, stream);
    }
    return cuda_launched("attention_exact");
}
