// One inference: a turn for each row of its batch, followed until all have ended. Rows without a
// sequence are sessions of their own, deleted at the end; those of a sequence stay. When one row of a
// sequence fails, the others go back to where they were, so that the sequence is never half-way.
//
// It knows no transport: who asked is an infer_client. Net thread only.
#pragma once
#include "ws/follower.h"
#include "ws/kserve/infer_request.h"

struct infer;
struct sequence;
struct service;

struct infer_answer { // of a beam
    int32_t *ids;     // (n)
    float *logprobs;  // (n)
    size_t n;
};

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
    int32_t *ids;            // (n_ids) the whole log: at ROW_ENDED, of FORM_PIECES as it comes
    size_t n_ids, cap_ids;
    float *logprobs; // (n_logprobs) of the generated tokens, if asked for
    size_t n_logprobs, cap_logprobs;
    struct infer_answer *beams; // (n_beams) at ROW_ENDED the beams after the best one; else NULL
    size_t n_beams;
    double context_logprob;
    float *embedding; // (engine_info.width) if asked for
};

enum infer_state {
    INFER_WAITING, // for the sequence's exchange before it
    INFER_FINDING, // the sequence's sessions in the store
    INFER_OPENING, // its sessions are attached
    INFER_RUNNING,
    INFER_UNDOING, // it has failed
};

struct infer_client_ops {
    // FORM_STREAM, FORM_PIECES: whether a piece can be taken now; infer_go_on() is called when it can
    // again.
    bool (*has_room)(void *ctx);
    // FORM_TEXT, FORM_STREAM: a piece of the answer's text, drawn at drawn_us (0: not counted).
    void (*text)(void *ctx, struct infer *i, const char *text, size_t len, int64_t drawn_us);
    // FORM_PIECES: every row has a token more (infer_outputs_make); drawn_us as of text().
    void (*piece)(void *ctx, struct infer *i, int64_t drawn_us);
    // The last call: the answer (infer_outputs_make), or why there is none (i->code, i->message).
    void (*reply)(void *ctx, struct infer *i);
};

struct infer {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    const struct infer_client_ops *ops; // NULL: answered, or its client is gone
    void *ctx;                          // of ops
    struct infer_request *request;
    struct sequence *sequence; // NULL: none
    struct infer *next;        // in the sequence's queue
    enum infer_state state;
    bool accepted;   // before the server drained: it is answered first
    char cursor[64]; // INFER_FINDING: of the list's next page, "": the first
    char *owner;
    struct infer_turn *turns; // (request->n_rows)
    int64_t begun_us, started_us;
    // FORM_PIECES: outputs have so many new tokens of each row. SIZE_MAX: all
    size_t step;
    int64_t drawn_us;       // of the newest token
    enum kserve_code code;  // KSERVE_OK, or why it failed
    int64_t retry_after_ms; // 0: it is not known when it may work
    char message[512];
};

// Takes r, also on failure (NULL: no memory). Nothing is called before infer_begin().
struct infer *infer_new(struct service *s, const char *owner, struct infer_request *r,
                        const struct infer_client_ops *ops, void *ctx);
void infer_begin(struct infer *i);       // may reply at once
void infer_go_on(struct infer *i);       // there is room again
void infer_client_gone(struct infer *i); // no more calls of its ops
