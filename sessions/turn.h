// One turn: its input, its answer, and how much of both the database has.
//
// Owned by its session, on the net thread.
#pragma once
#include "base/buf.h"
#include "engine/engine.h"
#include "sessions/input.h"
#include "sessions/sessions.h"
#include "sessions/store/record.h"

// The turns that follow one turn, or the empty log, by their numbers: a list from the oldest.
struct turn_children {
    int64_t first, last; // TURN_NONE: none
    int64_t n;
};

struct preparation;

struct turn {
    struct turn_record rec;
    enum turn_state state;
    uint64_t number;                // the engine's turn number; 0 while it is not with the engine
    struct told *told;              // until it has ended
    struct turn_sampling *sampling; // until it has ended
    int64_t accepted_us, submitted_us; // monotonic
    int64_t engine_started_us;         // the engine's clock, at ENGINE_STARTED
    const char *file_refused;          // why a snapshot was not used: the reason of its end's event
    struct input_ids input;            // made ahead of its start
    int32_t *expected; // (n_expected) what its answer may resemble; until it has ended
    size_t n_expected;
    int64_t n_drafted, n_accepted;         // drafts that were checked, and drawn
    const struct preparation *preparation; // TURN_PREPARING: the one it waits for
    // Output, token by token. While the turn is on the path in use, its session's log has the ids
    // too, and those of a slim turn alone.
    int32_t *ids;
    float *logprobs;
    uint32_t *text_ends;
    struct engine_alternative *alternatives; // (n_out, rec.n_alternatives) or NULL
    size_t n_out, cap;
    struct buf text;
    // The database's side. A turn is saved when `saved_version` has caught up.
    uint32_t version, saved_version;
    size_t n_saved; // tokens on disk
    size_t n_safe;  // in the tail (sessions/store/tail.h)
    bool on_disk;   // the row exists
    bool failed;    // memory ran out: what the engine still sends is dropped
    bool lost;      // cancelled because its last client is
    // Of a turn that goes on with another instance (displaced.c).
    bool cancelled;      // it was asked to end: it does not go on
    bool yields;         // its instance was asked to give it back
    bool ran;            // its present instance has begun it
    int n_lost;          // instances that failed while it ran, without a token more from it
    size_t n_before;     // tokens that it had when its present instance got it
    size_t n_again;      // of these, those that come again: it runs from its start
    size_t n_came_again; // and have come so far
    bool slim;           // only the disk has its words, ids, settings and log-probabilities
    // Its place in the tree (sessions/tree.h).
    struct turn_children children;
    int64_t older, newer; // the children of its parent beside it, TURN_NONE
    bool on_path;         // from a first turn to the head
    uint64_t said;        // distinguishes its input from its siblings': a hash (turn_note_input)
    bool chat_begun;      // once it has begun: a chat turn is in its log, with the system prompt
    // Of a version drawn since the session was read (versions.c): the turn whose answer it is too, and
    // which one. branch 0: of any other turn.
    int64_t answer_of;
    int32_t branch;
};

bool turn_waits(const struct turn *t); // behind another, or for its input
struct turn *turn_new(void);           // NULL: no memory
void turn_free(struct turn *t);
// From the database; takes over what *stored owns. E_NOMEM, E_CORRUPT when its parts contradict
// each other.
int turn_restore(struct turn *t, struct stored_turn *stored);

// Hashes the input once it is complete; a slim turn keeps only the hash.
void turn_note_input(struct turn *t);
// Frees what a turn that is over and on disk need not keep: all but its numbers.
void turn_slim(struct turn *t);

// One sampled token: the text it released goes behind what a continuation may have left.
int turn_add_token(struct turn *t, const struct engine_event *e);
int turn_add_text(struct turn *t, const char *text, size_t len);
// Bytes released by the first n tokens
size_t turn_text_end(const struct turn *t, int64_t n_tokens);

// Tokens [from, n_out). With to_end the run has the text behind the last token too. Borrowed until
// the turn grows, or copied for the store.
void turn_borrow_run(const struct turn *t, size_t from, bool to_end, struct token_run *out);
int turn_copy_run(const struct turn *t, size_t from, bool to_end, struct token_run *out);

// The view that shows n_tokens of its output and, with done, its end.
void turn_view_fill(const struct turn *t, int64_t n_tokens, bool done, struct turn_view *out);
