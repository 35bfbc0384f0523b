// Inferences over gRPC: ModelInfer, and the requests of a ModelStreamInfer, which run concurrently.
// Net thread only, except decoding.
#pragma once
#include "ws/kserve/grpc/rpc.h"

// Members of rpc_method (rpc.h).
void *exchange_decode(const struct service *s, const void *bytes, size_t len);
void exchange_release(void *decoded);
void exchange_handle(struct rpc *r, void *decoded);
void exchange_gone(struct rpc *r);

// The same of a stream. Its messages are handled as they come; answers wait in the stream until it is writable.
void *stream_decode(const struct service *s, const void *bytes, size_t len);
void stream_handle(struct rpc *r, void *decoded);
void stream_ended(struct rpc *r);
void stream_writable(struct rpc *r);
void stream_closing(struct rpc *r);
void stream_gone(struct rpc *r);
