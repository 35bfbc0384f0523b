// Admits gRPC calls and requests, as for HTTP: checks the token, the owner's limits and the connection's rate.
// Net thread only.
#pragma once
#include "ws/kserve/grpc/rpc.h"

// Sets the call's owner by the token in its metadata, if the server uses tokens. Returns status 0, or the
// refusal.
struct rpc_refusal caller_admit(struct rpc *r, const grpc_metadata_array *metadata);
// Admits a request of len bytes in a stream of an admitted call.
struct rpc_refusal caller_take(struct rpc *r, size_t len);
// Called after tokens were read again. true: the call's token was removed.
bool caller_lost_token(struct rpc *r);
