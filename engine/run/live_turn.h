// One turn from submission to its last event: what was submitted, its log while it grows, and its
// clocks. What is large and only a running turn needs is a slot: as many as turns may run at once,
// made at open, so that a turn's start allocates nothing but room for its log.
// Engine thread only, but for live_turn_new.
#pragma once
#include "engine/cache/sequence.h"
#include "engine/run/sampler.h"
#include "engine/run/scheduler.h"
#include "engine/text/detokenizer.h"
#include "engine/text/stop_matcher.h"

struct turn_slot {
    bool taken;
    struct sampler sampler;
    struct detokenizer detokenizer;
    struct stop_matcher stop;
};

struct live_turn {
    struct sched_turn sched; // first: the scheduler's pointer is the turn's
    struct engine_turn spec; // ids is the log, owned, and grows
    int64_t n_log, cap_log;  // spec.n_ids stays what was submitted
    struct sequence *sequence;
    struct turn_slot *slot;                               // while it runs
    int64_t submitted_us, started_us, first_us, last_us;  // 0: not yet
    int64_t deadline_us;                                  // monotonic; INT64_MAX for none
    int64_t n_cached, n_shared, n_prefilled, n_generated; // shared: in cached, from other sequences
    enum engine_cache_source source;                      // of the n_cached
    int64_t restore_us;                                   // how long the turn waited for them
    bool then_release;           // the owner asked to drop the cache when the turn ends
    int text_rc;                 // negative: its text cannot go on, and it ends with its next token
    struct sequence_names names; // of spec, which only borrows them
};

// Takes spec->ids. NULL when memory is out; spec is untouched then. Owner's thread.
struct live_turn *live_turn_new(const struct engine_turn *spec, int64_t now_us);
void live_turn_free(struct live_turn *t); // and its log, unless that was taken

// How long the log may become in this turn.
int64_t live_turn_max_log(const struct engine_turn *spec);

// Room for all that the turn may draw, and the slot made ready. E_NOMEM, or what the sampler says
// of its input.
int live_turn_begin(struct live_turn *t, struct turn_slot *slot, const struct tokenizer *tokenizer,
                    const int32_t *eos_ids, int32_t n_eos, struct err *err);
// Appends one drawn token to the log; then its text that may be shown now to *out (scratch is
// emptied first), in the order of the tokens. 1 when it completed a stop string, 0 otherwise, or
// the buffer's error, which stays. live_turn_append does both.
void live_turn_take(struct live_turn *t, int32_t id);
int live_turn_text(struct live_turn *t, int32_t id, struct buf *scratch, struct buf *out);
int live_turn_append(struct live_turn *t, int32_t id, struct buf *scratch, struct buf *out);
// Appends the text that was held back. The turn ended otherwise than by a stop string.
int live_turn_flush(struct live_turn *t, struct buf *scratch, struct buf *out);
