// One conversation in memory: its log, turns, numbered events, and the clients that follow it.
//
// Net thread only. session_tellable() alone decides which events clients may see. Engine and store are
// the service's: sessions/service.h.
#pragma once
#include "base/hash.h"
#include "base/siphash.h"
#include "sessions/event_log.h"
#include "sessions/evict.h"
#include "sessions/life.h"
#include "sessions/turn.h"

struct owner;
struct request;

#define SESSION_AUTO_TITLE_BYTES 60
#define SESSION_DRAWN 16 // tokens of a running turn that are known when they were drawn

// A client that follows a session. Listed by the session and by the client.
struct attachment {
    uint64_t client;
    struct session *session;
    int64_t cursor;   // the last event taken
    bool waiting;     // it has taken all there were: on_ready when there is more
    int64_t since_us; // tokens drawn before do not come late to it
    char request_id[SESSION_REQUEST_ID_MAX + 1];  // of the event taken last
    struct attachment *prev, *next;               // of the session
    struct attachment *client_prev, *client_next; // of the client
};

// A request whose answer waits for its commit, with what takes it back.
enum pending_kind {
    PENDING_OPEN,
    PENDING_TURN,
    PENDING_UPDATE,
    PENDING_CLOSE,
    PENDING_REWIND,
    PENDING_EDIT,
    PENDING_ERASE
};
// What a move of the head cut off, for moving back while it is not committed (tree.h).
struct tree_cut {
    int64_t head;  // as it was
    size_t n_kept; // tokens of the log that both paths have
    int32_t *ids;  // (n_ids) what followed them
    size_t n_ids;
};
struct pending {
    enum pending_kind kind;
    uint64_t client;
    char request_id[SESSION_REQUEST_ID_MAX + 1];
    int64_t seq;            // committed with the event of this number
    int64_t turn;           // PENDING_TURN, EDIT, ERASE
    bool repeated;          // PENDING_TURN, REWIND: a repeated request; undoes nothing
    int64_t rewound_seq;    // of all that move the head: the event of its move, 0: it made none
    struct tree_cut cut;    // with rewound_seq
    char *title, *sampling; // as they were; NULL: not changed
    char *note;             // as it was, where note_changed
    bool note_changed;
    char first_words[SESSION_AUTO_TITLE_BYTES];
    bool auto_title;
    int64_t updated_ms, cancel_after_ms; // as they were
    struct pending *prev, *next;
};

// Where the engine has something of the session's cache.
// TRAVELS: from one instance to another (moving.c).
enum cache_place { PLACE_NONE, PLACE_DEVICE, PLACE_HOST, PLACE_TRAVELS };
// State of the last save. What changes while one is under way belongs to the next.
enum save_state { SAVE_IDLE, SAVE_SENT, SAVE_REFUSED };
// Further work for settling, beside turns and requests.
// The title's index row; watchers of the list; the note's row.
enum { MARK_TITLE = 1, MARK_WATCHERS = 2, MARK_NOTE = 4 };

// What names a session, within the process or for good: a hash of its owner and its id, which is
// unique among the owner's alone.
struct hash128 session_name(const uint64_t key[2], const char *owner, const char *id);
// For the engine's snapshots.
#define SESSION_LASTING_BYTES 33
void session_lasting_name(const char *owner, const char *id, char out[SESSION_LASTING_BYTES]);

struct session {
    enum session_life life;
    struct hash128 name; // of this process (service_find)
    char lasting[SESSION_LASTING_BYTES];
    struct session_record rec; // seq and seq_reserved: as of the last save begun
    struct sessions *service;
    struct owner *owner; // rec.owner's; NULL while it is read
    UT_hash_handle by_name, by_key;
    struct prompt *prompt; // the content of a table without a task (rec.prompt_data is NULL here)
    struct turn_sampling *sampling; // rec.sampling, parsed (sampling_layers.c); NULL: not yet
    // What waits until the session is loaded, inserted or deleted
    struct request *deferred, **deferred_end;
    struct request *paging; // waits for older turns; nothing else is asked until they are there
    // Waits for its input's ids, like paging; the worker has `preparation`.
    struct request *preparing;
    struct preparation *preparation;            // also while the request runs again: what was made
    size_t full_from;                           // turns before this one are slim (turn.h)
    char first_words[SESSION_AUTO_TITLE_BYTES]; // the automatic title; "": see title_of()

    int32_t *log; // (n_log) every token of the path in use: inputs and outputs, in order
    size_t n_log, cap_log;
    struct turn **turns;
    size_t n_turns, cap_turns;
    struct turn_children roots; // first turns
    int64_t head; // last turn of the path in use, queued ones included; TURN_NONE: the empty log
    struct event_log events;
    int64_t running;  // index of the turn that the log is growing by, -1
    int64_t n_queued; // turns behind it (the last ones)

    // the engine works on this turn of ours (perhaps one taken back), 0: on none
    uint64_t engine_turn;
    struct instance *instance; // with its cache or its turn; NULL: it lives nowhere (residence.c)
    struct session *home_prev, *home_next;           // instance->sessions
    struct session *displaced_prev, *displaced_next; // its turn waits for an instance (displaced.c)
    enum cache_place cache;
    int64_t cached_tokens; // with PLACE_DEVICE
    int64_t prepared_us;   // the last hint to the engine that a turn may come; 0: none
    const char *evicting;  // why the engine was asked to part with it: "idle"
    int64_t lost_us;       // its turns are cancelled then, unless a client comes; 0: not
    // The client that started a turn without being attached counts as following it until it ends
    // (clients.c). CLIENT_GONE: none. Listed by the client.
    uint64_t author;
    struct session *author_prev, *author_next;
    struct session *place_prev, *place_next; // owner->waiting
    int64_t retry_us; // a queued turn that the engine had no room for is tried again then; 0: none
    struct evict_node idle; // the idle clock

    enum save_state save;
    int64_t save_due_us;    // 0: nothing to save
    int64_t n_failures;     // saves refused in a row
    const char *expired;    // why it is removed without a request (expire.c)
    unsigned marks;         // MARK_*
    struct turn **versions; // (n_versions) other answers of a turn that ended, not yet in the tree
    size_t n_versions;
    int64_t fork_key;    // before its first save: its turns are copies of these turns of that
    int64_t *fork_turns; // session (store.h)
    size_t n_fork_turns;
    // Lasting names of those it was forked from, in turn (record.h).
    char *origins[RECORD_ORIGINS];
    size_t n_origins;
    // (n_erased) turns that leave the record with the next save, ascending (erasure.c)
    int64_t *erased;
    size_t n_erased;
    int64_t saved_seq, saved_reserved;
    int64_t drawn_us[SESSION_DRAWN]; // of drawn_turn's last tokens, by their place in it
    int64_t drawn_turn;
    int64_t safe_seq;                // deltas up to this number may be sent before their commit
    uint32_t version, saved_version; // of rec
    int64_t dirty_from;              // turns before this one need no save
    struct pending *pending;         // uncommitted requests, in order
    // committed ones, answered by an event that their client has not taken yet
    struct pending *told;

    struct attachment *attachments;
    // Places in the service's lists; prev is NULL outside a list.
    struct session *touched_prev, *touched_next; // to be settled
    struct session *timed_prev, *timed_next;     // with save_due_us, retry_us or lost_us
    struct session *lru_prev, *lru_next;         // may leave memory, the one used longest ago first
    int shown_state;                             // in the metrics
};

// LOADING or OPENING. NULL: no memory.
struct session *session_new(struct sessions *service, const char *owner, const char *id,
                            enum session_life life);
void session_free(struct session *s);
void session_strip(
    struct session *s); // frees all but its name and clients; it is in no list but by_name
// restore.c: takes what the new *s needs out of *stored. E_CORRUPT when the record contradicts
// itself, E_NOMEM; then *s can only be freed.
int session_restore(struct session *s, struct stored_session *stored);

// Removes an undelivered event; later ones move up.
void session_remove_event(struct session *s, int64_t seq);
void session_shift_numbers(struct session *s, int64_t seq, int64_t n); // those above seq, n down
void pending_free(struct pending *p);
void pending_drop(struct pending **list, struct pending *p); // out of the list, and freed
void tree_cut_release(struct tree_cut *cut);

int session_log_reserve(struct session *s, size_t more);
int session_push_turn(struct session *s, struct turn *t); // takes it, unlinked (tree.h). E_NOMEM
struct turn *session_turn(const struct session *s, int64_t index); // NULL: none
struct turn *session_next_queued(const struct session *s);
// A turn of the last SESSION_IDEMPOTENT_TURNS that was started under this request id, or NULL.
#define SESSION_IDEMPOTENT_TURNS 64
struct turn *session_find_request(const struct session *s, const char *request_id);
bool session_has_turn(const struct session *s); // running or queued
bool session_is_busy(const struct session *s);  // a turn, or what the engine has of an undone one
// A close is under way, as far as it is not committed.
bool session_is_closing(const struct session *s);
// Requests must wait for the store: it reads, inserts or deletes the session, or reads or erases turns.
bool session_must_wait(const struct session *s);
bool session_is_saved(const struct session *s); // no save is under way or due
bool session_is_known(const struct session *s); // on disk and not deleted: clients may know of it

// The last event that clients may see. A delta: every event before it is visible, its number is
// reserved on disk (after a crash it gets no other meaning), and it is committed or in safe_seq. Any
// other event: it is committed.
int64_t session_tellable(const struct session *s);

// The head as of the event of this number.
int64_t session_head_at(const struct session *s, int64_t seq);
int session_below(const struct session *s, int64_t turn, int64_t seq); // turns followed it then
int64_t session_tokens_at(const struct session *s, int64_t seq); // length of its path's log then
// Of the visible path, the last `last` turns before turn `before` of its own path (-1: to
// the end): numbers, ascending. last 0: a page.
#define SESSION_PAGE_TURNS 100
#define SESSION_PAGE_TURNS_MAX 1000
struct session_page {
    int64_t *turns; // (n)
    size_t n;
    bool more; // the first one has a parent
};
// Free out->turns. E_NOMEM
int session_page(const struct session *s, int64_t last, int64_t before, struct session_page *out);
// The visible turns with this turn's parent, itself included: returns their number and, if there is a
// list, writes them to it, ascending.
size_t session_siblings(const struct session *s, const struct turn *t, int64_t *list);
// Numbers them so that equal inputs have equal numbers, from 0 in the list's order. E_NOMEM.
int session_sibling_inputs(const struct session *s, const int64_t *list, size_t n, int32_t *inputs);

enum session_state session_state(const struct session *s);
void session_view_fill(const struct session *s, struct session_view *out); // as of session_tellable
bool session_turn_visible(const struct session *s, const struct turn *t);
// As of session_tellable
void session_turn_view(const struct session *s, const struct turn *t, struct turn_view *out);

struct attachment *session_attachment(const struct session *s, uint64_t client);
