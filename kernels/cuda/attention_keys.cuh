// For attention_tiles.cuh: which keys a tile's rows see, and the copies of keys and values to shared
// memory.
//
//   - Keys are read in runs of 64 at absolute multiples of 64, ascending: the runs of the sinks,
//     then those of the window. Keys that no row of the block sees are not read, because their cache
//     block may have been freed.
//   - 16-byte words of a row in shared memory are swizzled by the row's number, so that the 8 rows
//     of one ldmatrix are in different banks.
//   - An 8-bit cache is copied as it is and widened to T in shared memory, once for all rows of the
//     block: keys without their scale, which is exact (the scores are scaled), values with theirs.
#pragma once
#include "kernels/cuda/attention_8bit.cuh"

namespace {

constexpr int WARPS = 4, THREADS = WARPS * 32, ROWS = WARPS * 16, KEYS = 64;

template <int DIM> struct shape {         // DIM: head_dim rounded up to 64, 128 or 256
    static constexpr int words = DIM / 8; // of 16 bytes in a row of shared memory
    static constexpr size_t buffer_bytes = (size_t)KEYS * DIM * 2;
    static constexpr size_t bytes = 4 * buffer_bytes; // K, K, V, V
    // 8 bits: K and V widened, the keys' scales; then both as they came, and their scales.
    static constexpr size_t scales_8bit = 2 * buffer_bytes, raw_8bit = scales_8bit + KEYS * 4;
    static constexpr size_t raw_scales_8bit = raw_8bit + 2 * KEYS * DIM;
    static constexpr size_t bytes_8bit = raw_scales_8bit + 2 * KEYS * 4;
};

// The positions that a query row sees: [sink_first, sink_end) and [first, position].
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

} // namespace
