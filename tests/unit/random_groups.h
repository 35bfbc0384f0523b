// Cache groups for tests that walk at random: one to three, each with a window of its own or none.
#pragma once
#include "kvcache/ring.h"
#include "tests/random_walk.h"
#include <stdbool.h>

static struct kv_groups groups;

static inline const struct kv_groups *random_groups(void) {
    groups = (struct kv_groups){.n = 1 + (int32_t)below(3)};
    for (int32_t g = 0; g < groups.n; g++)
        groups.group[g].window = below(2) ? 1 + (int32_t)below(60) : 0;
    return &groups;
}

// The window rule of a group: whether a token at t sees p.
static inline bool group_sees(const struct kv_ring *r, int32_t g, int64_t t, int64_t p) {
    int64_t window = groups.group[g].window;
    return p <= t && (p < r->sink_len || p > t - (r->memory_len - r->sink_len)) &&
           (window == 0 || p > t - window);
}
