// The session service: conversations that outlive their connections, their cache and the process.
//
// All calls and callbacks are on one thread, the net thread. Calls never wait: where the database, the
// engine or a worker is needed, the answer comes later. Answers and events of one session reach one
// client in order.
//
// Events are pulled. An attached client gets on_ready once, and takes the events behind its cursor
// when its socket has room (session_next_event). So a slow reader costs no memory, deltas are joined
// by the reader, and attaching with `after` only sets a cursor. Events are safe before clients see
// them: deltas as `durable` says, all others committed.
#pragma once
#include "base/clock.h"
#include "engine/engine.h"
#include "sessions/engines/placement.h"
#include "sessions/state/request.h"
#include "sessions/store/record.h"

struct sessions;
struct session;
struct metrics;
struct owner;
struct owners;
struct workers;

// What must be safe before clients see a delta. All other events are committed and synced first.
enum sessions_durable {
    DURABLE_TURN,  // nothing: a crash loses the last commit interval of a running turn
    DURABLE_DELTA, // its tokens are outside the process (sessions/store/tail.h): kill -9 loses none
    DURABLE_POWER, // its tokens are committed and synced: power loss loses none. Waits for the disk
};

struct sessions_options {
    const char *db_path;                    // SQLite file; ":memory:" keeps nothing
    int64_t max_sequence_idle_microseconds; // from a turn's end to the eviction of its cache
    int32_t max_queued_turns;               // behind the running one, per session
    int32_t max_resident_sessions;          // in memory without client and turn; more are unloaded
    // expire.c removes sessions that were unused for max_session_age seconds, and an owner's least
    // recently used ones beyond max_sessions. 0: no limit.
    int64_t max_session_age, max_sessions;
    const char *server_name;    // new ids begin with it (sessions_draw_id); NULL, "": they do not
    int64_t moved_turn_us;      // a turn's wait for an instance after losing its own; 0: for ever
    int64_t commit_interval_us; // how long streamed tokens may wait for their commit
    enum sessions_durable durable;
    bool run_ahead;            // the store's thread asks for thread_run_ahead
    const char *build;         // this program's version and build, for the record; NULL: "unknown"
    const struct clock *clock; // NULL: clock_system
    struct metrics *metrics;
    struct owners *owners; // limits and counts (owners.h), borrowed; NULL: no owner is limited
    // Threads that tokenize long inputs and parse imports. NULL: the net thread does both. Borrowed;
    // they may be closed at any time before the engine. A closed service submits nothing.
    struct workers *workers;
    // Called on the store's thread, or inside workers_poll, when sessions_poll has work. The engine's
    // wake-up (engine_open) should lead to sessions_poll too.
    void (*wake)(void *ctx);
    void *wake_ctx;
};

enum session_state {
    SESSION_OPEN,
    SESSION_ACTIVE,
    SESSION_IDLE,
    SESSION_PARKED,
    SESSION_COLD,
    SESSION_CLOSED
};
const char *session_state_name(enum session_state s); // as in session.list: "open" ...

struct session_view { // a session as clients see it
    // Its strings are borrowed during the callback. seq, n_turns, n_tokens and head count only what
    // clients may see.
    struct session_record rec;
    enum session_state state;
    int64_t cached_tokens;
    int64_t turn;  // running or queued, -1 none
    int below;     // 1: turns follow the head; 0: none does; -1: unknown (lists, tools)
    bool snapshot; // its cache is in a file
    // LIST of a query: the turn that has the words, and the text around the words with each word between \1
    // and \2. NULL: the words are in the title alone, or the view is not of a query
    int64_t found_turn;
    const char *found_text;
};

//               asked                    an engine takes it              the engine began it
//   QUEUED <---------> PREPARING   QUEUED ----------------> SUBMITTED <----------------> RUNNING
//            made                                               another instance takes it
// All of them lead to DONE. A view has QUEUED for PREPARING and RUNNING for SUBMITTED.
enum turn_state {
    TURN_QUEUED,    // waits for another turn of its session, or for a place of its owner
    TURN_PREPARING, // a worker makes its input
    TURN_SUBMITTED, // its input is in the log; it waits in the queue of its instance's engine
    TURN_RUNNING,   // its instance's engine has begun it; also while it waits for another instance
    TURN_DONE,
    N_TURN_STATES
};
struct turn_view {
    int64_t turn;
    int64_t parent;          // the turn before this one on its path; TURN_NONE: a first turn
    const int64_t *siblings; // (n_siblings) all turns with this parent, itself included, ascending
    const int32_t *inputs; // (n_siblings) numbers from 0; siblings with equal inputs have the same
    size_t n_siblings;     // 0: the request did not ask for siblings, or the turn has none
    enum turn_state state;
    struct turn_input input; // of INPUT_IDS only n_ids
    const char *text;
    size_t text_len;
    const char *finish_reason; // NULL while the turn runs
    struct turn_numbers numbers;
    uint64_t seed;
    bool thinking;        // the answer begins inside the model's thinking
    const char *sampling; // JSON object text: every value in force
    const char *context;  // JSON object text: the context outputs; NULL: none
    const char *branch; // JSON object text: which of several answers this is; NULL: a single answer
    const struct engine_scores *scores; // of the input, if they were asked for; never recorded
    int64_t created_ms, seq_first, seq_last;
    const char *error_code, *error_message; // NULL: none
};

struct session_event { // pointers borrowed until the next call on this session
    enum session_event_kind kind;
    int64_t seq, first_seq;      // first_seq < seq only for joined deltas
    struct session_view session; // OPENED, UPDATED, CLOSED, REWOUND
    struct turn_view turn;       // QUEUED, STARTED, DONE (text: only what DONE adds to the deltas)
    const char *request_id; // of the reader's own request that this event answers (open, update,
                            // close); "" otherwise
    bool deleted;           // CLOSED
    // EVICTED, PARKED: "idle" or "pressure". REWOUND: "deleted" or NULL. DONE: why the snapshot of the
    // session's cache was not used, or NULL.
    const char *reason;
    int64_t head; // REWOUND: the last turn of the path from here on
    // SAMPLE: seq and first_seq are 0. The piece begins with token first_token of answer `branch`. A piece
    // without tokens has text that was held back.
    int32_t branch; // from 1, in the order of turn_view.branch
    int64_t first_token;
    // DELTA, SAMPLE
    int64_t delta_turn;
    int64_t drawn_us; // when the first token was drawn, by the engine's clock; 0: long ago, or
                      // before the reader attached
    const char *text;
    size_t text_len;
    const int32_t *ids;
    const float *logprobs; // NULL when the turn did not ask for them
    size_t n_ids;
    const struct engine_alternative *alternatives; // (n_ids, n_alternatives) or NULL
    int32_t n_alternatives;
};

enum session_answer_kind {
    ANSWER_ERROR,      // code, message
    ANSWER_ATTACHED,   // session, reset
    ANSWER_DETACHED,   // session id
    ANSWER_STATE,      // session, turns, before
    ANSWER_OUTLINE,    // session, turns, before: where the next page begins, -1: nowhere
    ANSWER_LIST,       // a piece of the sessions, cursor
    ANSWER_ACCEPTED,   // session id, turn
    ANSWER_CANCELLING, // session id
    // Instead of the event, to clients that are not attached:
    ANSWER_CLOSED,  // session, deleted
    ANSWER_UPDATED, // session
    ANSWER_OPENED,  // session
    ANSWER_REWOUND, // session; seq 0: the head did not change
    // sessions/replay/debug.h:
    ANSWER_TURN,      // session id, detail
    ANSWER_EVENTS,    // session id, events, before, more
    ANSWER_REPLAYING, // session id, turn
    ANSWER_REPLAYED,  // session id, turn, replay
    ANSWER_EXPORTED,  // session id, a piece of the archive
    ANSWER_SHARED,    // session, token
    ANSWER_IMPORTED,  // session
    ANSWER_MATCHED,   // matched
    ANSWER_CHANGED,   // session, for sessions_changed(); id NULL: it was deleted
};
// How far the protocol has written an answer that goes out in pieces. All zero at the first piece; the
// protocol moves it on, and sets `more` unless the answer is complete.
struct answer_position {
    int part;  // of the message
    size_t at; // within the part: an element, or a byte of a text
    bool more;
};

struct session_answer { // borrowed during the callback
    enum session_answer_kind kind;
    const char *request_id; // "" for none
    const char *code;       // wire code: "session_busy" ...
    const char *message;
    const char *session_id;        // or NULL
    int64_t retry_after_ms;        // 0: none
    const struct err_facts *facts; // ERROR: what message says, for programs; NULL: nothing
    struct session_view session;
    bool reset, more, deleted;
    int64_t seq, turn;
    int64_t before; // STATE: as asked for, -1: to the end
    const struct turn_view *turns;
    size_t n_turns;
    const struct session_view *sessions;
    size_t n_sessions;
    const char *cursor; // NULL: no more
    // LIST and EXPORTED come in pieces; sessions_continue() asks for the next one. In the last piece of
    // an incomplete export, code and message say what went wrong.
    bool first, last;
    // TURN and REPLAYED also go out in pieces, but each callback has the whole answer: the protocol
    // writes the piece that starts at this position.
    struct answer_position *position;
    const struct engine *engine; // TURN, REPLAYED: for the texts of tokens; NULL: not served
    const struct turn_detail *detail;
    const struct replay_detail *replay;
    const struct listed_event *events;
    size_t n_events;
    const char *token;   // of the session's new link
    const char *archive; // (archive_len) JSON text
    size_t archive_len;
    struct store_told **matched; // sessions/store/store.h; the callback may take it and set NULL
};

struct sessions_callbacks { // all on the net thread, from inside sessions_* calls
    void *ctx;
    void (*on_answer)(void *ctx, uint64_t client, const struct session_answer *a);
    // s has events for a client that had taken all.
    void (*on_ready)(void *ctx, uint64_t client, struct session *s);
    // Prefill progress: transient, to attached clients.
    void (*on_progress)(void *ctx, uint64_t client, struct session *s, int64_t turn, int64_t done,
                        int64_t total);
    // s was deleted and its client detached: drop every pointer to it.
    void (*on_gone)(void *ctx, uint64_t client, struct session *s);
    // For watchers: a session of owner changed, or was removed. key: for sessions_changed().
    void (*on_changed)(void *ctx, int64_t key, const char *owner, const char *id, bool removed);
    // The disk refuses the events of s, which wait, stalled_us after the first refusal. Called for attached
    // clients at each attempt; no event records it.
    void (*on_stalled)(void *ctx, uint64_t client, struct session *s, const struct err *why,
                       int64_t stalled_us);
    // The turn's instance failed or is drained (reason "lost" or "drained"). The turn pauses and continues
    // on another instance. Called for attached clients; no event records it.
    void (*on_moved)(void *ctx, uint64_t client, struct session *s, int64_t turn,
                     const char *reason);
};

// Opens a service without a model; sessions_add_instance() adds models. Opens or creates the database,
// migrates it, marks turns that a crash cut off as interrupted, and starts the store's thread. Errors
// name the file: locked, read-only, corrupt, newer than this program, not a database.
int sessions_open(struct sessions **out, const struct sessions_options *o,
                  const struct sessions_callbacks *cb, struct err *err);
// Gives the service an engine, borrowed until the service is closed. The first engine's model is the
// default for new sessions. Removes snapshots of sessions that are gone. Errors: placement_add().
int sessions_add_instance(struct sessions *ss, const struct instance_options *o, struct err *err);
// Removes the engine's snapshots of sessions that are not in the database. It reads the names of all
// sessions, so a running server calls it on the thread that opens the engine, before
// sessions_add_instance().
void sessions_tidy(struct engine *e, const char *db_path);
// The instance takes no new turns. Its turns end, and its idle caches move to other instances of its
// model; then its state is INSTANCE_DRAINED. `last`: drains even the only instance that serves its
// model; the caches then stay until it is removed. A lost instance is drained when its turns have ended, and
// is not opened again. E_NOTFOUND, E_BUSY.
int sessions_drain_instance(struct sessions *ss, const char *name, bool last, struct err *err);
// Reports that the instance's device has failed. Its running turns continue on other instances of its
// model, or wait until an instance takes turns again. Ignored if the instance is lost already. The
// service detects the failure itself if a turn ends by it.
void sessions_lose_instance(struct sessions *ss, const char *name);
// Removes a drained instance. The caller then closes its engine: at once if *model is NULL, else when
// placement_is_unused(*model), and calls placement_drop(*model). E_NOTFOUND, E_BUSY, E_NOMEM.
int sessions_remove_instance(struct sessions *ss, const char *name,
                             const struct served_model **model, struct err *err);
// The models and instances. Valid until the next call that adds or removes one.
struct placement *sessions_placement(struct sessions *ss);
// Ends running turns as interrupted, commits everything and joins the store's thread.
void sessions_close(struct sessions *ss);
// Takes events of the engine and answers of store and workers, and runs timers. Call after each wake-up.
// Returns microseconds until the next timer, -1 when there is none.
int64_t sessions_poll(struct sessions *ss);
// From now on, new turns and sessions are refused with shutting_down, except where request.accepted.
void sessions_drain(struct sessions *ss);
int sessions_n_running(const struct sessions *ss); // turns running or queued
// No turn, no commit and no worker's job is under way: clients have all events, or get them next.
bool sessions_settled(const struct sessions *ss);
// True: a client took the last event of an idle session, so the next sessions_poll() may unload the
// session. No timer is set for that.
bool sessions_touched(const struct sessions *ss);
// Owners (owners.h) come from the options' table.
void sessions_limits_changed(struct sessions *ss, struct owner *o); // starts turns that may run now
void sessions_cancel_owner(struct sessions *ss, const struct owner *o); // all turns of its sessions
void sessions_count_owner(struct sessions *ss, struct owner *o); // sets used[OWNER_CACHE_SHARE]
// The database's own random key, the same after a restart and in a backup. Used to sign what clients
// hold and send back. Any thread.
void sessions_secret(const struct sessions *ss, uint64_t out[2]);
// Draws the id of a new session: unguessable, and NAME-RANDOM where the server has a name, so that a
// balancer finds the session's server.
void sessions_draw_id(const struct sessions *ss, char out[SESSION_ID_MAX + 1]);
// Whether the database takes writes (for /readyz). If not, *reason says why.
bool sessions_store_ok(const struct sessions *ss, const char **reason);
// False: the tail cannot be written, so deltas wait for their commits. Nothing is lost.
bool sessions_tail_ok(const struct sessions *ss, const char **reason);

// Takes every request of every protocol (request.h).
void sessions_submit(struct sessions *ss, const struct request *r);
// The client has room for the next piece of its list or export.
void sessions_continue(struct sessions *ss, uint64_t client);
// The view of a changed session, for a watcher. 1: *out is set, valid until the next call. 0: the session
// is not in memory, and ANSWER_CHANGED follows. E_NOMEM.
int sessions_changed(struct sessions *ss, uint64_t client, const char *owner, int64_t key,
                     struct session_view *out);
void sessions_client_gone(struct sessions *ss, uint64_t client); // detaches everywhere; turns go on

// Takes the next visible event and moves the client's cursor past it, or a piece of another answer of the
// turn that runs there (EVENT_SAMPLE). Returns 1, or 0 if there is none yet (on_ready follows). max_text
// bounds a joined delta's text in bytes, but not its first token.
int session_next_event(struct session *s, uint64_t client, size_t max_text,
                       struct session_event *out);
const char *session_id(const struct session *s);
// An engine of its model, for the texts of tokens; NULL: the model is not served.
const struct engine *session_engine(const struct session *s);
// Another answer of a turn that drew several (sampling n, beam_width).
struct turn_answer {
    const int32_t *ids;    // (n)
    const float *logprobs; // (n)
    size_t n;
    const char *finish_reason;
};
// Answer number `branch` of the turn, from 1 in the order of turn_view.branch. Borrowed until the next
// call on this session. E_NOTFOUND: the turn has no such answer, or the answer is not in memory. An answer
// stays in memory until the client takes the event after the turn's EVENT_DONE.
int session_answer_of(const struct session *s, int64_t turn, int32_t branch,
                      struct turn_answer *out);
// Every token of the path in use, including those that clients may not see yet. Borrowed until the next
// call on this session.
const int32_t *session_log(const struct session *s, size_t *n);
// How many tokens precede the turn's answer, its own input included, and how many of them were cached.
// false: the engine has not begun the turn, or the turn is not in memory.
bool session_turn_prompt(const struct session *s, int64_t turn, int64_t *n_tokens,
                         int64_t *n_cached);
// How many drafted tokens the model checked in this turn, and how many it accepted. 0 and 0 after a
// restart.
void session_turn_drafts(const struct session *s, int64_t turn, int64_t *n_drafted,
                         int64_t *n_accepted);
