// What goes out on one WebSocket, and its end. Order: answers, then session.changed, then events;
// one frame at a time, a long one in fragments. Short answers are stored; lists and exports come in
// pieces, each when most of the one before it is out. Of a session that has events one pointer is
// kept, of one that changed its number, and both are read when the socket has room. Net thread only.
//
// It is the client's follower: the session service calls it directly (follower.h).
#pragma once
#include "ws/parley/changes.h"
#include "ws/parley/outbox.h"
#include "ws/service.h"

#define CLOSE_GOING_AWAY 1001
#define CLOSE_PROTOCOL 1002
#define CLOSE_BINARY 1003
#define CLOSE_POLICY 1008
#define CLOSE_TOO_BIG 1009
#define CLOSE_INTERNAL 1011
#define CLOSE_SLOW 4001
#define CLOSE_RATE 4002
#define CLOSE_TOKEN 4003 // it was removed from the token file

struct outgoing {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    struct peer *peer;
    struct outbox outbox;   // answers, and the frame that is half-way out
    struct changes changes; // sessions that a watcher has yet to be told of
    const char *owner;      // whose sessions are watched, borrowed; NULL: none
    struct session **ready; // sessions with events for us, served in turn
    size_t n_ready, cap_ready;
    size_t counted; // bytes of ours in the waiting_bytes of the service and of this owner
    struct owner *counted_for; // NULL: not authorised yet
    int64_t waiting_us, changed_us, end_by_us;
    int close_code; // 0: open
    const char *close_reason;
    bool changed_due, close_sent, skips;
    bool reading_change; // a changed session is read from the store
    bool reading_piece;  // and the open message's next piece
};

int outgoing_init(struct outgoing *o, struct service *s, struct peer *p); // E_NOMEM
void outgoing_release(struct outgoing *o);

// A message of the protocol is encoded into outgoing_tx(), then sent with outgoing_queue().
struct buf *outgoing_tx(struct outgoing *o);
void outgoing_queue(struct outgoing *o);
void outgoing_error(struct outgoing *o, const char *code, const char *message,
                    const char *request_id, int64_t retry_after_ms);

int outgoing_writable(struct outgoing *o); // 0, or -1 when the socket is broken
// Sends what is queued (except to slow readers), then the close frame; kills the socket when that
// does not end in time.
void outgoing_end(struct outgoing *o, int code, const char *reason);
void outgoing_tick(struct outgoing *o, int64_t now_us);
