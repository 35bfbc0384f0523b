// Parts of tensors onto the backend. See loader.h.
#include "engine/model/loader.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define STAGING_ALIGNMENT 64

// The tensor's row that is the part's row r.
static int32_t tensor_row(const struct part *p, int32_t r) {
    return p->group ? p->first + r / p->group * p->stride + r % p->group : r;
}

// --- finding and checking ---

static int check_shape(const struct tensor *t, const struct part *p, struct err *err) {
    int n_dims = p->n_cols ? 2 : 1;
    int32_t rows = p->transposed ? p->n_cols : p->n_rows;
    int32_t cols = p->transposed ? p->n_rows : p->n_cols;
    if (t->n_dims == n_dims && t->shape[0] == rows && (n_dims == 1 || t->shape[1] == cols))
        return 0;
    char has[128] = "";
    for (int d = 0, at = 0; d < t->n_dims && at < 100; d++)
        at += snprintf(has + at, sizeof has - (size_t)at, "%s%lld", d ? ", " : "",
                       (long long)t->shape[d]);
    if (n_dims == 1)
        return err_set(err, E_FORMAT, "the tensor '%s' has the shape (%s), not (%d)", t->name, has,
                       rows);
    return err_set(err, E_FORMAT, "the tensor '%s' has the shape (%s), not (%d, %d)", t->name, has,
                   rows, cols);
}

static int find_part(struct loader *l, int32_t layer, const struct part *p, const char *suffix,
                     const struct tensor **out, struct err *err) {
    char name[TENSOR_NAME_MAX];
    const struct tensor *t =
        checkpoint_find(l->cp, family_tensor_name(name, l->names, layer, p->stem, suffix));
    if (!t) return err_set(err, E_NOTFOUND, "the tensor '%s' is missing", name);
    TRY(check_shape(t, p, err));
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return err_set(err, E_UNSUPPORTED,
                       "the tensor '%s' is stored as %s; known are f32, f16, bf16", t->name,
                       dtype_name(t->dtype));
    l->used[checkpoint_index(l->cp, t)] = true;
    *out = t;
    return 0;
}

static size_t slice_bytes(const struct tensor *t, const struct part *p) {
    return (size_t)p->rows.count * (size_t)(p->n_cols ? p->cols.count : 1) * dtype_size(t->dtype);
}

// --- reading ---

// Grows the staging area; it keeps no content. By mmap, so that giving it back gives memory back.
static int stage(struct loader *l, size_t bytes, struct err *err) {
    if (bytes <= l->staging_bytes) return 0;
    if (l->staging) munmap(l->staging, l->staging_bytes);
    l->staging_bytes = 0;
    l->staging = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (l->staging == MAP_FAILED) {
        l->staging = NULL;
        return err_set(err, E_NOMEM, "no memory for %zu bytes of staging", bytes);
    }
    l->staging_bytes = bytes;
    return 0;
}

void loader_unstage(struct loader *l) {
    if (l->staging) munmap(l->staging, l->staging_bytes);
    l->staging = NULL;
    l->staging_bytes = 0;
}

void loader_step(struct loader *l, size_t bytes) {
    l->done += (int64_t)bytes;
    if (l->progress) l->progress(l->ctx, l->done, l->total);
}

// Of the rows as stored, those of the slice are read whole; where it has some columns only, the
// view strides over the others.
static size_t stored_row_bytes(const struct tensor *t, const struct part *p) {
    int32_t cols = p->transposed ? p->n_rows : p->n_cols ? p->n_cols : 1;
    return (size_t)cols * dtype_size(t->dtype);
}

static size_t staged_bytes(const struct tensor *t, const struct part *p) {
    int32_t rows = p->transposed ? p->cols.count : p->rows.count;
    return (size_t)rows * stored_row_bytes(t, p);
}

static size_t staged_room(const struct tensor *t, const struct part *p) {
    return (staged_bytes(t, p) + STAGING_ALIGNMENT - 1) / STAGING_ALIGNMENT * STAGING_ALIGNMENT;
}

static int read_part(struct loader *l, const struct tensor *t, const struct part *p, void *to,
                     struct err *err) {
    size_t row = stored_row_bytes(t, p);
    if (p->transposed)
        return checkpoint_read(l->cp, t, (size_t)p->cols.first * row, to, staged_bytes(t, p), err);
    int32_t end = p->rows.first + p->rows.count;
    for (int32_t r = p->rows.first, n; r < end; r += n) {
        n = p->group && p->group - r % p->group < end - r ? p->group - r % p->group : end - r;
        size_t from = (size_t)tensor_row(p, r) * row;
        TRY(checkpoint_read(l->cp, t, from, to, (size_t)n * row, err));
        to = (char *)to + (size_t)n * row;
    }
    return 0;
}

// --- matrices ---

// The first element of the slice in what is staged, and the strides from there on.
static struct tensor_view view_of(const struct tensor *t, const struct part *p,
                                  const char *staged) {
    size_t skip = (size_t)(p->transposed ? tensor_row(p, p->rows.first) : p->cols.first);
    return (struct tensor_view){
        .data = staged + skip * dtype_size(t->dtype),
        .dtype = t->dtype,
        .rows = p->rows.count,
        .cols = p->cols.count,
        .row_stride = p->transposed ? 1 : p->n_cols,
        .col_stride = p->transposed ? p->n_rows : 1,
    };
}

static int pack_matrix(struct loader *l, struct weight *w, const struct part *parts, int n,
                       const struct tensor *const *tensors, struct err *err) {
    struct tensor_view views[LOADER_MAX_PARTS];
    struct backend *be = l->m->backend;
    size_t room = 0, at = 0, bytes = 0;
    for (int i = 0; i < n; i++) room += staged_room(tensors[i], &parts[i]);
    TRY(stage(l, room, err));
    for (int i = 0; i < n; i++) {
        const struct part *p = &parts[i];
        // Stored the other way round, every part of a tensor needs all that is read of it.
        bool staged = i > 0 && p->transposed && tensors[i] == tensors[i - 1];
        if (!staged && i > 0) at += staged_room(tensors[i - 1], &parts[i - 1]);
        if (!staged) TRY(read_part(l, tensors[i], p, l->staging + at, err));
        views[i] = view_of(tensors[i], p, l->staging + at);
        bytes += slice_bytes(tensors[i], p);
    }
    struct weight packed = {0};
    TRY(be->ops->weight_init(be, &packed, views, n, err));
    *w = packed;
    l->m->weight_bytes += w->bytes;
    loader_step(l, bytes);
    return 0;
}

int loader_matrix(struct loader *l, struct weight *w, int32_t layer, const struct part *parts,
                  int n, struct err *err) {
    const struct tensor *tensors[LOADER_MAX_PARTS];
    for (int i = 0; i < n; i++) {
        TRY(find_part(l, layer, &parts[i], "weight", &tensors[i], err));
        if (tensors[i]->dtype != tensors[0]->dtype)
            return err_set(err, E_UNSUPPORTED,
                           "the tensors '%s' (%s) and '%s' (%s) must be of one dtype",
                           tensors[0]->name, dtype_name(tensors[0]->dtype), tensors[i]->name,
                           dtype_name(tensors[i]->dtype));
        if (w && !l->packing) l->total += (int64_t)slice_bytes(tensors[i], &parts[i]);
    }
    return w && l->packing ? pack_matrix(l, w, parts, n, tensors, err) : 0;
}

// --- vectors: norms and biases, f32 on the device ---

static void to_f32(float *out, const void *in, enum dtype dtype, size_t n) {
    const uint16_t *half = in;
    if (dtype == DTYPE_F32) memcpy(out, in, n * sizeof *out);
    if (dtype == DTYPE_BF16)
        for (size_t i = 0; i < n; i++) out[i] = bf16_to_f32(half[i]);
    if (dtype == DTYPE_F16)
        for (size_t i = 0; i < n; i++) out[i] = f16_to_f32(half[i]);
}

int loader_to_device(struct model *m, float **out, const float *values, size_t n, struct err *err) {
    void *p = NULL;
    TRY(m->backend->ops->mem_alloc(m->backend, n * sizeof *values, &p, err));
    int rc = m->backend->ops->mem_write(m->backend, p, values, n * sizeof *values);
    if (rc < 0) {
        m->backend->ops->mem_free(m->backend, p);
        return err_set(err, rc, "the backend %s cannot take %zu bytes", m->backend->ops->name,
                       n * sizeof *values);
    }
    *out = p;
    m->weight_bytes += n * sizeof *values;
    return 0;
}

static int pack_vector(struct loader *l, float **out, const struct part *parts, int n,
                       const struct tensor *const *tensors, struct err *err) {
    size_t count = 0, at = 0, room = 0, bytes = 0;
    for (int i = 0; i < n; i++) {
        count += slice_bytes(tensors[i], &parts[i]) / dtype_size(tensors[i]->dtype);
        bytes += slice_bytes(tensors[i], &parts[i]);
        if (staged_room(tensors[i], &parts[i]) > room) room = staged_room(tensors[i], &parts[i]);
    }
    TRY(stage(l, room, err));
    float *values = malloc(count * sizeof *values);
    if (!values) return err_set(err, E_NOMEM, "no memory for a vector of %zu", count);
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = read_part(l, tensors[i], &parts[i], l->staging, err);
        if (rc < 0) break;
        size_t values_here = slice_bytes(tensors[i], &parts[i]) / dtype_size(tensors[i]->dtype);
        to_f32(values + at, l->staging, tensors[i]->dtype, values_here);
        at += values_here;
    }
    if (rc == 0) rc = loader_to_device(l->m, out, values, count, err);
    free(values);
    if (rc == 0) loader_step(l, bytes);
    return rc;
}

int loader_vector(struct loader *l, float **out, int32_t layer, const struct part *parts, int n,
                  const char *suffix, struct err *err) {
    const struct tensor *tensors[LOADER_MAX_PARTS];
    struct part vectors[LOADER_MAX_PARTS];
    for (int i = 0; i < n; i++) {
        vectors[i] = parts[i];
        vectors[i].n_cols = 0;
        vectors[i].transposed = false;
        TRY(find_part(l, layer, &vectors[i], suffix, &tensors[i], err));
        if (out && !l->packing) l->total += (int64_t)slice_bytes(tensors[i], &vectors[i]);
    }
    return out && l->packing ? pack_vector(l, out, vectors, n, tensors, err) : 0;
}

int loader_table(struct loader *l, float **out, const struct part *p, struct err *err) {
    const struct tensor *t;
    TRY(find_part(l, -1, p, "weight", &t, err));
    if (out && !l->packing) l->total += (int64_t)slice_bytes(t, p);
    return out && l->packing ? pack_vector(l, out, p, 1, &t, err) : 0;
}
