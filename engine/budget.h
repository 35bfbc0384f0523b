// What a device with memory of its own is to hold, and what to say where it does not fit: how much
// is needed, how much there is, and which setting would make it fit. Arithmetic and sentences
// alone, so that both are tested without a device.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct budget {
    const char *device;  // as a person knows it: "cuda: NVIDIA H200, bf16"
    int64_t total, left; // bytes of the device's memory; what is free of them now
    double fraction;     // gpu_memory_fraction; 0: none was named
    int64_t weights;     // of this model; whether they are among what is in use already
    bool loaded;
    bool eight_bits; // they are of 8 bits
    // What steps of max_sequences turns and chunks of prefill_chunk_tokens take beside the cache,
    // and what of it each token of the chunk takes.
    int64_t work, work_per_token;
    int32_t max_sequences, prefill_chunk_tokens;
    // The cache's shape, and what one sequence is to have at least: its window, or all of a session
    // that is shorter.
    int32_t block_tokens;
    int64_t block_bytes, memory_len, session_len;
};

// What the cache may take: the fraction, less what is in use and what the steps will need. Without
// a fraction most of what is free. Never negative.
int64_t budget_cache(const struct budget *b);
// The largest cache that is possible at all beside the steps' work.
int64_t budget_largest_cache(const struct budget *b);
// Bytes of the smallest cache that gives one sequence its memory_len.
int64_t budget_least_cache(const struct budget *b);

// E_NOMEM and its sentence: the weights do not fit what is free (b->loaded is false); no cache fits
// what the fraction leaves; a cache of that many bytes was asked for and does not fit.
int budget_no_weights(const struct budget *b, struct err *err);
int budget_no_cache(const struct budget *b, struct err *err);
int budget_cache_too_large(const struct budget *b, int64_t asked, struct err *err);
