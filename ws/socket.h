// A client's WebSocket as each protocol of text messages has it: gathers a message, charges it to the rates of the
// connection and its owner, decodes a long one on a worker, queues answers, sends one frame at a time (a long one
// in fragments), and ends. Net thread only.
#pragma once
#include "base/workers.h"
#include "ws/net/peer.h"
#include "ws/net/websocket.h"
#include "ws/outbox.h"
#include "ws/service.h"

#define SOCKET_INLINE_BYTES 8192 // of a message; a longer one is decoded on a worker

enum {
    CLOSE_GOING_AWAY = 1001,
    CLOSE_PROTOCOL = 1002,
    CLOSE_BINARY = 1003,
    CLOSE_UTF8 = 1007,
    CLOSE_POLICY = 1008,
    CLOSE_TOO_BIG = 1009,
    CLOSE_INTERNAL = 1011,
    CLOSE_RESTART = 1012,
    CLOSE_OVERLOAD = 1013,
    CLOSE_SLOW = 4001,
    CLOSE_RATE = 4002,
    CLOSE_TOKEN = 4003, // its token was removed from the token file
};

struct socket;
struct socket_ops {
    // s->rx holds a message that is within the rates.
    void (*message)(struct socket *s);
    // Answers with an error. r->status 413: the connection ends after it.
    void (*refuse)(struct socket *s, const struct http_refusal *r);
    // The connection ends: nothing is queued any more. NULL: not wanted, as with those below.
    void (*ended)(struct socket *s);
    // There is more to send than the outbox has; send() writes one frame of it. -1: the socket is broken.
    bool (*has_more)(const struct socket *s);
    int (*send)(struct socket *s);
    void (*sent)(struct socket *s); // after each frame: the outbox may have room
    int no_memory;                  // the close code, and what it says
    const char *no_memory_reason;
};

struct socket_work { // a message on its way through a worker
    struct work work;
    struct socket *socket; // NULL: it is gone
    char *text;            // (len)
    size_t len;
};

struct socket {
    struct follower follower; // first: its callbacks cast
    const struct socket_ops *ops;
    struct service *service;
    struct peer *peer;

    struct buf rx; // the message that is arriving
    struct rate_limit limit;
    struct rate rate;
    int64_t refused_in_a_row;
    int64_t control_frames; // beyond the rate, in this second
    size_t frame_bytes;     // of the frame that is arriving
    struct socket_work *decoding;

    struct outbox outbox; // answers, and the frame that is partly sent
    int64_t waiting_us;   // since when the socket has taken nothing; 0: it takes more
    int64_t end_by_us;    // by net_served_us, as waiting_us
    int close_code;       // 0: open
    const char *close_reason;
    bool skips;      // the close frame goes before what is queued
    bool close_sent; // after that nothing is sent
};

// Adds s to the service's followers. E_NOMEM.
int socket_init(struct socket *s, struct service *service, struct peer *p,
                const struct follower_ops *follower, const struct socket_ops *ops);
// The socket is gone; the client is forgotten by its protocol.
void socket_release(struct socket *s);

void socket_queue(struct socket *s, const char *text, size_t len); // a message, copied
void socket_want_write(struct socket *s); // writable() comes; starts the clock of a slow reader
// Sends what is ready, a few frames at most before others have their turn. Outside of sessions_* calls.
void socket_push(struct socket *s);
int socket_send_tx(struct socket *s); // websocket_tx as one whole frame. -1: the socket is broken
int socket_send_queued(struct socket *s); // the next piece of the outbox. -1: the socket is broken
// Sends what is queued (except to slow readers, and behind half an answer), then the close frame. If that takes too
// long, it kills the socket.
void socket_end(struct socket *s, int code, const char *reason);
void socket_no_memory(struct socket *s); // ends this connection only

// Gives w the message in s->rx, unless w has a text, and reads no more from the client until socket_work_done. E_BUSY: too many
// wait; w->text is to be freed.
int socket_work_submit(struct socket *s, struct socket_work *w, void (*run)(struct work *),
                       void (*done)(struct work *));
struct socket *socket_work_done(struct socket_work *w); // NULL: the socket is gone

// Of struct websocket_protocol; ws is a struct socket, or begins with one.
int socket_receive(void *ws, const struct websocket_piece *piece);
void socket_control_frame(void *ws);
int socket_writable(void *ws);
int socket_client_closes(void *ws);
void socket_unmasked(void *ws);
void socket_tick(void *ws, int64_t now_us);
