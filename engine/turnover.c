// See turnover.h.
#include "engine/turnover.h"

#define NEWEST 0.2 // the last one's part of the mean

void turnover_ended(struct turnover *t, int64_t now_us, bool full) {
    double apart = (double)(now_us - t->ended_us);
    if (t->full) t->apart_us += t->apart_us > 0 ? NEWEST * (apart - t->apart_us) : apart;
    t->ended_us = now_us;
    t->full = full;
    if (t->n_promised > 0) t->n_promised--;
}

int64_t turnover_promise(struct turnover *t, int64_t now_us) {
    double apart = t->apart_us > 0 ? t->apart_us : TURNOVER_UNKNOWN_US;
    double since = t->full ? (double)(now_us - t->ended_us) : 0;
    // The next end is overdue where turns have become longer: then that is how long they take.
    double next = since > apart ? since : apart;
    double wait = next * ++t->n_promised;
    if (wait > TURNOVER_MOST_US) return TURNOVER_MOST_US;
    return wait > TURNOVER_LEAST_US ? (int64_t)wait : TURNOVER_LEAST_US;
}
