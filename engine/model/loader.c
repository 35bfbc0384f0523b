// Parts of tensors onto the backend. See loader.h.
#include "engine/model/loader.h"
#include "base/log.h"
#include "kernels/fp8.h"
#include "kernels/int8.h"
#include <stdlib.h>
#include <sys/mman.h>

#define STAGING_ALIGNMENT 64
#define POPULATE_BYTES ((size_t)8 << 20) // of a mapped matrix at a time

// --- finding and checking ---

static void note_found(struct loader *l, const struct tensor *t) {
    size_t i = checkpoint_index(l->cp, t);
    if (l->roles[i] != TENSOR_UNUSED) return;
    l->roles[i] = TENSOR_OTHER;
    if (l->order) l->order[l->n_found++] = i;
}

static int find_part(struct loader *l, int32_t layer, const struct part *p, const char *suffix,
                     const struct tensor **out, struct err *err) {
    TRY(part_find(p, l->cp, l->names, layer, suffix, &l->m->config, out, err));
    note_found(l, *out);
    return 0;
}

static size_t slice_bytes(const struct tensor *t, const struct part *p) {
    return (size_t)p->rows.count * (size_t)(p->n_cols ? p->cols.count : 1) * dtype_size(t->dtype);
}

// --- reading ---

// By mmap, so that giving it back gives memory back.
int loader_stage(struct loader *l, size_t bytes, struct err *err) {
    if (bytes <= l->staging_bytes) return 0;
    if (l->staging) munmap(l->staging, l->staging_bytes);
    l->staging_bytes = 0;
    l->staging = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (l->staging == MAP_FAILED) {
        l->staging = NULL;
        return err_set(err, E_NOMEM, "no memory for %zu bytes of staging", bytes);
    }
    madvise(l->staging, bytes, MADV_HUGEPAGE); // only advice
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

static size_t aligned(size_t bytes) {
    return (bytes + STAGING_ALIGNMENT - 1) / STAGING_ALIGNMENT * STAGING_ALIGNMENT;
}

// Leaves room for one panel after rows that are stored in panels.
static size_t staged_room(const struct tensor *t, const struct part *p) {
    size_t panel = part_is_panels(t) ? (size_t)int8_panel_bytes(p->n_cols) : 0;
    return aligned(staged_bytes(t, p)) + panel;
}

// How many rows from r on are contiguous in the tensor too.
static int32_t run_of(const struct part *p, int32_t r) {
    int32_t end = p->rows.first + p->rows.count;
    return p->group && p->group - r % p->group < end - r ? p->group - r % p->group : end - r;
}

static int read_panels(struct loader *l, const struct tensor *t, const struct part *p, char *to,
                       struct err *err) {
    uint8_t *panel = (uint8_t *)to + aligned(staged_bytes(t, p));
    size_t bytes = (size_t)int8_panel_bytes(p->n_cols);
    int32_t held = -1;
    for (int32_t i = 0; i < p->rows.count; i++, to += p->n_cols) {
        int32_t row = part_tensor_row(p, p->rows.first + i), n = row / INT8_PANEL_ROWS;
        if (n != held) TRY(checkpoint_read(l->cp, t, (size_t)n * bytes, panel, bytes, err));
        held = n;
        int8_panel_get(panel, row % INT8_PANEL_ROWS, (int8_t *)to, p->n_cols);
    }
    return 0;
}

static int read_rows(struct loader *l, const struct tensor *t, const struct part *p, void *to,
                     struct err *err) {
    size_t row = stored_row_bytes(t, p);
    const size_t before = (size_t)p->at * (size_t)p->n_cols; // rows as stored of the matrices below
    if (p->transposed)
        return checkpoint_read(l->cp, t, (before + (size_t)p->cols.first) * row, to,
                               staged_bytes(t, p), err);
    int32_t end = p->rows.first + p->rows.count;
    for (int32_t r = p->rows.first, n; r < end; r += n) {
        n = run_of(p, r);
        size_t from = (size_t)part_tensor_row(p, r) * row;
        TRY(checkpoint_read(l->cp, t, from, to, (size_t)n * row, err));
        to = (char *)to + (size_t)n * row;
    }
    return 0;
}

static int read_part(struct loader *l, const struct tensor *t, const struct part *p, void *to,
                     struct err *err) {
    if (part_is_panels(t)) return read_panels(l, t, p, to, err);
    TRY(read_rows(l, t, p, to, err));
    if (t->dtype != DTYPE_F8_E4M3 || !fp8_has_nan(to, staged_bytes(t, p))) return 0;
    return err_set(err, E_FORMAT, "the tensor '%s' contains a NaN", t->name);
}

// --- matrices ---

static void to_f32(float *out, const void *in, enum dtype dtype, size_t n) {
    const uint16_t *half = in;
    if (dtype == DTYPE_F32) memcpy(out, in, n * sizeof *out);
    if (dtype == DTYPE_BF16)
        for (size_t i = 0; i < n; i++) out[i] = bf16_to_f32(half[i]);
    if (dtype == DTYPE_F16)
        for (size_t i = 0; i < n; i++) out[i] = f16_to_f32(half[i]);
}

// The slice's first element in the staging area, and the strides from there on.
static struct tensor_view view_of(const struct tensor *t, const struct part *p,
                                  const char *staged) {
    size_t skip = (size_t)(p->transposed ? part_tensor_row(p, p->rows.first) : p->cols.first);
    return (struct tensor_view){
        .data = staged + skip * dtype_size(t->dtype),
        .dtype = part_is_panels(t) ? DTYPE_I8 : t->dtype,
        .rows = p->rows.count,
        .cols = p->cols.count,
        .row_stride = !p->transposed  ? p->n_cols
                      : p->group == 1 ? p->stride
                                      : 1,
        .col_stride = p->transposed ? p->n_rows : 1,
    };
}

// One matrix on its way: its tensors, and what lies where in the staging area.
struct matrix { // parts as read: whole rows if they will be quantised
    struct part parts[LOADER_MAX_PARTS];
    const struct tensor *tensors[LOADER_MAX_PARTS];
    const struct tensor *scales[LOADER_MAX_PARTS]; // of parts stored in 8 bits
    int n;
    int32_t block_k;             // of the stored scales, likewise
    enum weight_format quantize; // on the way
    bool widen;                  // parts of several types: all become F32
};

static bool is_widened(const struct matrix *m, int i) {
    return m->widen && m->tensors[i]->dtype != DTYPE_F32;
}

static size_t widened_room(const struct matrix *m, int i) {
    size_t size = dtype_size(m->tensors[i]->dtype);
    return aligned(staged_bytes(m->tensors[i], &m->parts[i]) / size * sizeof(float));
}

static int64_t n_values(const struct part *p) {
    return (int64_t)p->rows.count * p->cols.count;
}

// Whether a part is stored in 8 bits or few, so that its F32 values are not the file's choice.
static bool is_quantised(const struct loader *l, const struct tensor *t) {
    struct group_format few;
    return part_is_8bit(t) || checkpoint_groups(l->cp, t, &few);
}

// A part's scales, and the tensor that they come from, as it is and as F32.
static size_t scales_room(const struct matrix *m, int i) {
    const struct part *p = &m->parts[i];
    size_t n = (size_t)p->rows.count * (size_t)fp8_blocks(p->cols.count, m->block_k);
    size_t stored = m->scales[i] ? m->scales[i]->bytes : 0;
    size_t wide = m->scales[i] ? stored / dtype_size(m->scales[i]->dtype) * sizeof(float) : 0;
    return aligned(n * sizeof(float)) + aligned(stored) + aligned(wide);
}

// The tensors as they are read; beside them the 8 bits and scales, and a row in F32.
static size_t matrix_room(const struct matrix *m) {
    size_t room = 0;
    for (int i = 0; i < m->n; i++) {
        const struct part *p = &m->parts[i];
        room += staged_room(m->tensors[i], p);
        if (is_widened(m, i)) room += widened_room(m, i);
        if (m->scales[i] || m->quantize) room += scales_room(m, i);
        if (m->quantize) room += aligned((size_t)n_values(p));
    }
    return room + (m->quantize ? (size_t)m->parts[0].n_cols * sizeof(float) : 0);
}

// Writes a part's scales at *at and moves *at behind them: one scale a row, or one a block of columns. A tensor with
// fewer scales (one a block of rows, or one in all) repeats them.
static int read_scales(struct loader *l, const struct matrix *m, int i, char **at,
                       struct tensor_view *v, struct err *err) {
    const struct part *p = &m->parts[i];
    const struct tensor *t = m->scales[i];
    const int32_t block = m->block_k, n_blocks = fp8_blocks(p->cols.count, block);
    const int32_t first = block ? p->cols.first / block : 0, stride = fp8_blocks(p->n_cols, block);
    const size_t n = t->bytes / dtype_size(t->dtype);
    float *values = (float *)(void *)*at;
    char *stored = *at + aligned((size_t)p->rows.count * (size_t)n_blocks * sizeof(float));
    float *wide = (float *)(void *)(stored + aligned(t->bytes));
    *at += scales_room(m, i);
    TRY(checkpoint_read(l->cp, t, 0, stored, t->bytes, err));
    to_f32(wide, stored, t->dtype, n);
    v->scales = values;
    v->block_k = block;
    for (int32_t r = 0; r < p->rows.count; r++) {
        int32_t row = part_tensor_row(p, p->rows.first + r);
        const float *from = wide + (n == 1 ? 0 : block ? row / block * stride + first : row);
        for (int32_t b = 0; b < n_blocks; b++, values++) {
            *values = from[b];
            if (!(*values >= 0 && *values <= FP8_LARGEST_SCALE))
                return err_set(err, E_FORMAT, "the tensor '%s' holds a scale of %g", t->name,
                               (double)*values);
        }
    }
    return 0;
}

// Quantises a view to 8 bits. Writes the scales, then the values, at *at and moves *at behind the values.
static int quantize_view(const struct matrix *m, int i, char **at, struct tensor_view *v,
                         struct err *err) {
    float *scales = (float *)(void *)*at;
    *at += scales_room(m, i);
    char *q = *at;
    *at += aligned((size_t)(v->rows * v->cols));
    float *work = (float *)(void *)*at;
    bool fp8 = m->quantize == WEIGHTS_FP8;
    for (int64_t r = 0; r < v->rows; r++) {
        char *to = q + r * v->cols;
        int rc = fp8 ? fp8_quantize_row(v, r, (uint8_t *)to, 1, work, &scales[r])
                     : int8_quantize_row(v, r, (int8_t *)to, 1, work, &scales[r]);
        if (rc < 0)
            return err_set(err, E_UNSUPPORTED,
                           "the tensor '%s' holds a value that is infinite or no number; 8 bits "
                           "with a scale cannot say that",
                           m->tensors[i]->name);
    }
    *v = (struct tensor_view){
        q, fp8 ? DTYPE_F8_E4M3 : DTYPE_I8, v->rows, v->cols, v->cols, 1, scales, 0};
    return 0;
}

// --- matrices that are used in place ---

// The panels of all parts' rows, if they are contiguous in the file. NULL for a rank's columns, rows
// in another order (q, k and v of each head), a part that ends within a panel, and a file of another
// program.
static const char *find_panels(const struct matrix *m) {
    const char *first = NULL, *next = NULL;
    const int64_t bytes = int8_panel_bytes(m->parts[0].n_cols);
    for (int i = 0; i < m->n; i++) {
        const struct part *p = &m->parts[i];
        const int32_t end = p->rows.first + p->rows.count;
        if (!part_is_panels(m->tensors[i]) || p->cols.count != p->n_cols) return NULL;
        for (int32_t r = p->rows.first, n; r < end; r += n) {
            n = run_of(p, r);
            bool is_last = i == m->n - 1 && r + n == end;
            int32_t row = part_tensor_row(p, r);
            const char *at = (const char *)m->tensors[i]->data + row / INT8_PANEL_ROWS * bytes;
            if (row % INT8_PANEL_ROWS || (n % INT8_PANEL_ROWS && !is_last)) return NULL;
            if (next ? at != next : (uintptr_t)at % INT8_PANEL_ALIGNMENT) return NULL;
            if (!first) first = at;
            next = at + n / INT8_PANEL_ROWS * bytes;
        }
    }
    return first;
}

// Brings a part's panels into memory piece by piece, so that progress counts the loaded bytes.
static int populate(struct loader *l, const struct tensor *t, const struct part *p,
                    struct err *err) {
    const size_t panel = (size_t)int8_panel_bytes(p->n_cols);
    const int32_t each = (int32_t)(POPULATE_BYTES / panel + 1) * INT8_PANEL_ROWS;
    const int32_t end = p->rows.first + p->rows.count;
    for (int32_t r = p->rows.first, n; r < end; r += n) {
        n = run_of(p, r) < each ? run_of(p, r) : each;
        size_t at = (size_t)(part_tensor_row(p, r) / INT8_PANEL_ROWS) * panel;
        TRY(checkpoint_populate(l->cp, t, at, (size_t)int8_panels(n) * panel, err));
        loader_step(l, (size_t)n * (size_t)p->n_cols);
    }
    return 0;
}

static int map_matrix(struct loader *l, struct weight *w, const struct matrix *m,
                      const char *panels, struct err *err) {
    struct tensor_view views[LOADER_MAX_PARTS];
    struct backend *be = l->m->backend;
    struct weight mapped = {0};
    size_t room = 0;
    for (int i = 0; i < m->n; i++) room += scales_room(m, i);
    TRY(loader_stage(l, room, err));
    char *at = l->staging;
    for (int i = 0; i < m->n; i++) {
        const struct part *p = &m->parts[i];
        views[i] = (struct tensor_view){
            .dtype = DTYPE_I8, .rows = p->rows.count, .cols = p->n_cols, .col_stride = 1};
        TRY(read_scales(l, m, i, &at, &views[i], err));
        TRY(populate(l, m->tensors[i], p, err));
    }
    TRY(be->ops->weight_map(be, &mapped, panels, views, m->n, err));
    *w = mapped;
    l->m->weight_bytes += w->bytes;
    l->m->n_mapped++;
    return 0;
}

// --- the others ---

// The values of a view of 8 bits: its codes times their scales.
static void scale_view(float *out, const struct tensor_view *v) {
    const uint8_t *codes = v->data;
    const int64_t blocks = fp8_blocks((int32_t)v->cols, v->block_k);
    for (int64_t r = 0; r < v->rows; r++)
        for (int64_t c = 0; c < v->cols; c++) {
            const uint8_t code = codes[r * v->row_stride + c * v->col_stride];
            const float number = v->dtype == DTYPE_I8 ? (float)(int8_t)code : e4m3_to_f32(code);
            *out++ = number * v->scales[r * blocks + (v->block_k ? c / v->block_k : 0)];
        }
}

// Widens a staged part to F32 at *at, points the view to the F32 values and moves *at behind them.
static void widen_view(const struct matrix *m, int i, const char *staged, char **at,
                       struct tensor_view *v) {
    size_t size = dtype_size(v->dtype), n = staged_bytes(m->tensors[i], &m->parts[i]) / size;
    size_t skip = (size_t)((const char *)v->data - staged) / size;
    float *wide = (float *)(void *)*at;
    *at += widened_room(m, i);
    if (v->scales) {
        scale_view(wide, v);
        *v = (struct tensor_view){wide, DTYPE_F32, v->rows, v->cols, v->cols, 1, NULL, 0};
        return;
    }
    to_f32(wide, staged, v->dtype, n);
    v->data = wide + skip;
    v->dtype = DTYPE_F32;
}

// The setting says that x is rounded. A router beside matrices in bf16 stays as it is, as an embedding does that is
// only looked up.
static int check_products(const struct backend *be, const struct part *p,
                          const struct tensor_view *v, struct err *err) {
    const bool wide = v->dtype == DTYPE_F32 || v->dtype == DTYPE_F16;
    if (!be->bf16_products || !wide || p->looked_up) return 0;
    return err_set(err, E_UNSUPPORTED,
                   "compute_dtype bf16 multiplies weights of bf16 (or 8 bits) on the CPU, and this "
                   "model's are %s: leave it at auto",
                   dtype_name(v->dtype));
}

static int pack_matrix(struct loader *l, struct weight *w, const struct part *parts,
                       struct matrix *m, struct err *err) {
    struct tensor_view views[LOADER_MAX_PARTS];
    const char *staged_at[LOADER_MAX_PARTS];
    struct backend *be = l->m->backend;
    const char *panels = be->ops->weight_map && !m->widen ? find_panels(m) : NULL;
    if (panels) return map_matrix(l, w, m, panels, err);
    size_t room = matrix_room(m), at = 0, bytes = 0;
    TRY(loader_stage(l, room, err));
    for (int i = 0; i < m->n; i++) {
        const struct part *p = &m->parts[i];
        // Stored the other way round, every part of a tensor needs all that is read of it.
        bool staged = i > 0 && p->transposed && m->tensors[i] == m->tensors[i - 1];
        if (!staged && i > 0) at += staged_room(m->tensors[i - 1], &m->parts[i - 1]);
        if (!staged) TRY(read_part(l, m->tensors[i], p, l->staging + at, err));
        staged_at[i] = l->staging + at;
        views[i] = view_of(m->tensors[i], p, staged_at[i]);
        bytes += slice_bytes(m->tensors[i], &parts[i]);
    }
    char *rest = l->staging + at + staged_room(m->tensors[m->n - 1], &m->parts[m->n - 1]);
    bool few = false;
    for (int i = 0; i < m->n; i++) {
        if (m->scales[i]) TRY(read_scales(l, m, i, &rest, &views[i], err));
        if (is_widened(m, i)) widen_view(m, i, staged_at[i], &rest, &views[i]);
        few |= is_quantised(l, m->tensors[i]);
        if (!m->quantize) continue;
        TRY(quantize_view(m, i, &rest, &views[i], err));
        views[i].data = (const char *)views[i].data + parts[i].cols.first;
        views[i].cols = parts[i].cols.count;
    }
    struct weight packed = {0};
    // What is widened from few bits is multiplied in F32.
    if (!few) TRY(check_products(be, &parts[0], views, err));
    TRY(be->ops->weight_init(be, &packed, views, m->n, err));
    *w = packed;
    l->m->weight_bytes += w->bytes;
    loader_step(l, bytes);
    return 0;
}

static int find_scales(struct loader *l, int32_t layer, struct matrix *m, int i, struct err *err) {
    const struct part *p = &m->parts[i];
    const struct model_config *c = &l->m->config;
    TRY(part_find_scales(p, l->cp, l->names, layer, m->tensors[i]->dtype, c, &m->scales[i], err));
    note_found(l, m->scales[i]);
    m->block_k = m->tensors[i]->dtype == DTYPE_F8_E4M3 ? c->fp8_block_k : 0;
    if (m->block_k == 0) return 0;
    // Blocks belong to the matrix as it is stored, and to all of its columns.
    if (p->transposed || p->cols.first % m->block_k)
        return err_set(
            err, E_UNSUPPORTED, "the tensor '%s' has blocks of scales, and %s", m->tensors[i]->name,
            p->transposed ? "lies the other way round" : "this rank's columns begin within one");
    return 0;
}

bool loader_stacks(const struct loader *l, int32_t layer, const struct part *parts, int n) {
    const struct tensor *tensors[LOADER_MAX_PARTS];
    char name[TENSOR_NAME_MAX];
    for (int i = 0; i < n; i++) {
        tensors[i] = checkpoint_find(
            l->cp, family_tensor_name(name, l->names, layer, parts[i].stem, "weight"));
        if (!tensors[i]) return true; // loader_matrix says so
        if (tensors[i]->dtype != tensors[0]->dtype) return false;
    }
    return loader_groups_agree(l, parts, tensors, n);
}

int loader_matrix(struct loader *l, struct weight *w, int32_t layer, const struct part *parts,
                  int n, struct err *err) {
    struct matrix m = {.n = n};
    char quoted[TENSOR_NAME_MAX];
    bool eight = false;
    for (int i = 0; i < n; i++) {
        m.parts[i] = parts[i];
        TRY(find_part(l, layer, &parts[i], parts[i].bare ? "" : "weight", &m.tensors[i], err));
        m.widen |= l->widen || m.tensors[i]->dtype != m.tensors[0]->dtype;
        eight |= part_is_8bit(m.tensors[i]);
        if (part_is_panels(m.tensors[i])) m.parts[i].transposed = false;
        if (part_is_8bit(m.tensors[i])) TRY(find_scales(l, layer, &m, i, err));
        if (w && !l->packing) l->total += (int64_t)slice_bytes(m.tensors[i], &parts[i]);
    }
    for (int i = 0; i < n && !parts[0].looked_up && !parts[0].stack; i++)
        l->roles[checkpoint_index(l->cp, m.tensors[i])] =
            parts[i].transposed ? TENSOR_TRANSPOSED : TENSOR_MATRIX;
    if (!eight && !l->widen && !parts[0].looked_up) m.quantize = l->weights;
    if (w && l->packing && m.widen && eight && !l->widen)
        log_info("model.widened",
                 "tensor=%s to=f32 because=it is stacked with matrices of another dtype",
                 log_quote(quoted, sizeof quoted, m.tensors[0]->name));
    if (w && l->packing && !m.quantize && !l->widen && loader_groups(l, parts, m.tensors, n))
        return loader_pack_groups(l, w, parts, m.tensors, n, err);
    if (w && l->packing && !m.quantize && loader_halves(l, parts, m.tensors, n))
        return loader_pack_halves(l, w, parts, m.tensors, n, err);
    // A row's scale is that of the whole row, whichever columns are this rank's.
    for (int i = 0; i < n && m.quantize; i++) m.parts[i].cols = range_whole(parts[i].n_cols);
    return w && l->packing ? pack_matrix(l, w, parts, &m, err) : 0;
}

// --- vectors: norms and biases, f32 on the device ---

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

int loader_ones(struct loader *l, float **out, int32_t n, struct err *err) {
    float ones[MODEL_MAX_HEAD_DIM];
    if (!l->packing) return 0;
    for (int32_t i = 0; i < n; i++) ones[i] = 1;
    return loader_to_device(l->m, out, ones, (size_t)n, err);
}

// Whole rows in 8 bits times their scales.
static int scale_rows(struct loader *l, const struct matrix *m, float *out, struct err *err) {
    const struct part *p = &m->parts[0];
    const bool fp8 = m->tensors[0]->dtype == DTYPE_F8_E4M3;
    const uint8_t *code = (const uint8_t *)l->staging;
    char *rest = l->staging + staged_room(m->tensors[0], p);
    struct tensor_view v = {0};
    TRY(read_scales(l, m, 0, &rest, &v, err));
    const int32_t block = m->block_k ? m->block_k : p->n_cols;
    for (int32_t r = 0; r < p->rows.count; r++, v.scales += fp8_blocks(p->n_cols, m->block_k))
        for (int32_t c = 0; c < p->n_cols; c++, code++)
            *out++ = (fp8 ? e4m3_to_f32(*code) : (float)(int8_t)*code) * v.scales[c / block];
    return 0;
}

int loader_floats(struct loader *l, float **out, int32_t layer, const struct part *p,
                  const char *suffix, struct err *err) {
    struct matrix m = {.parts = {*p}, .n = 1};
    *out = NULL;
    TRY(find_part(l, layer, p, suffix, &m.tensors[0], err));
    const struct tensor *t = m.tensors[0];
    if (part_is_8bit(t)) TRY(find_scales(l, layer, &m, 0, err));
    if (!l->packing) l->total += (int64_t)slice_bytes(t, p);
    if (!l->packing) return 0;
    const size_t n = slice_bytes(t, p) / dtype_size(t->dtype);
    TRY(loader_stage(l, matrix_room(&m), err));
    TRY(read_part(l, t, p, l->staging, err));
    *out = malloc(n * sizeof **out);
    if (!*out) return err_set(err, E_NOMEM, "no memory for %zu values", n);
    if (!m.scales[0]) to_f32(*out, l->staging, t->dtype, n);
    int rc = m.scales[0] ? scale_rows(l, &m, *out, err) : 0;
    if (rc < 0) {
        free(*out);
        *out = NULL;
        return rc;
    }
    loader_step(l, slice_bytes(t, p));
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
    TRY(loader_stage(l, room, err));
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
    for (size_t i = 0; i < at && l->plus != 0; i++) values[i] += l->plus;
    for (size_t i = 0; i < at && l->times != 0; i++) values[i] *= l->times;
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
    if (part_is_8bit(t))
        return err_set(err, E_UNSUPPORTED, "the tensor '%s' is a table and cannot be of 8 bits",
                       t->name);
    if (out && !l->packing) l->total += (int64_t)slice_bytes(t, p);
    return out && l->packing ? pack_vector(l, out, p, 1, &t, err) : 0;
}
