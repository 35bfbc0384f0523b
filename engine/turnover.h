// When a full engine is likely to have a place for another turn, estimated from recent turnover: how
// long it stays full until a turn ends.
//
// Each refused turn is promised a later time than the one before, so that turns refused together do
// not come back together. The promise is capped at the time in which all running turns end once.
// It is an estimate, not a reservation: the first turn to come gets the place.
//
// Owner's thread only.
#pragma once
#include <stdint.h>

struct turnover {        // all zero: nothing is known yet
    int64_t full_us;     // when the last place was taken; 0: one is free
    double stays_us;     // running mean of how long it stays full; 0: unknown
    int64_t promised_us; // the latest time promised
};
enum { TURNOVER_LEAST_US = 20000, TURNOVER_UNKNOWN_US = 500000, TURNOVER_MOST_US = 60000000 };

void turnover_filled(struct turnover *t, int64_t now_us); // the last place has been taken
void turnover_ended(struct turnover *t, int64_t now_us);  // a turn has left its place
// The time in microseconds after which the next refused turn should try again. n_places: how many
// turns of the refused owner run or wait.
int64_t turnover_promise(struct turnover *t, int64_t now_us, int32_t n_places);
