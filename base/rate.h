// A token bucket: how much work a client may cause. Plain data, no clock of its own.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct rate_limit {
    double per_second, burst;
};
struct rate {
    double tokens; // negative after rate_charge of more than there was
    int64_t at_us, promised_us;
};

void rate_init(struct rate *r, const struct rate_limit *l, int64_t now_us); // a full bucket
// Takes `cost` tokens. False: there are fewer, and none is taken. Work that costs more than a full
// bucket needs a full bucket, and takes all of it.
bool rate_take(struct rate *r, const struct rate_limit *l, double cost, int64_t now_us);
// Takes the cost of work that is done already, even if there are fewer tokens.
void rate_charge(struct rate *r, const struct rate_limit *l, double cost, int64_t now_us);
// Milliseconds from the last call until rate_take will succeed. Callers refused at the same time get
// increasing times, so that they do not return together; never more than filling the bucket takes.
int64_t rate_promise_ms(struct rate *r, const struct rate_limit *l, double cost);
