// One call of gRPC: its messages in, its messages out, its end. It reads one message at a time, on request,
// and writes one at a time, so that a slow client costs a cursor and not memory.
// Net thread only, except decode().
//
// A call ends exactly once: with the status that the method sends (rpc_reply, rpc_end, rpc_fail), or with
// gone(), when the client has cancelled the call or has vanished.
#pragma once
#include "base/buf.h"
#include "base/workers.h"
#include "ws/kserve/code.h"
#include "ws/kserve/grpc/events.h"
#include "ws/net/long_body.h"

struct rpc;
struct rpc_server;
struct guest_port;
struct service;

struct rpc_method {
    const char *path; // "/inference.GRPCInferenceService/ModelInfer"
    bool guarded;     // needs a token if the server uses tokens
    bool streams;     // both ways
    // Decodes a message for handle(). A worker decodes long ones, so it reads nothing but its arguments.
    // NULL: no memory.
    void *(*decode)(const struct service *s, const void *bytes, size_t len);
    void (*release)(void *decoded);
    void (*handle)(struct rpc *r, void *decoded); // decoded is borrowed
    // Streams only; else NULL.
    void (*ended)(struct rpc *r);    // the client sends no more messages
    void (*writable)(struct rpc *r); // the last message has been sent; it may send again
    void (*closing)(struct rpc *r);  // the server is closing

    void (*gone)(struct rpc *r); // see above; only if r->ctx is set
};

struct rpc_reading { // a message on its way through a worker
    struct work work;
    struct rpc *rpc; // NULL: it has ended
    const struct rpc_method *method;
    const struct service *service;
    grpc_slice bytes;
    struct long_body counted; // if the message is long
    bool packed;              // compressed with gzip or deflate
    struct buf unpacked;      // its bytes, if packed
    int rc;                   // of unpacking: E_LIMIT, E_FORMAT, E_NOMEM
    void *decoded;
};

struct rpc {
    struct rpc_server *server;
    struct rpc *prev, *next;         // of the server's list
    void (*received)(struct rpc *r); // the server's: its message has come, or will never come
    void (*freed)(struct rpc *r);    // the server's: about to be freed
    struct share *share;             // its owner's (share.h), in which it waits or counts
    struct rpc *share_prev, *share_next;
    enum {
        RPC_SHARE_NONE,
        RPC_SHARE_WAITS,
        RPC_SHARE_RECEIVED, // it is being received
        RPC_SHARE_STREAM
    } share_state;
    struct service *service;
    struct guest_port *port;
    int fd;                          // of its connection (guest.h); -1: unknown
    size_t longest;                  // message that it may send
    const struct rpc_method *method; // NULL: unknown method
    grpc_call *call;
    struct auth_token as; // the caller's
    void *ctx;            // the method's
    uint64_t lane;        // of the workers: keeps its messages in order
    struct event read, sent, closed;
    grpc_byte_buffer *message, *out;
    struct rpc_reading *reading;
    // Of the message that handle() is given. Counted until handle() returns, unless it takes the count.
    size_t message_len;
    struct long_body counted;
    int cancelled;   // set by gRPC: the client has cancelled the call
    int n_pending;   // events under way
    int64_t read_us; // since when it waits for a message; 0: it does not
    int64_t out_us;  // since when a message is being sent; 0: none is
    enum {
        RPC_OPEN,
        RPC_ENDING, // the status is on its way
        RPC_OVER    // it has ended, or the client is gone
    } state;
    bool begun; // the initial metadata was sent
    bool late;  // the server's: came while it closes, and was refused
};

struct rpc_refusal {
    int status; // gRPC's; 0: none
    const char *message;
    int64_t retry_after_ms; // 0: unknown
};

// Starts the call; rpc_next() then reads its first message. The call frees itself after its end, after
// freed(). False: it has ended already.
bool rpc_start(struct rpc *r);
void rpc_cancel(struct rpc *r, int status, const char *message); // status: gRPC's; gone() follows

void rpc_next(struct rpc *r);                       // reads the next message
bool rpc_has_room(const struct rpc *r);             // no message is being sent
void rpc_send(struct rpc *r, struct buf *message);  // a stream with room; takes the bytes
void rpc_end(struct rpc *r);                        // ends a stream that has room: status OK
void rpc_reply(struct rpc *r, struct buf *message); // the only answer; takes the bytes
void rpc_refuse(struct rpc *r,
                struct rpc_refusal refusal); // ends the call with an error, as rpc_fail
// message is copied. The status belongs to the code (kserve_statuses).
void rpc_fail(struct rpc *r, enum kserve_code code, const char *message, int64_t retry_after_ms);
