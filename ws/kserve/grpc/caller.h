// Who calls, and what its owner's limits and its connection's rate let it do: as for HTTP. Net thread
// only.
#pragma once
#include "ws/kserve/grpc/rpc.h"

// The connection of a call; NULL: it has ended.
struct peer *caller_peer(const struct rpc *r);
// The owner of the token in the call's metadata, where one is needed. Status 0, or the refusal.
struct rpc_refusal caller_admit(struct rpc *r, const grpc_metadata_array *metadata);
// A request in a stream that was admitted, of len bytes.
struct rpc_refusal caller_take(struct rpc *r, size_t len);
// Tokens were read again. true: the call's was removed.
bool caller_lost_token(struct rpc *r);
