// The token bucket. See rate.h.
#include "base/rate.h"

void rate_init(struct rate *r, const struct rate_limit *l, int64_t now_us) {
    *r = (struct rate){.tokens = l->burst, .at_us = now_us};
}

static double bounded(const struct rate_limit *l, double cost) {
    return cost < l->burst ? cost : l->burst;
}

static void fill(struct rate *r, const struct rate_limit *l, int64_t now_us) {
    r->tokens += (double)(now_us - r->at_us) * l->per_second / 1e6;
    r->at_us = now_us;
    if (r->tokens > l->burst) r->tokens = l->burst;
}

bool rate_take(struct rate *r, const struct rate_limit *l, double cost, int64_t now_us) {
    cost = bounded(l, cost);
    fill(r, l, now_us);
    if (r->tokens < cost) return false;
    r->tokens -= cost;
    return true;
}

void rate_charge(struct rate *r, const struct rate_limit *l, double cost, int64_t now_us) {
    fill(r, l, now_us);
    r->tokens -= cost;
}

int64_t rate_promise_ms(struct rate *r, const struct rate_limit *l, double cost) {
    double us = 1e6 / l->per_second;
    cost = bounded(l, cost);
    double here = (cost - r->tokens) * us, full = (l->burst - r->tokens) * us;
    double behind = 0;
    if (r->promised_us > r->at_us) behind = (double)(r->promised_us - r->at_us) + cost * us;
    double wait = here > behind ? here : behind < full ? behind : full;
    if (wait <= 0) return 0;
    r->promised_us = r->at_us + (int64_t)wait;
    return (int64_t)(wait / 1000) + 1;
}
