// Followers of sessions: a WebSocket, a streamed HTTP reply. The session service knows a follower by
// a number that is never reused, so that a late answer cannot reach another follower.
// Net thread only.
#pragma once
#include "sessions/sessions.h"

struct follower;

// Callbacks of the session service (sessions.h) and of the server. Those of the service come from inside
// sessions_* calls: they write nothing to sockets and call no sessions_* function except
// session_next_event. NULL: not wanted.
struct follower_ops {
    void (*on_answer)(struct follower *f, const struct session_answer *a);
    void (*on_ready)(struct follower *f, struct session *s);
    void (*on_progress)(struct follower *f, struct session *s, int64_t turn, int64_t done,
                        int64_t total);
    void (*on_stalled)(struct follower *f, struct session *s, const struct err *why);
    // For protocols without a message for a stalled session: the disk has refused the answer's events for five
    // seconds (STALL_PATIENCE_US), and the answer ends with store_failed and this message. May be called again.
    void (*on_store_failed)(struct follower *f, const char *message);
    void (*on_moved)(struct follower *f, struct session *s, int64_t turn, const char *reason);
    void (*on_gone)(struct follower *f, struct session *s);
    void (*on_changed)(struct follower *f, int64_t key, const char *owner, const char *id,
                       bool removed);
    void (*push)(struct follower *f);                  // after follower_push_later
    void (*later)(struct follower *f, int64_t now_us); // after service_later
    bool (*drained)(const struct follower *f); // nothing waits to be sent; NULL: nothing ever does
    void (*end)(struct follower *f);           // the server shuts down: close
    bool sole; // the answer is nowhere else: a shutdown waits for its reader until drain_timeout
};

struct follower {
    const struct follower_ops *ops;
    uint64_t client; // its number
    bool fresh;      // push() is due
};

struct followers {
    struct follower **slots; // (n_slots) by the low bits of the number
    size_t n_slots, n;
    uint64_t last;
    uint64_t *fresh; // (n_fresh) numbers of those to push
    size_t n_fresh, cap_fresh;
};

int followers_add(struct followers *fs, struct follower *f); // sets f->client. E_NOMEM
// f is the caller's to free; no callback of it follows.
void followers_remove(struct followers *fs, struct follower *f);
void followers_release(struct followers *fs); // all were removed before
// The callbacks for sessions_open, which find the follower by its number. fs stays where it is.
void followers_callbacks(struct followers *fs, struct sessions_callbacks *out);
// fn may remove the follower that it is given.
void followers_each(struct followers *fs, void (*fn)(struct follower *f, int64_t now_us),
                    int64_t now_us);

// Makes followers_push call push(). false: no memory.
bool follower_push_later(struct followers *fs, struct follower *f);
// Calls push() of the followers that are due, after sessions_poll and before the loop waits. It stops after
// a millisecond; if fs->n_fresh is then not 0, the caller calls it again before the loop waits. False: none
// was due.
bool followers_push(struct followers *fs);
