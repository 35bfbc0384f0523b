// The gRPC port, which serves KServe v2 as Triton does. Parley's own listener accepts connections, so that
// TLS, tokens and limits are those of the HTTP port. gRPC's C core speaks HTTP/2 over the sockets, and its
// events come to the net thread (events.h). Net thread only.
#pragma once
#include "ws/service.h"

struct rpc_server;

// Binds config->grpc_port. *out is NULL if that is -1. E_UNSUPPORTED: this build has no gRPC.
int rpc_server_open(struct rpc_server **out, struct service *s, struct err *err);
// Call once the engine and the sessions are open. 0 or a negative E_*.
int rpc_server_start(struct rpc_server *g, struct err *err);
int rpc_server_port(const struct rpc_server *g); // 0: there is none. g may be NULL, here and below
void rpc_server_reloaded(struct rpc_server *g);  // tokens were read again
// The server was told to end: stops listening, and tells each client by GOAWAY to make further calls elsewhere. Calls that
// were under way by then are served.
void rpc_server_part(struct rpc_server *g);
// Behind rpc_server_part. Streams end with their last answer; calls that still come, from clients that could not be told,
// get UNAVAILABLE. Call it again every few ms until it returns true: no accepted call is open, and no connection, or for a
// second.
bool rpc_server_drain(struct rpc_server *g);
void rpc_server_stop(struct rpc_server *g);  // cuts connections, cancels open calls, waits for gRPC
void rpc_server_close(struct rpc_server *g); // after the loop has closed its handles
const char *rpc_server_version(void);        // gRPC's; NULL: this build has none
