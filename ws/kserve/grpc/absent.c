// A build without gRPC's libraries. See server.h.
#include "ws/kserve/grpc/server.h"

int rpc_server_open(struct rpc_server **out, struct service *s, struct err *err) {
    *out = NULL;
    if (s->config->grpc_port < 0) return 0;
    return err_set(err, E_UNSUPPORTED,
                   "grpc_port: this build has no gRPC (packages libgrpc-dev, libprotobuf-c-dev and "
                   "protobuf-c-compiler, then make again)");
}

int rpc_server_start(struct rpc_server *g, struct err *err) {
    return 0;
}

int rpc_server_port(const struct rpc_server *g) {
    return 0;
}

void rpc_server_reloaded(struct rpc_server *g) {}

void rpc_server_part(struct rpc_server *g) {}

bool rpc_server_drain(struct rpc_server *g) {
    return true;
}

void rpc_server_stop(struct rpc_server *g) {}

void rpc_server_close(struct rpc_server *g) {}

const char *rpc_server_version(void) {
    return NULL;
}
