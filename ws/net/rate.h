// A token bucket: how much work a client may cause. Plain data, no clock of its own.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct rate_limit {
    double per_second, burst;
};
struct rate {
    double tokens;
    int64_t at_us;
};

void rate_init(struct rate *r, const struct rate_limit *l, int64_t now_us); // a full bucket
// Takes cost, or at most a whole bucket: work dearer than that passes when the bucket is full.
bool rate_take(struct rate *r, const struct rate_limit *l, double cost, int64_t now_us);
// Milliseconds after which rate_take succeeds, counted from its last call.
int64_t rate_wait_ms(const struct rate *r, const struct rate_limit *l, double cost);
