// The token bucket. See rate.h.
#include "ws/net/rate.h"

void rate_init(struct rate *r, const struct rate_limit *l, int64_t now_us) {
    *r = (struct rate){l->burst, now_us};
}

static double bounded(const struct rate_limit *l, double cost) {
    return cost < l->burst ? cost : l->burst;
}

bool rate_take(struct rate *r, const struct rate_limit *l, double cost, int64_t now_us) {
    cost = bounded(l, cost);
    r->tokens += (double)(now_us - r->at_us) * l->per_second / 1e6;
    r->at_us = now_us;
    if (r->tokens > l->burst) r->tokens = l->burst;
    if (r->tokens < cost) return false;
    r->tokens -= cost;
    return true;
}

int64_t rate_wait_ms(const struct rate *r, const struct rate_limit *l, double cost) {
    double missing = bounded(l, cost) - r->tokens;
    return missing > 0 ? (int64_t)(missing * 1000 / l->per_second) + 1 : 0;
}
