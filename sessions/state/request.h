// A client's request as data, the same for every protocol.
//
// A protocol fills in one struct request from its own format (ws/parley/protocol.c decodes JSON into
// it) and gives it to sessions_submit() (sessions.h). request_init() sets every field to its
// default; a field that one kind reads is in the union's member of that kind. The service reads the struct during the
// call and copies what it needs later. Pointers are borrowed.
//
// Each request is answered once: by on_answer with the same client and request_id, or, where the
// client is attached, by the event named below. TYPING is a hint and has no answer.
#pragma once
#include "sessions/store/facts.h"

struct served_model;

enum request_kind {
    REQUEST_OPEN,       // a new session, with the client attached: EVENT_OPENED
    REQUEST_ATTACH,     // follow its events: ANSWER_ATTACHED
    REQUEST_DETACH,     // stop following: ANSWER_DETACHED
    REQUEST_TYPING,     // a turn is likely: bring a parked cache or a snapshot back
    REQUEST_GET,        // a page of its turns: ANSWER_STATE
    REQUEST_LIST,       // the owner's sessions: ANSWER_LIST
    REQUEST_UPDATE,     // title, sampling, cancel_after_ms, note: EVENT_UPDATED or ANSWER_UPDATED
    REQUEST_CLOSE,      // ends its turns; it stays readable: EVENT_CLOSED or ANSWER_CLOSED
    REQUEST_START,      // a new turn: ANSWER_ACCEPTED
    REQUEST_CANCEL,     // its turn, or the client's replay: ANSWER_CANCELLING
    REQUEST_TURN,       // a turn's record: ANSWER_TURN
    REQUEST_EVENTS,     // its events without deltas: ANSWER_EVENTS
    REQUEST_REPLAY,     // repeats a finished turn: ANSWER_REPLAYING, then ANSWER_REPLAYED
    REQUEST_REWIND,     // moves the head: EVENT_REWOUND or ANSWER_REWOUND
    REQUEST_REGENERATE, // another answer to a turn's input: ANSWER_ACCEPTED
    REQUEST_EDIT,       // rewrites a turn's answer, as a new turn: EVENT_REWOUND or ANSWER_REWOUND
    REQUEST_WRITE,      // a finished turn in the client's words: EVENT_REWOUND or ANSWER_REWOUND
    REQUEST_ERASE,      // erases a turn and all below it: EVENT_REWOUND or ANSWER_REWOUND
    REQUEST_OUTLINE,    // a page of all turns of its tree: ANSWER_OUTLINE
    REQUEST_FORK,       // a new session with a copy of a path: EVENT_OPENED
    REQUEST_EXPORT,     // the session as a file: ANSWER_EXPORTED
    REQUEST_IMPORT,     // a new session from a file: ANSWER_IMPORTED
    REQUEST_MATCH,      // finds turns by their conversation (told.h): ANSWER_MATCHED
    REQUEST_SHARED,     // what a link shows, of any owner: ANSWER_EXPORTED
};

struct turn_input {
    enum turn_input_kind kind;
    const char *text; // CONTENT, TEXT
    size_t text_len;
    // IDS. CONTENT: ids that a protocol has rendered itself, for START after a given turn; clients then
    // see `text` as the input. NULL: the service renders the text.
    const int32_t *ids;
    size_t n_ids;
    // WRITE, of CONTENT: the words of the answer (answer_len). NULL: the model answers
    const char *answer;
    size_t answer_len;
};

// An earlier answer in the form that the model sees from now on, if that differs from the log: for
// example, the chat template has removed its thinking. It is stored as a finished turn of its own that
// was not sampled.
struct given_answer {
    int64_t of;              // the turn whose answer it replaces
    char *question, *answer; // texts, in the new form
    int32_t *input, *output; // (n_input), (n_output), both above 0
    size_t n_input, n_output;
    char *told, *shown; // told.h
};
void given_answer_free(struct given_answer *g); // NULL is fine

#define REQUEST_NOTE_BYTES ((size_t)128 << 10)
#define CLIENT_GONE 0 // no client: the answer goes nowhere

// OPEN: a new session. Lengths: 0 means the server's default.
struct request_open {
    // The model by its name, which sessions_submit looks up, or as the protocol holds it since it read the name
    // (placement.h); both NULL: the default one. If the model was unloaded while the request waited, the request is refused,
    // also where another model has its name now.
    const char *model;
    const struct served_model *served;
    int64_t session_len, memory_len;
    int64_t sink_len;   // -1: the default
    const char *system; // NULL: none
    // The table of the session's virtual tokens, by task or by value. Both NULL: none.
    const char *prompt_task;
    const struct prompt *prompt;
};

// Which session a START's turn goes to. ANSWER_ACCEPTED names the session.
enum start_in {
    START_HERE, // request.session
    // A new session: request.session, which is drawn (sessions_draw_id), is opened as by OPEN with `start.open`, `title`,
    // `temporary` and `cancel_after_ms`. A refused turn leaves no session.
    START_IN_NEW,
    // request.session, or, if that session is busy or closed, a fork of it that ends with request.turn. A refused turn
    // leaves no fork.
    START_OR_FORK,
};

// START: a new turn. WRITE and REGENERATE start turns of their own with all of this zeroed.
struct request_start {
    enum start_in in;
    struct request_open open; // START_IN_NEW; others read `served` alone
    bool queue;               // waits behind a running turn instead of being refused
    // The answer that stands between request.turn, which is not TURN_HEAD, and the new turn. NULL: none
    const struct given_answer *given;
    // (n_expected) ids of a text that the answer may resemble (engine_turn.expected)
    const int32_t *expected;
    size_t n_expected; // 0: none
    bool scores_input; // engine_turn.scores_input; the turn's end has them (turn_view)
    // The conversation that the turn answers (told.h). NULL: MATCH will not find the turn
    struct told *told;
};

struct request_list { // all NULL: all sessions, from the newest
    const char *query, *forked_from, *cursor;
};

struct request_import {
    const char *archive; // (archive_len) JSON text
    size_t archive_len;
};

// MATCH: in request.session, or, if that is NULL, in all sessions of the owner.
struct request_match {
    const char *fingerprint;    // of the model of the turns
    const char *const *digests; // (n_digests) of TOLD_DIGITS: chains to look for, the longest first
    size_t n_digests;
    bool all; // turns with any of these chains, not only with the longest one found
};

struct request {
    enum request_kind kind;
    uint64_t client;   // number of the connection that gets the answer; never reused
    const char *owner; // the authorised name ("local" on loopback without tokens); SHARED: ""
    char request_id[SESSION_REQUEST_ID_MAX + 1]; // "": none
    const char *session; // id. OPEN with NULL draws one; LIST and IMPORT do not read it

    // What several kinds read.
    // START, WRITE: the new turn's parent; if it is not the head, the session is rewound in the same commit.
    // CANCEL: TURN_HEAD means every turn. REWIND: the new head. REGENERATE: TURN_HEAD means the last
    // turn of the path. FORK: the last turn to copy; TURN_HEAD means the last finished one of the path.
    // TURN, REPLAY, EDIT, ERASE: the turn.
    int64_t turn;
    struct turn_input input; // START, EDIT, WRITE
    // OPEN, UPDATE, START, REGENERATE: the values given. NULL: none; UPDATE keeps the session's.
    const struct turn_sampling *sampling;
    // START: the protocol's own text for the turn's record, at most REQUEST_NOTE_BYTES; other protocols do
    // not see it. NULL: none.
    // OPEN, UPDATE: the same for the session's record, at most SESSION_NOTE_BYTES. NULL: none; UPDATE keeps
    // the old one.
    const char *note;
    const char *title; // OPEN; UPDATE; FORK. NULL: none; the old one; the source's
    // OPEN, UPDATE: when the last client's connection ends, the session's turns are cancelled after this
    // time, unless a client attaches or starts a turn. 0: they finish. -1: OPEN takes 0, UPDATE keeps it.
    int64_t cancel_after_ms;
    enum record_flag pinned, archived; // UPDATE: FLAG_ANY keeps it. LIST: only such sessions
    enum record_flag in_folder;        // LIST: likewise
    const char *folder;                // UPDATE. "": none; NULL keeps it
    // UPDATE: FLAG_ON makes a new link, and the one before opens nothing any more: ANSWER_SHARED, also to clients that
    // are attached. FLAG_OFF takes it back.
    enum record_flag share;
    bool accepted; // OPEN, START: the client was promised it before sessions_drain()
    bool attach;   // GET, START, REGENERATE: attaches as well
    // REWIND: to the newest turn below `turn`. ERASE: refused with "unsupported" if turns follow it.
    bool leaf;
    // OPEN, FORK, and START that does either: its protocol deletes the session when it is done; after a crash the next
    // start does. Such a session has no note.
    bool temporary;
    bool for_turn; // OPEN, FORK: the service's own first step of a START; one commit has both
    // ATTACH: the last event the client has; -1: the newest. OUTLINE: the page's first turn.
    int64_t after;
    int64_t last;   // GET, EVENTS: at most so many; 0: 100
    int64_t before; // GET: turns before this one; EVENTS: events before this number; -1: the newest
    int64_t limit;  // LIST, OUTLINE; 0: 50, 100

    // What one kind reads: the member of its name.
    union {
        struct request_open open;
        struct request_start start;
        struct request_list list;
        struct request_import import;
        struct request_match match;
        struct {
            // The note that the client replaces ("": none). If the session has another note by now, the
            // request is refused with session_busy. NULL: replaces any note.
            const char *old_note;
        } update;
        struct {
            bool delete_it;
        } close;
        struct {
            bool replay; // cancels the client's replay of a turn of this session
        } cancel;
        struct {
            const char *new_session; // the new session's id; NULL: drawn
        } fork;
        struct {
            const char *token;
            size_t first; // turn of the path
        } shared;
        struct {
            int64_t created_ms; // when the exchange took place; 0: now
        } write;
    };

    struct request *next; // used by the service
};

// Zeroed, but with the values that mean "not given" where 0 means something.
void request_init(struct request *r, enum request_kind kind);
// Owns copies of all it points to. NULL: no memory.
struct request *request_copy(const struct request *r);
void request_free(struct request *r); // a copy; NULL is fine
