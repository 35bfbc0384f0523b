// An owner's share of the memory in which gRPC receives messages, which all connections have in common.
// gRPC takes what a call's client sends once its message has been asked for; of a call that waits, some
// 64 KiB. So few of an owner's calls are received at once, the others wait for these, and calls beyond
// are refused. A stream may begin a message at any time, so where tokens tell owners apart, each may
// have as many streams as leave the others half of the memory.
//
// A message that claims to be longer than max_message_bytes is refused by gRPC once it has come, or when
// the memory is full, whoever sends it.
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
