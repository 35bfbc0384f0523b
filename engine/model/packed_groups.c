// Packed matrices as codes, scales and zeros for the backend (kernels/groups.h), without a change of value. All stored
// parts of the rows are in memory while they are read: AWQ and GPTQ store columns of words.
#include "engine/model/packed_matrix.h"
#include <stdlib.h>

struct packed_rows {
    const struct matrix *m;
    struct group_format format;
    struct strip strip;
};

// Columns of a group as the backend has them: a power of two that divides the file's groups. 0: none does.
static int32_t group_of(const struct matrix *m) {
    if (m->groups == 1) return GROUP_TILE_K;
    for (int32_t g = GROUP_TILE_K; g >= GROUP_MIN; g /= 2)
        if (m->group_cols % g == 0) return g;
    return 0;
}

static enum group_scale scale_kind(const struct matrix *m) {
    if (m->scales->dtype == DTYPE_F16 && !m->global) return GROUP_SCALE_F16;
    if (m->scales->dtype == DTYPE_BF16 && !m->global) return GROUP_SCALE_BF16;
    return GROUP_SCALE_F32; // also e8m0, and e4m3 times a scale for all
}

// Whether the groups of an order are those without one.
static bool is_in_order(const struct packed_tensors *p, const struct matrix *m) {
    int32_t *order = malloc(m->order->bytes + 1);
    bool same =
        order && p->reader.read(p->reader.ctx, m->order, 0, order, m->order->bytes, NULL) == 0;
    for (int64_t k = 0; same && k < m->cols; k++) same = order[k] == k / m->group_cols;
    free(order);
    return same;
}

bool packed_tensors_groups(const struct packed_tensors *p, const struct tensor *t,
                           struct group_format *out) {
    const struct matrix *m = &p->matrices[t - p->own];
    *out = (struct group_format){.bits = m->bits};
    if (m->kind == CODES_BNB || m->kind == CODES_E4M3) return false;
    out->group = group_of(m);
    if (out->group == 0) return false;
    out->scale = scale_kind(m);
    if (m->order && !is_in_order(p, m)) return false;
    if (m->kind == CODES_E2M1) {
        out->bits = 4;
        out->book = group_book_e2m1;
        out->zero = 16;
    } else if (m->kind == CODES_I8) {
        out->bits = 8;
        out->zero_kind = m->zeros ? GROUP_ZERO_U8 : GROUP_ZERO_SAME;
        out->zero = m->zeros ? 0 : 128;
    } else if (m->zeros) {
        out->zero_kind = GROUP_ZERO_U8;
        out->zero = m->zero_plus;
    } else {
        out->zero = 1 << (m->bits - 1);
    }
    return true;
}

int packed_tensors_rows_open(struct packed_rows **out, const struct packed_tensors *p,
                             const struct tensor *t, int64_t first, int64_t count,
                             struct err *err) {
    struct packed_rows *rows = calloc(1, sizeof *rows);
    *out = rows;
    if (!rows) return err_set(err, E_NOMEM, "no memory to read '%s'", t->name);
    rows->m = &p->matrices[t - p->own];
    rows->strip = packed_strip(rows->m, first, count);
    packed_tensors_groups(p, t, &rows->format);
    int rc = packed_read_strip(p, rows->m, &rows->strip, err);
    if (rc == 0) return 0;
    packed_tensors_rows_close(rows);
    *out = NULL;
    return rc;
}

void packed_tensors_rows_close(struct packed_rows *rows) {
    if (!rows) return;
    packed_release_strip(&rows->strip);
    free(rows);
}

static void put_scale(const struct packed_rows *rows, struct group_row *out, int64_t at, float v) {
    if (rows->format.scale == GROUP_SCALE_F16)
        ((uint16_t *)out->scales)[at] = f16_from_f32(v); // it came from one
    else if (rows->format.scale == GROUP_SCALE_BF16)
        ((uint16_t *)out->scales)[at] = bf16_from_f32(v);
    else
        ((float *)out->scales)[at] = v;
}

void packed_tensors_row(const struct packed_rows *rows, int64_t row, int64_t first, int64_t n,
                        struct group_row *out) {
    const struct matrix *m = rows->m;
    const struct strip *s = &rows->strip;
    const struct group_format *f = &rows->format;
    const float *scales = packed_scales_at(m, s, row);
    const uint8_t flip = m->kind == CODES_I8 ? 128 : 0; // from -128 .. 127 to 0 .. 255
    packed_codes(m, s, row - s->first, first, n, out->codes);
    for (int64_t k = 0; flip && k < n; k++) out->codes[k] ^= flip;
    for (int64_t i = 0; i < group_count(f, n); i++) {
        int64_t g = (first + i * f->group) / m->group_cols;
        float v = scales[g];
        if (m->kind == CODES_E2M1) v *= 0.5f; // the book has twice the numbers
        put_scale(rows, out, i, v);
        if (f->zero_kind == GROUP_ZERO_U8)
            ((uint8_t *)out->zeros)[i] =
                (uint8_t)(packed_zero_at(m, s, row, g) + flip - m->zero_plus);
    }
}
