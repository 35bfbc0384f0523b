// The store: SQLite on threads of its own.
//
// The net thread sends jobs and gets the same jobs back, each with its code. One thread writes.
// Saves that wait together are committed together (group commit, one fsync); a save that fails
// takes no other down. A save is on disk as a whole or not at all.
//
// Reads have their own connections and threads: one for sessions and turns, one for lists and
// exports, one for searches. Each owner has a queue there, served in turn; a search is served in
// slices. Answers of writes come in the order sent. A read is answered after the writes that were
// sent before it; later writes do not wait for it.
#pragma once
#include "base/buf.h"
#include "sessions/store/record.h"

struct clock;
struct metrics;
struct store;

enum turn_save_kind {
    TURN_INSERT,
    TURN_SET,  // all columns but the fixed ones
    TURN_GROW, // tokens only: a small insert, however long the input
};
struct turn_save {
    enum turn_save_kind kind;
    struct turn_record rec; // TURN_GROW: only turn, n_alternatives
    uint32_t version;
    bool whole; // tokens are complete: they replace the parts, and the words are indexed
    struct token_run tokens; // n 0: none
};
// The difference of a session between memory and disk.
struct session_save {
    bool insert;          // E_EXISTS when the id is taken
    bool session_changed; // write its row
    bool title_changed;   // index it
    bool note_changed;    // write rec.note
    struct session_record rec;
    struct prompt *prompt; // with insert, in the place of rec.prompt_data; held. NULL: none
    uint32_t version;
    struct turn_save *turns; // (n_turns)
    size_t n_turns;
    struct event_record *events; // (n_events) none of them deltas
    size_t n_events;
    struct turn_record *erased; // (n_erased) rows that replace everything stored of these turns
    size_t n_erased;
    struct event_record *lost; // (n_lost) replace the events and deltas of the erased turns
    size_t n_lost;
    int64_t fork_key;    // with insert: the session whose turns become turns 0, 1, ...; E_NOTFOUND
    int64_t *fork_turns; // (n_fork_turns) the turns of fork_key to copy, ended and on disk
    size_t n_fork_turns;
};

// Where a query's words were found.
struct stored_place {
    int64_t turn;
    char *text; // the text around the words, each word between \1 and \2. NULL: in the title alone
};
struct store_list {
    char *owner, *query /* NULL: all */, *cursor /* NULL: from the newest */;
    char *forked_from;                 // only forks of this session; NULL: all
    enum record_flag pinned, archived; // only sessions with these flags; FLAG_ANY: all
    enum record_flag in_folder;
    int64_t limit;
    size_t max_bytes;        // of an answer's rows, roughly; the job is sent again for more. 0: all
    int64_t before_ms, keep; // OLD
    bool sliced;             // a read of a query ends after a slice: see store_read_list
    struct store_search *search; // of a query whose rows are not found yet
    // Answer. The first read finds the keys; the sender may give them instead of a query.
    int64_t *keys; // (n_keys) of all rows in order; the rows before `at` have been read
    // (n_keys) of a query: the row of the index that has the words, 0: none. NULL: no query
    int64_t *hits;
    size_t n_keys, at;
    struct session_record *rows; // (n_rows)
    struct stored_place *places; // (n_rows) of a query, else NULL
    size_t n_rows;
    int64_t updated_ms; // of the last row read
    char next[64];      // cursor, "" at the end
};
void store_list_clear(struct store_list *l);   // drops the rows
void store_list_release(struct store_list *l); // drops the whole answer
void store_list_cut(struct store_list *l); // ends the list behind the rows read: sets the cursor

// Turns by what clients know of them (sessions/matching/told.h). The first digest that any turn has chooses the
// session. The answer has the turns of this session with the first digest, or with any digest.
struct stored_match {
    size_t digest; // index of the turn's digest
    int64_t turn;
    char *shown;     // "{}": none
    int64_t log_end; // length of the log behind the turn's answer, in tokens
};
struct store_told {
    char **digests; // (n_digests) the deepest first
    size_t n_digests;
    char *fingerprint; // of the model
    char *session;     // only this one; NULL: any
    // true: turns with any digest are looked for. The store sets `all` if a turn found has thinking in its answer.
    bool all;
    // Answer
    char *found;                  // the session's id, NULL: no turn has one
    bool exists;                  // `session` exists
    int64_t key;                  // 0 before
    struct stored_match *matches; // (n_matches)
    size_t n_matches;
};
void store_told_free(struct store_told *q); // NULL is fine

// A record that is read in pieces, each in a transaction of its own. The reader's own struct begins
// with it.
struct store_db;
struct store_cursor {
    // On a thread of the store: appends the next piece to *out. 1: more follows; 0: that was all.
    int (*read)(struct store_cursor *c, struct store_db *db, struct buf *out, struct err *err);
    void (*free)(struct store_cursor *c);
};

enum store_job_kind {
    STORE_SAVE,   // save
    STORE_LOAD,   // id -> loaded; E_NOTFOUND
    STORE_TURNS,  // key, turns -> the turns of loaded
    STORE_LIST,   // list
    STORE_OLD,    // list, of all owners: last used before before_ms, or behind an owner's newest
                  // `keep` (0: no bound); the oldest first, with its key, id and owner
    STORE_DELETE, // key, or id and owner: rows, words and the bytes on disk; E_NOTFOUND
    STORE_EXPORT, // cursor -> archive, the next piece
    STORE_IMPORT, // loaded, under its number
    STORE_TOLD,   // told
    STORE_PROBE,  // writes one row: tests whether the disk takes writes
    STORE_NEWS, // sent by the store: list has the rows that other programs have added. With rc < 0
                // the database takes no writes any more
    STORE_STOP, // the last job: checkpoint and end
};
struct store_job {
    enum store_job_kind kind;
    int64_t key;    // of the session
    int64_t *turns; // TURNS: (n_turns) ascending
    size_t n_turns;
    int64_t n_tokens; // TURNS of a client: tokens of a turn that had not ended; -1: it had ended
    char *id;         // LOAD, EXPORT (the answer's), DELETE of one that cannot be loaded
    char *owner;      // DELETE by id, EXPORT; LOAD, TURNS: whose queue it waits in, or NULL
    struct session_save *save;
    struct stored_session *loaded;
    struct store_list *list;
    struct store_cursor *cursor;
    struct store_told *told;
    struct buf archive;
    bool more; // LIST, EXPORT, TURNS of a client: sent again, the job goes on
    bool goes_on;
    int rc; // 0 or E_*
    struct err err;
    const char *expired;  // DELETE: why, if no request asked for it
    int64_t stored_bytes; // DELETE: of the session's record; 0: not known
    uint64_t replay;      // TURNS: the sequence number of the replay that asks; 0: the session asks
    uint64_t client;      // LIST, EXPORT, TURNS, IMPORT, DELETE by id: for whom, or CLIENT_GONE
    char request_id[SESSION_REQUEST_ID_MAX + 1];
    struct store_job *next; // the sender's
};
// NULL: no memory. The sender fills in what the kind needs; store_send takes the job.
struct store_job *store_job_new(enum store_job_kind kind, int64_t key);
void store_job_free(struct store_job *job);        // with everything it carries
void session_save_free(struct session_save *save); // NULL is fine

struct store_options {
    const char *path; // ":memory:" keeps nothing
    const struct clock *clock;
    struct metrics *metrics;
    void (*wake)(void *ctx); // on the store's thread: answers wait
    void *wake_ctx;
    bool run_ahead; // as in sessions_options
};
struct stored_owner {
    char *name;
    int64_t n_sessions, bytes;
};
struct store_start { // for the service, at its start
    int64_t next_key;
    int64_t n_interrupted;       // turns that a crash cut off
    int64_t n_recovered;         // their tokens that only the tail had
    struct stored_owner *owners; // (n_owners) all that have sessions
    size_t n_owners;
    uint64_t secret[2]; // drawn once for the database, and kept in it
};
void store_start_release(struct store_start *start); // a zeroed one is allowed
// Takes the lock, opens, checks and migrates the file, recovers, starts the threads. *start is to be
// released in any case.
int store_open(struct store **out, const struct store_options *o, struct store_start *start,
               struct err *err);
// The database's path; the target if the path is a symbolic link. Borrowed.
const char *store_path(const struct store *st);
// Whether the disk has 128 KiB for new bytes. On a full disk a small save may fit into bytes that the files have
// already, and the next one not.
bool store_has_room(const struct store *st);
// Takes the path, also with a suffix, out of a message that clients may see.
void store_hide_path(const char *path, struct err *err);
// Drops reads, waits for all writes sent, checkpoints, closes. Frees the answers not received.
void store_close(struct store *st);
// Takes the job. Never waits, never fails. The next flush, receive or wait sends it; without room
// in the queue it waits on this side. Jobs that are sent together are committed together: the
// thread wakes up with the first one.
void store_send(struct store *st, struct store_job *job);
void store_flush(struct store *st);
// The next answer or NULL. The caller frees it.
struct store_job *store_receive(struct store *st);
// As store_receive, but waits up to timeout_us (closing).
struct store_job *store_wait(struct store *st, int64_t timeout_us);
// The client is gone: drops its reads (list, export). One that runs is interrupted and answered.
void store_cancel(struct store *st, uint64_t client);
// How often the store has looked for imports and at its files, twice a second; tests wait for it. Any thread.
uint64_t store_n_looks(const struct store *st);
size_t store_n_waiting(const struct store *st); // jobs sent and not yet answered
size_t store_n_writing(
    const struct store *st); // writes not yet answered: a shutdown waits for these
