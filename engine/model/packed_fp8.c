// Matrices of e4m3 numbers in folders that mix formats. See packed_tensors.h.
#include "engine/model/packed_tensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_name(const void *key, const void *at) {
    return strcmp(key, (*(const struct tensor *const *)at)->name);
}

bool packed_fp8_stays(const struct tensor *t, const struct tensor *const *stored, size_t n) {
    char name[320];
    const int len = snprintf(name, sizeof name, "%s" PACKED_FP8_END, t->name);
    if (t->dtype != DTYPE_F8_E4M3 || t->n_dims != 2 || (size_t)len >= sizeof name) return false;
    const struct tensor *const *at = bsearch(name, stored, n, sizeof *stored, compare_name);
    const struct tensor *s = at ? *at : NULL;
    if (!s || (s->dtype != DTYPE_F32 && s->dtype != DTYPE_F16 && s->dtype != DTYPE_BF16))
        return false;
    if (s->n_dims == 2) return s->shape[0] == t->shape[0] && s->shape[1] == 1;
    return s->n_dims == 0 || (s->n_dims == 1 && (s->shape[0] == 1 || s->shape[0] == t->shape[0]));
}
