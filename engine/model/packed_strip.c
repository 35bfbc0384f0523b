// Reads the parts of a strip of rows (packed_matrix.h).
#include "engine/model/packed_matrix.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// 2^(b - 127), as the OCP Microscaling formats scale blocks; 0xff is no number. ldexpf() took half of the loading.
static float e8m0_to_f32(uint8_t b) {
    const uint32_t bits = b == 0xff ? 0x7fc00000u : b == 0 ? 0x00400000u : (uint32_t)b << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float scale_value(const struct tensor *t, const uint8_t *bytes, size_t i) {
    uint16_t half;
    float f;
    switch (t->dtype) {
    case DTYPE_F32:
        memcpy(&f, bytes + 4 * i, sizeof f);
        return f;
    case DTYPE_F16:
        memcpy(&half, bytes + 2 * i, sizeof half);
        return f16_to_f32(half);
    case DTYPE_BF16:
        memcpy(&half, bytes + 2 * i, sizeof half);
        return bf16_to_f32(half);
    case DTYPE_F8_E4M3:
        return e4m3_to_f32(bytes[i]);
    default:
        return e8m0_to_f32(bytes[i]);
    }
}

static int read_bytes(const struct packed_tensors *p, const struct tensor *t, size_t from, size_t n,
                      uint8_t **out, struct err *err) {
    *out = malloc(n + 1);
    if (!*out) return err_set(err, E_NOMEM, "no memory for %zu bytes of '%s'", n, t->name);
    return p->reader.read(p->reader.ctx, t, from, *out, n, err);
}

// Columns [first, first + count) of a matrix, to *out (shape[0], count), of which `lines` are read and the others 0.
static int read_columns(const struct packed_tensors *p, const struct tensor *t, int64_t first,
                        int64_t count, struct span lines, uint8_t **out, struct err *err) {
    const size_t size = dtype_size(t->dtype), line = (size_t)count * size,
                 whole = (size_t)t->shape[1] * size;
    *out = calloc((size_t)t->shape[0] * line + 1, 1);
    if (!*out) return err_set(err, E_NOMEM, "no memory for '%s'", t->name);
    if (line == whole)
        return p->reader.read(p->reader.ctx, t, (size_t)lines.first * line,
                              *out + (size_t)lines.first * line,
                              (size_t)(lines.end - lines.first) * line, err);
    for (int64_t i = lines.first; i < lines.end; i++)
        TRY(p->reader.read(p->reader.ctx, t, (size_t)i * whole + (size_t)first * size,
                           *out + (size_t)i * line, line, err));
    return 0;
}

static int read_scales(const struct packed_tensors *p, const struct matrix *m, struct strip *s,
                       struct err *err) {
    const struct tensor *t = m->scales;
    const int64_t first = s->first / m->block_rows,
                  last = (s->first + s->count - 1) / m->block_rows;
    // Of a matrix with a row of scales for each of its rows, those of the strip.
    const bool some =
        !m->scales_across && m->block_rows == 1 && packed_values(t) == m->rows * m->groups;
    const size_t each = (size_t)m->groups * dtype_size(t->dtype);
    const size_t n = some ? (size_t)(last - first + 1) * each : t->bytes;
    const int64_t count = last - first + 1;
    uint8_t *bytes = NULL;
    s->scales = malloc((size_t)(count * m->groups) * sizeof *s->scales);
    int rc = !s->scales ? err_set(err, E_NOMEM, "no memory for '%s'", t->name)
             : m->scales_across
                 ? read_columns(p, t, first, count, (struct span){0, m->groups}, &bytes, err)
                 : read_bytes(p, t, some ? (size_t)first * each : 0, n, &bytes, err);
    for (int64_t r = first; rc == 0 && r <= last; r++)
        for (int64_t g = 0; rc == 0 && g < m->groups; g++) {
            int64_t i =
                m->scales_across ? g * count + r - first : (r - (some ? first : 0)) * m->groups + g;
            float v = scale_value(t, bytes, (size_t)i) * m->scale_by;
            v = m->divides ? v / s->global : v * s->global;
            s->scales[(r - first) * m->groups + g] = v;
            if (!isfinite(v))
                rc =
                    err_set(err, E_FORMAT,
                            "the tensor '%s' holds a scale that is infinite or no number", t->name);
        }
    free(bytes);
    return rc;
}

static int read_global(const struct packed_tensors *p, const struct matrix *m, struct strip *s,
                       struct err *err) {
    s->global = 1;
    if (!m->global) return 0;
    TRY(p->reader.read(p->reader.ctx, m->global, 0, &s->global, sizeof s->global, err));
    if (isfinite(s->global) && (s->global != 0 || !m->divides)) return 0;
    return err_set(err, E_FORMAT, "the tensor '%s' is %g", m->global->name, (double)s->global);
}

static int read_order(const struct packed_tensors *p, const struct matrix *m, struct strip *s,
                      struct err *err) {
    if (!m->order) return 0;
    TRY(read_bytes(p, m->order, 0, m->order->bytes, (uint8_t **)(void *)&s->order, err));
    for (int64_t k = 0; k < m->cols; k++)
        if (s->order[k] < 0 || s->order[k] >= m->groups)
            return err_set(err, E_FORMAT, "the tensor '%s' names group %d of %lld", m->order->name,
                           s->order[k], (long long)m->groups);
    return 0;
}

struct strip packed_strip(const struct matrix *m, int64_t first, int64_t count) {
    const int64_t from = first - first % 8, end = (first + count + 7) / 8 * 8;
    return (struct strip){
        .first = from, .count = (end < m->rows ? end : m->rows) - from, .cols = {0, m->cols}};
}

const float *packed_scales_at(const struct matrix *m, const struct strip *s, int64_t row) {
    return s->scales + (row / m->block_rows - s->first / m->block_rows) * m->groups;
}

int packed_read_strip(const struct packed_tensors *p, const struct matrix *m, struct strip *s,
                      struct err *err) {
    const size_t line = m->kind == CODES_E2M1
                            ? (size_t)m->cols / 2
                            : (size_t)m->codes->shape[1] * dtype_size(m->codes->dtype);
    TRY(read_global(p, m, s, err));
    TRY(read_scales(p, m, s, err));
    TRY(read_order(p, m, s, err));
    if (m->zeros) TRY(read_bytes(p, m->zeros, 0, m->zeros->bytes, &s->zeros, err));
    if (m->kind == CODES_AWQ) {
        TRY(read_columns(p, m->codes, s->first / 8, s->count / 8, s->cols, &s->codes, err));
        return packed_turn_awq(m, s, err);
    }
    if (m->kind == CODES_GPTQ) {
        const int64_t end = (s->cols.end * m->bits + 31) / 32;
        return read_columns(p, m->codes, s->first, s->count,
                            (struct span){s->cols.first * m->bits / 32, end}, &s->codes, err);
    }
    return read_bytes(p, m->codes, (size_t)s->first * line, (size_t)s->count * line, &s->codes,
                      err);
}

void packed_release_strip(struct strip *s) {
    free(s->codes);
    free(s->zeros);
    free(s->order);
    free(s->scales);
}
