// The record of a conversation as plain data: rows that the net thread gives to the store and gets
// back. A record owns its pointers, and crosses threads as a whole. columns.c has a row for each
// stored field.
#pragma once
#include "sessions/store/copy.h"
#include "sessions/store/facts.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session_record {
    int64_t key; // the database's number; also the engine's sequence number. From 1, never reused
                 // within a process
    char *id, *owner;
    char *model, *fingerprint;
    char *title, *system /* NULL: none */, *sampling /* JSON object */;
    bool auto_title;
    bool pinned, archived; // where its owner's lists show it; nothing else reads them
    char *folder;          // likewise; NULL: none
    char *share;           // digest of the link's token (sessions/state/share.h); NULL: not shared
    int64_t session_len;
    int32_t memory_len, sink_len;
    int64_t created_ms, updated_ms, closed_ms /* 0: not closed */;
    int64_t n_turns;         // of the tree
    int64_t n_tokens;        // of the log: the path from a first turn to the head
    int64_t head;            // last turn of the log's path, TURN_NONE
    char *forked_from;       // id of the session that the first turns are copied from, or NULL
    int64_t forked_turn;     // the last copied turn, by its number in forked_from
    int64_t cancel_after_ms; // turns are cancelled after this time without a client; 0: never
    int64_t stored_bytes;    // the session's part of the owner's stored_bytes
    int64_t seq;             // last event that is on disk
    int64_t seq_reserved;    // clients may have deltas up to here (>= seq)
    // The table of its log's virtual tokens, for good. A table that came with a request has no task:
    // its content is stored with the session.
    int32_t prompt_kind;               // enum record_prompt
    char *prompt_task;                 // NULL: none
    char *prompt_hash;                 // prompt.digits; NULL: no table
    int64_t prompt_rows, prompt_width; // 0: no table
    void *prompt_data;                 // (prompt_bytes) f32, little-endian, row by row; only in
    size_t prompt_bytes;               // whole records of a table without a task; else NULL
    // A protocol's own text for the session, in a table of its own; no other protocol reads the note. NULL: none.
    // Rows of lists never have the note. RECORD_TEMPORARY: the session is removed at the next start. On disk, a session
    // whose only turn was refused has the note RECORD_TEMPORARY too.
    char *note;
};
#define RECORD_TEMPORARY "temporary"
enum record_prompt { RECORD_PROMPT_NONE, RECORD_PROMPT_ROWS, RECORD_PROMPT_PREFIX };

#define FINISH_REASON_MAX 16
#define N_TURN_FINISHES 7
extern const char *const turn_finish_names[N_TURN_FINISHES]; // "eos" ...
#define ERROR_CODE_MAX 24
struct turn_record {
    int64_t turn;     // index within the session, from 0, in the order of creation
    int64_t parent;   // the turn before this one on its path, always an earlier turn; TURN_NONE
    char *request_id; // "" for none
    // JSON: the request without its input: {"sampling":{...}|null,"queue":false}, and the note of the
    // request's protocol, as a string
    char *request;
    enum turn_input_kind kind;
    char *input_text; // CONTENT, TEXT; else NULL
    size_t input_text_len;
    // The ids that entered the log; before an INPUT_IDS turn starts, the ids that will enter it.
    int32_t *input_ids;
    size_t n_input_ids;
    int64_t log_first; // position of the first input id in the log of the turn's own path; -1
                       // before the turn has started
    int64_t n_input, n_output; // tokens in the log
    char *sampling;            // JSON object: every value in force
    char *context; // JSON object {"logprob":N,"embedding":[...]}: what was asked for; NULL: nothing
    // JSON object {"index":N,"of":N,"score":N}: which of several answers this is; NULL: the turn had one answer.
    // Answers with an index above 0 are versions (versions.c): no event names versions.
    char *branch;
    // For stateless clients (sessions/matching/told.h): the conversation's chain behind the answer, and a JSON object
    // about the text that the log shows the model. NULL: no such client started the turn, or the turn has not ended.
    char *told, *shown;
    uint64_t seed;
    bool thinking;          // the answer begins inside the model's thinking
    bool logprobs;          // clients asked for log-probabilities, which are always recorded
    int32_t n_alternatives; // recorded with each token
    char finish_reason[FINISH_REASON_MAX]; // "" until the turn ends
    char error_code[ERROR_CODE_MAX];       // "" for none
    char *error_message;                   // NULL: none
    struct turn_numbers numbers;           // log_tokens as of its end
    char *instance, *build;                // what computed it: record_instance(), the program
    int64_t seq_first,
        seq_last;                             // both 1 in a fork's copied turn: no event names it
    int64_t created_ms, started_ms, ended_ms; // 0: not yet
};

// Consecutive generated tokens of one turn with the text they released.
struct token_run {
    int64_t first; // index of the first one within the turn's output
    size_t n;
    int32_t *ids;                            // (n)
    float *logprobs;                         // (n)
    uint32_t *text_ends;                     // (n) where each token's text ends in the turn's text
    struct engine_alternative *alternatives; // (n, n_alternatives) or NULL
    char *text; // what the run adds to the turn's text (the last run of a turn: to its end)
    size_t text_len;
    int64_t seq, seq_reserved; // of the session, when the run was saved
};

// Events other than deltas; deltas fill the numbers between.
#define EVENT_REASON_MAX 12
struct event_record {
    int64_t seq;  // EVENT_LOST: the first of the lost numbers
    int64_t n;    // how many numbers; 1 for all others
    int kind;     // enum session_event_kind or EVENT_LOST
    int64_t turn; // -1: of none. EVENT_REWOUND, EVENT_OPENED: the head from there on
    char reason[EVENT_REASON_MAX]; // EVENT_EVICTED, EVENT_PARKED
    int64_t at_ms;
};
// A turn's `instance`: backend, number formats of weights and cache, chat template (it decides what ends a
// turn). Turns of older versions have the backend alone.
#define RECORD_INSTANCE_MAX 512
#define RECORD_INSTANCE_SEPARATOR "; "
void record_instance(char out[RECORD_INSTANCE_MAX], const struct engine_info *info);
// The compute_dtype of a recorded instance, from the backend's description: "f32" or "bf16", for a GPU also "f16";
// NULL if the description has no dtype.
const char *record_compute_dtype(const char *instance);

bool session_id_valid(const char *id); // 1 to SESSION_ID_MAX of A-Z a-z 0-9 _ -
// UTF-8 of 1 to SESSION_FOLDER_CHARS characters, one of them visible, without control characters, line ends and
// marks that turn the direction of what follows.
bool session_folder_valid(const char *name);

// A whole session as the database has it.
struct stored_turn {
    struct turn_record rec;
    struct token_run tokens; // first 0, all of them
};
#define RECORD_ORIGINS 16
struct stored_session {
    struct session_record rec;
    // The table of rec.prompt_data. The reader's thread makes it, because hashing takes milliseconds. NULL: rec has no
    // prompt_data, or damaged data.
    struct prompt *prompt;
    // A fork's ancestors that the database still has: its forked_from first, then the forked_from of that session, and
    // so on.
    char *origins[RECORD_ORIGINS];
    size_t n_origins;
    struct stored_turn *turns;
    size_t n_turns;
    struct event_record *events;
    size_t n_events;
};

// The content's table. E_CORRUPT where it is not the one that the record names; E_NOMEM.
int record_prompt_make(const struct session_record *r, struct prompt **out, struct err *err);
void record_prompt_describe(struct session_record *r, const struct prompt *p, bool *failed);
// The session's table: a task's that the engine has, or `own`, the content stored with the session.
// *out is NULL where the session has none. E_UNSUPPORTED: the task is missing or has changed.
int record_prompt_find(const struct session_record *r, const struct engine_info *info,
                       const struct prompt *own, const struct prompt **out, struct err *err);
void session_record_release(struct session_record *r);
int session_record_copy(struct session_record *to, const struct session_record *from); // E_NOMEM
// Their part of their owner's stored_bytes: about the size of their rows.
int64_t session_bytes(const struct session_record *r); // without its turns
int64_t turn_bytes(const struct turn_record *r);
struct stored_session;
int64_t stored_session_bytes(const struct stored_session *s);
// The answer is a client's, not the model's (edit.c): its branch is {"edited":T}, with "sent_back":true where the client
// gave an answer back, or {"written":true} of a whole turn. A record without words does not say it.
#define RECORD_EDITED "{\"edited\":"
#define RECORD_WRITTEN "{\"written\":true}"
bool turn_was_edited(const struct turn_record *r);
// It was deleted, and only its number is left (erase.c).
#define RECORD_ERASED "deleted" // its error code
bool turn_was_erased(const struct turn_record *r);
void turn_record_release(struct turn_record *r);
int turn_record_copy(struct turn_record *to, const struct turn_record *from);
void turn_forget_words(struct turn_record *r); // drops, without freeing, all but the numbers
int token_run_copy(struct token_run *to, const struct token_run *from, size_t n_alternatives);
void token_run_release(struct token_run *r);
void stored_session_free(struct stored_session *s);
