// See ft_source.h.
#include "engine/model/ft_source.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- which tensors ---

static const char *stem_of(const struct family_tensors *t, enum ft_role role) {
    switch (role) {
    case FT_EMBED:
        return t->embed;
    case FT_POSITIONS:
        return t->positions;
    case FT_EMBED_NORM:
        return t->embed_norm;
    case FT_FINAL_NORM:
        return t->final_norm;
    case FT_HEAD:
        return t->head;
    case FT_ATTN_NORM:
        return t->attn_norm;
    case FT_QKV:
        return t->qkv;
    case FT_O:
        return t->o;
    case FT_FFN_NORM:
        return t->ffn_norm;
    case FT_UP:
        return t->up;
    case FT_DOWN:
        return t->down;
    }
    return NULL;
}

static bool is_norm(enum ft_role role) {
    return role == FT_EMBED_NORM || role == FT_FINAL_NORM || role == FT_ATTN_NORM ||
           role == FT_FFN_NORM;
}

// FasterTransformer has every bias; a model without them (an OPT) has zeros.
static bool has_bias(const struct model_config *c, enum ft_role role) {
    if (role == FT_QKV) return c->kinds[0].attention.qkv_bias;
    if (role == FT_O) return c->kinds[0].attention.o_bias;
    if (role == FT_HEAD) return c->head_bias;
    return is_norm(role) ? c->norm_bias : c->kinds[0].feed.bias;
}

// Embedding, positions and head: (rows, width) on both sides.
static void rows_parts(struct ft_source *s, const struct ft_array *a) {
    const struct model_config *c = &s->m->config;
    const struct family_tensors *t = s->m->names;
    bool tied = a->role == FT_HEAD && c->tied_head;
    const char *stem = tied ? t->embed : stem_of(t, a->role);
    s->rows = true;
    s->n_parts = 1;
    if (a->role == FT_POSITIONS) {
        s->first_row = c->position_offset;
        s->parts[0] = part_whole(stem, c->max_positions + c->position_offset, c->width);
        return;
    }
    s->parts[0] = part_whole(stem, c->vocab_size, c->embed_width);
    if (c->embed_width == c->width) return;
    s->fold = a->role == FT_EMBED ? part_whole(t->embed_in, c->width, c->embed_width)
                                  : part_whole(t->embed_out, c->embed_width, c->width);
}

static void layer_parts(struct ft_source *s, const struct ft_array *a) {
    const struct model_config *c = &s->m->config;
    const struct family_tensors *t = s->m->names;
    if (a->role == FT_QKV) {
        (void)parts_qkv(c, &c->kinds[0], t, &split_single, s->parts);
        s->n_parts = 3;
        return;
    }
    // The model's own layout: (outputs, inputs).
    int32_t inputs = (int32_t)a->shape[0], outputs = (int32_t)a->shape[1];
    s->parts[0] = part_of_layer(t, stem_of(t, a->role), outputs, inputs, range_whole(outputs),
                                range_whole(inputs));
    s->n_parts = 1;
}

static void vector_parts(struct ft_source *s, const struct ft_array *a) {
    if (a->bias && !has_bias(&s->m->config, a->role)) return; // zeros
    if (a->role == FT_QKV) {
        layer_parts(s, a);
        for (int i = 0; i < 3; i++) {
            s->parts[i].n_cols = 0;
            s->parts[i].transposed = false;
        }
        return;
    }
    s->parts[0] = part_whole(stem_of(s->m->names, a->role), (int32_t)a->shape[0], 0);
    s->n_parts = 1;
}

int ft_source_find(struct ft_source *s, const struct ft_source_model *m, const struct ft_array *a,
                   struct err *err) {
    *s = (struct ft_source){.m = m};
    if (a->n_dims == 1)
        vector_parts(s, a);
    else if (a->layer >= 0)
        layer_parts(s, a);
    else
        rows_parts(s, a);
    for (int i = 0; i < s->n_parts; i++)
        TRY(part_find(&s->parts[i], m->cp, m->names, a->layer, a->bias ? "bias" : "weight",
                      &m->config, &s->tensors[i], err));
    if (!s->fold.stem) return 0;
    return part_find(&s->fold, m->cp, m->names, -1, "weight", &m->config, &s->fold_tensor, err);
}

enum dtype ft_source_dtype(const struct ft_source *s) {
    if (s->n_parts == 0) return DTYPE_COUNT; // zeros are of any
    for (int i = 1; i < s->n_parts; i++)
        if (s->tensors[i]->dtype != s->tensors[0]->dtype) return DTYPE_F32;
    return s->fold_tensor ? DTYPE_F32 : s->tensors[0]->dtype;
}

// --- staging ---

static float to_f32(const char *p, enum dtype dtype) {
    float f;
    uint16_t half;
    memcpy(&f, p, dtype == DTYPE_F32 ? sizeof f : 0);
    if (dtype == DTYPE_F32) return f;
    memcpy(&half, p, sizeof half);
    return dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static int stage(const struct ft_source *s, const struct tensor *t, char **out, struct err *err) {
    *out = malloc(t->bytes ? t->bytes : 1);
    if (!*out) return err_set(err, E_NOMEM, "no memory for '%s', %zu bytes", t->name, t->bytes);
    return checkpoint_read(s->m->cp, t, 0, *out, t->bytes, err);
}

// As (embedding's width, width), whichever way the projection is stored.
static int stage_projection(struct ft_source *s, struct err *err) {
    const struct model_config *c = &s->m->config;
    const struct tensor *t = s->fold_tensor;
    size_t e = (size_t)c->embed_width, w = (size_t)c->width, size = dtype_size(t->dtype);
    bool in = s->fold.n_rows == c->width; // project_in, else project_out
    char *raw = NULL;
    int rc = stage(s, t, &raw, err);
    s->projection = malloc(e * w * sizeof(float));
    if (rc == 0 && !s->projection)
        rc = err_set(err, E_NOMEM, "no memory for '%s', %zu values", t->name, e * w);
    for (size_t k = 0; rc == 0 && k < e; k++)
        for (size_t i = 0; i < w; i++)
            s->projection[k * w + i] = to_f32(raw + (in ? i * e + k : k * w + i) * size, t->dtype);
    free(raw);
    return rc;
}

int ft_source_open(struct ft_source *s, struct err *err) {
    if (s->fold_tensor) return stage_projection(s, err);
    for (int i = 0; i < s->n_parts && !s->rows; i++) {
        if (i > 0 && s->tensors[i] == s->tensors[0])
            s->staged[i] = s->staged[0];
        else
            TRY(stage(s, s->tensors[i], &s->staged[i], err));
    }
    return 0;
}

void ft_source_close(struct ft_source *s) {
    for (int i = 0; i < 3; i++)
        if (i == 0 || s->staged[i] != s->staged[0]) free(s->staged[i]);
    free(s->projection);
    s->staged[0] = s->staged[1] = s->staged[2] = NULL;
    s->projection = NULL;
}

// --- values ---

// False when the value is finite and the dtype's is not.
static bool put(char *to, float f, enum dtype dtype) {
    uint16_t half;
    if (dtype == DTYPE_F32) memcpy(to, &f, sizeof f);
    if (dtype == DTYPE_F32) return true;
    half = dtype == DTYPE_F16 ? f16_from_f32(f) : bf16_from_f32(f);
    memcpy(to, &half, sizeof half);
    return !isfinite(f) || isfinite(to_f32(to, dtype));
}

static bool convert(char *to, const char *from, enum dtype dtype, enum dtype stored) {
    if (dtype != stored) return put(to, to_f32(from, stored), dtype);
    memcpy(to, from, dtype_size(dtype));
    return true;
}

static int overflow(const struct tensor *t, enum dtype dtype, struct err *err) {
    return err_set(err, E_UNSUPPORTED, "the tensor '%s' has values that %s cannot hold", t->name,
                   dtype_name(dtype));
}

// One group: outputs of part i for inputs [first, first + n), at out with `stride` values a line.
// The loop that steps through memory is the inner one.
static int read_part(const struct ft_source *s, int i, int64_t first, int64_t n, enum dtype dtype,
                     char *out, int64_t stride, struct err *err) {
    const struct part *p = &s->parts[i];
    const struct tensor *t = s->tensors[i];
    int64_t in = p->n_cols ? p->n_cols : 1, outputs = p->rows.count, all = p->n_rows;
    size_t to_size = dtype_size(dtype), from_size = dtype_size(t->dtype);
    int64_t n_outer = p->transposed ? n : outputs, n_inner = p->transposed ? outputs : n;
    bool fits = true;
    for (int64_t outer = 0; outer < n_outer; outer++) {
        for (int64_t inner = 0; inner < n_inner; inner++) {
            int64_t line = p->transposed ? outer : inner, o = p->transposed ? inner : outer;
            int64_t row = part_tensor_row(p, (int32_t)o);
            int64_t at = p->transposed ? (first + line) * all + row : row * in + first + line;
            fits &= convert(out + (size_t)(line * stride + o) * to_size,
                            s->staged[i] + (size_t)at * from_size, dtype, t->dtype);
        }
    }
    return fits ? 0 : overflow(t, dtype, err);
}

static int read_groups(const struct ft_source *s, const struct ft_array *a, int64_t first,
                       int64_t n, enum dtype dtype, char *out, struct err *err) {
    int64_t outputs = a->n_dims == 2 ? a->shape[1] : a->shape[0];
    if (s->n_parts == 0) memset(out, 0, (size_t)(n * outputs) * dtype_size(dtype));
    for (int i = 0; i < s->n_parts; i++)
        TRY(read_part(s, i, first, n, dtype,
                      out + (size_t)(i * (outputs / s->n_parts)) * dtype_size(dtype), outputs,
                      err));
    return 0;
}

static int read_rows(const struct ft_source *s, int64_t first, int64_t n, enum dtype dtype,
                     char *out, struct err *err) {
    const struct tensor *t = s->tensors[0];
    size_t count = (size_t)(n * t->shape[1]), size = dtype_size(t->dtype);
    size_t offset = (size_t)((s->first_row + first) * t->shape[1]) * size;
    if (dtype == t->dtype) return checkpoint_read(s->m->cp, t, offset, out, count * size, err);
    char *raw = malloc(count * size);
    if (!raw) return err_set(err, E_NOMEM, "no memory for rows of '%s'", t->name);
    int rc = checkpoint_read(s->m->cp, t, offset, raw, count * size, err);
    bool fits = true;
    for (size_t i = 0; i < count && rc == 0; i++)
        fits &= convert(out + i * dtype_size(dtype), raw + i * size, dtype, t->dtype);
    free(raw);
    return rc == 0 && !fits ? overflow(t, dtype, err) : rc;
}

// Rows of the embedding times the projection, summed in double precision.
static int read_folded(const struct ft_source *s, int64_t first, int64_t n, enum dtype dtype,
                       char *out, struct err *err) {
    size_t e = (size_t)s->m->config.embed_width, w = (size_t)s->m->config.width;
    float *rows = malloc((size_t)n * e * sizeof *rows);
    double *sums = malloc(w * sizeof *sums);
    int rc = rows && sums ? 0 : err_set(err, E_NOMEM, "no memory to fold the embedding");
    bool fits = true;
    if (rc == 0) rc = read_rows(s, first, n, DTYPE_F32, (char *)rows, err);
    for (size_t r = 0; rc == 0 && r < (size_t)n; r++) {
        memset(sums, 0, w * sizeof *sums);
        for (size_t k = 0; k < e; k++) {
            double v = rows[r * e + k];
            const float *p = s->projection + k * w;
            for (size_t i = 0; i < w; i++) sums[i] += v * (double)p[i];
        }
        for (size_t i = 0; i < w; i++)
            fits &= put(out + (r * w + i) * dtype_size(dtype), (float)sums[i], dtype);
    }
    free(rows);
    free(sums);
    return rc == 0 && !fits ? overflow(s->tensors[0], dtype, err) : rc;
}

int ft_source_read(const struct ft_source *s, const struct ft_array *a, int64_t first, int64_t n,
                   enum dtype dtype, void *out, struct err *err) {
    if (s->fold_tensor) return read_folded(s, first, n, dtype, out, err);
    if (s->rows) return read_rows(s, first, n, dtype, out, err);
    return read_groups(s, a, first, n, dtype, out, err);
}
