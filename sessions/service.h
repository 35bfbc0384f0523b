// The service behind sessions.h: what its files share. Net thread only.
//
//   sessions.c  opening, closing, poll, the tables
//   settle.c    settling what has been touched; leaving memory
//   requests.c  what clients ask for: finding its session, and the short requests themselves
//   opening.c   new sessions
//   listing.c   lists and searches
//   transfer.c  exports and imports (transfer.h)
//   sampling_layers.c  which sampling parameters are in force
//   run.c       turns: from a request to the engine, and what the engine says
//   input.c     a turn's input: ids that continue the log
//   save.c      what memory has and the disk has not: saves, their verdicts, taking back
//   deliver.c   attaching, and events on their way out
//   branch.c    moving the head, asking again, forking
//   history.c   older turns: off memory, and back when somebody asks
//   lost.c      turns whose last client is lost
//   leftovers.c snapshots that nobody wants any more
//   keep.c      tokens into the tail before they are told
//   debug.c, debug_replay.c  what is on record, shown and run again (debug.h)
//
// Handlers change sessions and touch them. When the outermost call is about to return, every
// touched session is settled: what is due is saved, the next turn started, clients told, memory
// freed. So no handler has to think of what its change makes possible, and none frees a session
// that its caller still holds.
#pragma once
#include "sessions/request.h"
#include "sessions/session.h"
#include "sessions/store/owner_numbers.h"
#include "sessions/store/store.h"
#include "sessions/store/tail.h"

#define RESERVE_EVENTS                                                                             \
    4096 // numbers kept ready on disk for deltas that are told before they are committed
#define RETRY_AFTER_MS 500 // where memory is short: nobody knows until when

struct client {
    uint64_t number;
    struct attachment *attachments;
    struct session *authored; // by deliver_note_author
    int64_t n_deferred;       // requests of it that wait for their session
    UT_hash_handle hh;
};

struct sessions {
    struct sessions_options o;
    char *build;
    struct engine *engine;
    const struct engine_info *info;
    struct sessions_callbacks cb;
    const struct clock *clock;
    struct store *store;
    struct tail *tail;    // DURABLE_DELTA; NULL: none
    char tail_error[512]; // why the last write of it was refused; "": it was not
    struct session *by_id, *by_key;
    struct client *clients;
    int64_t next_key;
    uint64_t next_turn;          // engine's turn numbers
    struct owner_numbers owners; // whose sessions share cache blocks
    int64_t n_active;            // turns running or queued
    struct evict_list idle;
    struct session *lru; // may be unloaded; n_lru of them
    int64_t n_lru;
    struct session *timed;
    struct session *touched, **touched_end;
    struct replaying *replays;
    uint64_t next_replay;
    int depth; // of nested calls
    bool draining, closing;
    char store_error[512]; // "": the database takes writes
    int64_t probe_us;      // when to ask it and the tail again; 0: no need
    bool probing;
    struct metric *m_state[SESSION_CLOSED + 1], *m_evicted[2], *m_parked[2],
        *m_resumed[CACHE_SNAPSHOT + 1], *m_resume_time[CACHE_SNAPSHOT + 1], *m_finished[8],
        *m_tail_ok, *m_tail_errors;
};

// sessions.c
void service_enter(struct sessions *ss);
void service_leave(struct sessions *ss);
void service_touch(struct session *s);
int64_t service_now(const struct sessions *ss);    // monotonic, us
int64_t service_now_ms(const struct sessions *ss); // since 1970
struct session *service_find(struct sessions *ss, const char *id);
struct session *service_find_key(struct sessions *ss, int64_t key);
int service_add(struct sessions *ss, struct session *s, int64_t key); // into the tables. E_NOMEM
int service_add_loading(struct sessions *ss,
                        struct session *s);     // under its id alone, until it is read. E_NOMEM
void service_forget_cache(struct session *s);   // wherever it is: it is closed or deleted
void service_forget_id(struct session *s);      // out of the table of ids
void service_timers_changed(struct session *s); // save_due_us, retry_us or lost_us did
void service_store_failed(struct sessions *ss, const struct err *err); // what readyz says
void service_store_works(struct sessions *ss);
void service_probe_later(struct sessions *ss); // unless that is due already
void service_count_finish(struct sessions *ss, const char *reason);

// settle.c
void service_settle(struct sessions *ss); // all that were touched, and what is too much in memory
void service_used(struct session *s);     // the last to be unloaded
void service_drop(struct session *s);     // one that never came to be: nobody has been told of it
void service_hide(struct session *s);     // deleted: counted no more, never unloaded
void service_destroy(struct session *s);  // frees it, out of every table; not while it is touched

// requests.c
void requests_run(struct session *s, const struct request *r); // its session can be asked
void requests_run_deferred(struct session *s);                 // it can be asked now
// What waits for one that cannot be asked: it is not there (err NULL; one of them may open it),
// another has its id (E_EXISTS: that one is on disk), or it could not be read.
void requests_run_orphans(struct session *orphaned, const struct err *err);
void requests_delete_done(struct sessions *ss, struct store_job *job); // of one that was not loaded
void requests_fail(struct sessions *ss, uint64_t client, const char *request_id,
                   const char *session_id, const char *code, int64_t retry_after_ms,
                   const char *message);
void requests_fail_err(struct sessions *ss, const struct request *r,
                       const struct err *err); // code by err->code
void requests_fail_memory(struct sessions *ss, const struct request *r);
const char *requests_code(int err_code);
int64_t requests_retry_ms(struct sessions *ss, int err_code); // of what is "overloaded"; 0: never
char *requests_first_words(const struct session *s); // its automatic title. NULL: no memory

// opening.c
void opening_start(struct sessions *ss, const struct request *r);
// Puts a new session into the tables, attaches who asked for it and sends it to the disk. `head`:
// what its first event says. False: it has been answered and *s is freed.
bool opening_admit(struct session *s, const struct request *r, int64_t head);

// listing.c
void listing_start(struct sessions *ss, const struct request *r);
void listing_done(struct sessions *ss, struct store_job *job);
// A row of the database, shown as it is in memory where it is there; its strings are borrowed.
void listing_view(struct sessions *ss, const struct session_record *row, struct session_view *out);
// Rows that another program has added: whoever watches the list is told.
void listing_news(struct sessions *ss, const struct store_list *rows);

// transfer.c
// Most that a file may have: as a string within one message it takes twice as much at worst.
#define TRANSFER_BYTES ((size_t)15 << 20)
// The session as the database has it, with all of its record.
void transfer_export(struct sessions *ss, const struct request *r);
// A new session of the caller's, under an id of its own, with all that the archive has on record.
// Nothing of it is believed before all of it has been checked; it is in the database as a whole or
// not at all.
void transfer_import(struct sessions *ss, const struct request *r);
void transfer_exported(struct sessions *ss, const struct store_job *job);
void transfer_imported(struct sessions *ss, const struct store_job *job);

// sampling_layers.c
// Every value in force: the server's, under the session's, under those given (NULL: none).
int layers_turn(struct session *s, const struct turn_sampling *given, struct turn_sampling *out,
                struct err *err);
// The values given (NULL: none) as a session's record has them; free it. NULL with *err.
char *layers_normal(struct sessions *ss, const struct turn_sampling *given, struct err *err);
// What a recorded request asked for, but for its seed, with the values given over it. *out is empty.
int layers_again(const struct session *s, const char *request, const struct turn_sampling *given,
                 struct turn_sampling *out, struct err *err);
void layers_changed(struct session *s);                          // rec.sampling is another

// branch.c
// Whether the head may be moved to `turn` now; else the request has been answered.
bool branch_can_move(struct session *s, const struct request *r, int64_t turn);
// Moves it, with its event, in memory; p takes it back. E_NOMEM: nothing has changed.
int branch_move(struct session *s, int64_t turn, struct pending *p);
void branch_move_back(struct session *s, struct pending *p); // one that nobody has seen
void branch_rewind(struct session *s, const struct request *r);
void branch_regenerate(struct session *s, const struct request *r);
void branch_fork(struct session *s, const struct request *r);

// run.c
void run_turn_start(struct session *s, const struct request *r);
void run_turn_cancel(struct session *s, int64_t turn);
void run_prepare(struct session *s); // a turn of this cold session is likely to come
void run_next(struct session *s);    // starts the next queued turn if it can
// at the service's end: whatever runs or waits ends as interrupted
void run_interrupt(struct session *s);
void run_engine_event(struct sessions *ss, const struct engine_event *e);

// input.c: all return 0, or E_* with a sentence for the client.
int input_check_ids(const struct sessions *ss, const int32_t *ids, size_t n, struct err *err);
// The ids that would continue the log as it is now; *ids is the caller's.
int input_make(const struct session *s, const struct turn_record *r, int32_t **ids, size_t *n,
               struct err *err);
// Whether n more tokens fit the session.
int input_check_room(const struct session *s, const struct turn *t, size_t n, struct err *err);
// Whether the log that the turn would follow ends with an answer that can be gone on with.
int input_check_continue(const struct session *s, const struct turn *t, struct err *err);

// lost.c
void lost_begin(struct session *s); // a client has gone: is anybody left?
void lost_end(struct session *s);   // somebody is
bool lost_is_due(const struct session *s);
void lost_settle(struct session *s);

// save.c
void save_soon(struct session *s);         // within the commit interval
void save_tokens(struct session *s);       // as soon as `durable` wants
void save_now(struct session *s);          // facts that somebody waits for
bool save_wanted(const struct session *s); // there is something to save
void save_begin(struct session *s);
void save_done(struct sessions *ss, struct store_job *job);
struct pending *save_pending(struct session *s, enum pending_kind kind, const struct request *r,
                             int64_t seq);

// keep.c
int keep_open(struct sessions *ss, const char *db_path, struct err *err);
void keep_close(struct sessions *ss, bool all_saved);
void keep_tokens(struct sessions *ss); // of all touched sessions: from here on they may be told
void keep_probe(struct sessions *ss);  // has a disk that refused the tail got room again?
// What the database has goes; with `scrub` its bytes, too: words of deleted sessions.
void keep_trim(struct sessions *ss, bool scrub);

// leftovers.c
// Snapshots of sessions that were closed or deleted while no server could remove them.
void leftovers_remove(struct sessions *ss, const char *db_path);

// history.c
#define HISTORY_TURNS 128 // in full; more than SESSION_IDEMPOTENT_TURNS
#define HISTORY_WAITS 1   // the request has been put aside until what it needs has been read
int history_need(struct session *s, const struct request *r); // 0, HISTORY_WAITS, E_NOMEM
void history_done(struct sessions *ss, struct store_job *job);
void history_trim(struct session *s); // when it is settled

// deliver.c
int deliver_attach(struct session *s, uint64_t client, int64_t cursor); // E_NOMEM
int deliver_defer(struct sessions *ss, uint64_t client); // a request of it waits. E_NOMEM
uint64_t deliver_resume(struct sessions *ss,
                        uint64_t client); // and goes on: the client, or CLIENT_GONE
void deliver_detach(struct attachment *a);
// A client that starts a turn follows it as far as lost.c is concerned. E_NOMEM.
int deliver_note_author(struct session *s, uint64_t client);
void deliver_forget_author(struct session *s);
// Requests that events up to there would have answered, which the client is not going to take.
void deliver_answer_told(struct session *s, uint64_t client, int64_t upto);
void deliver_ready(struct session *s);                       // on_ready to whom it concerns
void deliver_stalled(struct session *s, const char *reason); // a save was refused: is there any
                                                             // event that waits for it?
void deliver_accepted(struct session *s, const struct pending *p);
void deliver_committed(struct session *s,
                       struct pending *p); // takes p: its answer, or the event that answers

// debug.c
// The turn that the request wants from the record, into *list (or NULL). False: none, or it will be
// refused.
bool debug_needs(const struct session *s, const struct request *r, int64_t *list, size_t *n);
void debug_turn(struct session *s, const struct request *r); // what debug_needs() did not want
void debug_replay(struct session *s, const struct request *r);
void debug_events(struct session *s, const struct request *r);
void debug_read(struct session *s, const struct request *r, struct stored_session *turns);

// debug_replay.c
bool replays_has(const struct sessions *ss, uint64_t client);
void replays_start(struct session *s, const struct request *r); // of a turn that may be run again
void replays_read(struct sessions *ss, struct store_job *job);  // a part of its path
void replays_cancel(struct sessions *ss, uint64_t client, const char *session);
bool replays_engine_event(struct sessions *ss, const struct engine_event *e); // true: it was theirs
void replays_client_gone(struct sessions *ss, uint64_t client);
void replays_session_gone(struct sessions *ss, const char *id);
void replays_drain(struct sessions *ss); // all end, with an error
void replays_free(struct sessions *ss);
