// Data of decode attention (attention_decode.cu, attention_fresh.cu): the keys that a row sees, the
// items that they are divided into, and the work space for heads that several blocks share.
#pragma once
#include "kernels/cuda/attention_8bit.cuh"
#include "kernels/cuda/attention_exact.h"
#include "kernels/cuda/pdl.cuh"
#include <type_traits>

namespace {

constexpr int WARPS = 4, THREADS = WARPS * 32, RUN = 16, MAX_SPLITS = 64;
constexpr int SPLIT_RUNS = 16; // at least
constexpr size_t TILE_COUNTERS = CUDA_TILE_COUNTERS * sizeof(int32_t);
constexpr float LOG2E = 1.4426950408889634f;

struct decode {
    struct cuda_attention a;
    int32_t n_rows;             // decode rows
    int32_t n_chunks;           // of at most 8 * HALVES query heads, of each kv head
    int32_t heads_at;           // FRESH: in shared memory
    int32_t *counters;          // (n_rows, n_kv_heads, n_chunks), zero before and after
    struct cuda_kv_write fresh; // FRESH: norm, rotation and cache write of q, k and v
};

// The positions that a row sees: [sink_first, sink_end) and [first, position] (kv_map.h has the
// rule), and the runs that they lie in.
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

// What the sink of a head adds to its sum of powers of two: `top` is the largest of them.
__device__ __forceinline__ float sink_of(const struct cuda_attention &a, int head, float top) {
    return a.sinks ? power_of_two(a.sinks[head] * LOG2E - top) : 0.0f;
}

// C: the cache's type, T of 16 bits or one of the tags of 8 bits.
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
    static constexpr int top = WIDE * 64;       // where a head's part has its top, behind the sums
    static constexpr int pitch = WIDE * 64 + 2; // floats of a head's part: sums, top, sum
    static constexpr int pitch_fresh = WIDE * 64 + 4; // FRESH: whole words of 16 bytes
    static constexpr size_t queue_bytes = (size_t)stages * WARPS * run;
    static constexpr size_t part_bytes = (size_t)WARPS * heads * pitch_fresh * sizeof(float);
    static constexpr size_t bytes = queue_bytes > part_bytes ? queue_bytes : part_bytes;
};

struct item {
    struct view v;
    int32_t slot, kv_head, chunk, split, n_splits;
    int32_t begin, end; // runs
};

// Behind the parts of all rows: a counter for each group of heads of a row, then those of tiles.
constexpr size_t COUNTERS_BYTES = TILE_COUNTERS + CUDA_DECODE_COUNTERS * sizeof(int32_t);

// Work space of one row: the parts of every head at every split. Heads of 129 to 192 may use the kernel for up to 256 (launch_cached), with parts of that
// length.
inline size_t row_bytes(int32_t n_heads, int32_t n_kv_heads, int32_t head_dim) {
    int group = n_heads / n_kv_heads, heads = group <= 8 ? 8 : 16;
    size_t units = (size_t)n_kv_heads * (size_t)((group + heads - 1) / heads);
    size_t pitch = (size_t)(head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256) + 4;
    size_t held = (size_t)(group < heads ? group : heads);
    return units * (size_t)MAX_SPLITS * held * pitch * sizeof(float);
}

inline bool covers(const struct cuda_attention *a) {
    const bool eight = kv_is_8bit(a->kv.dtype);
    return (a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16) &&
           (eight || a->kv.dtype == a->dtype) && a->kv.head_dim % (eight ? 16 : 8) == 0 &&
           a->kv.head_dim <= 256 && a->kv.block_tokens % RUN == 0 &&
           a->n_heads % a->kv.n_kv_heads == 0;
}

// Heads over 128 need more shared memory than a block has on sm_86, sm_89 and sm_120 (99 KB). 64
// bytes are for the kernels' static variables.
inline bool has_room(size_t bytes) {
    return bytes + 64 <= (size_t)cuda_current_device().shared_per_block;
}

// CUDA_UNSUPPORTED for cases that neither kernel covers.
inline int describe(struct decode *j, const struct cuda_attention *a) {
    size_t mine = a->work_bytes > COUNTERS_BYTES ? a->work_bytes - COUNTERS_BYTES : 0;
    size_t room = mine / row_bytes(a->n_heads, a->kv.n_kv_heads, a->kv.head_dim);
    if (!covers(a) || (size_t)a->n_decode > room) return CUDA_UNSUPPORTED;
    j->a = *a;
    j->n_rows = a->n_decode;
    int group = a->n_heads / a->kv.n_kv_heads, heads = group <= 8 ? 8 : 16;
    int units = a->kv.n_kv_heads * ((group + heads - 1) / heads);
    if ((size_t)a->n_decode * (size_t)units > CUDA_DECODE_COUNTERS) return CUDA_UNSUPPORTED;
    j->counters = (int32_t *)((char *)a->work + mine / 4 * 4);
    return 0;
}

} // namespace
