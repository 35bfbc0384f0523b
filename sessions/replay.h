// Runs recorded turns again and compares: does the model still give the same answers?
//
// Each turn is computed from the recorded log, even if earlier turns diverged in this replay, so that
// one divergence does not hide the next. All run on one sequence that starts without a cache; what the
// cache holds of the recorded log is kept from turn to turn, as it is in a server.
//
// What is compared is in rerun.h. What is not: how text becomes ids (recorded input ids are taken
// as they are), and the weights byte by byte (the fingerprint samples them).
//
// The same machinery answers "what if": from a turn on, the session is run with other sampling
// parameters, the later inputs rendered anew on the log as it then is.
//
// One thread at a time, the engine's owner; every call waits for the engine.
#pragma once
#include "sessions/rerun.h"

struct replay;

// Borrows engine and session until replay_free. E_CORRUPT when the record's log does not fit
// together, E_NOMEM.
int replay_new(struct replay **out, struct engine *e, const struct stored_session *s,
               const struct replay_window *w, struct err *err);
void replay_free(struct replay *r); // NULL is fine

// Runs turn `turn` (an index of the record) again. probe: fill in what else was likely where it
// diverged; costs a prefill of up to the whole log. Negative only when memory is out or the engine
// is gone.
int replay_one(struct replay *r, size_t turn, bool probe, struct replay_turn *out, struct err *err);

// --- what if ---

struct replay_answer {
    const int32_t *ids;    // (n) borrowed
    const float *logprobs; // (n)
    size_t n;
    const char *text;
    size_t text_len;
    const char *finish_reason;
};
struct replay_pair {
    int64_t turn;
    const struct stored_turn *stored; // its input as it was
    struct replay_answer recorded, now;
    size_t n_same;      // tokens before the first other one
    bool same;          // the answers have the same tokens
    const char *failed; // why it could not be run (its log may be full); NULL: it could. The last
                        // pair then.
};
// changes: a JSON object under the names of ws/PROTOCOL.md; what it names replaces what each turn
// has on record. E_INVAL names a key that is wrong or not known.
int replay_check_changes(const char *changes, int32_t n_vocab, struct err *err);
// Begins at turn `from` (TURN_NONE: with the first) and goes along the path in use or, where that
// turn is not on it, the path through it that was made last.
int replay_what_if(struct replay *r, int64_t from, const char *changes, struct err *err);
// The next turn with both answers, borrowed until the next call. 1 with a pair, 0 after the last.
// Turns that never entered the log are left out. A turn that was cut short on record ends at as
// many tokens here.
int replay_next(struct replay *r, struct replay_pair *out, struct err *err);
