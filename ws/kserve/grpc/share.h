// An owner's share of the memory in which gRPC receives messages. All connections share that memory. gRPC
// receives a call's whole message once the server asks for it, and some 64 KiB of a call that waits. So the
// server receives only a few calls of an owner at once; others wait, and further ones are refused. A stream may
// begin a message at any time. So if tokens tell owners apart, the number of an owner's streams is limited such
// that the others have half of the memory.
//
// gRPC refuses a message that is longer than it may be once it has come, or when the memory is full. Where
// inferences may be longer than max_message_bytes (kserve_infer_bytes), the memory has more room, and an owner
// fewer calls and streams, so that the others still have half of it.
//
// Net thread only.
#pragma once
#include "ws/kserve/grpc/rpc.h"

#define SHARE_RECEIVED 4  // calls of an owner at once
#define SHARE_WAITING 512 // calls of an owner that wait
#define SHARE_STREAMS 64  // of an owner
// The same where messages may be long and tokens tell owners apart.
#define SHARE_LONG_RECEIVED 2
#define SHARE_LONG_STREAMS 4
#define SHARE_LONG_MESSAGES (2 * (SHARE_LONG_RECEIVED + SHARE_LONG_STREAMS)) // of all owners
// Bytes for the messages of all owners: these, and those of so many of the longest messages.
#define SHARE_MEMORY (48u << 20)
#define SHARE_MESSAGES 64

struct shares { // zeroed: empty
    struct share *by_owner;
    bool long_messages; // of several owners
};
void shares_release(struct shares *all); // after all calls have left

// Enters an admitted call: its message is received now or later, or the call is refused. Status 0: the caller
// calls share_leave later.
struct rpc_refusal share_enter(struct shares *all, struct rpc *r);
void share_received(struct rpc *r); // its message has come; no effect on a stream
void share_leave(struct rpc *r);    // called when it is freed; no effect unless it entered
