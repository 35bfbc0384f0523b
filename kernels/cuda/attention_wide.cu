// Attention over wide vectors, bf16 and f16, their caches or those of 8 bits: out (row, n_heads * head_dim) =
// softmax(scale q.k) v.
//
//   latents   all heads share one vector of a position, which is both key and value; head_dim up to 576 (DeepSeek's
//             512 + 64)
//   heads     of more than 256 up to 512 (Gemma 4's full layers): a key and a value for each kv head
//
// What is not covered goes to attention_simple.cu. A decode step reads the visible vectors once for each row and kv head.
//
//   - A block takes up to 16 * MT lines, a line being a (token, head) of one sequence and kv head: all heads of a decode
//     row, or some tokens' heads of a tile. q stays in shared memory as the products' A.
//   - Positions come in runs of KEYS at absolute multiples of it, as 16-byte words swizzled by the position's
//     number; the next run is requested while the present one is used. A run gives scores (keys are B as they lie),
//     an online softmax step for each line, and the values' product (values are B, transposed). So each latent is read
//     once for both.
//   - In the scores' product the 8 warps share lines and positions, in that of values each has 1/8 of head_dim for all
//     lines. Probabilities enter it as two T, value and remainder: 16 bits, not 8.
//   - 8 bits: the run's bytes are widened in shared memory, exactly. Scales of keys go to the score, of values to the
//     probability.
//   - Few blocks share the runs of their lines (splits). wide_merge_kernel adds the parts in ascending order. With
//     `deterministic` there are no splits and one shape for all rows, so a row's bits depend on that row alone.
//   - A position that a line does not see leaves its sums unchanged: probability 0, factor 1.
#include "kernels/cuda/attention_wide.h"
#include "kernels/cuda/kv_8bit.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/widen.cuh"
#include <algorithm>

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32, MERGE_THREADS = 160;
constexpr int MERGED_LATER = 32; // up to so many splits of all rows are merged in latent.cu

// NT: 8-column tiles of a warp, so head_dim up to 64 * NT. MT: tiles of 16 lines. VECTORS of a position: a latent, or a key
// and a value.
template <int NT_, int MT_, int KEYS_, bool EIGHT_, int VECTORS_> struct shape {
    static constexpr int NT = NT_, MT = MT_, KEYS = KEYS_, dim = NT * WARPS * 8, lines = MT * 16;
    static constexpr bool EIGHT = EIGHT_;
    static constexpr int VECTORS = VECTORS_;
    static constexpr int row_bytes = dim * 2, vector_bytes = KEYS * row_bytes; // of a run
    static constexpr int run_bytes = VECTORS * vector_bytes;
    static constexpr int score_pitch = KEYS + 8;              // floats
    static constexpr int weight_pitch = KEYS * 2 + 16;        // bytes of T
    static constexpr int weight_bytes = lines * weight_pitch; // of values, then of remainders
    // The scores' product: WM by WN warps, each SM tiles of lines by SN tiles of positions.
    static constexpr int WM = MT == 1 ? 1 : 2, WN = WARPS / WM, SM = MT / WM, SN = KEYS / 8 / WN;
    static constexpr int each = THREADS / lines; // threads of a line's softmax
    static constexpr int runs = 0, raw = runs + (EIGHT ? 1 : 2) * run_bytes,
                         raw_bytes = VECTORS * KEYS * dim,
                         scales = raw + (EIGHT ? 2 * raw_bytes : 0),
                         scales_bytes = VECTORS * KEYS * 4,
                         query = scales + (EIGHT ? 2 * scales_bytes : 0),
                         scores = query + lines * row_bytes,
                         weights = scores + lines * score_pitch * 4,
                         factors = weights + 2 * weight_bytes, ends = factors + lines * 4;
    static constexpr size_t bytes = (size_t)ends + lines * 8;
};

struct wide {
    struct cuda_attention a;
    bool decode;                         // a unit is a decode row; else a tile
    int32_t group;                       // heads of a kv head
    int32_t n_units, n_chunks, n_splits; // chunks of a unit and kv head
    float *parts; // (units * kv heads * chunks * splits, lines, head_dim), where splits > 1
    float2 *ends; // (units * kv heads * chunks * splits, lines): largest score, sum
    struct latent_parts *left; // not NULL: who takes the results merges few splits
};

// The lines of a block: (token, head) pairs first .. first + n - 1 of a kv head and of a sequence's rows row .. .
struct lines {
    int32_t seq, row, kv_head, first, n;
};
__device__ __forceinline__ int32_t row_of(const struct wide &j, const struct lines &l, int line) {
    return l.row + (l.first + line) / j.group;
}
__device__ __forceinline__ int32_t head_of(const struct wide &j, const struct lines &l, int line) {
    return l.kv_head * j.group + (l.first + line) % j.group;
}

__device__ __forceinline__ struct lines lines_of(const struct wide &j, int unit, int chunk,
                                                 int most) {
    const struct cuda_batch &b = j.a.b;
    struct lines l = {};
    int32_t n_rows = 1;
    l.seq = -1;
    if (j.decode) {
        l.row = b.decode_rows[unit];
        if (l.row >= 0) l.seq = b.row_seq[l.row];
    } else {
        const struct cuda_tile tile = b.tiles[unit];
        l.seq = tile.seq, l.row = tile.row, n_rows = tile.n_rows;
    }
    l.kv_head = chunk / j.n_chunks;
    l.first = chunk % j.n_chunks * most;
    l.n = l.seq < 0 ? 0 : min(n_rows * j.group - l.first, most);
    return l;
}

struct sight { // the positions that a row sees: [sink_first, sink_end) and [first, position]
    int32_t position, sink_first, sink_end, first;
};

__device__ __forceinline__ struct sight sight_of(const struct wide &j, const struct cuda_seq &s,
                                                 int32_t row) {
    const int32_t t = j.a.b.positions[row];
    const struct kv_span see = kv_visible(t, s.memory_len, s.sink_len, j.a.window);
    struct sight v;
    v.position = t;
    v.sink_first = (int32_t)see.sink_first;
    v.sink_end = (int32_t)see.sink_end;
    v.first = (int32_t)see.first;
    return v;
}

__device__ __forceinline__ bool sees(const struct sight &v, int p) {
    return (p >= v.sink_first && p < v.sink_end) || (p >= v.first && p <= v.position);
}

// Runs as a list: n_sinks from sink0 on, then those from window0 on.
struct runs {
    int32_t sink0, n_sinks, window0, n;
};

__device__ __forceinline__ struct runs runs_of(const struct sight &oldest,
                                               const struct sight &newest, int keys) {
    struct runs r;
    r.sink0 = oldest.sink_first / keys;
    r.window0 = oldest.first / keys;
    int end = oldest.sink_first < newest.sink_end ? (newest.sink_end + keys - 1) / keys : r.sink0;
    r.n_sinks = max(min(end, r.window0) - r.sink0, 0);
    r.n = r.n_sinks + newest.position / keys + 1 - r.window0;
    return r;
}

// Byte offset of 16-byte word w of line or position r.
template <typename S> __device__ __forceinline__ uint32_t place(int r, int w) {
    return (uint32_t)(r * S::row_bytes + ((w ^ (r & 7)) * 16));
}

__device__ __forceinline__ void copy_float(uint32_t to, const void *from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(valid ? 4 : 0)
                 : "memory");
}

// Which of a run's positions: that of a decode row itself is written by the launch in front.
enum which { ALL, EARLIER, NEWEST };

// Queues the copies of a run's vectors; zeros for positions that no line sees and columns past head_dim.
template <typename S>
__device__ __forceinline__ void request(const struct wide &j, const struct cuda_seq &seq,
                                        int kv_head, const struct sight &oldest,
                                        const struct sight &newest, int run, enum which which,
                                        uint32_t to, uint32_t scales_to) {
    const struct cuda_kv &kv = j.a.kv;
    constexpr int per_word = S::EIGHT ? 16 : 8, words = S::dim / per_word;
    const char *layer = (const char *)kv.data + (size_t)j.a.layer * kv.layer_bytes;
    const int lane8 = (int)threadIdx.x % 8;
    const int64_t apart =
        (int64_t)kv.n_kv_heads * seq.block_tokens; // vectors from a key to its value
    auto held = [&](int p) {                       // may be seen by some line
        return (p >= oldest.sink_first && p < newest.sink_end) ||
               (p >= oldest.first && p <= newest.position);
    };
    for (int r = (int)threadIdx.x / 8; r < S::KEYS; r += THREADS / 8) {
        const int p = run * S::KEYS + r;
        const bool valid = held(p);
        if (which != ALL && (p == newest.position) != (which == NEWEST)) continue;
        const char *from = layer;
        if (valid) {
            const char *part = layer + (size_t)kv_block(j.a.b, seq, p) * kv.block_bytes;
            const int64_t slot = (int64_t)kv_head * seq.block_tokens + p % seq.block_tokens;
            from = part + slot * kv.head_dim * (S::EIGHT ? 1 : 2);
            if (S::EIGHT && lane8 < S::VECTORS)
                copy_float(scales_to + (uint32_t)(lane8 * S::KEYS + r) * 4,
                           part + cuda_kv_scales(kv) + (slot + lane8 * apart) * 4, true);
        } else if (S::EIGHT && lane8 < S::VECTORS) {
            copy_float(scales_to + (uint32_t)(lane8 * S::KEYS + r) * 4, layer, false);
        }
#pragma unroll
        for (int v = 0; v < S::VECTORS; v++)
#pragma unroll
            for (int w = lane8; w < words; w += 8) {
                const bool in_row = valid && w * per_word < kv.head_dim;
                const int row = v * S::KEYS + r;
                const uint32_t at = S::EIGHT ? (uint32_t)(row * S::dim + w * 16) : place<S>(row, w);
                const char *vector = from + v * apart * kv.head_dim * (S::EIGHT ? 1 : 2);
                copy_async(to + at, in_row ? vector + w * 16 : layer, in_row);
            }
    }
}

// A run's bytes as T.
template <typename T, typename S, typename C>
__device__ __forceinline__ void widen_run(uint32_t raw, uint32_t to, C c) {
    constexpr int words = S::dim / 16;
    for (int i = (int)threadIdx.x; i < S::VECTORS * S::KEYS * words; i += THREADS) {
        const int r = i / words, w = i % words;
        const uint4 four = load_shared(raw + (uint32_t)i * 16);
        store_shared(to + place<S>(r, 2 * w),
                     make_uint4(widen_low(four.x, T(), c), widen_high(four.x, T(), c),
                                widen_low(four.y, T(), c), widen_high(four.y, T(), c)));
        store_shared(to + place<S>(r, 2 * w + 1),
                     make_uint4(widen_low(four.z, T(), c), widen_high(four.z, T(), c),
                                widen_low(four.w, T(), c), widen_high(four.w, T(), c)));
    }
}

// scores (lines, KEYS) = q c of a run.
template <typename T, typename S>
__device__ __forceinline__ void multiply_keys(uint32_t query, uint32_t run, float *scores) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int line0 = warp / S::WN * S::SM * 16, key0 = warp % S::WN * S::SN * 8;
    float sum[S::SM][S::SN][4] = {};
#pragma unroll 3
    for (int k = 0; k < S::dim / 32; k++) {
        uint32_t b[S::SN][4];
#pragma unroll
        for (int n = 0; n < S::SN; n++)
            load_matrices(b[n], run + place<S>(key0 + n * 8 + lane % 8, k * 4 + lane / 8));
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int m = 0; m < S::SM; m++) {
                uint32_t a[4];
                load_matrices(
                    a, query + place<S>(line0 + m * 16 + lane % 16, k * 4 + half * 2 + lane / 16));
#pragma unroll
                for (int n = 0; n < S::SN; n++)
                    mma(sum[m][n], a, b[n][half * 2], b[n][half * 2 + 1], T());
            }
    }
    const int g = lane / 4, q = lane % 4;
#pragma unroll
    for (int m = 0; m < S::SM; m++)
#pragma unroll
        for (int n = 0; n < S::SN; n++) {
            float *to = scores + (line0 + m * 16 + g) * S::score_pitch + key0 + n * 8 + 2 * q;
            *(float2 *)to = make_float2(sum[m][n][0], sum[m][n][1]);
            *(float2 *)(to + 8 * S::score_pitch) = make_float2(sum[m][n][2], sum[m][n][3]);
        }
}

// A line's softmax over the positions so far, held by the `each` threads that share the line.
struct line_state {
    struct sight see;
    float top, sum;
};

// A run's scores become probabilities as T and their remainders.
template <typename T, typename S>
__device__ __forceinline__ void softmax(char *shared, int run, const float *scales, float scale,
                                        struct line_state &st) {
    constexpr int FOURS = S::KEYS / S::each / 4;
    const int line = (int)threadIdx.x / S::each, part = (int)threadIdx.x % S::each;
    const float *from = (const float *)(shared + S::scores) + line * S::score_pitch;
    float x[FOURS][4], top = st.top;
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
        const int key = (i * S::each + part) * 4;
        const float4 four = *(const float4 *)(from + key);
        x[i][0] = four.x, x[i][1] = four.y, x[i][2] = four.z, x[i][3] = four.w;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            x[i][e] *= S::EIGHT ? scale * scales[key + e] : scale;
            if (!sees(st.see, run * S::KEYS + key + e)) x[i][e] = -INFINITY;
            top = fmaxf(top, x[i][e]);
        }
    }
#pragma unroll
    for (int step = S::each / 2; step > 0; step /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    const float factor = top == -INFINITY ? 1.0f : power_of_two(st.top - top);
    float sum = st.sum * factor;
    char *to = shared + S::weights + line * S::weight_pitch;
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
        const int key = (i * S::each + part) * 4;
        float w[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const bool seen = sees(st.see, run * S::KEYS + key + e);
            const float p = seen ? power_of_two(x[i][e] - top) : 0.0f;
            sum += p;
            w[e] = S::EIGHT && seen ? p * scales[(S::VECTORS - 1) * S::KEYS + key + e] : p;
        }
        const uint2 value = make_uint2(pack2<T>(w[0], w[1]), pack2<T>(w[2], w[3]));
        const float2 low = unpack2(value.x, T()), high = unpack2(value.y, T());
        *(uint2 *)(to + key * 2) = value;
        *(uint2 *)(to + S::weight_bytes + key * 2) = make_uint2(
            pack2<T>(w[0] - low.x, w[1] - low.y), pack2<T>(w[2] - high.x, w[3] - high.y));
    }
    st.top = top, st.sum = sum;
    if (part == 0) ((float *)(shared + S::factors))[line] = factor;
}

// out (lines, this warp's columns) = factors * out + probabilities * c.
template <typename T, typename S>
__device__ __forceinline__ void multiply_values(const char *shared, uint32_t weights, uint32_t run,
                                                float (&out)[S::MT][S::NT][4]) {
    constexpr int AT_ONCE = S::MT <= 2 ? 2 : 1; // values and remainders: registers
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4;
    const float *factors = (const float *)(shared + S::factors);
#pragma unroll
    for (int m = 0; m < S::MT; m++) {
        const float low = factors[m * 16 + g], high = factors[m * 16 + 8 + g];
#pragma unroll
        for (int n = 0; n < S::NT; n++)
            out[m][n][0] *= low, out[m][n][1] *= low, out[m][n][2] *= high, out[m][n][3] *= high;
    }
#pragma unroll
    for (int half = 0; half < S::KEYS / 32; half++)
#pragma unroll
        for (int first = 0; first < 2; first += AT_ONCE) {
            uint32_t a[AT_ONCE][S::MT][2][4];
#pragma unroll
            for (int part = 0; part < AT_ONCE; part++)
#pragma unroll
                for (int m = 0; m < S::MT; m++)
#pragma unroll
                    for (int k = 0; k < 2; k++)
                        load_matrices(a[part][m][k],
                                      weights + (uint32_t)((first + part) * S::weight_bytes +
                                                           (m * 16 + lane % 16) * S::weight_pitch +
                                                           half * 64 + k * 32 + lane / 16 * 16));
#pragma unroll
            for (int n = 0; n < S::NT; n++) {
                uint32_t b[4]; // 32 positions of 8 columns
                load_matrices_transposed(b, run + place<S>(half * 32 + lane, warp * S::NT + n));
#pragma unroll
                for (int part = 0; part < AT_ONCE; part++)
#pragma unroll
                    for (int m = 0; m < S::MT; m++)
#pragma unroll
                        for (int k = 0; k < 2; k++)
                            mma(out[m][n], a[part][m][k], b[2 * k], b[2 * k + 1], T());
            }
        }
}

// The lines' results, or their parts of a split.
template <typename T, typename S>
__device__ __forceinline__ void finish(const struct wide &j, const struct lines &l, char *shared,
                                       int64_t at, const float (&out)[S::MT][S::NT][4],
                                       const struct line_state &st) {
    const int line = (int)threadIdx.x / S::each, part = (int)threadIdx.x % S::each;
    float2 *ends = (float2 *)(shared + S::ends);
    float sum = st.sum;
#pragma unroll
    for (int step = S::each / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (part == 0) {
        ends[line] = make_float2(st.top, sum);
        if (j.n_splits > 1 && line < l.n) j.ends[at * S::lines + line] = make_float2(st.top, sum);
    }
    __syncthreads();
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              q = lane % 4, dim = j.a.kv.head_dim;
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int high = 0; high < 2; high++) {
            const int of = m * 16 + high * 8 + g;
            if (of >= l.n) continue;
            const float all = ends[of].y;
            T *to =
                (T *)j.a.out + ((int64_t)row_of(j, l, of) * j.a.n_heads + head_of(j, l, of)) * dim;
            float *to_part = j.parts + (at * S::lines + of) * dim;
#pragma unroll
            for (int n = 0; n < S::NT; n++) {
                const int d = (warp * S::NT + n) * 8 + 2 * q;
                const float x = out[m][n][2 * high], y = out[m][n][2 * high + 1];
                if (d >= dim) continue;
                if (j.n_splits > 1)
                    __stcg((float2 *)(to_part + d), make_float2(x, y));
                else
                    *(uint32_t *)(to + d) = pack2<T>(x / all, y / all);
            }
        }
}

// Grid: chunks of a unit's kv heads, units, splits.
template <typename T, typename S>
__global__ void __launch_bounds__(THREADS, 1) wide_kernel(const __grid_constant__ struct wide j) {
    extern __shared__ __align__(128) char shared[];
    const uint32_t base = shared_address(shared);
    pdl_trigger();
    // The last tiles see the most, so they begin first.
    const int chunk = (int)(gridDim.x - 1 - blockIdx.x), unit = j.n_units - 1 - (int)blockIdx.y,
              split = (int)blockIdx.z;
    const struct lines l = lines_of(j, unit, chunk, S::lines);
    if (l.n <= 0) {
        pdl_wait();
        return;
    }
    const struct cuda_seq seq = j.a.b.seqs[l.seq];
    const struct sight oldest = sight_of(j, seq, row_of(j, l, 0)),
                       newest = sight_of(j, seq, row_of(j, l, l.n - 1));
    const struct runs list = runs_of(oldest, newest, S::KEYS);
    const int length = (list.n + j.n_splits - 1) / j.n_splits;
    const int begin = min(split * length, list.n), end = min(begin + length, list.n);
    auto run_at = [&](int i) {
        return i < list.n_sinks ? list.sink0 + i : list.window0 + i - list.n_sinks;
    };
    auto request_at = [&](int i, enum which which) {
        const int buffer = (i - begin) % 2;
        const uint32_t to = base + (uint32_t)(S::EIGHT ? S::raw + buffer * S::raw_bytes
                                                       : S::runs + buffer * S::run_bytes);
        request<S>(j, seq, l.kv_head, oldest, newest, run_at(i), which, to,
                   base + (uint32_t)(S::scales + buffer * S::scales_bytes));
    };

    const bool early = j.decode && j.a.early && begin < end;
    if (early) request_at(begin, EARLIER);
    pdl_wait();
    const int dim = j.a.kv.head_dim, words = S::dim / 8;
    for (int i = (int)threadIdx.x; i < S::lines * words; i += THREADS) {
        const int line = i / words, w = i % words;
        const bool valid = line < l.n && w * 8 < dim;
        const char *from = (const char *)j.a.qkv;
        if (valid)
            from += (((int64_t)row_of(j, l, line) * j.a.row_heads + head_of(j, l, line)) * dim +
                     w * 8) *
                    2;
        copy_async(base + S::query + place<S>(line, w), from, valid);
    }
    if (begin < end) request_at(begin, early ? NEWEST : ALL);
    copy_commit();

    struct line_state st;
    const int line = min((int)threadIdx.x / S::each, l.n - 1);
    st.see = sight_of(j, seq, row_of(j, l, line));
    st.top = -INFINITY, st.sum = 0.0f;
    float out[S::MT][S::NT][4] = {};
    const float scale = j.a.scale * 1.4426950408889634f; // powers of two in place of e
    for (int i = begin; i < end; i++) {
        const int buffer = (i - begin) % 2;
        copy_wait<0>();
        __syncthreads(); // the run has come, and the one before is used
        if (i + 1 < end) request_at(i + 1, ALL);
        copy_commit();
        uint32_t run = base + (uint32_t)S::runs;
        if (S::EIGHT) {
            const uint32_t raw = base + (uint32_t)(S::raw + buffer * S::raw_bytes);
            if (j.a.kv.dtype == DTYPE_I8)
                widen_run<T, S>(raw, run, int8_t());
            else
                widen_run<T, S>(raw, run, e4m3());
            __syncthreads();
        } else {
            run += (uint32_t)(buffer * S::run_bytes);
        }
        multiply_keys<T, S>(base + S::query, run, (float *)(shared + S::scores));
        __syncthreads();
        softmax<T, S>(shared, run_at(i),
                      (const float *)(shared + S::scales + buffer * S::scales_bytes), scale, st);
        __syncthreads();
        multiply_values<T, S>(shared, base + S::weights,
                              run + (uint32_t)((S::VECTORS - 1) * S::vector_bytes), out);
    }
    copy_wait<0>();
    finish<T, S>(j, l, shared, ((int64_t)unit * gridDim.x + chunk) * j.n_splits + split, out, st);
}

// The splits' parts of a line become its result. Grid: lines of a chunk, chunks of a unit's kv heads, units.
template <typename T>
__global__ void __launch_bounds__(MERGE_THREADS)
    wide_merge_kernel(const __grid_constant__ struct wide j, int32_t most) {
    __shared__ float factors[WIDE_SPLITS_MOST];
    const int line = (int)blockIdx.x, chunk = (int)blockIdx.y, unit = (int)blockIdx.z;
    const int dim = j.a.kv.head_dim;
    pdl_trigger();
    pdl_wait();
    const struct lines l = lines_of(j, unit, chunk, most);
    if (line >= l.n) return;
    const int64_t at = ((int64_t)unit * gridDim.y + chunk) * j.n_splits;
    float top = -INFINITY, sum = 0.0f;
    for (int s = 0; s < j.n_splits; s++)
        top = fmaxf(top, __ldcg(&j.ends[(at + s) * most + line].x));
    for (int s = 0; s < j.n_splits; s++) {
        const float2 end = __ldcg(&j.ends[(at + s) * most + line]);
        // A split without positions: its part holds nothing. NaN is not 0.
        const float factor = end.y == 0.0f ? 0.0f : power_of_two(end.x - top);
        sum += factor * end.y;
        if (threadIdx.x == 0) factors[s] = factor;
    }
    __syncthreads();
    T *to = (T *)j.a.out + ((int64_t)row_of(j, l, line) * j.a.n_heads + head_of(j, l, line)) * dim;
    for (int d = (int)threadIdx.x * 4; d < dim; d += MERGE_THREADS * 4) {
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
        for (int s = 0; s < j.n_splits; s++) {
            const float f = factors[s];
            if (f == 0.0f) continue;
            const float4 part =
                __ldcg((const float4 *)(j.parts + ((at + s) * most + line) * dim + d));
            v.x += f * part.x, v.y += f * part.y, v.z += f * part.z, v.w += f * part.w;
        }
        *(uint2 *)(to + d) =
            make_uint2(pack2<T>(v.x / sum, v.y / sum), pack2<T>(v.z / sum, v.w / sum));
    }
}

// How many blocks share the positions of a unit's chunk: as many as the device has room for, at least one run
// each, and no more than the work space holds.
int splits_of(const struct wide *j, int lines, int keys) {
    const int64_t units = (int64_t)j->n_units * j->n_chunks * j->a.kv.n_kv_heads;
    const size_t line_bytes = (size_t)j->a.kv.head_dim * sizeof(float) + sizeof(float2);
    const int64_t room = (int64_t)(j->a.work_bytes / 2 / line_bytes) / lines / units;
    int64_t n = cuda_current_device().multiprocessors / units;
    if (n > room) n = room;
    if (n > j->a.max_position / keys) n = j->a.max_position / keys;
    if (n > WIDE_SPLITS_MOST) n = WIDE_SPLITS_MOST;
    return n > 1 ? (int)n : 1;
}

template <typename T, typename S> int launch(struct wide j, bool whole, cudaStream_t stream) {
    auto kernel = wide_kernel<T, S>;
    const int rows = j.decode ? 1 : CUDA_TILE_ROWS;
    j.group = j.a.n_heads / j.a.kv.n_kv_heads;
    j.n_chunks = (rows * j.group + S::lines - 1) / S::lines;
    const unsigned chunks = (unsigned)(j.n_chunks * j.a.kv.n_kv_heads);
    j.n_splits = whole ? 1 : splits_of(&j, S::lines, S::KEYS);
    // Ends first: 8 bytes each. The work space's counters lie at its end, past the half that this takes.
    const int64_t all = (int64_t)j.n_units * chunks * j.n_splits * S::lines;
    j.ends = (float2 *)j.a.work;
    j.parts = (float *)j.a.work + 2 * all;
    cuda_allow_shared((const void *)kernel, S::bytes);
    pdl_launch(kernel, dim3(chunks, (unsigned)j.n_units, (unsigned)j.n_splits), dim3(THREADS),
               S::bytes, stream, j);
    TRY(cuda_launched("attention_wide"));
    if (j.n_splits == 1) return 0;
    if (j.left && j.n_splits * j.n_units <= MERGED_LATER) {
        *j.left = {j.parts,    j.ends,   j.a.b.decode_rows, j.n_splits,
                   j.n_chunks, S::lines, j.a.kv.head_dim,   0};
        return 0;
    }
    pdl_launch(wide_merge_kernel<T>, dim3((unsigned)S::lines, chunks, (unsigned)j.n_units),
               dim3(MERGE_THREADS), 0, stream, j, (int32_t)S::lines);
    return cuda_launched("attention_wide_merge");
}

template <typename T, int NT, bool EIGHT>
int launch_latents(const struct wide &j, bool deterministic, cudaStream_t stream) {
    if (deterministic) return launch<T, shape<NT, 2, 64, EIGHT, 1>>(j, true, stream);
    if (!j.decode) return launch<T, shape<NT, 4, 32, EIGHT, 1>>(j, false, stream);
    if (j.a.n_heads <= 16) return launch<T, shape<NT, 1, 64, EIGHT, 1>>(j, false, stream);
    return launch<T, shape<NT, 2, 64, EIGHT, 1>>(j, false, stream);
}

template <typename T, bool EIGHT>
int launch_heads(const struct wide &j, bool deterministic, cudaStream_t stream) {
    if (deterministic || j.decode)
        return launch<T, shape<8, 2, 32, EIGHT, 2>>(j, deterministic, stream);
    return launch<T, shape<8, 4, 32, EIGHT, 2>>(j, false, stream);
}

template <typename T>
int launch_typed(const struct wide &j, bool deterministic, cudaStream_t stream) {
    const bool eight = kv_is_8bit(j.a.kv.dtype);
    if (!j.a.kv.latent)
        return eight ? launch_heads<T, true>(j, deterministic, stream)
                     : launch_heads<T, false>(j, deterministic, stream);
    if (j.a.kv.head_dim <= 256)
        return eight ? launch_latents<T, 4, true>(j, deterministic, stream)
                     : launch_latents<T, 4, false>(j, deterministic, stream);
    return eight ? launch_latents<T, 9, true>(j, deterministic, stream)
                 : launch_latents<T, 9, false>(j, deterministic, stream);
}

int launch_all(const struct wide &j, bool deterministic, cudaStream_t stream) {
    return j.a.dtype == DTYPE_BF16 ? launch_typed<__nv_bfloat16>(j, deterministic, stream)
                                   : launch_typed<__half>(j, deterministic, stream);
}

} // namespace

int cuda_attention_wide(const struct cuda_attention *a, bool deterministic,
                        struct latent_parts *parts, cudaStream_t stream) {
    const bool eight = kv_is_8bit(a->kv.dtype);
    // The largest instance; a device has room for all of them or uses none.
    const size_t most =
        std::max(shape<9, 2, 64, false, 1>::bytes, shape<8, 4, 32, false, 2>::bytes);
    const bool fits = a->kv.latent ? a->kv.n_kv_heads == 1 && a->kv.head_dim <= 576
                                   : a->kv.head_dim > 256 && a->kv.head_dim <= 512;
    if (a->dtype == DTYPE_F32 || (a->kv.dtype != a->dtype && !eight) || !fits ||
        a->kv.head_dim % (eight ? 16 : 8) || a->soft_cap != 0.0f || a->alibi_slopes || a->sinks ||
        (size_t)cuda_current_device().shared_per_block < most + 1024)
        return CUDA_UNSUPPORTED;
    struct wide j = {};
    j.a = *a;
    j.left = a->n_tiles == 0 && a->n_decode <= 16 ? parts : NULL;
    j.decode = true;
    j.n_units = a->n_decode;
    if (j.n_units) TRY(launch_all(j, deterministic, stream));
    j.decode = false;
    j.n_units = a->n_tiles;
    return j.n_units ? launch_all(j, deterministic, stream) : 0;
}
