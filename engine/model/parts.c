// See parts.h.
#include "engine/model/parts.h"
#include "kernels/fp8.h"
#include "kernels/int8.h"
#include <stdio.h>

struct range range_whole(int32_t n) {
    return (struct range){0, n};
}

struct part part_whole(const char *stem, int32_t n_rows, int32_t n_cols) {
    return (struct part){.stem = stem,
                         .n_rows = n_rows,
                         .n_cols = n_cols,
                         .rows = range_whole(n_rows),
                         .cols = range_whole(n_cols)};
}

struct part part_of_layer(const struct family_tensors *names, const char *stem, int32_t n_rows,
                          int32_t n_cols, struct range rows, struct range cols) {
    return (struct part){stem, n_rows, n_cols, rows, cols, .transposed = names->conv1d};
}

int32_t part_tensor_row(const struct part *p, int32_t r) {
    const int32_t before = p->transposed ? 0 : p->at * p->n_rows; // of the matrices below
    return before + (p->group ? p->first + r / p->group * p->stride + r % p->group : r);
}

static struct range heads_rows(struct range heads, int32_t head_dim) {
    return (struct range){heads.first * head_dim, heads.count * head_dim};
}

// Makes p a part of a tensor of n_rows that holds several: this one's rows begin at `first`.
static void within(struct part *p, const char *stem, int32_t n_rows, int32_t first) {
    p->first = first;
    p->group = p->n_rows;
    p->stem = stem;
    p->n_rows = n_rows;
}

int parts_qkv(const struct model_config *c, const struct layer_config *row,
              const struct family_tensors *names, const struct split *split, struct part parts[3]) {
    const struct attention_config *a = &row->attention;
    int32_t d = a->head_dim, q = a->n_heads * d, kv = a->n_kv_heads * d;
    struct range q_rows = heads_rows(split_heads(split, a->n_heads), d);
    struct range kv_rows = heads_rows(split_kv_heads(split, a->n_kv_heads), d);
    struct range cols = range_whole(c->width);
    const char *const stems[] = {names->q, names->k, a->v_is_k ? names->k : names->v};
    for (int32_t i = 0, at = 0; i < 3; i++) {
        int32_t n = i == 0 ? q : kv;
        parts[i] = part_of_layer(names, stems[i], n, c->width, i == 0 ? q_rows : kv_rows, cols);
        if (names->qkv) within(&parts[i], names->qkv, q + 2 * kv, at);
        if (names->qkv_by_head) {
            parts[i].first = i * d;
            parts[i].group = d;
            parts[i].stride = 3 * d;
        }
        at += n;
    }
    return a->kv_from ? 1 : 3;
}

int parts_up(const struct model_config *c, const struct layer_config *row,
             const struct family_tensors *names, const struct split *split, struct part parts[2]) {
    const char *const stems[] = {names->gate, names->up};
    const int32_t ffn = row->feed.width, n = row->feed.gated ? 2 : 1;
    for (int32_t i = 0; i < n; i++) {
        parts[i] = part_of_layer(names, stems[2 - n + i], ffn, c->width, split_even(split, ffn),
                                 range_whole(c->width));
        if (names->gate_up) within(&parts[i], names->gate_up, n * ffn, i * ffn);
    }
    return n;
}

bool part_is_panels(const struct tensor *t) {
    return t->dtype == DTYPE_U8 && t->n_dims == 4;
}

bool part_is_8bit(const struct tensor *t) {
    return t->dtype == DTYPE_I8 || t->dtype == DTYPE_F8_E4M3 || part_is_panels(t);
}

// The shape that the part's tensor must have; returns the number of dimensions.
static int shape_of(const struct part *p, bool panels, int64_t shape[4]) {
    bool turned = p->transposed && !panels;
    if (p->stack) {
        shape[0] = p->stack;
        shape[1] = turned ? p->n_cols : p->n_rows;
        shape[2] = turned ? p->n_rows : p->n_cols;
        return 3;
    }
    shape[0] = turned ? p->n_cols : panels ? int8_panels(p->n_rows) : p->n_rows;
    shape[1] = turned   ? p->n_rows
               : panels ? int8_panel_bytes(p->n_cols) / (4 * INT8_PANEL_ROWS)
                        : p->n_cols;
    shape[2] = INT8_PANEL_ROWS;
    shape[3] = 4;
    return panels ? 4 : p->n_cols ? 2 : 1;
}

static void write_shape(char out[128], const int64_t *shape, int n_dims) {
    out[0] = '\0';
    for (int d = 0, at = 0; d < n_dims && at < 100; d++)
        at += snprintf(out + at, 128 - (size_t)at, "%s%lld", d ? ", " : "", (long long)shape[d]);
}

static bool has_shape(const struct tensor *t, const int64_t *shape, int n_dims) {
    return t->n_dims == n_dims && memcmp(t->shape, shape, (size_t)n_dims * sizeof *shape) == 0;
}

static int wrong_shape(const struct tensor *t, const int64_t *shape, int n_dims, struct err *err) {
    char has[128], wanted[128];
    write_shape(has, t->shape, t->n_dims);
    write_shape(wanted, shape, n_dims);
    return err_set(err, E_FORMAT, "the tensor '%s' has the shape (%s), not (%s)", t->name, has,
                   wanted);
}

static int check_shape(const struct tensor *t, const struct part *p, struct err *err) {
    int64_t shape[4];
    int n_dims = shape_of(p, part_is_panels(t), shape);
    return has_shape(t, shape, n_dims) ? 0 : wrong_shape(t, shape, n_dims, err);
}

static int find_tensor(const struct checkpoint *cp, const struct family_tensors *names,
                       int32_t layer, const char *stem, const char *suffix,
                       const struct tensor **out, struct err *err) {
    char name[TENSOR_NAME_MAX];
    *out = checkpoint_find(cp, family_tensor_name(name, names, layer, stem, suffix));
    return *out ? 0 : err_set(err, E_NOTFOUND, "the tensor '%s' is missing", name);
}

static bool is_wide(enum dtype t) {
    return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16;
}

// NULL: the folder has no matrices of 8-bit floats.
static const char *fp8_scale(const struct model_config *c, const struct checkpoint *cp) {
    return c->fp8_scale ? c->fp8_scale : checkpoint_fp8_scale(cp);
}

int part_find(const struct part *p, const struct checkpoint *cp, const struct family_tensors *names,
              int32_t layer, const char *suffix, const struct model_config *c,
              const struct tensor **out, struct err *err) {
    const struct tensor *t;
    TRY(find_tensor(cp, names, layer, p->stem, suffix, &t, err));
    bool is_panels = c->int8_panels && part_is_panels(t) && p->n_cols > 0 && !p->stack;
    bool is_8bit =
        is_panels ||
        (p->n_cols > 0 && !p->stack &&
         ((c->int8 && t->dtype == DTYPE_I8) || (fp8_scale(c, cp) && t->dtype == DTYPE_F8_E4M3)));
    if (is_panels || !part_is_panels(t)) TRY(check_shape(t, p, err));
    if (!is_wide(t->dtype) && !is_8bit)
        return err_set(err, E_UNSUPPORTED,
                       "the tensor '%s' is stored as %s; known are f32, f16, bf16", t->name,
                       dtype_name(t->dtype));
    *out = t;
    return 0;
}

int part_find_scales(const struct part *p, const struct checkpoint *cp,
                     const struct family_tensors *names, int32_t layer, enum dtype of,
                     const struct model_config *c, const struct tensor **out, struct err *err) {
    const struct tensor *t;
    bool is_fp8 = of == DTYPE_F8_E4M3;
    const int32_t block = is_fp8 ? c->fp8_block_k : 0;
    TRY(find_tensor(cp, names, layer, p->stem, is_fp8 ? fp8_scale(c, cp) : "weight_scale", &t,
                    err));
    const int64_t rows = p->n_rows, one = 1, column[] = {rows, 1};
    const int64_t blocks[] = {fp8_blocks(rows, block), fp8_blocks(p->n_cols, block)};
    bool fits = block ? has_shape(t, blocks, 2) : has_shape(t, &rows, 1);
    if (is_fp8 && !block)
        fits = fits || has_shape(t, column, 2) || has_shape(t, &one, 1) || t->n_dims == 0;
    if (!fits) return wrong_shape(t, block ? blocks : &rows, block ? 2 : 1, err);
    if (!is_wide(t->dtype))
        return err_set(err, E_UNSUPPORTED,
                       "the tensor '%s' is stored as %s; known for scales are f32, f16, bf16",
                       t->name, dtype_name(t->dtype));
    *out = t;
    return 0;
}
