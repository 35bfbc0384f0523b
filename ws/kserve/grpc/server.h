// The port of gRPC: KServe v2 as Triton serves it there. Our own listener accepts, so that TLS, tokens
// and limits are those of the other port; gRPC's C core speaks HTTP/2 over the sockets; its events come
// to the net thread (events.h). Net thread only.
#pragma once
#include "ws/service.h"

struct rpc_server;

// Binds config->grpc_port. *out is NULL where that is -1. E_UNSUPPORTED: this build has no gRPC.
int rpc_server_open(struct rpc_server **out, struct service *s, struct err *err);
int rpc_server_start(struct rpc_server *g,
                     struct err *err);           // the engine and the sessions are there
int rpc_server_port(const struct rpc_server *g); // 0: there is none. NULL is fine, below too
void rpc_server_reloaded(struct rpc_server *g);  // tokens were read again
// Takes no more connections and calls, and says so (GOAWAY); streams end with their last answer.
void rpc_server_drain(struct rpc_server *g);
bool rpc_server_is_idle(const struct rpc_server *g); // no call is open
void rpc_server_stop(struct rpc_server *g);          // cancels the others, and waits for gRPC
void rpc_server_close(struct rpc_server *g);         // when the loop has closed its handles
const char *rpc_server_version(void);                // gRPC's; NULL: this build has none
