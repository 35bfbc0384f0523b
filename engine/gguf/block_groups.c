// See block_groups.h. Layouts of blocks: block_types.c.
#include "engine/gguf/block_groups.h"
#include "engine/gguf/block_iq.h"
#include <math.h>
#include <string.h>

enum { VALUES = 256, F16_EXPONENT = 0x7c00 };

// The arrays of a row at one block.
struct at {
    uint8_t *codes, *zeros;
    uint16_t *scales, *minimums, *super, *min_super;
    int8_t *subs;
};

static uint16_t u16_at(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static void halves(uint8_t *codes, const uint8_t *q) { // 32 values in 16 bytes
    for (int j = 0; j < 16; j++) {
        codes[j] = q[j] & 15;
        codes[j + 16] = q[j] >> 4;
    }
}

// Loops over 32 bytes without a division become vector code.
static void halves_apart(uint8_t *restrict codes, const uint8_t *restrict q) { // 64 in 32 bytes
    for (int l = 0; l < 32; l++) {
        codes[l] = q[l] & 15;
        codes[l + 32] = q[l] >> 4;
    }
}

static void quarters(uint8_t *restrict codes, const uint8_t *restrict q) { // 256 in 64 bytes
    for (int part = 0; part < 2; part++, q += 32)
        for (int shift = 0; shift < 8; shift += 2, codes += 32)
            for (int l = 0; l < 32; l++) codes[l] = q[l] >> shift & 3;
}

// One more bit for 256 codes: bit i of byte l is that of code 32 i + l.
static void one_more(uint8_t *restrict codes, const uint8_t *restrict high, int at) {
    for (int group = 0; group < 8; group++, codes += 32)
        for (int l = 0; l < 32; l++) codes[l] |= (uint8_t)((high[l] >> group & 1) << at);
}

static void fifth_bits(uint8_t *codes, const uint8_t *b) {
    const uint32_t bits = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    for (int j = 0; j < 32; j++) codes[j] |= (uint8_t)((bits >> j & 1) << 4);
}

static void put_q4_0(const uint8_t *b, const struct at *to) {
    to->scales[0] = u16_at(b);
    halves(to->codes, b + 2);
}

static void put_q4_1(const uint8_t *b, const struct at *to) {
    to->scales[0] = u16_at(b);
    to->minimums[0] = u16_at(b + 2);
    halves(to->codes, b + 4);
}

static void put_q5_0(const uint8_t *b, const struct at *to) {
    to->scales[0] = u16_at(b);
    halves(to->codes, b + 6);
    fifth_bits(to->codes, b + 2);
}

static void put_q5_1(const uint8_t *b, const struct at *to) {
    to->scales[0] = u16_at(b);
    to->minimums[0] = u16_at(b + 2);
    halves(to->codes, b + 8);
    fifth_bits(to->codes, b + 4);
}

static void put_q8_0(const uint8_t *b, const struct at *to) {
    to->scales[0] = u16_at(b);
    for (int j = 0; j < 32; j++) to->codes[j] = (uint8_t)(b[2 + j] + 128);
}

// As bf16: twice the numbers of the book, so half the scale. 2^-127 and 2^-128 are denormals of bf16.
static void put_mxfp4(const uint8_t *b, const struct at *to) {
    const int e = b[0];
    to->scales[0] = (uint16_t)(e == 0xff ? 0x7fc0 : e > 1 ? (e - 1) << 7 : e == 1 ? 0x40 : 0x20);
    halves(to->codes, b + 1);
}

static void put_q2_k(const uint8_t *b, const struct at *to) {
    *to->super = u16_at(b + 80);
    *to->min_super = u16_at(b + 82);
    for (int g = 0; g < 16; g++) {
        to->subs[g] = b[g] & 15;
        to->zeros[g] = b[g] >> 4;
    }
    quarters(to->codes, b + 16);
}

static void put_q3_k(const uint8_t *b, const struct at *to) {
    const uint8_t *s = b + 96;
    *to->super = u16_at(b + 108);
    for (int j = 0; j < 16; j++) {
        int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
        to->subs[j] = (int8_t)((low | (s[8 + j % 4] >> (2 * (j / 4)) & 3) << 4) - 32);
    }
    quarters(to->codes, b + 32);
    one_more(to->codes, b, 2);
}

static void put_45(const uint8_t *b, const uint8_t *q, const uint8_t *high, const struct at *to) {
    const uint8_t *s = b + 4;
    *to->super = u16_at(b);
    *to->min_super = u16_at(b + 2);
    for (int j = 0; j < 8; j++) {
        to->subs[j] = (int8_t)(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4);
        to->zeros[j] = (uint8_t)(j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4);
    }
    for (int i = 0; i < 4; i++) halves_apart(to->codes + 64 * i, q + 32 * i);
    if (high) one_more(to->codes, high, 4);
}

static void put_q4_k(const uint8_t *b, const struct at *to) {
    put_45(b, b + 16, NULL, to);
}

static void put_q5_k(const uint8_t *b, const struct at *to) {
    put_45(b, b + 48, b + 16, to);
}

static void put_q6_k(const uint8_t *b, const struct at *to) {
    uint8_t *restrict codes = to->codes;
    *to->super = u16_at(b + 208);
    memcpy(to->subs, b + 192, 16);
    for (int part = 0; part < 2; part++, codes += 128) {
        const uint8_t *restrict four = b + part * 64, *restrict two = b + 128 + part * 32;
        for (int l = 0; l < 32; l++) {
            codes[l] = (uint8_t)((four[l] & 15) | (two[l] & 3) << 4);
            codes[l + 32] = (uint8_t)((four[l + 32] & 15) | (two[l] >> 2 & 3) << 4);
            codes[l + 64] = (uint8_t)(four[l] >> 4 | (two[l] >> 4 & 3) << 4);
            codes[l + 96] = (uint8_t)(four[l + 32] >> 4 | two[l] >> 6 << 4);
        }
    }
}

static void put_iq4_xs(const uint8_t *b, const struct at *to) {
    const int high = b[2] | b[3] << 8;
    *to->super = u16_at(b);
    for (int g = 0; g < 8; g++) {
        int low = b[4 + g / 2] >> (g % 2 * 4) & 15;
        to->subs[g] = (int8_t)((low | (high >> (2 * g) & 3) << 4) - 32);
        halves(to->codes + 32 * g, b + 8 + g * 16);
    }
}

// -1 and 1 times the scale: 0 and 2 less 1.
static void put_q1_0(const uint8_t *b, const struct at *to) {
    to->scales[0] = u16_at(b);
    for (int j = 0; j < 128; j++) to->codes[j] = (b[2 + j / 8] >> (j % 8) & 1) * 2;
}

static void put_q2_0(const uint8_t *b, const struct at *to) {
    to->scales[0] = u16_at(b);
    for (int j = 0; j < 64; j++) to->codes[j] = b[2 + j / 4] >> (j % 4 * 2) & 3;
}

static void put_tq1_0(const uint8_t *b, const struct at *to) {
    to->scales[0] = u16_at(b + 52);
    for (int i = 0; i < VALUES; i++) to->codes[i] = (uint8_t)tq1_0_code(b, i);
}

static void put_tq2_0(const uint8_t *b, const struct at *to) {
    to->scales[0] = u16_at(b + 64);
    quarters(to->codes, b);
}

static void nvfp4_put(const uint8_t *b, uint8_t *codes, float *scales) {
    for (int g = 0; g < 4; g++) scales[g] = nvfp4_half_scale(b, g);
    for (int i = 0; i < 64; i++) codes[i] = b[4 + i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15;
}

// clang-format off
static const struct row {
    const char *name;
    struct group_format format;
    void (*put)(const uint8_t *block, const struct at *to);
    void (*put_f32)(const uint8_t *block, uint8_t *codes, float *scales); // in place of put
} rows[] = {
    {"Q4_0", {4, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 8, NULL}, put_q4_0, NULL},
    {"Q4_1", {4, 32, GROUP_SCALE_F16, GROUP_MIN_F16, 0, NULL}, put_q4_1, NULL},
    {"Q5_0", {5, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 16, NULL}, put_q5_0, NULL},
    {"Q5_1", {5, 32, GROUP_SCALE_F16, GROUP_MIN_F16, 0, NULL}, put_q5_1, NULL},
    {"Q8_0", {8, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 128, NULL}, put_q8_0, NULL},
    {"Q2_K", {2, 16, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL}, put_q2_k, NULL},
    {"Q3_K", {3, 16, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 4, NULL}, put_q3_k, NULL},
    {"Q4_K", {4, 32, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL}, put_q4_k, NULL},
    {"Q5_K", {5, 32, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL}, put_q5_k, NULL},
    {"Q6_K", {6, 16, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 32, NULL}, put_q6_k, NULL},
    {"IQ4_NL", {4, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 128, group_book_iq4}, put_q4_0, NULL},
    {"IQ4_XS", {4, 32, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 128, group_book_iq4}, put_iq4_xs, NULL},
    {"MXFP4", {4, 32, GROUP_SCALE_BF16, GROUP_ZERO_SAME, 16, group_book_e2m1}, put_mxfp4, NULL},
    {"NVFP4", {4, 16, GROUP_SCALE_F32, GROUP_ZERO_SAME, 16, group_book_e2m1}, NULL, nvfp4_put},
    {"TQ1_0", {2, 256, GROUP_SCALE_F16, GROUP_ZERO_SAME, 1, NULL}, put_tq1_0, NULL},
    {"TQ2_0", {2, 256, GROUP_SCALE_F16, GROUP_ZERO_SAME, 1, NULL}, put_tq2_0, NULL},
    {"Q1_0", {2, 128, GROUP_SCALE_F16, GROUP_ZERO_SAME, 1, NULL}, put_q1_0, NULL},
    {"Q2_0", {2, 64, GROUP_SCALE_F16, GROUP_ZERO_SAME, 1, NULL}, put_q2_0, NULL},
    {"IQ1_S", {4, 32, GROUP_SCALE_F32, GROUP_ZERO_SAME, IQ_ZERO, iq1_book}, NULL, iq1_s_put},
    {"IQ1_M", {4, 16, GROUP_SCALE_F32, GROUP_ZERO_SAME, IQ_ZERO, iq1_book}, NULL, iq1_m_put},
    {"IQ2_XXS", {4, 32, GROUP_SCALE_F32, GROUP_ZERO_SAME, IQ_ZERO, iq2_book}, NULL, iq2_xxs_put},
    {"IQ2_XS", {4, 16, GROUP_SCALE_F32, GROUP_ZERO_SAME, IQ_ZERO, iq2_book}, NULL, iq2_xs_put},
    {"IQ2_S", {4, 16, GROUP_SCALE_F32, GROUP_ZERO_SAME, IQ_ZERO, iq2_book}, NULL, iq2_s_put},
    {"IQ3_XXS", {4, 32, GROUP_SCALE_F32, GROUP_ZERO_SAME, IQ_ZERO, iq3_xxs_book}, NULL, iq3_xxs_put},
    {"IQ3_S", {4, 32, GROUP_SCALE_F32, GROUP_ZERO_SAME, IQ_ZERO, iq3_s_book}, NULL, iq3_s_put},
};
// clang-format on

static const struct row *find(const struct block_type *type) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, type->name) == 0) return &rows[i];
    return NULL;
}

bool block_groups_format(const struct block_type *type, struct group_format *out) {
    const struct row *row = find(type);
    if (row) *out = row->format;
    return row != NULL;
}

static bool is_finite(uint16_t scale, enum group_scale kind) {
    const int exponent = kind == GROUP_SCALE_BF16 ? 0x7f80 : F16_EXPONENT;
    return (scale & exponent) != exponent;
}

static int read_f32(const struct row *row, const struct block_type *type, const uint8_t *blocks,
                    int64_t n, struct group_row *out) {
    const int groups = type->values / row->format.group;
    float *scales = out->scales;
    for (int64_t b = 0; b < n; b++, blocks += type->bytes, scales += groups) {
        row->put_f32(blocks, out->codes + b * type->values, scales);
        for (int g = 0; g < groups; g++)
            if (!isfinite(scales[g])) return E_FORMAT;
    }
    return 0;
}

int block_groups_read(const struct block_type *type, const uint8_t *blocks, int64_t n,
                      struct group_row *out) {
    const struct row *row = find(type);
    const struct group_format *f = &row->format;
    if (row->put_f32) return read_f32(row, type, blocks, n, out);
    const int64_t groups = type->values / f->group; // of a block
    const bool nested = f->scale == GROUP_SCALE_NESTED;
    for (int64_t b = 0; b < n; b++, blocks += type->bytes) {
        const struct at to = {.codes = out->codes + b * type->values,
                              .zeros = (uint8_t *)out->zeros + b * groups,
                              .scales = (uint16_t *)out->scales + b,
                              .minimums = (uint16_t *)out->zeros + b,
                              .super = out->supers + b,
                              .min_super = out->min_supers + b,
                              .subs = (int8_t *)out->scales + b * groups};
        row->put(blocks, &to);
        if (!is_finite(nested ? *to.super : *to.scales, f->scale)) return E_FORMAT;
        if (f->zero_kind == GROUP_MIN_NESTED && !is_finite(*to.min_super, f->scale))
            return E_FORMAT;
        if (f->zero_kind == GROUP_MIN_F16 && !is_finite(*to.minimums, f->scale)) return E_FORMAT;
    }
    return 0;
}
