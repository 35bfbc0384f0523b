// Maps a position to its keys and values. The cache (kvcache/) fills the map; every attention
// kernel (C and CUDA) reads through it.
//
// A sequence's cache is a list of fixed-size blocks: first the blocks that hold the sink positions,
// then a ring of blocks for the window. A block holds `block_tokens` consecutive positions;
// position p lives in logical block p / block_tokens, and a logical block past the sinks takes the
// ring slot (logical - n_sink_blocks) % n_ring_blocks. Nothing is moved: when the window has passed
// a block, its slot gets a new block.
#pragma once
#include "base/dtype.h"
#include <stdint.h>

#ifdef __CUDACC__ // the device uses the same arithmetic
#define KV_MAP_FN __host__ __device__ static inline
#else
#define KV_MAP_FN static inline
#endif

struct kv_map {
    const int32_t *blocks; // (n_sink_blocks + n_ring_blocks) pool block ids; -1: no block
    int32_t n_sink_blocks;
    int32_t n_ring_blocks; // >= 1
    int32_t block_tokens;  // a power of two
};

// Index into blocks[] of the block that holds position p.
KV_MAP_FN int32_t kv_map_slot(const struct kv_map *m, int64_t position) {
    int64_t logical = position / m->block_tokens;
    if (logical < m->n_sink_blocks) return (int32_t)logical;
    return (int32_t)(m->n_sink_blocks + (logical - m->n_sink_blocks) % m->n_ring_blocks);
}

// The positions that the token at position t sees: positions [sink_first, sink_end) and [first, t],
// both ascending, the first run possibly empty (sink_first >= sink_end).
struct kv_span {
    int64_t sink_first, sink_end, first;
};

// The window rule: t sees p when p <= t and (p < sink_len or p > t - (memory_len - sink_len)), and,
// where the model itself has a sliding window (window > 0), also p > t - window.
KV_MAP_FN struct kv_span kv_visible(int64_t t, int64_t memory_len, int64_t sink_len,
                                    int64_t window) {
    struct kv_span s;
    s.sink_first = window > 0 && t - window + 1 > 0 ? t - window + 1 : 0;
    s.sink_end = sink_len < t + 1 ? sink_len : t + 1;
    s.first = t - (memory_len - sink_len) + 1;
    if (s.first < s.sink_end) s.first = s.sink_end;
    if (s.first < s.sink_first) s.first = s.sink_first;
    return s;
}
