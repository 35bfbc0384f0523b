// How much of a GPU's memory weights, work and cache take, and the error sentence if they do not fit:
// the need, the free memory, and a setting that would make them fit. Only arithmetic and sentences,
// so that both are tested without a device.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct budget {
    const char *device;  // for messages: "cuda: NVIDIA H200, bf16"
    int64_t total, left; // bytes of the device's memory; free bytes
    double fraction;     // gpu_memory_fraction; 0: not set
    int64_t weights;     // of this model
    bool loaded;         // the weights are already part of the memory in use
    bool eight_bits;     // 8-bit weights
    // Bytes that steps of max_sequences turns and chunks of prefill_chunk_tokens take beside the
    // cache, and how many of them for each token of the chunk.
    int64_t work, work_per_token;
    int32_t max_sequences, prefill_chunk_tokens;
    // The cache's shape, and the least that one sequence must have: its window, or all of a shorter
    // session.
    int32_t block_tokens;
    int64_t block_bytes, memory_len, session_len;
};

// Bytes for the cache: the fraction, less the memory in use and the steps' work. Without a fraction
// 95 % take its place. Never negative.
int64_t budget_cache(const struct budget *b);
// The largest cache that fits beside the steps' work.
int64_t budget_largest_cache(const struct budget *b);
// How many sequences of so many tokens a cache of `asked` bytes holds (0: of budget_cache): b->work is for no more of them
// than max_sequences.
int64_t budget_places(const struct budget *b, int64_t asked, int64_t tokens);
// Bytes of the smallest cache that gives one sequence its memory_len.
int64_t budget_least_cache(const struct budget *b);

// Return E_NOMEM with its sentence: the weights do not fit the free memory (b->loaded is false); the
// fraction leaves no room for a cache; a cache of `asked` bytes does not fit.
int budget_no_weights(const struct budget *b, struct err *err);
int budget_no_cache(const struct budget *b, struct err *err);
int budget_cache_too_large(const struct budget *b, int64_t asked, struct err *err);
