// What `weight_init` may be given, whichever backend takes it.
#pragma once
#include "base/err.h"
#include "kernels/backend.h"

// The rows of all parts (n_parts views, one on top of the other) into *rows, after checking that
// they are one matrix: one dtype that `device` (as a reader would call it: "the GPU") has kernels
// for, the same columns, scales where they have 8 bits, and no more than max_rows rows.
// E_INVAL: no parts, shapes or scales that do not fit. E_UNSUPPORTED: a dtype, parts of several
// dtypes, scales for other runs of columns than kernels/fp8.h's. E_LIMIT: too large.
int weight_parts_check(const struct tensor_view *parts, int n_parts, int64_t max_rows,
                       const char *device, int64_t *rows, struct err *err);
