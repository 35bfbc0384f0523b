// The service behind sessions.h: what its files share. Each file declares its own functions in the header
// of its name. Net thread only.
// sessions/README.md has the rooms of the service, and which of them call which.
#pragma once
#include "sessions/engines/placement.h"
#include "sessions/state/owners.h"
#include "sessions/state/request.h"
#include "sessions/state/session.h"
#include "sessions/store/store.h"

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
    struct session *awaiting;       // sessions whose turn waits for an instance, in order
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
    bool room_changed;     // since the last poll an engine may have got room for a turn
    char store_error[512]; // "": the database takes writes
    bool store_full;       // it is full: a save that fits says nothing about the next one
    // The log said store.failed, and not yet store.works, which it says when the store has worked for a while: a nearly
    // full disk takes small writes between those that it refuses.
    bool store_suspect;
    int64_t store_first_us, store_failed_us;      // the first and the last failure
    int64_t n_store_failures, n_sessions_refused; // since store.failed; sessions whose saves failed
    int64_t probe_us; // when to try the database and the tail again; 0: both work
    bool probing, expiring;
    int64_t expire_us;    // when to look for old sessions; 0: never
    char expire_from[64]; // the cursor of the next look; "": from the oldest
    struct metric *m_state[SESSION_CLOSED + 1], *m_evicted[2], *m_parked[2],
        *m_resumed[CACHE_SNAPSHOT + 1], *m_resume_time[CACHE_SNAPSHOT + 1],
        *m_finished[N_TURN_FINISHES], *m_tail_ok, *m_tail_errors, *m_failovers[2], *m_poisoned,
        *m_instances_lost;
};

// A handler of requests (handlers.h, turns.h, ...) returns 0 when it, or a later event, answers the request.
// E_NOMEM: its caller answers.

int64_t service_now(const struct sessions *ss);    // monotonic, us
int64_t service_now_ms(const struct sessions *ss); // since 1970
// A session in memory; NULL: there is none.
struct session *service_find(struct sessions *ss, const char *owner, const char *id);
struct session *service_find_key(struct sessions *ss, int64_t key);
// The model of the session; NULL: no instance serves it.
struct served_model *service_model(const struct session *s);
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
void service_touch(struct session *s); // it is settled when the outermost call returns (settle.h)
void service_touch_tokens(struct session *s); // the same, after tokens of its running turn alone
void service_untouch(struct session *s);
struct session *service_next_touched(struct sessions *ss); // out of the list; NULL: none
// No engine had room for the session's turn: it is tried again after the next service_room_changed(), at the latest
// after ROOM_RETRY_US.
void service_wait_for_room(struct session *s);
void service_room_changed(
    struct sessions *ss); // an engine's turn has ended, or an engine takes turns (again)
void service_wake_for_room(
    struct sessions *ss); // before turns are tried: makes those retries due that room may end
// After a change of save_due_us, retry_us or lost_us.
void service_timers_changed(struct session *s);
void service_store_failed(struct sessions *ss, const struct err *err); // /readyz then fails
void service_store_works(struct sessions *ss);
void service_probe_later(struct sessions *ss); // sets probe_us unless it is set
void service_count_finish(struct sessions *ss, const char *reason);
void service_add_bytes(struct session *s, int64_t n); // to its stored bytes
