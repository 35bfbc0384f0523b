// Loads matrices that are stored in few bits as such. See loader.h.
#include "base/log.h"
#include "base/parallel.h"
#include "engine/model/loader.h"
#include <stdlib.h>

#define STRIP_BYTES ((size_t)32 << 20) // of rows in F32 at a time

// The source of one part's rows, for the backend's workers.
struct part_rows {
    const struct part *part;
    struct checkpoint_rows *rows;
};

static int read_row(const void *ctx, int64_t row, struct group_row *out, struct err *err) {
    const struct part_rows *p = ctx;
    const struct range cols = p->part->cols;
    row = part_tensor_row(p->part, p->part->rows.first + (int32_t)row);
    return checkpoint_rows_read(p->rows, row, cols.first, cols.count, out, err);
}

// Why the parts cannot be kept in few bits; NULL: they can.
static const char *refusal(const struct loader *l, const struct part *parts,
                           const struct tensor *const *tensors, int n) {
    struct group_format first = {0}, f;
    int32_t rows = 0;
    for (int i = 0; i < n; rows += parts[i++].rows.count) {
        const struct part *p = &parts[i];
        if (!checkpoint_groups(l->cp, tensors[i], &f))
            return "no groups of 16 or more columns in order";
        const int32_t unit = f.scale == GROUP_SCALE_NESTED ? GROUP_TILE_K : f.group;
        if (p->transposed) return "it lies the other way round";
        if (p->cols.first % unit || (p->cols.count % unit && p->cols.count != p->n_cols))
            return "this rank's columns begin or end within a group";
        if (i == 0) first = f;
        if (!group_format_equal(&f, &first) && rows % GROUP_PANEL)
            return "the formats of its parts differ";
    }
    return NULL;
}

static int stored_in_groups(const struct loader *l, const struct tensor *const *tensors, int n) {
    struct group_format f;
    int stored = 0;
    for (int i = 0; i < n; i++) stored += checkpoint_groups(l->cp, tensors[i], &f);
    return stored;
}

bool loader_groups_agree(const struct loader *l, const struct part *parts,
                         const struct tensor *const *tensors, int n) {
    const int stored = stored_in_groups(l, tensors, n);
    return stored == 0 || (stored == n && !refusal(l, parts, tensors, n));
}

bool loader_groups(const struct loader *l, const struct part *parts,
                   const struct tensor *const *tensors, int n) {
    char quoted[TENSOR_NAME_MAX];
    const int stored = stored_in_groups(l, tensors, n);
    if (stored == 0) return false;
    const uint32_t features = l->m->backend->ops->features;
    const uint32_t wanted = parts[0].embedding   ? OP_GROUPS | OP_GROUPS_EMBED
                            : parts[0].looked_up ? OP_GROUPS
                            : parts[0].expert    ? OP_GROUPS | OP_GROUPS_EXPERTS
                                                 : OP_GROUPS | OP_GROUPS_LINEAR;
    const char *why = !(features & (OP_GROUPS | OP_GROUPS_LINEAR))
                          ? "the device has no weights of few bits"
                      : !(features & wanted)
                          ? "the device has them in embeddings, linear layers and experts alone"
                      : stored < n ? "it is stacked with matrices of floats"
                                   : refusal(l, parts, tensors, n);
    if (why && l->packing)
        log_info("model.widened", "tensor=%s to=f32 because=%s",
                 log_quote(quoted, sizeof quoted, tensors[0]->name), why);
    return !why;
}

// Opens the rows of part i and of all parts behind it that lie in the same tensor, which share them: those of an
// expert alternate in gpt-oss's.
static int open_rows(const struct loader *l, struct part_rows *rows, const struct part *parts,
                     const struct tensor *const *tensors, int i, int n, struct err *err) {
    int64_t first = INT64_MAX, end = 0;
    for (int k = i; k < n; k++) {
        if (tensors[k] != tensors[i]) continue;
        const struct range r = parts[k].rows;
        const int64_t from = part_tensor_row(&parts[k], r.first),
                      to = part_tensor_row(&parts[k], r.first + r.count - 1) + 1;
        first = from < first ? from : first;
        end = to > end ? to : end;
    }
    TRY(checkpoint_rows_open(&rows[i].rows, l->cp, tensors[i], first, end - first, err));
    for (int k = i + 1; k < n; k++)
        if (tensors[k] == tensors[i]) rows[k].rows = rows[i].rows;
    return 0;
}

static void close_rows(struct part_rows *rows, int n) {
    for (int i = 0; i < n; i++) {
        bool shared = false;
        for (int k = 0; k < i; k++) shared |= rows[k].rows == rows[i].rows;
        if (!shared) checkpoint_rows_close(rows[i].rows);
    }
}

int loader_pack_groups(struct loader *l, struct weight *w, const struct part *parts,
                       const struct tensor *const *tensors, int n, struct err *err) {
    struct group_source sources[LOADER_MAX_PARTS];
    struct part_rows rows[LOADER_MAX_PARTS] = {{0}};
    struct tensor_view views[LOADER_MAX_PARTS] = {{0}};
    struct backend *be = l->m->backend;
    struct weight packed = {0};
    size_t bytes = 0;
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rows[i].part = &parts[i];
        sources[i] = (struct group_source){.row = read_row, .ctx = &rows[i]};
        checkpoint_groups(l->cp, tensors[i], &sources[i].format);
        views[i] = (struct tensor_view){.data = &sources[i],
                                        .dtype = DTYPE_U8,
                                        .rows = parts[i].rows.count,
                                        .cols = parts[i].cols.count};
        bytes += (size_t)parts[i].rows.count * (size_t)parts[i].cols.count * sizeof(float);
        if (!rows[i].rows) rc = open_rows(l, rows, parts, tensors, i, n, err);
    }
    if (rc == 0) rc = be->ops->weight_init(be, &packed, views, n, err);
    close_rows(rows, n);
    if (rc < 0) return rc;
    *w = packed;
    l->m->weight_bytes += w->bytes;
    loader_step(l, bytes);
    return 0;
}

// --- as numbers of 16 bits ---

bool loader_halves(const struct loader *l, const struct part *parts,
                   const struct tensor *const *tensors, int n) {
    const enum dtype t = l->m->backend->act_dtype;
    if ((t != DTYPE_BF16 && t != DTYPE_F16) || l->widen) return false;
    for (int i = 0; i < n; i++)
        if (parts[i].transposed || tensors[i]->dtype != DTYPE_F32) return false;
    return stored_in_groups(l, tensors, n) == n;
}

// Whole rows of a tensor, and where their columns go.
struct strip {
    const struct part *part;
    enum dtype dtype;
    const float *rows; // (n, part->n_cols)
    uint16_t *to;      // (n, part->cols.count)
};

static void round_rows(void *ctx, int64_t at, int64_t n) {
    const struct strip *s = ctx;
    const int64_t cols = s->part->cols.count;
    for (int64_t r = at; r < at + n; r++) {
        const float *from = s->rows + r * s->part->n_cols + s->part->cols.first;
        uint16_t *to = s->to + r * cols;
        if (s->dtype == DTYPE_BF16)
            for (int64_t c = 0; c < cols; c++) to[c] = bf16_from_f32(from[c]);
        else
            for (int64_t c = 0; c < cols; c++) to[c] = f16_from_f32(from[c]);
    }
}

// How many of the part's rows from r on, at most n, follow each other in the tensor too.
static int32_t run_of(const struct part *p, int32_t r, int32_t n) {
    const int32_t first = part_tensor_row(p, r);
    int32_t run = 1;
    while (run < n && part_tensor_row(p, r + run) == first + run) run++;
    return run;
}

static int read_halves(struct loader *l, const struct tensor *t, const struct part *p, float *rows,
                       int32_t most, uint16_t *to, struct err *err) {
    const size_t row_bytes = (size_t)p->n_cols * sizeof *rows;
    const int32_t end = p->rows.first + p->rows.count;
    for (int32_t r = p->rows.first, n; r < end; r += n) {
        n = run_of(p, r, end - r < most ? end - r : most);
        TRY(checkpoint_read(l->cp, t, (size_t)part_tensor_row(p, r) * row_bytes, rows,
                            (size_t)n * row_bytes, err));
        struct strip s = {p, l->m->backend->act_dtype, rows, to};
        parallel_ranges(n, (1 << 18) / p->n_cols + 1, round_rows, &s);
        to += (int64_t)n * p->cols.count;
    }
    return 0;
}

int loader_pack_halves(struct loader *l, struct weight *w, const struct part *parts,
                       const struct tensor *const *tensors, int n, struct err *err) {
    struct tensor_view views[LOADER_MAX_PARTS];
    struct backend *be = l->m->backend;
    const size_t row_bytes = (size_t)parts[0].n_cols * sizeof(float);
    const int32_t most = (int32_t)(STRIP_BYTES / row_bytes) + 1;
    struct weight packed = {0};
    size_t values = 0, at = 0;
    for (int i = 0; i < n; i++) values += (size_t)parts[i].rows.count * (size_t)parts[i].cols.count;
    TRY(loader_stage(l, values * sizeof(uint16_t), err));
    float *rows = malloc((size_t)most * row_bytes);
    if (!rows) return err_set(err, E_NOMEM, "no memory for %d rows of a matrix", most);
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        const struct part *p = &parts[i];
        uint16_t *to = (uint16_t *)(void *)l->staging + at;
        rc = read_halves(l, tensors[i], p, rows, most, to, err);
        views[i] = (struct tensor_view){
            to, be->act_dtype, p->rows.count, p->cols.count, p->cols.count, 1, NULL, 0};
        at += (size_t)p->rows.count * (size_t)p->cols.count;
    }
    free(rows);
    if (rc == 0) rc = be->ops->weight_init(be, &packed, views, n, err);
    if (rc < 0) return rc;
    *w = packed;
    l->m->weight_bytes += w->bytes;
    loader_step(l, values * sizeof(float));
    return 0;
}
