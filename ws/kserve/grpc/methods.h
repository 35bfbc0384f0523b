// The methods that are served, a row each, and the small ones among them: health, metadata,
// configuration, statistics. Net thread only.
#pragma once
#include "ws/kserve/grpc/rpc.h"

const struct rpc_method *method_find(const char *path, size_t len); // NULL: there is none
