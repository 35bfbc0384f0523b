// See turnover.h.
#include "engine/turnover.h"

#define NEWEST 0.2 // weight of the last value in the mean

void turnover_filled(struct turnover *t, int64_t now_us) {
    t->full_us = now_us;
}

void turnover_ended(struct turnover *t, int64_t now_us) {
    if (!t->full_us) return;
    // A turn that ended before the last place was taken, and whose event came later: 0.
    double stayed = now_us > t->full_us ? (double)(now_us - t->full_us) : 0;
    t->stays_us += t->stays_us > 0 ? NEWEST * (stayed - t->stays_us) : stayed;
    t->full_us = 0;
}

int64_t turnover_promise(struct turnover *t, int64_t now_us, int32_t n_places) {
    double stays = t->stays_us > 0 ? t->stays_us : TURNOVER_UNKNOWN_US;
    double since = t->full_us ? (double)(now_us - t->full_us) : 0;
    // Overdue: turns have become longer, at least that long.
    double next = since > stays ? since : stays;
    if (next < TURNOVER_LEAST_US) next = TURNOVER_LEAST_US;
    double wait = next + (t->promised_us > now_us ? (double)(t->promised_us - now_us) : 0);
    if (wait > next * n_places) wait = next * n_places;
    if (wait > TURNOVER_MOST_US) wait = TURNOVER_MOST_US;
    t->promised_us = now_us + (int64_t)wait;
    return (int64_t)wait;
}
