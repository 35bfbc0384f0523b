// How soon a place among a full server's turns is likely to be free, for those who have to be
// refused: by how far apart turns have ended of late.
//
// Whoever is told a time is counted until as many turns have ended, so that the next one is told a
// later place, and those refused together do not come again together. An estimate, and no
// reservation: the first to come gets the place.
//
// The owner's thread of the engine.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct turnover {     // all zero: nothing has ended yet
    int64_t ended_us; // when the last turn did
    bool full;        // and left no place empty that a waiting one did not take
    double apart_us;  // between two ends with no place empty in between, a running mean; 0: unknown
    int32_t n_promised; // told a time, and not as many ends since
};
enum { TURNOVER_LEAST_US = 20000, TURNOVER_UNKNOWN_US = 500000, TURNOVER_MOST_US = 60000000 };

// A turn has ended. full: as many run still as may.
void turnover_ended(struct turnover *t, int64_t now_us, bool full);
// From now to the place that the next one refused may hope for.
int64_t turnover_promise(struct turnover *t, int64_t now_us);
