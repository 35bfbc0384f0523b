// One conversation in memory: its log, turns, numbered events, and the clients that follow it.
//
// Net thread only. session_tellable() alone decides which events clients may see. Engine and store are
// the service's: sessions/state/service.h.
#pragma once
#include "base/hash.h"
#include "base/siphash.h"
#include "sessions/state/event_log.h"
#include "sessions/state/evict.h"
#include "sessions/state/life.h"
#include "sessions/state/share.h"
#include "sessions/state/title.h"
#include "sessions/state/turn.h"

struct owner;
struct request;

#define SESSION_DRAWN 16 // the last tokens of a running turn whose time is known

// How far a client has another answer of a running turn (branch_deltas.c).
struct sample_cursor {
    size_t n_ids, text; // tokens, bytes
};

// A client that follows a session. Listed by the session and by the client.
struct attachment {
    uint64_t client;
    struct session *session;
    int64_t cursor;    // the last event taken
    bool waiting;      // the client has taken every event: the next event calls on_ready
    int64_t since_us;  // when the client attached: earlier tokens do not count as late
    int64_t since_seq; // the last event when the client attached
    char request_id[SESSION_REQUEST_ID_MAX + 1]; // of the event taken last
    int64_t sampled_turn;                        // the turn of the cursors in `sampled`
    struct sample_cursor *sampled;               // (n_samples of sampled_turn); NULL: nothing taken
    struct attachment *prev, *next;              // of the session
    struct attachment *client_prev, *client_next; // of the client
};

// A request whose answer waits for its commit, with what is needed to undo it.
enum pending_kind {
    PENDING_OPEN,
    PENDING_TURN,
    PENDING_UPDATE,
    PENDING_CLOSE,
    PENDING_REWIND,
    PENDING_EDIT,
    PENDING_ERASE
};
// What a move of the head cut off the log, so that an uncommitted move can be undone (tree.h).
struct tree_cut {
    int64_t head;  // before the move
    size_t n_kept; // tokens of the log that both paths share
    int32_t *ids;  // (n_ids) what followed them
    size_t n_ids;
};
struct pending {
    enum pending_kind kind;
    uint64_t client;
    char request_id[SESSION_REQUEST_ID_MAX + 1];
    int64_t seq;            // the number of the event that commits it
    int64_t turn;           // PENDING_TURN, EDIT, ERASE
    bool repeated;          // PENDING_TURN, REWIND: a repeated request; undoes nothing
    int64_t rewound_seq;    // number of the EVENT_REWOUND; 0: the request moved no head
    struct tree_cut cut;    // with rewound_seq
    char *title, *sampling; // the old values; NULL: not changed
    char *note;             // the old note, if note_changed
    bool note_changed;
    char *share; // the old digest, if share_changed
    bool share_changed;
    char *folder; // the old one, if folder_changed
    bool folder_changed;
    char share_token[SHARE_TOKEN_LEN + 1]; // the token of a new link, for the answer; "": none
    char first_words[SESSION_AUTO_TITLE_BYTES];
    bool auto_title, pinned, archived;   // the old values
    bool awaited;                        // the old awaits_turn
    int64_t updated_ms, cancel_after_ms; // the old values
    struct pending *prev, *next;
};

// Where the session's cache is. TRAVELS: on the way from one instance to another (moving.c).
enum cache_place { PLACE_NONE, PLACE_DEVICE, PLACE_HOST, PLACE_TRAVELS };
// State of the last save. Changes made while it is under way belong to the next save.
enum save_state { SAVE_IDLE, SAVE_SENT, SAVE_REFUSED };
// The model of rec.model and rec.fingerprint: a session looks for its model once (service_model).
struct found_model {
    struct served_model *model;
    uint64_t models_version; // the placement's version when the model was found; 0: look again
};

// What settling a touched session has to look at.
enum session_touch {
    TOUCH_NONE,
    TOUCH_TOKENS, // new tokens of its running turn, and nothing else
    TOUCH_STATE,  // anything may have changed
};

// What settling has to write or send beside turns and requests: the title's row of the index, the view
// for watchers of the list, the note's row.
enum { MARK_TITLE = 1, MARK_WATCHERS = 2, MARK_NOTE = 4 };

// Names of a session: hashes of its owner and its id, because ids are unique only within an owner.
// session_name() is for this process, session_lasting_name() for snapshots, which outlast the process.
struct hash128 session_name(const uint64_t key[2], const char *owner, const char *id);
#define SESSION_LASTING_BYTES 33
void session_lasting_name(const char *owner, const char *id, char out[SESSION_LASTING_BYTES]);

struct session {
    enum session_life life;
    struct hash128 name; // of this process (service_find)
    char lasting[SESSION_LASTING_BYTES];
    struct session_record rec; // seq and seq_reserved: as the last save began
    struct found_model found_model;
    struct sessions *service;
    struct owner *owner; // named by rec.owner; NULL while the session is being read
    UT_hash_handle by_name, by_key;
    struct prompt *prompt; // the content of a table without a task (rec.prompt_data is NULL here)
    struct turn_sampling *sampling; // rec.sampling, parsed (sampling_layers.c); NULL: not yet
    // Requests that wait until the session is loaded, inserted or deleted
    struct request *deferred, **deferred_end;
    struct request *paging; // waits until older turns are read, and later requests wait behind it
    // Waits for the ids of its input, which a worker makes in `preparation`; later requests wait too.
    struct request *preparing;
    struct preparation *preparation;            // kept while the request runs again with its result
    size_t full_from;                           // turns before this one are slim (turn.h)
    char first_words[SESSION_AUTO_TITLE_BYTES]; // the automatic title; "": see title_of()

    int32_t *log; // (n_log) every token of the path in use: inputs and outputs, in order
    size_t n_log, cap_log;
    struct turn **turns;
    size_t n_turns, cap_turns;
    struct turn_children roots; // first turns
    int64_t head; // last turn of the path in use, queued ones included; TURN_NONE: the empty log
    struct event_log events;
    int64_t running;      // index of the turn that the log is growing by, -1
    int64_t n_queued;     // turns behind it (the last ones)
    int64_t sampled_from; // turns before this one have no samples; TURN_NONE: none has

    // the turn that the engine works on, which may be undone already; 0: none
    uint64_t engine_turn;
    struct instance *instance;             // has the cache or runs the turn; NULL: none (routing.c)
    struct session *home_prev, *home_next; // instance->sessions
    struct session *awaiting_prev, *awaiting_next; // the turn waits for an instance (failover.c)
    int64_t awaiting_us;                           // since when the turn waits
    enum cache_place cache;
    int64_t cached_tokens; // with PLACE_DEVICE
    int64_t prepared_us;   // the last hint to the engine that a turn may come; 0: none
    const char *evicting;  // why the cache is being evicted: "idle"
    int64_t lost_us;       // when the turns are cancelled unless a client comes first; 0: never
    // A client that started a turn without being attached counts as attached until the turn ends
    // (clients.c). CLIENT_GONE: none. Listed by the client.
    uint64_t author;
    struct session *author_prev, *author_next;
    struct session *place_prev, *place_next; // owner->waiting
    int64_t retry_us; // when a turn that no engine had room for is tried again; 0: none
    bool wants_room;  // with retry_us: room in an engine ends the wait (service_wait_for_room)
    struct evict_node idle; // the idle clock

    enum save_state save;
    int64_t save_due_us;      // 0: nothing to save
    int64_t n_failures;       // saves refused in a row
    int64_t refused_since_us; // when the first of these was
    const char *expired;      // why the session is removed without a request (expire.c)
    bool awaits_turn; // goes unless a turn is accepted: opened for one, or its only one was refused
    unsigned marks;   // MARK_*
    struct turn **versions; // (n_versions) other answers of a turn that ended, not yet in the tree
    size_t n_versions;
    // Of a fork before its first save: the turns of session fork_key that its own turns copy (store.h).
    int64_t fork_key;
    int64_t *fork_turns; // (n_fork_turns)
    size_t n_fork_turns;
    // Lasting names of the fork's ancestors, the nearest one first (record.h).
    char *origins[RECORD_ORIGINS];
    size_t n_origins;
    // (n_erased) turns that the next save erases, ascending (erasure.c)
    int64_t *erased;
    size_t n_erased;
    int64_t saved_seq, saved_reserved;
    int64_t drawn_us[SESSION_DRAWN]; // when drawn_turn's last tokens were drawn; a ring by index
    int64_t drawn_turn;
    int64_t safe_seq;                // deltas up to this number may be sent before their commit
    uint32_t version, saved_version; // count changes of rec
    int64_t dirty_from;              // turns before this one need no save
    struct pending *pending;         // uncommitted requests, in order
    // committed requests whose answer is an event that the client has not taken yet
    struct pending *told;

    struct attachment *attachments;
    // Places in the service's lists; prev is NULL outside a list.
    struct session *touched_prev, *touched_next; // to be settled
    enum session_touch touch;                    // what to settle
    struct session *timed_prev, *timed_next;     // with save_due_us, retry_us or lost_us
    struct session *lru_prev, *lru_next;         // may leave memory, the one used longest ago first
    int shown_state;                             // in the metrics
};

// LOADING or OPENING. NULL: no memory.
struct session *session_new(struct sessions *service, const char *owner, const char *id,
                            enum session_life life);
void session_free(struct session *s);
// Frees all but its name and clients. The session must be in no list but by_name.
void session_strip(struct session *s);
// restore.c: moves what the new *s needs out of *stored. E_CORRUPT: the record contradicts itself;
// E_NOMEM. After an error *s can only be freed.
int session_restore(struct session *s, struct stored_session *stored);

// Removes an undelivered event; later ones move up.
void session_remove_event(struct session *s, int64_t seq);
void session_shift_numbers(struct session *s, int64_t seq, int64_t n); // numbers above seq, n down
void pending_free(struct pending *p);
void pending_drop(struct pending **list, struct pending *p); // out of the list, and freed
void tree_cut_release(struct tree_cut *cut);

int session_log_reserve(struct session *s, size_t more);  // room for `more` further tokens. E_NOMEM
int session_push_turn(struct session *s, struct turn *t); // takes it, unlinked (tree.h). E_NOMEM
struct turn *session_turn(const struct session *s, int64_t index); // NULL: none
struct turn *session_next_queued(const struct session *s); // the first that waits; NULL: none
// A turn of the last SESSION_IDEMPOTENT_TURNS that was started under this request id, or NULL.
#define SESSION_IDEMPOTENT_TURNS 64
struct turn *session_find_request(const struct session *s, const char *request_id);
bool session_has_turn(const struct session *s); // running or queued
bool session_is_busy(const struct session *s);  // has a turn, or the engine still has an undone one
// A close is under way and not yet committed.
bool session_is_closing(const struct session *s);
bool session_is_temporary(
    const struct session *s); // not to outlive this process (RECORD_TEMPORARY)
// Requests must wait for the store: it reads, inserts or deletes the session, or reads or erases turns.
bool session_must_wait(const struct session *s);
bool session_is_saved(const struct session *s); // no save is under way or due
bool session_is_known(const struct session *s); // on disk and not deleted: clients may know of it

// The last event that clients may see. A delta is visible when every event before it is, its number is
// reserved on disk (so that a crash does not give the number to another event), and it is committed or
// within safe_seq. Any other event is visible when it is committed.
int64_t session_tellable(const struct session *s);

// The head at the time of the event of this number.
int64_t session_head_at(const struct session *s, int64_t seq);
int session_below(const struct session *s, int64_t turn,
                  int64_t seq);                                  // whether turns followed it then
int64_t session_tokens_at(const struct session *s, int64_t seq); // length of its path's log then
// A page: the last `last` turns (0: SESSION_PAGE_TURNS) before turn `before` on the path to it; -1: the
// end of the visible path.
#define SESSION_PAGE_TURNS 100
#define SESSION_PAGE_TURNS_MAX 1000
struct session_page {
    int64_t *turns; // (n)
    size_t n;
    bool more; // the first one has a parent
};
// The caller frees out->turns. E_NOMEM.
int session_page(const struct session *s, int64_t last, int64_t before, struct session_page *out);
// Counts the visible turns with this turn's parent, itself included. Writes them to `list`, ascending,
// unless it is NULL.
size_t session_siblings(const struct session *s, const struct turn *t, int64_t *list);
// Writes a number for each turn of the list, from 0; turns with equal inputs get the same. E_NOMEM.
int session_sibling_inputs(const struct session *s, const int64_t *list, size_t n, int32_t *inputs);

// Of this moment: it follows from the turns, the cache's place and the log, and is stored nowhere.
enum session_state session_state(const struct session *s);
// The views show the state at session_tellable().
void session_view_fill(const struct session *s, struct session_view *out);
bool session_turn_visible(const struct session *s, const struct turn *t);
void session_turn_view(const struct session *s, const struct turn *t, struct turn_view *out);

struct attachment *session_attachment(const struct session *s, uint64_t client); // NULL: none
