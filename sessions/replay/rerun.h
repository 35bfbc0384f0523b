// One recorded turn, run again: what to ask of the engine, and what its events say about the
// record.
//
// A turn is a pure function of the log before it, its input, its sampling parameters and its seed
// (rule 8 of engine/README.md), and all of these are on record. This part of a replay never waits:
// `parley replay` feeds it by engine_wait (replay.h), a server by the events that it polls
// (debug_replay.c).
//
//     rerun_begin()
//     while (rerun_next() == 1)     a turn to be submitted; refused: rerun_refused()
//         until rerun_take() is true: its events
//     rerun.found
//
// What is compared: every generated id, every bit of every log-probability, and how the turn ended.
// A turn that was cut short from outside (cancelled, interrupted, deadline, error, or running
// still) is compared as far as it came.
#pragma once
#include "engine/engine.h"
#include "sessions/replay/answer.h"
#include "sessions/store/record.h"

#define REPLAY_TOP 5
#define REPLAY_WHY_MAX 300

enum replay_verdict {
    REPLAY_EQUAL,    // every id, every bit, and the end
    REPLAY_EMPTY,    // the recorded turn generated nothing, so there is nothing to compare
    REPLAY_DIVERGED, // replay_turn.first says where
    REPLAY_FAILED,   // it could not run; replay_turn.why says why
};
const char *replay_verdict_name(enum replay_verdict v); // "equal", "empty", "diverged", "failed"

enum replay_kind {
    REPLAY_TOKEN,   // another id
    REPLAY_LOGPROB, // the same id with other bits of its log-probability
    REPLAY_END,     // the same tokens, but one of the two goes on, or ends for another reason
};
const char *replay_kind_name(enum replay_kind k); // "token", "logprob", "end"

struct replay_choice {
    int32_t id;    // -1: the answer had ended
    float logprob; // as reported with the token
};

struct replay_divergence {
    enum replay_kind kind;
    int64_t index, position; // within the turn's answer; in the log
    struct replay_choice recorded, now;
    // The model's own distribution at that position, computed now. n_top is 0 where it was not
    // asked for (`probe`).
    int32_t n_top;
    struct engine_alternative top[REPLAY_TOP];
    double recorded_id_logprob; // what the recorded token gets now; NAN without
};

struct replay_turn {
    int64_t turn; // as recorded
    enum replay_verdict verdict;
    bool cut_short;     // on record the turn was ended from outside
    int64_t n_compared; // tokens that both have, up to the first other id
    int64_t n_logprobs_differ;
    // DIVERGED: what came first, and the first other id if that is something else (kind
    // REPLAY_TOKEN; else .index is -1).
    struct replay_divergence first, token;
    char recorded_finish[FINISH_REASON_MAX], finish[FINISH_REASON_MAX];
    char why[REPLAY_WHY_MAX]; // FAILED
};

// The lengths that the engine must be able to hold, and that each turn gets: the recorded ones, but at most
// the length of the recorded log, since a longer window changes no mask. So a small machine can replay a
// short session. What-if has no such bound.
struct replay_window {
    int64_t session_len;
    int32_t memory_len, sink_len;
    const struct prompt *prompt; // borrowed; the caller sets it
};
// The most branches that a turn of the record has; 1: each has one answer.
int32_t replay_branches(const struct stored_session *s);
void replay_window(const struct stored_session *s, bool what_if, struct replay_window *out);

// The log that a recorded turn continues.
struct replay_log {
    int32_t *ids; // (n)
    size_t n, cap;
};
int replay_log_add(struct replay_log *l, const int32_t *ids, size_t n, struct err *err); // E_NOMEM
// Adds the turn's input and answer. E_CORRUPT if the turn does not begin where the log ends.
int replay_log_add_turn(struct replay_log *l, const struct stored_turn *t, struct err *err);

enum rerun_stage { RERUN_ANSWER, RERUN_FIRST, RERUN_TOKEN, RERUN_OVER };
struct rerun { // large: not for a stack
    const struct engine_info *info;
    const struct stored_turn *stored;
    const int32_t *log;
    struct replay_window window;
    bool probe;
    enum rerun_stage stage;
    struct answer answer, probed;
    struct turn_sampling sampling;
    struct replay_turn found;
};
// n_top: alternatives to keep with each token of the answer.
void rerun_init(struct rerun *r, const struct engine_info *info, int32_t n_top);
void rerun_release(struct rerun *r);
// All borrowed until the end; the log reaches to the end of the turn's recorded answer. probe: also report
// the likely tokens at the place of the divergence, by drawing that token once more.
void rerun_begin(struct rerun *r, const struct stored_turn *t, const int32_t *log,
                 const struct replay_window *w, bool probe);
// 1: *out is a turn to submit to the engine, which then takes out->ids (else the caller frees them). The
// caller fills in sequence, the same each time, and turn. 0: it is over. E_NOMEM.
int rerun_next(struct rerun *r, struct engine_turn *out, struct err *err);
// The engine did not take it. Returns rc where memory is out or the engine gone, else 0: go on.
int rerun_refused(struct rerun *r, int rc, const struct err *err);
// An event of the turn submitted. True: it was its last.
bool rerun_take(struct rerun *r, const struct engine_event *e);

// "eos", "stop" and "length" follow from the tokens; all else came from outside.
bool rerun_ended_by_itself(const struct turn_record *t);
// The recorded parameters and seed. Deadlines are left out, because time passes differently in a replay.
int rerun_sampling(const struct turn_record *t, int32_t n_vocab, struct turn_sampling *out,
                   struct err *err);
// Bounds the answer to one token more than the recorded one, to the same number if that was cut short,
// however long the model would go on now.
void rerun_bound(struct sampling_params *p, const struct stored_turn *t);
// A turn for the engine, with its own copy of the log. E_NOMEM.
int rerun_spec(const struct replay_window *w, const struct sampling_params *p, const int32_t *log,
               size_t n_log, int64_t n_input, struct engine_turn *out, struct err *err);

// Whether a turn's recorded `instance` names what record_instance() gives now, except the number
// of threads. A record of the backend alone is compared with that.
enum { REPLAY_DEVICE = 1, REPLAY_SETTINGS = 2 };
int replay_instance_differs(const char *recorded, const char *now); // in which of them; 0: in none
bool replay_instance_equal(const char *recorded, const char *now);
// A build or instance; "unknown" if it is empty.
const char *replay_or_unknown(const char *recorded);
