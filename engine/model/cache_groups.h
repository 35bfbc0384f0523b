// The cache groups of a model's layers (kvcache/groups.h).
#pragma once
#include "base/err.h"

struct kv_groups;
struct model;
struct model_config;

// Sets m->cache_groups from the layers of the model's configuration and this rank's part of them. A backend that
// reads one list of blocks for all layers (backend_ops.kv_groups) gets one group. E_UNSUPPORTED, E_NOMEM.
int model_cache_groups(struct model *m, struct err *err);

// The same of a configuration alone, for all layers. kv_groups_release gives *out back.
int model_config_cache_groups(const struct model_config *c, struct kv_groups *out, struct err *err);
