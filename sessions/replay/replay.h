// Runs recorded turns again and compares: does the model still give the same answers?
//
// Each turn is computed from the recorded log, even if earlier turns diverged in this replay, so that
// one divergence does not hide the next. All turns run on one sequence that starts without a cache; from
// turn to turn the cache keeps its part of the recorded log, as in a server.
//
// rerun.h says what is compared. Two things are not: how text becomes ids (the recorded input ids are
// used), and the weights byte by byte (the fingerprint samples them).
//
// The same code answers "what if": from one turn on, it runs the session with other sampling parameters,
// and renders the later inputs again on the new log.
//
// One thread at a time, the engine's owner; every call waits for the engine.
#pragma once
#include "sessions/replay/rerun.h"

struct replay;

// Borrows engine and session until replay_free. E_CORRUPT when the record's log does not fit
// together, E_NOMEM.
int replay_new(struct replay **out, struct engine *e, const struct stored_session *s,
               const struct replay_window *w, struct err *err);
void replay_free(struct replay *r); // NULL is fine

// Runs turn `turn` (an index of the record) again. probe: also report the likely tokens at the place of
// the divergence; this costs a prefill of up to the whole log. Negative only if memory is out or the
// engine is gone.
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
    size_t n_same; // tokens before the first other one
    bool same;     // the answers have the same tokens
    // Why it could not run (its log may be full); it is the last pair then. NULL: it ran.
    const char *failed;
};
// changes: a JSON object under the names of ws/PROTOCOL.md; its values replace the recorded ones of each
// turn. E_INVAL names a key that is wrong or unknown.
int replay_check_changes(const char *changes, int32_t n_vocab, struct err *err);
// Begins at turn `from` (TURN_NONE: the first one) and follows the path in use. If `from` is not on that
// path, it follows the newest path through `from`.
int replay_what_if(struct replay *r, int64_t from, const char *changes, struct err *err);
// The next turn with both answers, borrowed until the next call. 1 with a pair, 0 after the last.
// Turns that never entered the log are left out. A turn that was cut short on record ends at as
// many tokens here.
int replay_next(struct replay *r, struct replay_pair *out, struct err *err);
