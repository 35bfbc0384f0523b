// The sending side of one WebSocket, and its end. It sends answers first, then session.changed, then
// events; one frame at a time, a long one in fragments. Short answers are queued as text. Lists and exports
// come in pieces, each when most of the previous one is sent. For sessions with events it keeps a pointer,
// for changed sessions a number, and it reads both when the socket has room. Net thread only.
//
// It is the connection's follower (follower.h).
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
#define CLOSE_TOKEN 4003 // its token was removed from the token file

struct outgoing {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    struct peer *peer;
    struct outbox outbox;   // answers, and the frame that is partly sent
    struct changes changes; // changed sessions, for a watcher
    const char *owner;      // whose sessions are watched, borrowed; NULL: none
    struct session **ready; // sessions with events for us, served in turn
    size_t n_ready, cap_ready;
    size_t counted;            // its share of waiting_bytes of the service and of counted_for
    struct owner *counted_for; // NULL: not authorised yet
    int64_t waiting_us, changed_us, end_by_us;
    int close_code; // 0: open
    const char *close_reason;
    bool changed_due, close_sent, skips;
    bool reading_change; // the store reads a changed session
    bool reading_piece;  // the store reads the open message's next piece
};

int outgoing_init(struct outgoing *o, struct service *s, struct peer *p); // E_NOMEM
void outgoing_release(struct outgoing *o);

// A message of the protocol is encoded into outgoing_tx(), then sent with outgoing_queue().
struct buf *outgoing_tx(struct outgoing *o);
void outgoing_queue(struct outgoing *o);
void outgoing_error(struct outgoing *o, const char *code, const char *message,
                    const char *request_id, int64_t retry_after_ms);

int outgoing_writable(struct outgoing *o); // 0, or -1 when the socket is broken
// Sends what is queued (except to slow readers), then the close frame. If that takes too long, it kills
// the socket.
void outgoing_end(struct outgoing *o, int code, const char *reason);
void outgoing_tick(struct outgoing *o, int64_t now_us);
