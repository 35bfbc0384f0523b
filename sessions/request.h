// A client's request as data: what every protocol hands to the session service.
//
// A protocol fills in one struct request from its own format (ws/parley/protocol.c decodes JSON into
// it) and gives it to sessions_submit() (sessions.h). request_init() sets every field to its
// default; the comments name the kinds that read a field. The service reads the struct during the
// call and copies what it needs later. Pointers are borrowed.
//
// Each request is answered once: by on_answer with the same client and request_id, or, where the
// client is attached, by the event named below. TYPING is a hint and has no answer.
#pragma once
#include "sessions/store/facts.h"

enum request_kind {
    REQUEST_OPEN,       // a new session, with the client attached: EVENT_OPENED
    REQUEST_ATTACH,     // follow its events: ANSWER_ATTACHED
    REQUEST_DETACH,     // and no longer: ANSWER_DETACHED
    REQUEST_TYPING,     // a turn is likely: bring a parked cache or a snapshot back
    REQUEST_GET,        // a page of its turns: ANSWER_STATE
    REQUEST_LIST,       // the owner's sessions: ANSWER_LIST
    REQUEST_UPDATE,     // title, sampling, cancel_after_ms, note: EVENT_UPDATED or ANSWER_UPDATED
    REQUEST_CLOSE,      // its turns end, it stays readable: EVENT_CLOSED or ANSWER_CLOSED
    REQUEST_START,      // a turn: ANSWER_ACCEPTED
    REQUEST_CANCEL,     // its turn, or the client's replay: ANSWER_CANCELLING
    REQUEST_TURN,       // a turn as it is on record: ANSWER_TURN
    REQUEST_EVENTS,     // its events without deltas: ANSWER_EVENTS
    REQUEST_REPLAY,     // runs a turn that ended again: ANSWER_REPLAYING, then ANSWER_REPLAYED
    REQUEST_REWIND,     // moves the head: EVENT_REWOUND or ANSWER_REWOUND
    REQUEST_REGENERATE, // another answer to a turn's input: ANSWER_ACCEPTED
    REQUEST_EDIT,  // a turn's answer in other words, as a new turn: EVENT_REWOUND or ANSWER_REWOUND
    REQUEST_ERASE, // a turn and all below it leave the record: the same
    REQUEST_OUTLINE, // all turns of its tree, a page: ANSWER_OUTLINE
    REQUEST_FORK,    // a new session with a copy of a path: EVENT_OPENED
    REQUEST_EXPORT,  // the session as a file: ANSWER_EXPORTED
    REQUEST_IMPORT,  // a new session from a file: ANSWER_IMPORTED
    REQUEST_MATCH,   // turns by what clients know of them: ANSWER_MATCHED
};

struct turn_input {
    enum turn_input_kind kind;
    const char *text; // CONTENT, TEXT
    size_t text_len;
    // IDS. CONTENT: what a protocol has rendered from its own conversation, behind the turn that START
    // names; `text` is then shown in its place. NULL: the text is rendered.
    const int32_t *ids;
    size_t n_ids;
};

// An earlier answer as the model is shown it by now, where its log shows it otherwise: the template has
// removed its thinking, say. It is stored as a finished turn of its own, which nothing has sampled.
struct given_answer {
    int64_t of;              // the turn whose answer it is
    char *question, *answer; // as they are shown
    int32_t *input, *output; // (n_input), (n_output), both above 0
    size_t n_input, n_output;
    char *told, *shown; // told.h
};
struct given_answer *given_answer_copy(const struct given_answer *g); // NULL: no memory
void given_answer_free(struct given_answer *g);                       // NULL is fine

#define REQUEST_NOTE_BYTES ((size_t)128 << 10)
#define CLIENT_GONE 0 // no client: the answer goes nowhere

struct request {
    enum request_kind kind;
    uint64_t client;   // the connection's number, never reused; the address of the answer
    const char *owner; // the authorised name ("local" on loopback without tokens)
    char request_id[SESSION_REQUEST_ID_MAX + 1]; // "": none
    const char *session;                         // id. OPEN: NULL: drawn. LIST, IMPORT: not read

    // START: the turn to go on after: another than the head rewinds first, in the same commit.
    // CANCEL: TURN_HEAD: every turn. REWIND: the new head. REGENERATE: TURN_HEAD: the last of the
    // path. FORK: the last one copied, TURN_HEAD: the last finished one of the path. TURN, REPLAY.
    int64_t turn;
    struct turn_input input; // START
    // START: the answer that stands between `turn`, which is not TURN_HEAD, and the new turn. NULL: none
    const struct given_answer *given;
    // OPEN, UPDATE, START, REGENERATE: the values given. NULL: none; UPDATE keeps the session's.
    const struct turn_sampling *sampling;
    // START: what the protocol wants to find in the turn's record again, as a text of its own; at most
    // REQUEST_NOTE_BYTES. NULL: nothing. Shown to nobody else.
    // OPEN, UPDATE: the same for the session; at most SESSION_NOTE_BYTES. NULL: none; kept.
    const char *note;
    // UPDATE: the note that is replaced, or "": none; where the session has another by now, it is refused with
    // session_busy. NULL: whichever it is.
    const char *old_note;
    bool queue;    // START: waits behind a running turn instead of being refused
    bool accepted; // OPEN, START: its client was promised it before sessions_drain()
    bool leaf;   // REWIND: the newest turn below `turn`. ERASE: only one without any (unsupported)
    bool replay; // CANCEL: the client's replay of a turn of this session

    // OPEN: the model's name, NULL: the one there is. Lengths: 0: the server's default.
    const char *model;
    int64_t session_len, memory_len;
    int64_t sink_len;   // -1: the default
    const char *system; // OPEN. NULL: none
    // OPEN: the table of the session's virtual tokens, a task's or one of the client's; NULL: none.
    const char *prompt_task;
    const struct prompt *prompt;
    const char *title; // OPEN, UPDATE, FORK. NULL: none; kept; the source's
    // OPEN, UPDATE: when a connection ends and leaves no client, the session's turns are cancelled
    // after this time, unless a client attaches or starts a turn. 0: they finish. -1: 0; kept.
    int64_t cancel_after_ms;
    const char *new_session; // FORK: its id; NULL: drawn

    int64_t after;  // ATTACH: the last event the client has; -1: the newest
    bool attach;    // GET: attaches as well
    int64_t last;   // GET, EVENTS: at most so many; 0: 100
    int64_t before; // GET: turns before this one; EVENTS: events before this number; -1: the newest
    bool delete_it; // CLOSE
    // OPEN, FORK: the session is its protocol's, which deletes it; one that a crash leaves is removed at the
    // next start. In place of a note.
    bool temporary;

    const char *query, *forked_from, *cursor; // LIST; NULL: all, all, from the newest
    int64_t limit;                            // LIST; 0: 50
    const char *archive;                      // IMPORT: (archive_len) JSON text
    size_t archive_len;

    // START: ids that the answer may resemble (engine_turn.expected). n_expected 0: none
    const int32_t *expected;
    size_t n_expected;
    // START: the conversation that the turn answers (told.h); NULL: it is not found again
    struct told *told;
    // MATCH: chains, (n_digests) of TOLD_DIGITS, the deepest first, in `session` or (NULL) any.
    const char *const *digests;
    size_t n_digests;

    struct request *next; // the service's own
};

void request_init(struct request *r, enum request_kind kind);
// Owns copies of all it points to. NULL: no memory.
struct request *request_copy(const struct request *r);
void request_free(struct request *r); // a copy; NULL is fine
