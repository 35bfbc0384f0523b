// Sequences: Triton's clients name a conversation by a sequence id. Each row of a sequence's batch is one
// session, so sequences are stored, appear in the page, can be replayed, and outlive evictions and
// restarts (infer.c finds their sessions again).
//
// The table holds the sequences in use. One inference of a sequence runs at a time; others wait in order.
// Net thread only.
#pragma once
#include "base/hash.h"
#include "sessions/sessions.h"
#include "ws/kserve/infer_request.h"

struct infer;

#define SEQUENCES_MAX 4096 // beyond it, the least recently used idle one leaves the table

struct sequence {
    UT_hash_handle hh;
    char *key;                        // owner, a line feed, the id as infer_request has it
    char session[SESSION_ID_MAX + 1]; // of row 0; "": not started, or not found yet
    size_t n_rows;
    struct infer *running;               // NULL: it is idle
    struct infer *waiting, **where_next; // the next inferences, in order; where to append
    int64_t used_us;                     // when it became idle
};

struct sequences {
    struct sequence *by_key; // uthash
    size_t n;
};

// id: as in infer_request. NULL: the table does not have it.
struct sequence *sequences_find(struct sequences *t, const char *owner, const char *id);
// Adds a sequence that is not in the table. The table owns it. NULL: E_NOMEM.
struct sequence *sequences_add(struct sequences *t, const char *owner, const char *id);
void sequences_remove(struct sequences *t, struct sequence *s); // frees it
void sequences_release(struct sequences *t);

// Runs the inference at once, or behind those that wait.
void sequence_enter(struct sequence *s, struct infer *i);
void sequence_leave_queue(struct sequence *s, struct infer *i); // which waits
// The running inference has ended. Returns the next one, which runs now; NULL: none waits.
struct infer *sequence_next(struct sequence *s);

// The title of the sequence's sessions: "Sequence 42", "Sequence a-name".
void sequence_title(const char *id, char out[SESSION_TITLE_BYTES]);
// Draws the id of a new sequence's first session. It begins with sequence_prefix().
void sequence_draw(const char *owner, const char *id, size_t n_rows, char out[SESSION_ID_MAX + 1]);
void sequence_prefix(const char *owner, const char *id, char out[SESSION_ID_MAX + 1]);
// The number of rows in the id of a sequence's first session; 0: another id.
size_t sequence_rows_of(const char *session);
// The id of the session of a row, by that of row 0.
void sequence_row_id(const char *session, size_t row, char out[SESSION_ID_MAX + 1]);
