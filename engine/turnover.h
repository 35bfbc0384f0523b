// How soon a place among a full server's turns is likely to be free, for those who have to be
// refused: by how long it has stayed full of late.
//
// Whoever is told a time is given one of their own, one such while behind the last one's, so that
// those refused together do not come again together; never later than it takes all places to change
// hands once, however often somebody asks. An estimate, and no reservation: the first to come gets
// the place.
//
// The owner's thread of the engine.
#pragma once
#include <stdint.h>

struct turnover {        // all zero: nothing is known yet
    int64_t full_us;     // when the last place was taken; 0: one is free
    double stays_us;     // full, until a turn ends: a running mean; 0: unknown
    int64_t promised_us; // the latest time that anybody was told
};
enum { TURNOVER_LEAST_US = 20000, TURNOVER_UNKNOWN_US = 500000, TURNOVER_MOST_US = 60000000 };

void turnover_filled(struct turnover *t, int64_t now_us); // the last place has been taken
void turnover_ended(struct turnover *t, int64_t now_us);  // a turn has left its place
// From now to the place that the next one refused may hope for. n_places: there are so many.
int64_t turnover_promise(struct turnover *t, int64_t now_us, int32_t n_places);
