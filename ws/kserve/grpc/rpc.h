// One call of gRPC: its messages in, its messages out, its end. Messages are read one at a time, when
// they are asked for, and written one at a time, so that a slow client costs a cursor and not memory.
// Net thread only, except decode().
//
// The end is exactly one of: the status that the method sends (rpc_reply, rpc_end, rpc_fail), or gone(),
// when the client has cancelled the call or has vanished.
#pragma once
#include "base/buf.h"
#include "base/workers.h"
#include "ws/kserve/code.h"
#include "ws/kserve/grpc/events.h"
#include "ws/net/auth.h"

struct rpc;
struct rpc_server;
struct guest_port;
struct service;

struct rpc_method {
    const char *path; // "/inference.GRPCInferenceService/ModelInfer"
    bool guarded;     // where tokens are in use, one is needed
    bool streams;     // both ways
    // A message; what handle() gets. A long one is decoded on a worker's thread, so it reads nothing but
    // its arguments. NULL: no memory.
    void *(*decode)(const struct service *s, const void *bytes, size_t len);
    void (*release)(void *decoded);
    void (*handle)(struct rpc *r, void *decoded); // decoded is its own
    // Of streams. NULL in others.
    void (*ended)(struct rpc *r);    // the client sends no more messages
    void (*writable)(struct rpc *r); // what was sent has left; it may send again
    void (*closing)(struct rpc *r);  // the server ends
    void (*gone)(struct rpc *r);
};

struct rpc_reading { // a message on its way through a worker
    struct work work;
    struct rpc *rpc; // NULL: it has ended
    const struct rpc_method *method;
    const struct service *service;
    grpc_slice bytes;
    bool packed;         // gzip or deflate
    struct buf unpacked; // then its bytes
    int rc;              // of unpacking: E_LIMIT, E_FORMAT, E_NOMEM
    void *decoded;
};

struct rpc {
    struct rpc_server *server;
    struct rpc *prev, *next;         // of the server's list
    void (*received)(struct rpc *r); // the server's: its message is there, or never will be
    void (*freed)(struct rpc *r);    // the last of it
    struct share *share;             // its owner's (share.h), where it waits or counts
    struct rpc *share_prev, *share_next;
    enum {
        RPC_SHARE_NONE,
        RPC_SHARE_WAITS,
        RPC_SHARE_RECEIVED, // it is being received
        RPC_SHARE_STREAM
    } share_state;
    struct service *service;
    struct guest_port *port;
    const struct rpc_method *method; // NULL: there is no such one
    grpc_call *call;
    struct auth_token as; // whose call it is
    void *ctx;            // the method's
    uint64_t lane;        // of the workers
    struct event read, sent, closed;
    grpc_byte_buffer *message, *out;
    struct rpc_reading *reading;
    size_t message_len; // of the message that handle() is given
    int cancelled;      // set by gRPC
    int n_pending;      // events under way
    int64_t read_us,
        out_us; // since when a message or the client's room is waited for; 0: it is not
    enum {
        RPC_OPEN,
        RPC_ENDING, // the status is on its way
        RPC_OVER    // it has ended, or the client is gone
    } state;
    bool begun; // the initial metadata is sent
};

struct rpc_refusal {
    int status; // gRPC's; 0: none
    const char *message;
    int64_t retry_after_ms; // 0: it is not known
};

// Watches it; rpc_next() reads its first message. It frees itself when it is over, after
// freed(). False: it is over.
bool rpc_start(struct rpc *r);
void rpc_cancel(struct rpc *r, int status, const char *message); // gone() follows

void rpc_next(struct rpc *r); // reads the next message
bool rpc_has_room(const struct rpc *r);
void rpc_send(struct rpc *r, struct buf *message);  // a stream with room; takes the bytes
void rpc_end(struct rpc *r);                        // of a stream, behind what is sent
void rpc_reply(struct rpc *r, struct buf *message); // the only answer; takes the bytes
void rpc_refuse(struct rpc *r, struct rpc_refusal refusal);
void rpc_fail(struct rpc *r, enum kserve_code code, const char *message, int64_t retry_after_ms);
