// The service behind sessions.h: what its files share. Net thread only.
//
//   requests.c  the door: finding the session of a request, waiting for the store
//   handlers.c, turns.c, branch.c, fork.c, opening.c, closing.c, listing.c, transfer.c, debug.c
//               what each kind of request does
//   residence.c which instance a session's turn goes to (placement.h)
//   moving.c    instances that are drained or fail: their sessions go to others
//   displaced.c turns that have lost their instance go on with another one
//   streams.c   answers in pieces: lists, exports, records of turns
//   engine_events.c, save.c (store)   what comes back
//   settle.c    saving, delivering, starting queued turns, leaving memory
//   sessions.c  opening and closing the service, poll
//
// Calls run one way: sessions -> requests -> settle and the handlers -> turns -> save -> deliver ->
// service. README.md has the picture.
#pragma once
#include "sessions/input.h"
#include "sessions/owners.h"
#include "sessions/placement.h"
#include "sessions/request.h"
#include "sessions/session.h"
#include "sessions/store/store.h"
#include "sessions/store/tail.h"

struct preparation;

#define RESERVE_EVENTS                                                                             \
    4096 // numbers reserved on disk for deltas that clients see before their commit

// An answer that goes out in pieces (streams.c). Its maker's own struct begins with it.
struct stream {
    uint64_t client;
    void (*next)(struct sessions *ss, struct stream *st); // makes the next piece, now or later
    void (*free)(struct sessions *ss, struct stream *st);
    struct answer_position at; // of the protocol
    bool needs_room;           // the client has yet to take the last piece
    struct stream *later;      // behind it for this client
};

struct client {
    uint64_t number;
    struct attachment *attachments;
    struct session *authored; // by deliver_note_author
    int64_t n_deferred;       // requests of it that wait for their session
    struct stream *stream;    // the one that it is sent
    struct stream *waiting;   // those that have not begun, n_waiting
    int n_waiting;
    UT_hash_handle hh;
};

struct sessions {
    struct sessions_options o;
    char *build;
    struct placement placement;
    struct sessions_callbacks cb;
    const struct clock *clock;
    struct store *store;
    struct tail *tail;    // DURABLE_DELTA; NULL: none
    char tail_error[512]; // why the last write of it was refused; "": it was not
    struct session *by_name, *by_key;
    uint64_t name_key[2]; // of the sessions' names: clients cannot make two of them alike
    uint64_t secret[2];   // the database's, constant
    struct client *clients;
    int64_t next_key;
    uint64_t next_turn;         // engine's turn numbers
    struct owners *owners, own; // o.owners, or our own
    int64_t n_active;           // turns running or queued
    struct session *displaced;  // their turns wait for an instance, in order
    uint64_t trial;             // the engine's number of the one suspect that runs; 0: none
    struct evict_list idle;
    struct session *lru; // may be unloaded; n_lru of them
    int64_t n_lru;
    struct owner *crowded; // has one there, and more in memory than its limit
    bool memory_short;     // an allocation failed: half of them leave
    struct session *timed;
    struct session *touched; // to be settled
    struct replaying *replays;
    struct preparation *outstanding, *prepared; // with a worker; done
    uint64_t next_replay;
    int depth; // of nested calls
    bool draining, closing;
    char store_error[512]; // "": the database takes writes
    int64_t probe_us;      // when to ask it and the tail again; 0: no need
    bool probing, expiring;
    int64_t expire_us;    // when to look for old sessions; 0: never
    char expire_from[64]; // the cursor of the next look; "": from the oldest
    struct metric *m_state[SESSION_CLOSED + 1], *m_evicted[2], *m_parked[2],
        *m_resumed[CACHE_SNAPSHOT + 1], *m_resume_time[CACHE_SNAPSHOT + 1],
        *m_finished[N_TURN_FINISHES], *m_tail_ok, *m_tail_errors, *m_displaced[2], *m_poisoned,
        *m_instances_lost;
};

// --- below all others --------------------------------------------------------

// service.c
int64_t service_now(const struct sessions *ss);    // monotonic, us
int64_t service_now_ms(const struct sessions *ss); // since 1970
struct session *service_find(struct sessions *ss, const char *owner, const char *id);
struct session *service_find_key(struct sessions *ss, int64_t key);
int service_add(struct sessions *ss, struct session *s, int64_t key); // into the tables. E_NOMEM
int service_add_loading(struct sessions *ss, struct session *s);      // by name alone. E_NOMEM
void service_loaded(struct sessions *ss, struct session *s);          // and out again
void service_remove(struct sessions *ss, struct session *s);          // out of all tables
void service_remove_key(struct sessions *ss, struct session *s);      // all but the one by name
void service_gone(struct session *s); // GONE: out of the table of names; settling frees it
// Tells watchers of its owner; gone: it was deleted.
void service_changed(struct sessions *ss, int64_t key, const char *owner, const char *id,
                     bool gone);
// The store's job for a request, of its owner's session `id` or NULL. NULL: no memory.
struct store_job *service_job(enum store_job_kind kind, const struct request *r, const char *id);
void service_touch(struct session *s);
void service_untouch(struct session *s);
struct session *service_next_touched(struct sessions *ss); // out of the list; NULL: none
void service_forget_cache(struct session *s);   // wherever it is: it is closed or deleted
void service_timers_changed(struct session *s); // save_due_us, retry_us or lost_us did
void service_store_failed(struct sessions *ss, const struct err *err); // readyz says so
void service_store_works(struct sessions *ss);
void service_probe_later(struct sessions *ss); // unless that is due already
void service_count_finish(struct sessions *ss, const char *reason);
void service_add_bytes(struct session *s, int64_t n);     // to what is stored of it
void service_park(struct session *s, const char *reason); // its idle cache: to host memory, or away

// residence.c
struct served_model *residence_model(const struct session *s); // NULL: it is not served
void residence_enter(struct session *s, struct instance *i);   // it lives there from now on
void residence_leave(struct session *s);                       // it lives nowhere
void residence_release(struct session *s);                     // its cache
void residence_move_out(struct session *s); // both: what it has there is given up
// No instance of its model takes turns, but a lost one is about to be opened again: turns wait for that.
bool residence_awaits(const struct session *s);
// Its turn waits for an instance, or no longer (displaced.c).
void residence_wait(struct session *s);
void residence_wait_end(struct session *s);
// Instances beside its own that could take it, best first; returns their number, at most cap.
size_t residence_others(struct session *s, struct instance **out, size_t cap);
void residence_cancel(struct session *s, uint64_t turn); // of the engine's number
// As engine_turn_submit, of the instance where the session lives or the one that suits best. E_BUSY:
// none has room, or none of its model takes turns now.
int residence_submit(struct session *s, struct engine_turn *t, struct err *err);
void residence_prepare(struct session *s, struct engine_turn *t); // takes t->ids
// Where a replay of one of its turns runs; NULL: nowhere.
struct instance *residence_for_replay(struct session *s);
int64_t residence_retry_us(const struct sessions *ss, uint64_t owner,
                           enum engine_priority priority);

// displaced.c
enum displaced_why { DISPLACED_LOST, DISPLACED_DRAINED };
// What the end of its turn on an instance says: it is given back, or the instance has failed and another one,
// or itself once it is opened again, can go on with it. Then the turn waits for that, or it has ended.
bool displaced_is(const struct session *s, const struct engine_event *done);
void displaced_take(struct session *s, struct turn *t, const struct engine_event *done);
void displaced_go_on(struct sessions *ss); // those that wait, where there is a place
// A token of the turn has come: true where it is one that clients have.
bool displaced_repeats(struct session *s, struct turn *t, const struct engine_event *e);
void displaced_trial_over(struct sessions *ss, uint64_t turn); // if this is the suspect that runs

// moving.c
void moving_go_on(struct sessions *ss); // instances that drain, or have failed
// The instance's device has failed: it takes no turns, and what is idle there is gone. The ends of its
// turns follow.
void moving_lost(struct sessions *ss, struct instance *i);
// Takes the event's cache.
void moving_exported(struct sessions *ss, struct instance *from, const struct engine_event *e);
// The cache that travelled is parked where the session lives now, or it is gone.
void moving_arrived(struct session *s, bool parked);

// limits.c
// True: an owner's limit has refused the request, which has been answered.
bool limits_refuse_session(struct sessions *ss, const struct request *r);
bool limits_refuse_resident(struct sessions *ss, const struct request *r); // one more in memory
// The same for a session that is to store so many bytes from the start.
bool limits_refuse_bytes(struct sessions *ss, const struct request *r, int64_t bytes);
bool limits_refuse_job(struct sessions *ss, const struct request *r);
bool limits_refuse_turn(struct sessions *ss, const struct request *r);
// A queued turn of the session may start. False: its owner has as many turns running as it may; the
// session is settled again when it is its turn.
bool limits_place(struct session *s);
void limits_leave(struct session *s); // it has no turn that waits for a place
void limits_turn_ends(struct session *s,
                      const struct turn *t); // or is undone; called before its state changes
// Of an owner that may have none in memory.
void limits_add_stored(struct sessions *ss, const char *name, int64_t n_sessions, int64_t bytes);
// A cache of it has become idle there.
void limits_share_cache(struct sessions *ss, struct owner *o, const struct instance *i);

// deliver.c
// Requests whose event the client is not going to take, up to this number, are answered.
void deliver_answer_told(struct session *s, uint64_t client, int64_t upto);
void deliver_forget_told(struct session *s, uint64_t client, int64_t upto);
void deliver_ready(struct session *s); // on_ready to the clients that wait
// A save was refused: on_stalled, if an event waits for it.
void deliver_stalled(struct session *s, const char *reason);
// Takes p: answers it, or leaves that to its event.
void deliver_committed(struct session *s, struct pending *p);

// clients.c
struct client *clients_find(struct sessions *ss, uint64_t number); // or NULL
struct client *clients_of(struct sessions *ss, uint64_t number);   // makes it. NULL: no memory
void clients_release(struct sessions *ss, struct client *c);       // frees it unless it is needed
int clients_attach(struct session *s, uint64_t client, int64_t cursor); // E_NOMEM
void clients_detach(struct attachment *a);
void clients_lose(struct session *s); // detaches all: it is gone from the disk
void clients_drop(struct session *s); // detaches all: its opening was refused, it is GONE
void clients_gone(struct sessions *ss, uint64_t client);
int clients_defer(struct sessions *ss, uint64_t client);       // a request of it waits. E_NOMEM
uint64_t clients_resume(struct sessions *ss, uint64_t client); // the client, or CLIENT_GONE
// A client that starts a turn counts as following it until the turn ends. E_NOMEM.
int clients_note_author(struct session *s, uint64_t client);
void clients_forget_author(struct session *s);
void clients_lost_begin(struct session *s); // a client has left: the time runs if it was the last
void clients_lost_end(struct session *s);   // a client is there again
bool clients_lost_is_due(const struct session *s);

// tail_writer.c
int tail_writer_open(struct sessions *ss, const char *db_path, struct err *err);
void tail_writer_close(struct sessions *ss, bool all_saved);
void tail_writer_tokens(struct sessions *ss); // of touched sessions, which may be sent from then on
void tail_writer_probe(struct sessions *ss);  // has a disk that refused the tail room again?
// Drops what the database has; with `scrub` its bytes too: words of deleted sessions.
void tail_writer_trim(struct sessions *ss, bool scrub);

// streams.c
// Takes an answer in pieces, or the job whose answers are its pieces. As a handler: 0, or E_NOMEM.
int streams_begin(struct sessions *ss, const struct request *r, struct stream *st);
int streams_begin_job(struct sessions *ss, const struct request *r, struct store_job *job);
// Sends the next piece of `a`, which has all of it. True: there is more.
bool streams_answer(struct sessions *ss, uint64_t client, struct session_answer *a);
void streams_answered(struct sessions *ss, uint64_t client, bool more); // it was sent a piece
// The same for a job. True: the job is kept for the next piece; else the caller frees it.
bool streams_keep(struct sessions *ss, struct store_job *job);
void streams_continue(struct sessions *ss, uint64_t client); // it has room for the next piece
void streams_client_gone(struct sessions *ss, uint64_t client);

// save.c
void save_tokens(struct session *s);       // as soon as `durable` wants
void save_now(struct session *s);          // facts that a client waits for
bool save_wanted(const struct session *s); // there is something to save
bool save_is_due(const struct session *s);
void save_begin(struct session *s);
void save_done(struct session *s, const struct store_job *job); // GONE: its opening was refused
// Gives the session the request's note, and the request the session's.
void save_swap_note(struct session *s, struct pending *p);
struct pending *save_pending(struct session *s, enum pending_kind kind, const struct request *r,
                             int64_t seq);

// head.c
// Whether the head may be moved to `turn` now; else the request has been answered.
bool head_can_move(struct session *s, const struct request *r, int64_t turn);
// Moves it, with its event, in memory; p takes it back. why: the event's reason, or NULL. E_NOMEM:
// nothing has changed.
int head_move(struct session *s, int64_t turn, const char *why, struct pending *p);
void head_move_back(struct session *s, struct pending *p); // an undelivered one

// --- handlers ----------------------------------------------------------------

// A handler returns 0 when the request is answered, or will be by an event; E_NOMEM: by its caller.

// requests.c: the store's answers
void requests_saved(struct sessions *ss, struct store_job *job);
void requests_deleted(struct sessions *ss, struct store_job *job);
void requests_loaded(struct sessions *ss, struct store_job *job);
void requests_paged(struct sessions *ss, struct store_job *job);
void requests_prepared(struct sessions *ss); // the workers' results

// handlers.c
int handle_attach(struct session *s, const struct request *r);
int handle_detach(struct session *s, const struct request *r);
int handle_get(struct session *s, const struct request *r);
int handle_update(struct session *s, const struct request *r);
int handle_cancel(struct session *s, const struct request *r);
void handle_typing(struct sessions *ss, const struct request *r);

// closing.c
int closing_start(struct session *s, const struct request *r);
void closing_settle(struct session *s); // when its turns have ended
// DELETING: now GONE, or LIVE with an error for those that asked.
void closing_delete_done(struct session *s, const struct store_job *job);
int closing_delete_unread(struct sessions *ss, const struct request *r); // its record is damaged
void closing_unread_done(struct sessions *ss, const struct store_job *job);

// expire.c
void expire_init(struct sessions *ss);
void expire_begin(struct sessions *ss); // when it is due
void expire_take(struct sessions *ss, struct store_job *job);
void expire_done(struct sessions *ss, const char *id, const char *why); // NULL: it was asked for

// prompts.c
// The table that a request to open asks for becomes the session's. E_INVAL, E_NOMEM.
int prompts_open(struct session *s, const struct served_model *m, const struct request *r,
                 struct err *err);
// The session's table, borrowed; NULL: it has none. E_UNSUPPORTED: it is not served (any more).
int prompts_find(const struct session *s, const struct prompt **out, struct err *err);

// opening.c
int opening_start(struct sessions *ss, const struct request *r);
// Puts a new session into the tables, attaches its client and saves it. `head`:
// what its first event says. E_NOMEM: *s is freed.
int opening_admit(struct session *s, const struct request *r, int64_t head);

// listing.c
int listing_start(struct sessions *ss, const struct request *r);
void listing_done(struct sessions *ss, struct store_job *job);
// A row of the database, shown as it is in memory where it is there; its strings are borrowed.
void listing_view(struct sessions *ss, const struct session_record *row, struct session_view *out);
// Rows that another program has added: watchers of the list get them.
void listing_news(struct sessions *ss, const struct store_list *rows);

// match.c
int match_start(struct sessions *ss, const struct request *r);
void match_done(struct sessions *ss, struct store_job *job);

// transfer.c
// The session as the database has it, with all of its record, in pieces.
int transfer_export(struct sessions *ss, const struct request *r);
// A new session of the caller's, under an id of its own, with all that the archive has on record.
// All of it is checked before any of it is used; the database gets the whole session or nothing.
void transfer_import(struct sessions *ss, const struct request *r);
void transfer_read(struct sessions *ss, struct preparation *p); // an import by a worker
void transfer_exported(struct sessions *ss, const struct store_job *job);
void transfer_imported(struct sessions *ss, const struct store_job *job);

// sampling_layers.c
// Every value in force: the server's, under the session's, under those given (NULL: none).
int layers_turn(struct session *s, const struct turn_sampling *given, struct turn_sampling *out,
                struct err *err);
// The values given (NULL: none) as a session's record has them; free it. NULL with *err.
char *layers_normal(const struct served_model *m, const struct turn_sampling *given,
                    struct err *err);
// What a recorded request asked for, but for its seed, with the values given over it. *out is empty.
int layers_again(const struct session *s, const char *request, const struct turn_sampling *given,
                 struct turn_sampling *out, struct err *err);
// The grammar of a turn with these values given; NULL: none, or the layers cannot be read. Borrowed.
const struct grammar_text *layers_grammar(struct session *s, const struct turn_sampling *given);
void layers_changed(struct session *s); // rec.sampling is another

// branch.c, fork.c
int branch_rewind(struct session *s, const struct request *r);
int branch_regenerate(struct session *s, const struct request *r);
int fork_start(struct session *s, const struct request *r);

// edit.c
int edit_start(struct session *s, const struct request *r);
// Puts the answer behind `parent`, as the head: the turn that follows is the caller's next step. E_FULL,
// E_NOMEM.
int edit_given(struct session *s, const struct given_answer *g, int64_t parent, struct err *err);

// erase.c
int erase_start(struct session *s, const struct request *r);
// erasure.c
// Marks a turn and all below it: they leave the record with the next save. E_NOMEM.
int erasure_mark(struct session *s, int64_t turn);
void erasure_unmark(struct session *s);
int64_t erasure_bytes(
    const struct session *s); // what the marked ones count less once they are erased
int erasure_fill(const struct session *s, struct session_save *save); // E_NOMEM
void erasure_commit(struct session *s); // the save is on disk: memory follows

// outline.c
#define OUTLINE_TURNS_MAX 200
// The turns that the request asks for, into *list, and where the next page begins; TURN_NONE: nowhere.
size_t outline_turns(const struct session *s, const struct request *r, int64_t *list,
                     int64_t *next);
int outline_page(struct session *s, const struct request *r);

// turns.c
int turns_start(struct session *s, const struct request *r);
void turns_cancel(struct session *s, int64_t turn); // TURN_HEAD: all
void turns_hint(struct session *s);                 // a turn of this cold session is likely to come
void turns_prepared(struct session *s, struct preparation *p); // takes what was made
void turns_start_next(struct session *s); // the next queued one, if it can start
void turns_interrupt(struct session *s);  // at the service's end
// Hands a turn that has lost its instance to another one, behind the tokens that it has drawn. E_BUSY:
// none takes it now.
int turns_go_on(struct session *s, struct turn *t, struct err *err);
void turns_finish(struct session *s, struct turn *t, const char *reason, const char *code,
                  const char *message);

// engine_events.c
void engine_event_take(struct sessions *ss, struct instance *from, const struct engine_event *e);

// preparing.c
// Whether a worker is to make the ids first: the input is long, and `made` (NULL: none) does not suit.
bool preparing_wanted(const struct session *s, const struct turn_input *in, int64_t parent,
                      const struct input_ids *made);
// The grammar of a turn with these values given, if a worker is to compile it first; else NULL. Borrowed.
const struct grammar_text *preparing_grammar(struct session *s, const struct turn_sampling *given);
// The request waits, with those behind it for its session. grammar: compiled too; NULL: none. E_BUSY: the
// workers have too much to do.
int preparing_request(struct session *s, const struct request *r, int64_t parent,
                      const struct grammar_text *grammar, struct err *err);
int preparing_turn(struct session *s, struct turn *t, struct err *err); // PREPARING now
int preparing_import(struct sessions *ss, const struct request *r, struct err *err);
void preparing_forget(struct preparation *p); // its result is not wanted any more
void preparing_free(struct preparation *p);   // one that is done
void preparing_close(struct sessions *ss);

// leftovers.c
// Snapshots of sessions that were closed or deleted while no server could remove them.
void leftovers_remove(struct engine *e, const char *db_path);

// history.c
#define HISTORY_TURNS 128 // in full; more than SESSION_IDEMPOTENT_TURNS
#define HISTORY_WAITS 1   // the request has been put aside until what it needs has been read
int history_need(struct session *s, const struct request *r); // 0, HISTORY_WAITS, E_NOMEM
// What was read takes the slim turns' places.
int history_fill(struct session *s, const struct stored_session *got);
void history_trim(struct session *s); // when it is settled

// --- versions.c ----------------------------------------------------------------------------------

// A turn with several answers ends: its own is the first. E_NOMEM.
int versions_note(struct turn *t, const struct engine_branches *b);
// After its end: keeps the others.
void versions_take(struct session *s, const struct turn *t, const struct engine_branches *b);
void versions_settle(struct session *s); // puts them into the tree

// debug.c
int debug_turn(struct session *s, const struct request *r);
void debug_turn_read(struct sessions *ss, struct store_job *job);
int debug_replay(struct session *s, const struct request *r);
int debug_events(struct session *s, const struct request *r);

// debug_replay.c
#define REPLAY_EDITED "a client wrote this answer: it was not sampled"
bool replays_has(const struct sessions *ss, uint64_t client);
int replays_start(struct session *s, const struct request *r); // of a turn that may be run again
void replays_read(struct sessions *ss, struct store_job *job); // a part of its path
void replays_cancel(struct sessions *ss, uint64_t client, int64_t key);       // of this session
bool replays_engine_event(struct sessions *ss, const struct engine_event *e); // true: it was theirs
void replays_client_gone(struct sessions *ss, uint64_t client);
void replays_session_gone(struct sessions *ss, int64_t key);
void replays_drain(struct sessions *ss); // all end, with an error
void replays_free(struct sessions *ss);

// settle.c
void service_enter(struct sessions *ss);
void service_leave(struct sessions *ss);
void service_settle(struct sessions *ss); // all that were touched, and those too many in memory
void service_used(struct session *s);     // the last to leave memory
void service_destroy(struct session *s);  // frees it; not while it is touched
