// See packed_tensors.h. Two steps: `find` recognises the parts of a matrix by their names, types and shapes, and checks
// them against each other; `read` decodes whole rows into F32, some at a time.
#include "engine/model/packed_matrix.h"
#include <stdio.h>
#include <stdlib.h>

#define NAME_MAX_BYTES 320
#define BLOCKS "_blocks" // gpt-oss: what their names end in
#define BLOCK_VALUES 32
#define STRIP_BYTES ((size_t)4 << 20) // of decoded rows at a time

// --- finding ---

struct finding {
    const struct tensor *const *stored; // (n), sorted by name
    size_t n;
    bool *is_part; // (n)
    enum packed_format format;
    struct err *err;
};

static int compare_name(const void *key, const void *at) {
    return strcmp(key, (*(const struct tensor *const *)at)->name);
}

// The tensor of this name, which counts as a part from then on. NULL: none.
static const struct tensor *part_named(struct finding *f, const char *name) {
    const struct tensor *const *at =
        bsearch(name, f->stored, f->n, sizeof *f->stored, compare_name);
    if (at) f->is_part[at - f->stored] = true;
    return at ? *at : NULL;
}

static const struct tensor *part(struct finding *f, const char *stem, const char *suffix) {
    char name[NAME_MAX_BYTES];
    const int n = snprintf(name, sizeof name, "%s.%s", stem, suffix);
    return (size_t)n < sizeof name ? part_named(f, name) : NULL;
}

static int misfit(struct finding *f, const struct matrix *m, const char *what) {
    return err_set(f->err, E_FORMAT, "the matrix '%.200s.weight': %s", m->stem, what);
}

static bool has_shape(const struct tensor *t, int64_t rows, int64_t cols) {
    return t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

static bool is_float(const struct tensor *t) {
    return t->dtype == DTYPE_F32 || t->dtype == DTYPE_F16 || t->dtype == DTYPE_BF16;
}

static int misfit_zeros(struct finding *f, const struct matrix *m) {
    return misfit(f, m,
                  m->rows % 8 ? "its outputs do not fill the 32-bit words of qzeros"
                              : "qzeros have another shape");
}

// AWQ's and GPTQ's: scales (groups, N), zeros (groups, N b / 32).
static int find_qweight(struct finding *f, struct matrix *m) {
    m->codes = part(f, m->stem, "qweight");
    m->scales = part(f, m->stem, "scales");
    m->zeros = part(f, m->stem, "qzeros");
    m->order = part(f, m->stem, "g_idx");
    const struct tensor *codes = m->codes, *s = m->scales;
    if (codes->dtype != DTYPE_I32 || codes->n_dims != 2)
        return misfit(f, m, "qweight is no I32 matrix");
    if (!s || s->n_dims != 2 || !is_float(s)) return misfit(f, m, "it has no scales");
    m->rows = s->shape[1];
    m->groups = s->shape[0];
    m->scales_across = true;
    m->bits = 4;
    if (f->format == PACKED_AWQ) {
        m->kind = CODES_AWQ;
        m->cols = codes->shape[0];
        if (codes->shape[1] * 8 != m->rows)
            return misfit(f, m, "qweight and scales differ in width");
    } else {
        m->kind = CODES_GPTQ;
        m->zero_plus = f->format == PACKED_GPTQ ? 1 : 0;
        if (codes->shape[1] != m->rows) return misfit(f, m, "qweight and scales differ in width");
        if (!m->zeros || m->zeros->n_dims != 2 || !m->rows) return misfit(f, m, "it has no qzeros");
        if (m->zeros->shape[1] * 32 % m->rows) return misfit_zeros(f, m);
        m->bits = (int)(m->zeros->shape[1] * 32 / m->rows);
        if (m->bits != 4 && m->bits != 8) return misfit(f, m, "its codes are not of 4 or 8 bits");
        m->cols = codes->shape[0] * 32 / m->bits;
    }
    if (m->rows * m->bits % 32 ||
        (m->zeros &&
         (m->zeros->dtype != DTYPE_I32 || !has_shape(m->zeros, m->groups, m->rows * m->bits / 32))))
        return misfit_zeros(f, m);
    return 0;
}

// compressed-tensors' integers in words; scales (N, groups).
static int find_integers(struct finding *f, struct matrix *m) {
    const struct tensor *shape = part(f, m->stem, "weight_shape");
    m->zeros = part(f, m->stem, "weight_zero_point");
    m->order = part(f, m->stem, "weight_g_idx");
    m->kind = CODES_INTEGERS;
    m->rows = m->codes->shape[0];
    m->groups = m->scales->n_dims == 2 ? m->scales->shape[1] : 1;
    if (!shape || shape->dtype != DTYPE_I64 || packed_values(shape) != 2)
        return misfit(f, m, "it has no weight_shape");
    return 0; // the number of columns is in weight_shape: settle() reads it
}

static int find_e2m1(struct finding *f, struct matrix *m) {
    m->kind = CODES_E2M1;
    m->rows = m->codes->shape[0];
    m->cols = m->codes->shape[1] * 2;
    m->groups = m->scales->n_dims == 2 ? m->scales->shape[1] : 0;
    m->global = part(f, m->stem, "weight_global_scale");
    m->divides = m->global != NULL;
    if (!m->global) m->global = part(f, m->stem, "weight_scale_2");
    if (m->global && (m->global->dtype != DTYPE_F32 || packed_values(m->global) != 1))
        return misfit(f, m, "its global scale is no F32 number");
    if (m->scales->dtype == DTYPE_F8_E4M3 && !m->global)
        return misfit(f, m, "it has no global scale");
    if (m->scales->dtype != DTYPE_F8_E4M3 && m->scales->dtype != DTYPE_U8)
        return misfit(f, m, "its scales are of another type");
    return 0;
}

// The zeros of integers of a byte, one for each scale.
static int find_byte_zeros(struct finding *f, struct matrix *m) {
    m->zeros = part(f, m->stem, "weight_zero_point");
    m->order = part(f, m->stem, "weight_g_idx");
    if (!m->zeros ||
        (m->zeros->dtype == DTYPE_I8 && packed_values(m->zeros) == packed_values(m->scales)))
        return 0;
    return misfit(f, m, "weight_zero_point has another shape or type");
}

// One value a byte: a scale for each row, for all, for each group of columns, or for each block.
static int find_bytes(struct finding *f, struct matrix *m) {
    const struct tensor *s = m->scales;
    const int64_t n = packed_values(s);
    m->kind = m->codes->dtype == DTYPE_I8 ? CODES_I8 : CODES_E4M3;
    m->rows = m->codes->shape[0];
    m->cols = m->codes->shape[1];
    m->groups = 1;
    if (n == 1)
        m->block_rows = m->rows;
    else if (n == m->rows && (s->n_dims == 1 || s->shape[0] == n))
        m->block_rows = 1;
    else if (s->n_dims == 2 && s->shape[0] == (m->rows + FP8_BLOCK - 1) / FP8_BLOCK &&
             s->shape[1] == (m->cols + FP8_BLOCK - 1) / FP8_BLOCK) {
        m->block_rows = FP8_BLOCK;
        m->groups = s->shape[1];
        m->group_cols = FP8_BLOCK;
    } else if (s->n_dims == 2 && s->shape[0] == m->rows && s->shape[1] > 0) {
        m->block_rows = 1;
        m->groups = s->shape[1];
    } else
        return misfit(f, m, "its scales have another shape");
    if (!is_float(s) && !(s->dtype == DTYPE_U8 && m->kind == CODES_E4M3))
        return misfit(f, m, "its scales are of another type");
    return m->kind == CODES_I8 ? find_byte_zeros(f, m) : 0;
}

// gpt-oss: all experts of a layer, (experts, rows, groups, 16 bytes) and (experts, rows, groups).
static int find_blocks(struct finding *f, struct matrix *m, struct tensor *shown) {
    const struct tensor *codes = m->codes, *s = m->scales;
    if (!s || s->dtype != DTYPE_U8 || s->n_dims != 3 ||
        memcmp(s->shape, codes->shape, 3 * sizeof *s->shape) != 0)
        return misfit(f, m, "its blocks have no scales of their shape");
    m->kind = CODES_E2M1;
    m->rows = codes->shape[0] * codes->shape[1];
    m->cols = (m->groups = codes->shape[2]) * BLOCK_VALUES;
    shown->n_dims = 3;
    memcpy(shown->shape, (int64_t[]){codes->shape[0], codes->shape[1], m->cols},
           3 * sizeof *shown->shape);
    return 0;
}

// The matrix whose codes are `codes`, named "STEM.SUFFIX".
static int find_matrix(struct finding *f, struct matrix *m, const struct tensor *codes,
                       const char *suffix) {
    m->codes = codes;
    if (strcmp(suffix, "qweight") == 0) return find_qweight(f, m);
    part(f, m->stem, suffix);
    m->scales = part(f, m->stem, f->format == PACKED_BNB ? "SCB" : "weight_scale");
    if (!m->scales) m->scales = part(f, m->stem, "weight_scale_inv");
    if (!m->scales) return misfit(f, m, "it has no scales");
    if (codes->n_dims != 2) return misfit(f, m, "its codes are no matrix");
    if (codes->dtype == DTYPE_I32) return find_integers(f, m);
    if (codes->dtype == DTYPE_U8) return find_e2m1(f, m);
    return find_bytes(f, m);
}

// What all kinds must have: columns in whole groups.
static int settle(struct finding *f, struct matrix *m, struct packed_reader reader) {
    if (m->kind == CODES_INTEGERS) {
        int64_t shape[2];
        char name[NAME_MAX_BYTES];
        snprintf(name, sizeof name, "%s.weight_shape", m->stem);
        const struct tensor *const *t =
            bsearch(name, f->stored, f->n, sizeof *f->stored, compare_name);
        TRY(reader.read(reader.ctx, *t, 0, shape, sizeof shape, f->err));
        m->cols = shape[1];
        if (shape[0] != m->rows || m->cols < 1 || m->cols > INT32_MAX)
            return misfit(f, m, "weight_shape does not fit weight_packed");
        m->bits = m->codes->shape[1] == (m->cols * 4 + 31) / 32   ? 4
                  : m->codes->shape[1] == (m->cols * 8 + 31) / 32 ? 8
                                                                  : 0;
        if (!m->bits) return misfit(f, m, "its codes are not of 4 or 8 bits");
        if (m->zeros && (m->zeros->dtype != DTYPE_I32 ||
                         !has_shape(m->zeros, (m->rows * m->bits + 31) / 32, m->groups)))
            return misfit(f, m, "weight_zero_point has another shape");
    }
    if (m->rows < 1 || m->cols < 1 || m->rows > INT32_MAX || m->cols > INT32_MAX || m->groups < 1)
        return misfit(f, m, "it has an impossible shape");
    if (m->block_rows == 1 && m->kind != CODES_I8 && m->kind != CODES_E4M3) {
        if (packed_values(m->scales) != m->rows * m->groups ||
            (!is_float(m->scales) && m->kind != CODES_E2M1))
            return misfit(f, m, "its scales have another shape or type");
    }
    if (m->groups > m->cols) return misfit(f, m, "it has more groups than columns");
    if (!m->group_cols) {
        if (m->cols % m->groups && !m->order)
            return misfit(f, m, "its columns are not whole groups");
        m->group_cols = m->cols / m->groups;
    }
    if (m->order && (m->order->dtype != DTYPE_I32 || packed_values(m->order) != m->cols))
        return misfit(f, m, "g_idx has another shape");
    return 0;
}

// bitsandbytes' 4 bits, or its 8 bits. The layouts of 8 bits that older versions stored are other orders of columns.
static int find_bnb(struct packed_tensors *p, struct finding *f, struct matrix *m,
                    const struct tensor *codes, struct tensor *shown) {
    struct bnb_parts parts = {.codes = codes};
    const struct tensor *order;
    uint8_t layout = 0;
    if (codes->dtype == DTYPE_I8) {
        m->scale_by = 1 / 127.0f;
        order = part(f, m->stem, "weight_format");
        if (order && order->bytes == 1)
            TRY(p->reader.read(p->reader.ctx, order, 0, &layout, 1, f->err));
        if (layout != 0 || (order && order->bytes != 1))
            return misfit(f, m, "its weight_format is not 0, rows");
        return find_matrix(f, m, codes, "weight");
    }
    part(f, m->stem, "weight");
    m->kind = CODES_BNB;
    parts.state = part(f, m->stem, "weight." BNB_STATE "nf4");
    if (!parts.state) parts.state = part(f, m->stem, "weight." BNB_STATE "fp4");
    parts.map = part(f, m->stem, "weight.quant_map");
    parts.absmax = part(f, m->stem, "weight.absmax");
    parts.nested_absmax = part(f, m->stem, "weight.nested_absmax");
    parts.nested_map = part(f, m->stem, "weight.nested_quant_map");
    if (!parts.state) return misfit(f, m, "it has no quant_state of nf4 or fp4");
    return bnb_matrix_open(&m->bnb, &parts, shown, p->reader, f->err);
}

static bool is_blocks(const struct tensor *t) {
    const size_t n = strlen(t->name), m = strlen(BLOCKS);
    return t->dtype == DTYPE_U8 && t->n_dims == 4 && t->shape[3] == BLOCK_VALUES / 2 && n > m &&
           strcmp(t->name + n - m, BLOCKS) == 0;
}

// Codes of 4 bits may be stored as numbers of any type.
static bool has_bnb_state(const struct finding *f, const struct tensor *t) {
    char name[NAME_MAX_BYTES];
    const size_t n = (size_t)snprintf(name, sizeof name, "%s." BNB_STATE, t->name);
    size_t from = 0, end = f->n; // the first name that is not before it
    while (from < end) {
        const size_t mid = (from + end) / 2;
        if (strcmp(f->stored[mid]->name, name) < 0)
            from = mid + 1;
        else
            end = mid;
    }
    return n < sizeof name && from < f->n && strncmp(f->stored[from]->name, name, n) == 0;
}

// Whether a stored tensor is the codes of a packed matrix; *suffix: of its name.
static bool is_codes(const struct finding *f, const struct tensor *t, const char **suffix) {
    const char *dot = strrchr(t->name, '.');
    if (!dot) return false;
    *suffix = dot + 1;
    if (f->format == PACKED_BNB)
        return strcmp(*suffix, "weight") == 0 &&
               (t->dtype == DTYPE_U8 || t->dtype == DTYPE_I8 || has_bnb_state(f, t));
    if (strcmp(*suffix, "qweight") == 0 || strcmp(*suffix, "weight_packed") == 0) return true;
    if (packed_fp8_stays(t, f->stored, f->n)) return false;
    return strcmp(*suffix, "weight") == 0 && t->n_dims == 2 &&
           (t->dtype == DTYPE_U8 || t->dtype == DTYPE_I8 || t->dtype == DTYPE_F8_E4M3);
}

// The next matrix, whose name is "STEM.weight" by the first n bytes of `stem`.
static int begin_matrix(struct packed_tensors *p, const char *stem, size_t n, struct err *err) {
    struct matrix *m = &p->matrices[p->n_matrices];
    char *name = NULL;
    m->stem = strndup(stem, n);
    if (m->stem && asprintf(&name, "%s.weight", m->stem) < 0) name = NULL;
    p->own[p->n_matrices++] =
        (struct tensor){.name = name, .dtype = DTYPE_F32}; // close releases both
    m->block_rows = 1;
    m->scale_by = 1;
    return m->stem && name ? 0 : err_set(err, E_NOMEM, "no memory for the names of matrices");
}

// Experts' blocks: "STEM_blocks" and "STEM_scales".
static int add_blocks(struct packed_tensors *p, struct finding *f, const struct tensor *codes) {
    struct matrix *m = &p->matrices[p->n_matrices];
    struct tensor *t = &p->own[p->n_matrices];
    char scales[NAME_MAX_BYTES];
    TRY(begin_matrix(p, codes->name, strlen(codes->name) - strlen(BLOCKS), f->err));
    m->codes = part_named(f, codes->name);
    snprintf(scales, sizeof scales, "%s_scales", m->stem);
    m->scales = part_named(f, scales);
    TRY(find_blocks(f, m, t));
    TRY(settle(f, m, p->reader));
    t->bytes = (size_t)m->rows * (size_t)m->cols * sizeof(float);
    return 0;
}

static int add_matrix(struct packed_tensors *p, struct finding *f, const struct tensor *codes,
                      const char *suffix) {
    struct matrix *m = &p->matrices[p->n_matrices];
    struct tensor *t = &p->own[p->n_matrices];
    TRY(begin_matrix(p, codes->name, (size_t)(suffix - 1 - codes->name), f->err));
    if (f->format == PACKED_BNB) TRY(find_bnb(p, f, m, codes, t));
    if (m->kind == CODES_BNB) return 0;
    if (f->format != PACKED_BNB) TRY(find_matrix(f, m, codes, suffix));
    TRY(settle(f, m, p->reader));
    t->n_dims = 2;
    t->shape[0] = m->rows;
    t->shape[1] = m->cols;
    t->bytes = (size_t)m->rows * (size_t)m->cols * sizeof(float);
    return 0;
}

static int find_all(struct packed_tensors *p, struct finding *f) {
    for (size_t i = 0; i < f->n; i++) {
        const char *suffix;
        if (is_blocks(f->stored[i]))
            TRY(add_blocks(p, f, f->stored[i]));
        else if (is_codes(f, f->stored[i], &suffix))
            TRY(add_matrix(p, f, f->stored[i], suffix));
    }
    for (size_t i = 0; i < f->n; i++)
        if (!f->is_part[i]) p->all[p->n++] = f->stored[i];
    for (size_t i = 0; i < p->n_matrices; i++) p->all[p->n++] = &p->own[i];
    return 0;
}

int packed_tensors_open(struct packed_tensors **out, enum packed_format format,
                        const struct tensor *const *stored, size_t n, struct packed_reader reader,
                        struct err *err) {
    *out = NULL;
    struct packed_tensors *p = calloc(1, sizeof *p);
    struct finding f = {stored, n, calloc(n + 1, 1), format, err};
    int rc = 0;
    if (p) {
        p->reader = reader;
        p->own = calloc(n + 1, sizeof *p->own);
        p->matrices = calloc(n + 1, sizeof *p->matrices);
        p->all = calloc(2 * n + 1, sizeof *p->all);
    }
    if (!p || !f.is_part || !p->own || !p->matrices || !p->all)
        rc = err_set(err, E_NOMEM, "no memory for %zu tensors", n);
    if (rc == 0) rc = find_all(p, &f);
    free(f.is_part);
    if (rc < 0 || p->n_matrices == 0) {
        packed_tensors_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void packed_tensors_close(struct packed_tensors *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n_matrices; i++) {
        free((char *)(uintptr_t)p->own[i].name);
        free((char *)(uintptr_t)p->matrices[i].stem);
        bnb_matrix_close(p->matrices[i].bnb);
    }
    free(p->own);
    free(p->matrices);
    free(p->all);
    free(p);
}

size_t packed_tensors_count(const struct packed_tensors *p) {
    return p->n;
}

const struct tensor *packed_tensors_at(const struct packed_tensors *p, size_t i) {
    return p->all[i];
}

bool packed_tensors_has(const struct packed_tensors *p, const struct tensor *t) {
    return t >= p->own && t < p->own + p->n_matrices;
}

// --- reading ---

static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// codes: (cols), scratch.
static void decode_row(const struct matrix *m, const struct strip *s, int64_t r, uint8_t *codes,
                       float *out) {
    const int64_t row = s->first + r;
    const float *scales = packed_scales_at(m, s, row);
    int64_t group = -1;
    float scale = 0;
    int zero = 0;
    packed_codes(m, s, r, 0, m->cols, codes);
    for (int64_t k = 0; k < m->cols; k++) {
        int64_t g = s->order ? s->order[k] : k / m->group_cols;
        if (g != group) {
            group = g;
            scale = scales[g];
            if (m->bits || s->zeros) zero = packed_zero_at(m, s, row, g);
        }
        const int code = codes[k];
        out[k] = m->kind == CODES_E2M1   ? e2m1[code] * scale
                 : m->kind == CODES_I8   ? (float)((int8_t)code - zero) * scale
                 : m->kind == CODES_E4M3 ? e4m3_to_f32((uint8_t)code) * scale
                                         : (float)(code - zero) * scale;
    }
}

static int64_t strip_rows(const struct matrix *m) {
    int64_t rows = (int64_t)(STRIP_BYTES / sizeof(float)) / m->cols;
    return rows < 8 ? 8 : rows / 8 * 8;
}

int packed_tensors_read(const struct packed_tensors *p, const struct tensor *t, size_t offset,
                        void *out, size_t n, struct err *err) {
    const struct matrix *m = &p->matrices[t - p->own];
    const size_t row_bytes = (size_t)m->cols * sizeof(float);
    if (offset > t->bytes || n > t->bytes - offset)
        return err_set(err, E_INTERNAL, "a read past the matrix '%s'", t->name);
    if (m->kind == CODES_BNB) return bnb_matrix_read(m->bnb, offset, out, n, err);
    float *row = malloc(row_bytes + (size_t)m->cols); // and its codes
    int rc = row ? 0 : err_set(err, E_NOMEM, "no memory for a row of '%s'", t->name);
    for (char *to = out; rc == 0 && n > 0;) {
        const int64_t first = (int64_t)(offset / row_bytes),
                      most = first - first % 8 + strip_rows(m);
        const int64_t end = (int64_t)((offset + n + row_bytes - 1) / row_bytes);
        struct strip s = packed_strip(m, first, (end < most ? end : most) - first);
        if (end == first + 1) { // a few columns, as fingerprints read them
            s.cols.first = (int64_t)(offset % row_bytes / sizeof *row);
            s.cols.end = (int64_t)((offset % row_bytes + n + sizeof *row - 1) / sizeof *row);
        }
        rc = packed_read_strip(p, m, &s, err);
        for (int64_t r = first; rc == 0 && n > 0 && r < s.first + s.count; r++) {
            const size_t from = offset % row_bytes;
            const size_t here = row_bytes - from < n ? row_bytes - from : n;
            decode_row(m, &s, r - s.first, (uint8_t *)(row + m->cols), row);
            memcpy(to, (const char *)row + from, here);
            to += here;
            offset += here;
            n -= here;
        }
        packed_release_strip(&s);
    }
    free(row);
    return rc;
}
