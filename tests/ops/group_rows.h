// Rows of few bits of any format, random by their numbers alone (test_linear_groups.c, test_cuda_groups.c, test_cuda_experts.c).
#pragma once
#include "kernels/groups.h"

struct group_rows {
    struct group_format f;
    int32_t cols;
    uint32_t salt; // one matrix has other numbers than another
};

static inline uint32_t mix(int64_t row, int64_t i, uint32_t salt) {
    uint32_t h = (uint32_t)row * 2654435761u ^ (uint32_t)i * 40503u ^ salt * 97u;
    h ^= h >> 15;
    h *= 2246822519u;
    return h ^ h >> 13;
}
static inline float small(int64_t row, int64_t i, uint32_t salt) {
    return (float)(mix(row, i, salt) % 2000) * 1e-5f - 0.008f;
}

static inline int group_rows_fill(const void *ctx, int64_t row, struct group_row *out,
                                  struct err *err) {
    const struct group_rows *s = ctx;
    for (int64_t k = 0; k < s->cols; k++)
        out->codes[k] = (uint8_t)(mix(row, k, 1 + s->salt) % (1u << s->f.bits));
    for (int64_t g = 0; g < group_count(&s->f, s->cols); g++) {
        const float v = small(row, g, 2 + s->salt);
        if (s->f.scale == GROUP_SCALE_F16) ((uint16_t *)out->scales)[g] = f16_from_f32(v);
        if (s->f.scale == GROUP_SCALE_BF16) ((uint16_t *)out->scales)[g] = bf16_from_f32(v);
        if (s->f.scale == GROUP_SCALE_F32) ((float *)out->scales)[g] = v;
        if (s->f.scale == GROUP_SCALE_NESTED)
            ((int8_t *)out->scales)[g] = (int8_t)(mix(row, g, 3) % 64 - 32);
        if (s->f.zero_kind == GROUP_MIN_F16)
            ((uint16_t *)out->zeros)[g] = f16_from_f32(small(row, g, 4));
        else
            ((uint8_t *)out->zeros)[g] = (uint8_t)(mix(row, g, 5) % 16);
    }
    for (int64_t t = 0; t < group_tiles(s->cols); t++) {
        out->supers[t] = f16_from_f32(small(row, t, 6));
        out->min_supers[t] = f16_from_f32(small(row, t, 7));
    }
    return 0;
}

// The same, but row 40 is refused.
static inline int group_rows_refuse(const void *ctx, int64_t row, struct group_row *out,
                                    struct err *err) {
    if (row == 40) return err_set(err, E_FORMAT, "row %d holds a scale of nan", (int)row);
    return group_rows_fill(ctx, row, out, err);
}

// What a row's code stands for in column k.
static inline double group_value(const struct group_format *f, const struct group_row *r, int64_t k,
                                 uint8_t code) {
    const int64_t g = k / f->group, t = k / GROUP_TILE_K;
    const double number = f->book ? f->book[code] : code;
    const double scale = f->scale == GROUP_SCALE_F16 ? f16_to_f32(((const uint16_t *)r->scales)[g])
                         : f->scale == GROUP_SCALE_BF16
                             ? bf16_to_f32(((const uint16_t *)r->scales)[g])
                         : f->scale == GROUP_SCALE_F32
                             ? ((const float *)r->scales)[g]
                             : (double)f16_to_f32(r->supers[t]) * ((const int8_t *)r->scales)[g];
    if (f->zero_kind == GROUP_MIN_F16)
        return scale * number + f16_to_f32(((const uint16_t *)r->zeros)[g]);
    if (f->zero_kind == GROUP_MIN_NESTED)
        return scale * number -
               (double)f16_to_f32(r->min_supers[t]) * ((const uint8_t *)r->zeros)[g];
    const int zero = f->zero + (f->zero_kind == GROUP_ZERO_U8 ? ((const uint8_t *)r->zeros)[g] : 0);
    return scale * (number - zero);
}
static inline double group_row_value(const struct group_format *f, const struct group_row *r,
                                     int64_t k) {
    return group_value(f, r, k, r->codes[k]);
}
