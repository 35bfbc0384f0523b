// Safetensors files whose matrices are of few bits: a byte that names the format, then the file. Every matrix that is
// found can be read, as numbers and as codes and scales.
#include "engine/model/packed_tensors.h"
#include "tests/fuzz/fuzz.h"
#include <math.h>

enum { READ_MAX = 1 << 20 };

static int by_name(const void *a, const void *b) {
    return strcmp((*(const struct tensor *const *)a)->name,
                  (*(const struct tensor *const *)b)->name);
}

static int read_stored(const void *ctx, const struct tensor *t, size_t offset, void *out, size_t n,
                       struct err *err) {
    return safetensors_read(ctx, t, offset, out, n, err);
}

// The last row's last columns as codes and scales.
static void check_groups(const struct packed_tensors *p, const struct tensor *t) {
    struct group_format f;
    struct group_row row;
    struct packed_rows *rows = NULL;
    struct err err = {0};
    int64_t n_rows = 1;
    if (!packed_tensors_groups(p, t, &f)) return;
    for (int i = 0; i < t->n_dims - 1; i++) n_rows *= t->shape[i];
    const int64_t cols = t->shape[t->n_dims - 1], first = (cols - 1) / f.group * f.group;
    const int rc = packed_tensors_rows_open(&rows, p, t, n_rows - 1, 1, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) return;
    void *memory = group_row_alloc(&row, f.group);
    FUZZ_CHECK(memory);
    packed_tensors_row(rows, n_rows - 1, first, cols - first, &row);
    if (f.scale == GROUP_SCALE_F32) FUZZ_CHECK(isfinite(*(float *)row.scales));
    for (int64_t i = 0; i < cols - first; i++) FUZZ_CHECK(row.codes[i] < 1 << f.bits);
    free(memory);
    packed_tensors_rows_close(rows);
}

static void check_matrix(const struct packed_tensors *p, const struct tensor *t) {
    struct err err = {0};
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= (size_t)t->shape[i];
    FUZZ_CHECK(n > 0 && t->bytes == n * dtype_size(t->dtype));
    const size_t some = t->bytes < READ_MAX ? t->bytes : READ_MAX;
    char *bytes = malloc(some);
    FUZZ_CHECK(bytes);
    for (int last = 0; last < 2; last++) {
        const int rc = packed_tensors_read(p, t, last ? t->bytes - some : 0, bytes, some, &err);
        fuzz_check_err(rc, &err);
        FUZZ_CHECK(rc == 0 || rc == E_FORMAT);
        err = (struct err){0};
    }
    free(bytes);
    check_groups(p, t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum packed_format formats[] = {PACKED_AWQ, PACKED_GPTQ, PACKED_GPTQ_V2,
                                                 PACKED_BNB, PACKED_OTHER};
    struct safetensors *file = NULL;
    struct packed_tensors *p = NULL;
    struct err err = {0};
    if (size < 1) return 0;
    const enum packed_format format = formats[data[0] % (sizeof formats / sizeof *formats)];
    if (safetensors_open(&file, fuzz_file("t.safetensors", data + 1, size - 1), &err) < 0) return 0;
    const size_t n = safetensors_count(file);
    const struct tensor **stored = malloc((n + 1) * sizeof(const struct tensor *));
    FUZZ_CHECK(stored);
    for (size_t i = 0; i < n; i++) stored[i] = safetensors_at(file, i);
    qsort(stored, n, sizeof(const struct tensor *), by_name);
    const struct packed_reader reader = {read_stored, file};
    const int rc = packed_tensors_open(&p, format, stored, n, reader, &err);
    fuzz_check_err(rc, &err);
    for (size_t i = 0; p && i < packed_tensors_count(p); i++)
        if (packed_tensors_has(p, packed_tensors_at(p, i)))
            check_matrix(p, packed_tensors_at(p, i));
    packed_tensors_close(p);
    free(stored);
    safetensors_close(file);
    return 0;
}
