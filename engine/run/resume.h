// A sequence's cache on its way back from host memory: blocks are
// taken, then filled a slice at a time between the steps of the others. A turn of the sequence is
// admitted and waits (SCHED_WAIT); where nothing can be brought back it computes.
#pragma once
#include "engine/engine.h"

struct instance;
struct sequence;
struct sequence_shape;

enum resume_stage { RESUME_BLOCKS, RESUME_COPY };
struct resume {
    struct sequence *sequence;
    enum resume_stage stage;
    enum engine_cache_source source;
    int64_t n;    // tokens that will be there
    int32_t slot; // copied up to here
    int64_t began_us;
    struct resume *prev, *next;
};

// Begins to bring back what there is of this log, if that is cheaper than computing it, from
// n_cached on. The ring is initialised. False: there is nothing, or it isn't.
bool instance_resume_begin(struct instance *in, struct sequence *s, const int32_t *ids,
                           int64_t n_ids, int64_t n_cached);
// A hint that a turn of this parked sequence will come: what is parked comes back, if there are
// blocks that are neither held nor promised.
void instance_warm(struct instance *in, struct sequence *s);
void instance_not_warm(struct instance *in, struct sequence *s);
// Whether what is on its way is all of it the beginning of this log, as this turn's window sees it.
bool instance_resume_serves(const struct sequence *s, const struct sequence_shape *shape,
                            const int32_t *ids, int64_t n_ids);
// Goes on with all of them. True when there is more to do at once.
bool instance_resume(struct instance *in);
// What has been brought back is given up; the image stays. Of one that is not resuming: nothing.
void instance_resume_abort(struct instance *in, struct sequence *s);
