// The sending side of one WebSocket of parley.v1. It sends answers first, then session.changed, then
// events. Short answers are queued as text. Lists and exports come in pieces, each when most of the previous
// one is sent. For sessions with events it keeps a pointer, for changed sessions a number, and it reads both
// when the socket has room. Net thread only.
//
// It is the connection's follower (follower.h).
#pragma once
#include "ws/parley/changes.h"
#include "ws/socket.h"

struct outgoing {
    struct socket socket;   // first: callbacks cast
    struct changes changes; // changed sessions, for a watcher
    const char *owner;      // whose sessions are watched, borrowed; NULL: none
    struct session **ready; // sessions with events for us, served in turn
    size_t n_ready, cap_ready;
    size_t counted;            // its share of waiting_bytes of the service and of counted_for
    struct owner *counted_for; // NULL: not authorised yet
    int64_t changed_us;
    bool changed_due;
    bool reading_change; // the store reads a changed session
    bool reading_piece;  // the store reads the open message's next piece
};

int outgoing_init(struct outgoing *o, struct service *s, struct peer *p,
                  const struct socket_ops *ops); // E_NOMEM
// When the socket is gone: the session service forgets the client, whose sessions go on.
void outgoing_release(struct outgoing *o);

// A message of the protocol is encoded into outgoing_tx(), then sent with outgoing_queue().
struct buf *outgoing_tx(struct outgoing *o);
void outgoing_queue(struct outgoing *o);
void outgoing_error(struct outgoing *o, const char *code, const char *message,
                    const char *request_id, int64_t retry_after_ms,
                    const struct err_facts *facts); // or NULL

// Of the connection's socket_ops.
void outgoing_ended(struct socket *s);
bool outgoing_has_more(const struct socket *s);
int outgoing_send(struct socket *s);
void outgoing_sent(struct socket *s);
