// One turn from submission to its last event: its spec, its log while it grows, and its times. The
// large parts that only a running turn needs are in a slot. engine_open makes one slot for each turn
// that may run at once, so that a turn's start allocates only room for its log.
// Engine thread only, except live_turn_new.
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
    int64_t n_log, cap_log;  // spec.n_ids stays the submitted length
    struct sequence *sequence;
    struct turn_slot *slot;                               // while it runs
    int64_t submitted_us, started_us, first_us, last_us;  // 0: not yet
    int64_t deadline_us;                                  // monotonic; INT64_MAX for none
    int64_t n_cached, n_shared, n_prefilled, n_generated; // n_shared: as in struct engine_event
    bool begun;                                           // STARTED was emitted
    int64_t n_computed;              // while paused: tokens that its cache held
    enum engine_cache_source source; // of the n_cached
    int64_t restore_us;              // how long the turn waited for them
    bool then_release;               // the owner asked to drop the cache when the turn ends
    int text_rc;                     // negative: its text failed; the turn ends with its next token
    struct sequence_names names;     // copies of spec's names, which are borrowed
};

// Takes spec->ids. NULL: out of memory; spec is unchanged. Owner's thread.
struct live_turn *live_turn_new(const struct engine_turn *spec, int64_t now_us);
void live_turn_free(struct live_turn *t); // and its log, unless that was taken

// The longest log that this turn can reach.
int64_t live_turn_max_log(const struct engine_turn *spec);

// Allocates room for all tokens that the turn may draw, and prepares the slot. A turn that was paused
// goes on from the state that its slot had: the tokens drawn so far pass through the slot again, by way
// of scratch and out. E_NOMEM, or the error of sampler_begin.
int live_turn_begin(struct live_turn *t, struct turn_slot *slot, const struct tokenizer *tokenizer,
                    const int32_t *eos_ids, int32_t n_eos, struct buf *scratch, struct buf *out,
                    struct err *err);
// live_turn_take appends a drawn token to the log. live_turn_text, called for the tokens in order,
// appends the text that may be shown now to *out (scratch is emptied first): 1 if the token completed
// a stop string, 0 otherwise, or the buffer's error, which persists. live_turn_append does both.
void live_turn_take(struct live_turn *t, int32_t id);
int live_turn_text(struct live_turn *t, int32_t id, struct buf *scratch, struct buf *out);
int live_turn_append(struct live_turn *t, int32_t id, struct buf *scratch, struct buf *out);
// Appends the text that was held back, for a turn that did not end by a stop string.
int live_turn_flush(struct live_turn *t, struct buf *scratch, struct buf *out);
