// A token bucket: how much work a client may cause. Plain data, no clock of its own.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct rate_limit {
    double per_second, burst;
};
struct rate {
    double tokens; // below 0: work that was charged when it was done already
    int64_t at_us, promised_us;
};

void rate_init(struct rate *r, const struct rate_limit *l, int64_t now_us); // a full bucket
// Takes cost, or at most a whole bucket: work dearer than that passes when the bucket is full.
bool rate_take(struct rate *r, const struct rate_limit *l, double cost, int64_t now_us);
// Takes cost that cannot be refused any more.
void rate_charge(struct rate *r, const struct rate_limit *l, double cost, int64_t now_us);
// Milliseconds from the last call until rate_take will succeed. Callers refused at the same time get
// increasing times, so that they do not return together; never more than filling the bucket takes.
int64_t rate_promise_ms(struct rate *r, const struct rate_limit *l, double cost);
