// One turn from submission to its last event: its spec, its log while it grows, and its times. The
// large parts that only a running turn needs are in a slot (turn_slot.h), so that a turn's start
// allocates only room for its log, and rings for its branches.
// Engine thread only, except live_turn_new.
#pragma once
#include "engine/cache/sequence.h"
#include "engine/grammar/grammars.h"
#include "engine/run/branches.h"
#include "engine/run/context.h"
#include "engine/run/drafts.h"
#include "engine/run/scheduler.h"
#include "engine/run/turn_slot.h"

#define GRAMMAR_NO_END INT32_MAX

struct live_turn {
    struct sched_turn sched; // first: the scheduler's pointer is the turn's
    struct engine_turn spec; // ids is the log, owned, and grows
    struct prompt *prompt;   // spec's, held
    bool short_rope;         // set when it is admitted
    struct grammar *grammar; // of spec.sampling.grammar, held; NULL: none
    int64_t grammar_room;    // tokens that the whole answer may take; GRAMMAR_NO_END: it is cut
    // The model's, where the turn has a grammar or a budget of thinking; else NULL
    const struct thinking_marks *thinking;
    struct answer_form form; // the model's
    int64_t n_log, cap_log;  // spec.n_ids stays the length before the first drawn token
    struct sequence *sequence;
    struct turn_slot *slot;                               // while it runs
    int64_t submitted_us, started_us, first_us, last_us;  // 0: not yet
    int64_t paused_since_us;                              // 0: it is not paused
    int64_t paused_us;                                    // sum of the pauses that are over
    int64_t first_paused_us, last_paused_us;              // paused_us at first_us and at last_us
    int64_t deadline_us;                                  // monotonic; INT64_MAX for none
    int64_t n_cached, n_shared, n_prefilled, n_generated; // n_shared: as in struct engine_event
    int64_t n_given;    // of n_generated, drawn on another engine (engine_turn.n_drawn)
    bool begun;         // STARTED was emitted
    int64_t n_computed; // while paused: tokens that its cache held
    enum engine_cache_source source; // of the n_cached
    int64_t restore_us;              // how long the turn waited for them
    bool then_release;               // the owner asked to drop the cache when the turn ends
    bool drawn_by_host; // the device could not draw one of its tokens: no further flight
    int text_rc;        // negative: its text failed; the turn ends with its next token
    struct context_outputs context;
    struct branches *branches; // NULL: it has one answer
    int32_t *expected;         // spec's, a copy
    struct drafts *drafts;     // NULL: it has none
    // Of the step under way: drafts that have rows; those that were drawn; rows that are not committed.
    int32_t n_drafted, n_accepted, n_unchecked;
    bool undrawn; // likewise: no token is drawn from its last row, which is not committed (masks.c)
    struct sequence_names names; // copies of spec's names, which are borrowed
};

// Takes spec->ids. NULL: out of memory; spec is unchanged. Owner's thread.
struct live_turn *live_turn_new(const struct engine_turn *spec, int64_t now_us);
void live_turn_free(struct live_turn *t);            // with its log, unless that was taken
bool live_turn_has_drawn(const struct live_turn *t); // a token, of any branch

// The parts of the turn's time up to now. Their sum is the whole time, except what follows the last token.
struct turn_times {
    int64_t queue_us, prefill_us,
        decode_us;     // without pauses; decode: from the first token drawn to the last
    int64_t paused_us; // other owners' turns had its place
};
// Until now_us, of a turn that may still wait; times of a part that has not begun are 0.
struct turn_times live_turn_times(const struct live_turn *t, int64_t now_us);
void live_turn_drew(struct live_turn *t, int64_t time_us);   // a token
void live_turn_paused(struct live_turn *t, int64_t now_us);  // it has no place
void live_turn_goes_on(struct live_turn *t, int64_t now_us); // it has a place again, and its cache

// The longest log that this turn can reach.
int64_t live_turn_max_log(const struct engine_turn *spec);
// The most tokens of its answer. An answer under a grammar ends within them.
int64_t live_turn_planned(const struct engine_turn *spec);

// Allocates room for all tokens that the turn may draw, and prepares the slot. For a turn that was
// paused, it restores the state of the slot by passing the tokens drawn so far through it again; scratch
// and out are its work buffers. E_NOMEM, or the error of sampler_begin.
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
