// One inference: a turn for each row of its batch, followed until all turns have ended. Each row runs in a
// session. Without a sequence these sessions are deleted at the end; the sessions of a sequence stay. When
// one row of a sequence fails, the other rows are rewound: either all rows have the turn, or no row has.
//
// Independent of the transport, which implements struct infer_client_ops. Net thread only.
#pragma once
#include "ws/kserve/infer_request.h"
#include "ws/turn_batch.h"

struct infer;
struct sequence;

struct infer_answer { // of a beam
    int32_t *ids;     // (n)
    float *logprobs;  // (n)
    size_t n;
};

// A row's turn and its results.
enum row_state {
    ROW_ABSENT,  // no session yet, or it is being attached
    ROW_OPEN,    // its session is attached
    ROW_STARTED, // its turn was submitted
    ROW_ENDED,
    ROW_MOVING, // its session is being rewound
    ROW_UNDONE,
};
struct infer_turn {
    struct batch_turn batch; // first
    enum row_state state;
    int64_t before;   // the turn that it follows
    int64_t n_before; // tokens of the log before its input
    int32_t *ids;     // (n_ids) the whole log; complete at ROW_ENDED; with FORM_PIECES it grows
    size_t n_ids, cap_ids;
    float *logprobs; // (n_logprobs) of the generated tokens, if asked for
    size_t n_logprobs, cap_logprobs;
    struct infer_answer *beams; // (n_beams) at ROW_ENDED the beams after the best one; else NULL
    size_t n_beams;
    double context_logprob;
    float *embedding; // (engine_info.width) if asked for
};

enum infer_state {
    INFER_WAITING, // until the sequence's earlier exchange has ended
    INFER_FINDING, // reads the sequence's sessions from the store
    INFER_OPENING, // attaches its sessions
    INFER_RUNNING,
    INFER_UNDOING, // has failed, and rewinds its rows
};

struct infer_client_ops {
    // FORM_STREAM, FORM_PIECES: whether the transport has room for a piece. If not, the transport calls
    // infer_go_on() later.
    bool (*has_room)(void *ctx);
    // FORM_TEXT, FORM_STREAM: a piece of the answer's text, drawn at drawn_us (0: not counted).
    void (*text)(void *ctx, struct infer *i, const char *text, size_t len, int64_t drawn_us);
    // FORM_PIECES: every row has one more token (infer_outputs_make). drawn_us: as in text().
    void (*piece)(void *ctx, struct infer *i, int64_t drawn_us);
    // The last call: the answer (infer_outputs_make), or why there is none (i->code, i->message).
    void (*reply)(void *ctx, struct infer *i);
};

struct infer {
    struct turn_batch batch;            // first: callbacks cast. A turn for each row
    const struct infer_client_ops *ops; // NULL: answered, or its client is gone
    void *ctx;                          // of ops
    struct infer_request *request;
    struct sequence *sequence; // NULL: none
    struct infer *next;        // in the sequence's queue
    enum infer_state state;
    bool accepted;            // before the drain began, or promised; the drain waits for its answer
    char cursor[64];          // INFER_FINDING: the list's next page; "": the first
    struct infer_turn *turns; // (request->n_rows) the batch's
    int64_t begun_us, started_us;
    // FORM_PIECES: how many new tokens of each row are sent, or in the outputs. SIZE_MAX: all
    size_t step;
    int64_t drawn_us;       // of the newest token
    enum kserve_code code;  // KSERVE_OK, or why it failed
    int64_t retry_after_ms; // 0: unknown
    char message[512];
};

// Takes r, also on failure (NULL: no memory). Calls none of the ops before infer_begin().
struct infer *infer_new(struct service *s, const char *owner, struct infer_request *r,
                        const struct infer_client_ops *ops, void *ctx);
void infer_begin(struct infer *i);       // may reply at once
void infer_go_on(struct infer *i);       // the transport has room again
void infer_client_gone(struct infer *i); // no more calls of its ops
