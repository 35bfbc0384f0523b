// A sequence's cache on its way back, from host memory or from its file: blocks are taken, then
// filled a slice at a time between the steps of the others. A turn of the sequence is admitted and
// waits (SCHED_WAIT); where nothing can be brought back it computes.
//
// Where copies run beside steps (kv_layer_wait), the last blocks come with the turn's own first
// step: the turn goes on at once, and each layer waits for its part only. A step holds all that it
// is for up to the same copy, so beside others' steps this is done only with what takes a small
// part of a step; and with one at a time, the last to come, since turns that are copied whole share
// a step.
//
// From a file: a thread of the folder's reads and checks it block by block into host memory, and
// what has arrived there is copied on while the rest is read.
#pragma once
#include "engine/engine.h"

struct instance;
struct sequence;
struct turn;
struct sequence_names;
struct sequence_shape;
struct snapshot_entry;
struct snapshot_job;

// STEP: the turn is in PREFILL, and what is missing comes with its next step.
enum resume_stage { RESUME_OPEN, RESUME_BLOCKS, RESUME_COPY, RESUME_STEP };
struct resume {
    struct sequence *sequence;
    enum resume_stage stage;
    enum engine_cache_source source;
    bool origins;        // the file is that of the sequence whose log its own began as
    int64_t n;           // tokens that will be there
    int32_t *slots;      // (n_slots) of the ring, in the order in which they are copied
    int32_t n_slots, at; // copied up to here
    bool gives_way;      // on a hint, and running turns want its blocks
    int32_t *hint_ids;   // (n_hint) the log that a hint was about; NULL: no hint of a file
    int64_t n_hint;
    struct snapshot_job *job; // a thread is reading; NULL: all there is is in host memory
    int64_t began_us;
    struct resume *prev, *next;
};

// Begins to bring back what there is of this log, if that is cheaper than computing it, from
// n_cached on. The ring is initialised. False: there is nothing, or it isn't.
bool instance_resume_begin(struct instance *in, struct sequence *s, const int32_t *ids,
                           int64_t n_ids, int64_t n_cached);
// Of the ring that its image is of.
struct sequence_shape instance_image_shape(const struct instance *in, const struct sequence *s);
// A hint that a turn of this parked sequence will come: what is parked comes back, if there are
// blocks that are neither held nor promised.
void instance_warm(struct instance *in, struct sequence *s);
// A hint that this turn (freed here) of a sequence without a cache will come: what its snapshot has
// of the log comes back, if there are such blocks; else ENGINE_RELEASED.
void instance_prepare(struct instance *in, struct sequence *s, struct turn *t);
void instance_not_warm(struct instance *in, struct sequence *s);
// A running turn wants blocks and no idle sequence has any: caches that come back on a hint, and
// are in nobody's list yet, go where they were, in instance_resume. False: there are none.
bool instance_hints_give_way(struct instance *in);
// Whether what is on its way is all of it the beginning of this log, as this turn's window sees it.
bool instance_resume_serves(const struct sequence *s, const struct sequence_shape *shape,
                            const int32_t *ids, int64_t n_ids);
// Goes on with all of them. True when there is more to do at once; sets in->reading where the disk
// is waited for.
bool instance_resume(struct instance *in);
// The step that is being built has rows of this sequence, whose resume is at its STEP: the step's
// batch gets the load.
void instance_resume_load(struct instance *in, struct sequence *s);
// That step has been asked for: the sequence is back.
void instance_resume_stepped(struct instance *in);
// What has been brought back is given up; the image stays, if it is whole. Of one that is not
// resuming: nothing.
void instance_resume_abort(struct instance *in, struct sequence *s);
// A job that reads has come back.
void instance_resume_read(struct instance *in, struct snapshot_job *j);
// The file that there is for a sequence of these names, or NULL.
const struct snapshot_entry *instance_file_of(struct instance *in,
                                              const struct sequence_names *names);
// Whether reading so much takes longer than computing so many tokens, by what both have taken.
bool instance_file_is_dear(struct instance *in, double bytes, int64_t tokens);
void resume_free(struct resume *r);
