// The service behind sessions.h: what its files share. Net thread only.
//
//   requests.c  the door: finding the session of a request, waiting for the store
//   handlers.c, turns.c, branch.c, fork.c, opening.c, closing.c, listing.c, transfer.c, debug.c
//               what each kind of request does
//   residence.c which instance a session's turn goes to (placement.h)
//   moving.c    instances that are drained or fail: their sessions go to others
//   displaced.c turns that have lost their instance continue on another one
//   streams.c   answers in pieces: lists, exports, records of turns
//   engine_events.c, save.c   events of the engine, results of the store
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
    bool needs_room;           // the client has not taken the last piece yet
    struct stream *later;      // the client's next stream
};

struct client {
    uint64_t number;
    struct attachment *attachments;
    struct session *authored; // sessions whose `author` it is
    int64_t n_deferred;       // its requests that wait for their session
    struct stream *stream;    // the one that is being sent
    struct stream *waiting;   // (n_waiting) those that have not begun
    int n_waiting;
    UT_hash_handle hh;
};

struct sessions {
    struct sessions_options o;
    char *build, server_name[SERVER_NAME_MAX + 1];
    struct placement placement;
    struct sessions_callbacks cb;
    const struct clock *clock;
    struct store *store;
    struct tail *tail;    // DURABLE_DELTA; NULL: none
    char tail_error[512]; // why its last write failed; "": it did not
    struct session *by_name, *by_key;
    uint64_t name_key[2]; // for session_name(): clients cannot construct a collision
    uint64_t secret[2];   // sessions_secret()
    struct client *clients;
    int64_t next_key;
    uint64_t next_turn;             // engine's turn numbers
    struct owners *owners, own;     // o.owners, or our own
    int64_t n_active;               // turns running or queued
    struct session *displaced;      // sessions whose turn waits for an instance, in order
    int64_t balanced_us;            // balance.c's last look
    uint64_t trial;                 // the engine's number of the suspect turn that runs; 0: none
    struct evict_list idle, spares; // of sessions; of caches without one (spare_caches.c)
    struct session *lru;            // may be unloaded; n_lru of them
    int64_t n_lru;
    struct owner *crowded; // an owner with more sessions in memory than its limit, some in lru
    bool memory_short;     // an allocation failed: half of lru is unloaded
    struct session *timed;
    struct session *touched; // to be settled
    struct replaying *replays;
    struct preparation *outstanding, *prepared; // that a worker has; that are done
    uint64_t next_replay;
    int depth; // of nested calls
    bool draining, closing;
    char store_error[512]; // "": the database takes writes
    int64_t probe_us;      // when to try the database and the tail again; 0: both work
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
void service_loaded(struct sessions *ss, struct session *s);          // takes it out again
void service_remove(struct sessions *ss, struct session *s);          // out of all tables
void service_remove_key(struct sessions *ss, struct session *s);      // all but the one by name
void service_gone(struct session *s); // GONE: out of the table of names; settling frees it
// Tells watchers of its owner; gone: it was deleted.
void service_changed(struct sessions *ss, int64_t key, const char *owner, const char *id,
                     bool gone);
// A job of the store for a request; id: a session of the request's owner, or NULL. Returns NULL without
// memory.
struct store_job *service_job(enum store_job_kind kind, const struct request *r, const char *id);
void service_touch(struct session *s);
void service_untouch(struct session *s);
struct session *service_next_touched(struct sessions *ss); // out of the list; NULL: none
void service_forget_cache(struct session *s);              // drops its cache and its snapshot
void service_timers_changed(
    struct session *s); // after a change of save_due_us, retry_us or lost_us
void service_store_failed(struct sessions *ss, const struct err *err); // /readyz then fails
void service_store_works(struct sessions *ss);
void service_probe_later(struct sessions *ss); // sets probe_us unless it is set
void service_count_finish(struct sessions *ss, const char *reason);
void service_add_bytes(struct session *s, int64_t n);     // to its stored bytes
void service_park(struct session *s, const char *reason); // parks its idle cache, or drops it

// spare_caches.c
// The cache of a temporary session that is deleted: stays for its owner's next ones, or is released.
void spare_take(struct session *s);
void spare_evict(struct sessions *ss); // those that are due
// An event of a sequence that belongs to no session.
void spare_left(struct sessions *ss, const struct instance *from, const struct engine_event *e);
// All of this instance's (NULL: of every one's). release false: its engine is gone with them.
void spare_drop(struct sessions *ss, const struct instance *at, bool release);

// residence.c
struct served_model *residence_model(const struct session *s); // NULL: it is not served
void residence_enter(struct session *s, struct instance *i);   // sets s->instance
void residence_leave(struct session *s);                       // clears s->instance
void residence_release(struct session *s);                     // drops its cache there
void residence_move_out(struct session *s);                    // release and leave
// True: no instance of its model takes turns, but a lost one is about to be opened again, so turns wait.
bool residence_awaits(const struct session *s);
// Puts the session into the list of those whose turn waits for an instance (displaced.c), or removes it.
void residence_wait(struct session *s);
void residence_wait_end(struct session *s);
// Other instances that could take the session, best first; returns their number, at most cap.
size_t residence_others(struct session *s, struct instance **out, size_t cap);
void residence_cancel(struct session *s, uint64_t turn); // turn: the engine's number
// As engine_turn_submit, on the session's instance or else the best one. E_BUSY: none has room, or none
// of its model takes turns now.
int residence_submit(struct session *s, struct engine_turn *t, struct err *err);
void residence_prepare(struct session *s, struct engine_turn *t); // takes t->ids
// The instance for a replay of one of its turns; NULL: none.
struct instance *residence_for_replay(struct session *s);
int64_t residence_retry_us(const struct sessions *ss, uint64_t owner,
                           enum engine_priority priority);

// displaced.c
enum displaced_why { DISPLACED_LOST, DISPLACED_DRAINED };
// Whether the turn can continue elsewhere after this end: it yielded, or its instance failed and another
// one, or the same one once it is opened again, can take it. False: the turn has ended.
bool displaced_is(const struct session *s, const struct engine_event *done);
void displaced_take(struct session *s, struct turn *t, const struct engine_event *done);
void displaced_go_on(struct sessions *ss); // submits waiting turns where an instance has room
// A token of the turn has come. True: clients have it already.
bool displaced_repeats(struct session *s, struct turn *t, const struct engine_event *e);
// It runs again and draws other tokens than before: it ends with an error.
void displaced_diverged(struct session *s, struct turn *t);
void displaced_trial_over(struct sessions *ss, uint64_t turn); // if this turn is ss->trial

// moving.c
void moving_go_on(struct sessions *ss); // the next step for instances that drain or have failed
// The instance's device has failed: it takes no turns, and its idle caches are lost. The engine's events
// end its turns.
void moving_lost(struct sessions *ss, struct instance *i);
// Takes the cache of a session without a turn out of its instance, for another one.
void moving_send_away(struct session *s);
// Takes the event's cache.
void moving_exported(struct sessions *ss, struct instance *from, const struct engine_event *e);
// The cache that travelled is parked on the session's instance now, or (parked false) lost.
void moving_arrived(struct session *s, bool parked);

// balance.c
void balance_go_on(struct sessions *ss); // hands idle sessions of hot instances over; call it often

// limits.c
// True: a limit of the owner refused the request, and the request has been answered.
bool limits_refuse_session(struct sessions *ss, const struct request *r);
bool limits_refuse_resident(struct sessions *ss, const struct request *r); // one more in memory
// For a session that begins with so many stored bytes.
bool limits_refuse_bytes(struct sessions *ss, const struct request *r, int64_t bytes);
bool limits_refuse_job(struct sessions *ss, const struct request *r);
bool limits_refuse_turn(struct sessions *ss, const struct request *r);
// Whether a queued turn of the session may start. False: its owner already has running_turns turns; the
// session waits in the owner's list and is settled again when a place is free.
bool limits_place(struct session *s);
void limits_leave(struct session *s); // takes it out of the owner's list
// Before the turn's state changes to done, or the turn is undone.
void limits_turn_ends(struct session *s, const struct turn *t);
// Counts for an owner by name: the owner may have no session in memory.
void limits_add_stored(struct sessions *ss, const char *name, int64_t n_sessions, int64_t bytes);
// A cache of the owner has become idle on this instance: parks the owner's oldest beyond its share.
void limits_share_cache(struct sessions *ss, struct owner *o, const struct instance *i);

// deliver.c
// Answers requests up to event number `upto` whose event the client will not take.
void deliver_answer_told(struct session *s, uint64_t client, int64_t upto);
void deliver_forget_told(struct session *s, uint64_t client, int64_t upto);
void deliver_ready(struct session *s); // on_ready to the clients that wait
// A save was refused: calls on_stalled if an event waits for it.
void deliver_stalled(struct session *s, const char *reason);
// Takes p: answers it, unless its event is the answer.
void deliver_committed(struct session *s, struct pending *p);

// clients.c
struct client *clients_find(struct sessions *ss, uint64_t number); // or NULL
struct client *clients_of(struct sessions *ss, uint64_t number);   // or a new one. NULL: no memory
void clients_release(struct sessions *ss, struct client *c);       // frees it unless it is in use
int clients_attach(struct session *s, uint64_t client, int64_t cursor); // E_NOMEM
void clients_detach(struct attachment *a);
void clients_lose(struct session *s); // detaches all: the session was deleted
void clients_drop(struct session *s); // detaches all: its opening was refused, it is GONE
void clients_gone(struct sessions *ss, uint64_t client);
int clients_defer(struct sessions *ss, uint64_t client);       // its request waits. E_NOMEM
uint64_t clients_resume(struct sessions *ss, uint64_t client); // the client, or CLIENT_GONE
// A client that starts a turn counts as attached until the turn ends. E_NOMEM.
int clients_note_author(struct session *s, uint64_t client);
void clients_forget_author(struct session *s);
void clients_lost_begin(struct session *s); // after a client left: sets lost_us if it was the last
void clients_lost_end(struct session *s);   // a client is attached again
bool clients_lost_is_due(const struct session *s);

// tail_writer.c
int tail_writer_open(struct sessions *ss, const char *db_path, struct err *err);
void tail_writer_close(struct sessions *ss, bool all_saved);
void tail_writer_tokens(
    struct sessions *ss); // writes touched sessions' tokens; then clients may see them
void tail_writer_probe(struct sessions *ss); // tries again after the disk refused the tail
// Drops what the database has. scrub: also overwrites the bytes, which hold words of deleted sessions.
void tail_writer_trim(struct sessions *ss, bool scrub);

// streams.c
// Takes an answer in pieces, or a job that gives them. Returns as a handler: 0, or E_NOMEM.
int streams_begin(struct sessions *ss, const struct request *r, struct stream *st);
int streams_begin_job(struct sessions *ss, const struct request *r, struct store_job *job);
// Sends the next piece of `a`, which has all of it. True: there is more.
bool streams_answer(struct sessions *ss, uint64_t client, struct session_answer *a);
void streams_answered(struct sessions *ss, uint64_t client, bool more); // a piece was sent
// A piece of a job was sent. True: the job is kept for the next piece; else the caller frees it.
bool streams_keep(struct sessions *ss, struct store_job *job);
void streams_continue(struct sessions *ss,
                      uint64_t client); // the client has room for the next piece
void streams_client_gone(struct sessions *ss, uint64_t client);

// save.c
void save_tokens(struct session *s);       // schedules a save of tokens, as `durable` says
void save_now(struct session *s);          // schedules a save that a client waits for
bool save_wanted(const struct session *s); // something has changed since the last save
bool save_is_due(const struct session *s);
void save_begin(struct session *s);
void save_done(struct session *s, const struct store_job *job); // GONE: its opening was refused
// Undoes the newest request, which no save has, and frees p.
void save_undo(struct session *s, struct pending *p);
// Exchanges the notes of the session and the request.
void save_swap_note(struct session *s, struct pending *p);
struct pending *save_pending(struct session *s, enum pending_kind kind, const struct request *r,
                             int64_t seq);

// head.c
// Whether the head may be moved to `turn` now; else the request has been answered.
bool head_can_move(struct session *s, const struct request *r, int64_t turn);
// Moves the head in memory and adds the event; p gets what undoes both. why: the event's reason, or NULL.
// E_NOMEM: nothing has changed.
int head_move(struct session *s, int64_t turn, const char *why, struct pending *p);
void head_move_back(struct session *s, struct pending *p); // undoes it while it is undelivered

// --- handlers ----------------------------------------------------------------

// A handler returns 0 when it, or a later event, answers the request. E_NOMEM: its caller answers.

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
// A session that was DELETING becomes GONE, or LIVE again, and its requests get an error.
void closing_delete_done(struct session *s, const struct store_job *job);
int closing_delete_unread(struct sessions *ss, const struct request *r); // its record is damaged
void closing_unread_done(struct sessions *ss, const struct store_job *job);

// expire.c
void expire_init(struct sessions *ss);
void expire_begin(struct sessions *ss); // when it is due
void expire_take(struct sessions *ss, struct store_job *job);
void expire_done(struct sessions *ss, const char *id, const char *why); // why NULL: a client asked

// prompts.c
// Gives a new session the table of virtual tokens that the request names. E_INVAL, E_NOMEM.
int prompts_open(struct session *s, const struct served_model *m, const struct request *r,
                 struct err *err);
// The session's table, borrowed; NULL: it has none. E_UNSUPPORTED: the server has no such table.
int prompts_find(const struct session *s, const struct prompt **out, struct err *err);

// opening.c
int opening_start(struct sessions *ss, const struct request *r);
// Puts a new session into the tables, attaches its client and saves it. head: of its first event.
// E_NOMEM: *s is freed.
int opening_admit(struct session *s, const struct request *r, int64_t head);

// listing.c
int listing_start(struct sessions *ss, const struct request *r);
void listing_done(struct sessions *ss, struct store_job *job);
// The view of a row of the database; of the session in memory, if it is there. Strings are borrowed.
void listing_view(struct sessions *ss, const struct session_record *row, struct session_view *out);
// Sends watchers of the list the rows that another program has added.
void listing_news(struct sessions *ss, const struct store_list *rows);

// match.c
int match_start(struct sessions *ss, const struct request *r);
void match_done(struct sessions *ss, struct store_job *job);

// transfer.c
// Sends the session's whole record, as the database has it, in pieces.
int transfer_export(struct sessions *ss, const struct request *r);
// Makes a new session of the request's owner, with a new id, from the archive. The whole archive is
// checked first; the database gets the whole session or nothing.
void transfer_import(struct sessions *ss, const struct request *r);
void transfer_read(struct sessions *ss, struct preparation *p); // an import by a worker
void transfer_exported(struct sessions *ss, const struct store_job *job);
void transfer_imported(struct sessions *ss, const struct store_job *job);

// sampling_layers.c
// Every value in force: those given (NULL: none) over the session's over the server's.
int layers_turn(struct session *s, const struct turn_sampling *given, struct turn_sampling *out,
                struct err *err);
// The values given (NULL: none) as text for a session's record; the caller frees it. NULL with *err.
char *layers_normal(const struct served_model *m, const struct turn_sampling *given,
                    struct err *err);
// The values of a recorded request without its seed, under the values given. *out is empty before.
int layers_again(const struct session *s, const char *request, const struct turn_sampling *given,
                 struct turn_sampling *out, struct err *err);
// The grammar of a turn with these values given; NULL: none, or the layers are invalid. Borrowed.
const struct grammar_text *layers_grammar(struct session *s, const struct turn_sampling *given);
void layers_changed(struct session *s); // after a change of rec.sampling

// branch.c, fork.c
int branch_rewind(struct session *s, const struct request *r);
int branch_regenerate(struct session *s, const struct request *r);
int fork_start(struct session *s, const struct request *r);

// edit.c
int edit_start(struct session *s, const struct request *r);
// Adds the answer as a turn after `parent` and makes it the head; the caller then adds the turn that
// follows. If that is refused, save_undo(s, *out) removes the answer. E_FULL, E_NOMEM.
int edit_given(struct session *s, const struct given_answer *g, int64_t parent,
               struct pending **out, struct err *err);

// erase.c
int erase_start(struct session *s, const struct request *r);
// erasure.c
// Marks a turn and all below it: the next save erases them. E_NOMEM.
int erasure_mark(struct session *s, int64_t turn);
void erasure_unmark(struct session *s);
int64_t erasure_bytes(const struct session *s); // bytes that erasing the marked turns frees
int erasure_fill(const struct session *s, struct session_save *save); // E_NOMEM
void erasure_commit(struct session *s); // the save is on disk: erases them in memory

// outline.c
#define OUTLINE_TURNS_MAX 200
// Writes the turns of the requested page to list. *next: where the next page begins; TURN_NONE: there is
// none.
size_t outline_turns(const struct session *s, const struct request *r, int64_t *list,
                     int64_t *next);
int outline_page(struct session *s, const struct request *r);

// turns.c
int turns_start(struct session *s, const struct request *r);
void turns_cancel(struct session *s, int64_t turn); // TURN_HEAD: all
void turns_hint(struct session *s);                 // a turn of this cold session is likely soon
void turns_prepared(struct session *s, struct preparation *p); // takes the worker's result
void turns_start_next(struct session *s); // starts the next queued turn if it can start
void turns_interrupt(struct session *s);  // when the service closes
// Submits a turn that has lost its instance to another one, which continues after the tokens drawn so
// far. E_BUSY: none takes it now.
int turns_go_on(struct session *s, struct turn *t, struct err *err);
void turns_finish(struct session *s, struct turn *t, const char *reason, const char *code,
                  const char *message);

// engine_events.c
void engine_event_take(struct sessions *ss, struct instance *from, const struct engine_event *e);

// preparing.c
// Whether a worker must make the ids first: the input is long, and `made` (NULL: none) does not fit.
bool preparing_wanted(const struct session *s, const struct turn_input *in, int64_t parent,
                      const struct input_ids *made);
// Whether a worker must compile the grammar of a turn with these values given. If not, *compiled is its grammar, or NULL
// if it has none or there are no workers; the caller holds it.
bool preparing_compiles(struct session *s, const struct turn_sampling *given,
                        struct grammar **compiled);
// The request, and later ones for its session, wait for a worker. grammar: to find or compile; NULL: none.
// E_BUSY: the workers' queue is full.
int preparing_request(struct session *s, const struct request *r, int64_t parent,
                      const struct grammar_text *grammar, struct err *err);
int preparing_turn(struct session *s, struct turn *t, struct err *err); // PREPARING now
int preparing_import(struct sessions *ss, const struct request *r, struct err *err);
// Compiles the grammar of a replay, a sequence of debug_replay.c, of the session with this key.
int preparing_replay(struct sessions *ss, uint64_t replay, int64_t key, const char *owner,
                     const struct served_model *m, const struct grammar_text *grammar,
                     struct err *err);
void preparing_forget(struct preparation *p); // drops its result
void preparing_free(struct preparation *p);   // one that is done
void preparing_close(struct sessions *ss);

// leftovers.c
// Snapshots of sessions that were closed or deleted while no server could remove them.
void leftovers_remove(struct engine *e, const char *db_path);

// history.c
#define HISTORY_TURNS 128 // kept in full; more than SESSION_IDEMPOTENT_TURNS
#define HISTORY_WAITS 1   // the request waits until the turns that it needs have been read
int history_need(struct session *s, const struct request *r); // 0, HISTORY_WAITS, E_NOMEM
// Replaces slim turns by those that were read.
int history_fill(struct session *s, const struct stored_session *got);
void history_trim(struct session *s); // when it is settled

// samples.c
// A token of another answer of the running turn, or text of it. E_NOMEM; E_CORRUPT: the turn runs again,
// and this is not what it drew before.
int samples_take(struct session *s, struct turn *t, const struct engine_event *e);
void samples_again(struct turn *t); // it runs from its start, with another instance
bool samples_wait(const struct session *s,
                  struct attachment *a); // there are pieces for this client
// The next piece for this client, whose next event is `next` (NULL: none yet). False: that comes first.
bool samples_next(const struct session *s, struct attachment *a, const struct event_record *next,
                  size_t max_text, struct session_event *out);
void samples_settle(struct session *s); // frees those that every client has

// versions.c
// A turn with several answers ends; the first becomes its own. E_NOMEM.
int versions_note(struct turn *t, const struct engine_branches *b);
// After its end: keeps the other answers.
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
int replays_start(struct session *s, const struct request *r);     // the turn was checked before
void replays_read(struct sessions *ss, struct store_job *job);     // a part of its path
void replays_prepared(struct sessions *ss, struct preparation *p); // its grammar
void replays_cancel(struct sessions *ss, uint64_t client, int64_t key);       // of this session
bool replays_engine_event(struct sessions *ss, const struct engine_event *e); // true: it was theirs
void replays_client_gone(struct sessions *ss, uint64_t client);
void replays_session_gone(struct sessions *ss, int64_t key);
void replays_drain(struct sessions *ss); // all end, with an error
void replays_free(struct sessions *ss);

// settle.c
void service_enter(struct sessions *ss);
void service_leave(struct sessions *ss);
void service_settle(
    struct sessions *ss);             // settles touched sessions; unloads those beyond the limits
void service_used(struct session *s); // makes it the most recently used
void service_destroy(struct session *s); // frees it; it must not be touched
