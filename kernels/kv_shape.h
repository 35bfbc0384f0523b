// What a cache must be on any device.
#pragma once
#include "kernels/backend.h"

// The cache's type and sizes. device: for the error, as "the GPU". E_UNSUPPORTED, E_INVAL.
int kv_shape_check(const struct kv_store *kv, const char *device, struct err *err);
