// One turn: its input, its answer, and how much of both the database has.
//
// Owned by its session, on the net thread.
#pragma once
#include "base/buf.h"
#include "engine/engine.h"
#include "sessions/sessions.h"
#include "sessions/store/record.h"

// The turns that follow one turn, or the empty log, by their numbers: a list from the oldest.
struct turn_children {
    int64_t first, last; // TURN_NONE: none
    int64_t n;
};

struct preparation;

// Tokens of an answer as they are drawn, with the text that they release.
struct drawn_tokens {
    int32_t *ids;                            // (n)
    float *logprobs;                         // (n)
    uint32_t *text_ends;                     // (n) where each token's text ends
    struct engine_alternative *alternatives; // (n, rec.n_alternatives of the turn) or NULL
    size_t n, cap;
    struct buf text;
};

// Another answer of a turn that runs (sampling n), as far as it has come (branch_deltas.c).
struct sample {
    struct drawn_tokens out;
    size_t n_came, text_came; // tokens and bytes that its present instance has sent
};

// The ids of a turn's input (turns/input.h), made before the turn starts.
struct input_ids {
    int32_t *ids; // (n)
    size_t n;
    size_t n_answer; // how many of them, at the end, are the source's answer
    char *answer;    // its text as these tokens have it; NULL: none
    bool thinking;   // the answer begins inside the model's thinking, which its text closes
    bool made;
    // The source that they were made from.
    bool system;
    int32_t last_id;
};

// Why a running turn is to end before its own end. A later reason replaces an earlier one (turn_stop).
enum turn_stop {
    STOP_NONE,
    STOP_YIELD,     // its instance was asked to give it back; another one continues it (failover.c)
    STOP_CANCEL,    // it was asked to end
    STOP_ABANDONED, // cancelled because its last client left
    STOP_NO_MEMORY, // later events of the engine are dropped, and its end is an error
};

// Where the turn's row is.
enum turn_storage {
    TURN_UNSAVED, // in memory alone
    TURN_STORED,  // in memory and on disk
    TURN_SLIM,    // on disk: memory has only its numbers (history.c)
};

struct turn {
    struct turn_record rec;
    enum turn_state state;
    enum turn_stop stop;
    enum turn_storage storage;
    uint64_t number;                // the engine's turn number; 0 while it is not with the engine
    struct told *told;              // NULL once the turn has ended
    struct turn_sampling *sampling; // NULL once the turn has ended
    struct grammar *compiled; // of its sampling, from its start to its end; NULL: none, or not yet
    int64_t accepted_us, submitted_us; // monotonic
    int64_t engine_started_us;         // the engine's clock, at ENGINE_STARTED
    const char *file_refused;          // why its snapshot was not used; EVENT_DONE reports it
    struct input_ids input;            // made ahead of its start
    int32_t *expected; // (n_expected) what its answer may resemble; freed at its end
    size_t n_expected;
    bool scores_input;             // the request asks for scores; nothing changes it
    struct engine_scores *scores;  // of its input; never recorded. NULL: none
    int64_t n_drafted, n_accepted; // drafted tokens that the model checked; that it accepted
    const struct preparation *preparation; // TURN_PREPARING: the one it waits for
    // Output, token by token. While the turn is on the path in use, the session's log has the ids too; of
    // a slim turn only the log has them.
    struct drawn_tokens out;
    struct sample *samples; // (n_samples) until every client has the turn's end; NULL: none
    int32_t n_samples;
    // What the database has. The turn is saved when saved_version equals version.
    uint32_t version, saved_version;
    size_t n_saved; // tokens on disk
    size_t n_safe;  // in the tail (sessions/store/tail.h)
    // For turns that continue on another instance (failover.c).
    int n_lost;          // instances in a row that failed while it ran, without a new token
    int n_short;         // times in a row that there was no memory for it, without a new token
    size_t n_before;     // tokens that it had when its present instance got it
    size_t n_again;      // how many of these the instance draws again, running from the start
    size_t n_came_again; // how many of those have come
    // Its place in the tree (sessions/state/tree.h).
    struct turn_children children;
    int64_t older, newer; // its neighbours among its parent's children; TURN_NONE
    // From a first turn to the head. Turns of any state are, and a move of the head changes it for many.
    bool on_path;
    uint64_t said; // hash of its input, to tell siblings apart (turn_note_input)
    // For a further answer of a turn with several (versions.c), drawn since the session was read: that
    // turn, and the answer's number. branch 0: any other turn.
    int64_t answer_of;
    int32_t branch;
};

// The only way to change a turn's state; asserts that the picture in sessions.h has this change.
void turn_set(struct turn *t, enum turn_state to);
bool turn_leads_to(enum turn_state from, enum turn_state to);
void turn_stop(struct turn *t, enum turn_stop why); // keeps a later reason
bool turn_waits(const struct turn *t);              // QUEUED or PREPARING
bool turn_runs(const struct turn *t);   // SUBMITTED or RUNNING: the session's log grows by it
struct turn *turn_new(void);            // NULL: no memory
void turn_free(struct turn *t);         // NULL is fine
void turn_drop_grammar(struct turn *t); // `compiled`
// From the database; takes over what *stored owns. E_NOMEM, E_CORRUPT when its parts contradict
// each other.
int turn_restore(struct turn *t, struct stored_turn *stored);

// Hashes the input once it is complete; a slim turn keeps only the hash.
void turn_note_input(struct turn *t);
// Frees all but the numbers of a turn that is over and on disk.
void turn_slim(struct turn *t);

void turn_free_samples(struct turn *t); // a second call does nothing

void drawn_tokens_init(struct drawn_tokens *d);
void drawn_tokens_release(struct drawn_tokens *d); // all but n
// The event's token, with as much of its text as is new. E_NOMEM.
int drawn_tokens_add(struct drawn_tokens *d, const struct engine_event *e, const char *text,
                     size_t len, int32_t n_alternatives);
// One sampled token: its text goes behind the text that a continuation may have left.
int turn_add_token(struct turn *t, const struct engine_event *e);
int turn_add_text(struct turn *t, const char *text, size_t len);
// Bytes released by the first n tokens
size_t turn_text_end(const struct turn *t, int64_t n_tokens);

// Tokens [from, out.n). With to_end the run has the text behind the last token too. Borrowed until
// the turn grows, or copied for the store.
void turn_borrow_run(const struct turn *t, size_t from, bool to_end, struct token_run *out);
int turn_copy_run(const struct turn *t, size_t from, bool to_end, struct token_run *out);

// The view that shows n_tokens of its output and, with done, its end.
void turn_view_fill(const struct turn *t, int64_t n_tokens, bool done, struct turn_view *out);
