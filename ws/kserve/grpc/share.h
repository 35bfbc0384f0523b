// An owner's share of the memory in which gRPC receives messages; all connections have it in common. gRPC
// receives a call's whole message once the server asks for it, and some 64 KiB of a call that waits. So
// only a few calls of an owner are received at once; others wait for these, and further ones are refused. A stream may begin a message at any time, so where tokens tell owners apart, each may
// have as many streams as leave the others half of the memory.
//
// gRPC refuses a message that claims to be longer than max_message_bytes once it has come, or when the
// memory is full.
//
// Net thread only.
#pragma once
#include "ws/kserve/grpc/rpc.h"

#define SHARE_RECEIVED 4         // calls of an owner at once
#define SHARE_WAITING 512        // and those that wait
#define SHARE_STREAMS 64         // of an owner
#define SHARE_MEMORY (48u << 20) // of all, and
#define SHARE_MESSAGES 64        // of the longest messages

struct shares { // zeroed: empty
    struct share *by_owner;
};
void shares_release(struct shares *all);

// A call that was admitted: its message is received now or later, or it is refused. Status 0: share_leave
// follows.
struct rpc_refusal share_enter(struct shares *all, struct rpc *r);
void share_received(struct rpc *r); // its message is there; ignored of a stream
void share_leave(struct rpc *r);    // it is freed. Ignored unless it entered
