// Loads matrices that are stored in few bits as such. See loader.h.
#include "base/log.h"
#include "engine/model/loader.h"

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
    const uint32_t wanted = parts[0].not_linear || parts[0].looked_up ? OP_GROUPS
                            : parts[0].expert ? OP_GROUPS | OP_GROUPS_EXPERTS
                                              : OP_GROUPS | OP_GROUPS_LINEAR;
    const char *why =
        !(features & (OP_GROUPS | OP_GROUPS_LINEAR)) ? "the device has no weights of few bits"
        : !(features & wanted) ? "the device has them in linear layers and experts alone"
        : stored < n           ? "it is stacked with matrices of floats"
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
