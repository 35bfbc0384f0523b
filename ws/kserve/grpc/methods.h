// The table of methods, and the handlers of the small ones: health, metadata, configuration, statistics. Net
// thread only.
#pragma once
#include "ws/kserve/grpc/rpc.h"

const struct rpc_method *method_find(const char *path, size_t len); // NULL: there is none
