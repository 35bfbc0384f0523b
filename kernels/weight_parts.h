// Checks the arguments of `weight_init`, for all backends.
#pragma once
#include "base/err.h"
#include "kernels/backend.h"

// Checks that n_parts stacked views form one matrix and puts its rows into *rows. All parts have
// one dtype that `device` (its name in sentences, "the GPU") supports, the same columns and, with 8
// bits, scales; together they have at most max_rows rows. E_INVAL: no parts, or shapes or scales
// that do not match. E_UNSUPPORTED: the dtype, several dtypes, or scale blocks other than
// kernels/fp8.h's. E_LIMIT: too large.
int weight_parts_check(const struct tensor_view *parts, int n_parts, int64_t max_rows,
                       const char *device, int64_t *rows, struct err *err);
