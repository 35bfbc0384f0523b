// One inference: a turn for each row of its batch, followed until all have ended. Rows without a
// sequence are sessions of their own, deleted at the end; those of a sequence stay. When one row of a
// sequence fails, the others go back to where they were, so that the sequence is never half-way.
#pragma once
#include "ws/follower.h"
#include "ws/kserve/infer_request.h"
#include "ws/net/http.h"

struct sequence;
struct service;

// A row's turn, and what came of it.
enum row_state {
    ROW_ABSENT,  // no session yet, or it is being attached
    ROW_OPEN,    // its session is attached
    ROW_STARTED, // its turn was submitted
    ROW_ENDED,
    ROW_MOVING, // its session goes back to where it was
    ROW_UNDONE,
};
struct infer_turn {
    enum row_state state;
    char session_id[SESSION_ID_MAX + 1];
    struct session *session; // its events wait; NULL: none do
    int64_t before;          // the head that the turn follows
    int64_t n_before;        // tokens of the log in front of its input
    int32_t *ids;            // ROW_ENDED: (n_ids) the whole log
    size_t n_ids;
    float *logprobs; // (n_logprobs) of the generated tokens, if asked for
    size_t n_logprobs, cap_logprobs;
};

enum infer_state {
    INFER_WAITING, // for the sequence's exchange before it
    INFER_FINDING, // the sequence's sessions in the store
    INFER_OPENING, // its sessions are attached
    INFER_RUNNING,
    INFER_UNDOING, // it has failed
};

struct infer {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    struct http *http; // NULL: answered, or its client is gone
    struct infer_request *request;
    struct sequence *sequence; // NULL: none
    struct infer *next;        // in the sequence's queue
    enum infer_state state;
    char cursor[64]; // INFER_FINDING: of the list's next page, "": the first
    char *owner;
    struct infer_turn *turns; // (request->n_rows)
    struct buf text;          // of a generate request, as far as it is not streamed
    bool streaming;
    int64_t begun_us, started_us;
    int status; // 0, or why it failed
    char message[512];
};

extern const struct http_waiter infer_waiter; // of its replies, streamed ones too

void infer_start(struct service *s, struct http *h, struct infer_request *r);
