// See block_types.h. `low` and `high` are the halves of a byte: in types of 32 values, byte j has the
// values j and j + 16.
#include "engine/gguf/block_types.h"
#include "base/dtype.h"
#include "engine/gguf/block_iq.h"
#include "kernels/groups.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

#define HALF 16 // values of a block of 32 in each half of its bytes

static float half_at(const uint8_t *p) {
    return f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static uint32_t u32_at(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// --- values of their own ---

static void decode_f32(float *out, const uint8_t *b) {
    uint32_t u = u32_at(b);
    memcpy(out, &u, sizeof u);
}

static void decode_f16(float *out, const uint8_t *b) {
    *out = half_at(b);
}

static void decode_bf16(float *out, const uint8_t *b) {
    *out = bf16_to_f32((uint16_t)(b[0] | b[1] << 8));
}

// --- blocks of 32 ---

static void decode_q4_0(float *out, const uint8_t *b) {
    const float d = half_at(b);
    for (int j = 0; j < HALF; j++) {
        out[j] = (float)((b[2 + j] & 15) - 8) * d;
        out[j + HALF] = (float)((b[2 + j] >> 4) - 8) * d;
    }
}

static void decode_q4_1(float *out, const uint8_t *b) {
    const float d = half_at(b), m = half_at(b + 2);
    for (int j = 0; j < HALF; j++) {
        out[j] = (float)(b[4 + j] & 15) * d + m;
        out[j + HALF] = (float)(b[4 + j] >> 4) * d + m;
    }
}

// The fifth bits of all 32 values stand in one word.
static int five_bits(const uint8_t *q, uint32_t fifth, int j) {
    int four = j < HALF ? q[j] & 15 : q[j - HALF] >> 4;
    return four | (int)(fifth >> j & 1) << 4;
}

static void decode_q5_0(float *out, const uint8_t *b) {
    const float d = half_at(b);
    for (int j = 0; j < 32; j++) out[j] = (float)(five_bits(b + 6, u32_at(b + 2), j) - 16) * d;
}

static void decode_q5_1(float *out, const uint8_t *b) {
    const float d = half_at(b), m = half_at(b + 2);
    for (int j = 0; j < 32; j++) out[j] = (float)five_bits(b + 8, u32_at(b + 4), j) * d + m;
}

static void decode_q8_0(float *out, const uint8_t *b) {
    const float d = half_at(b);
    for (int j = 0; j < 32; j++) out[j] = (float)(int8_t)b[2 + j] * d;
}

// The values that 4 bits choose from, denser around 0.
static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

static void decode_iq4_nl(float *out, const uint8_t *b) {
    const float d = half_at(b);
    for (int j = 0; j < HALF; j++) {
        out[j] = d * (float)iq4[b[2 + j] & 15];
        out[j + HALF] = d * (float)iq4[b[2 + j] >> 4];
    }
}

// e2m1 numbers with an exponent for all (OCP microscaling).
static void decode_mxfp4(float *out, const uint8_t *b) {
    static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    const float d = b[0] == 0xff ? NAN : ldexpf(1.0f, b[0] - 127);
    for (int j = 0; j < HALF; j++) {
        out[j] = e2m1[b[1 + j] & 15] * d;
        out[j + HALF] = e2m1[b[1 + j] >> 4] * d;
    }
}

// Four groups of 16, each with a scale, and its values j and j + 8 in a byte.
float nvfp4_half_scale(const uint8_t *b, int g) {
    const uint8_t scale = b[g] & 0x7f;
    return scale == 0x7f ? 0.0f : e4m3_to_f32(scale) * 0.5f;
}

static void decode_nvfp4(float *out, const uint8_t *b) {
    for (int i = 0; i < 64; i++) {
        const int code = b[4 + i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15;
        out[i] = (float)(group_book_e2m1[code] - 16) * nvfp4_half_scale(b, i / 16);
    }
}

// --- blocks of 256: groups of 16 or 32 values with small scales of their own ---

static void decode_q2_k(float *out, const uint8_t *b) {
    const uint8_t *scales = b, *q = b + 16;
    const float d = half_at(b + 80), m = half_at(b + 82);
    for (int i = 0; i < 256; i++) {
        int part = i / 128, shift = i / 32 % 4 * 2, scale = scales[i / 16];
        int value = q[part * 32 + i % 32] >> shift & 3;
        out[i] = d * (float)(scale & 15) * (float)value - m * (float)(scale >> 4);
    }
}

static int q3_scale(const uint8_t *s, int j) {
    int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
    return (low | (s[8 + j % 4] >> (2 * (j / 4)) & 3) << 4) - 32;
}

// A set bit of `high` says not to subtract 4.
static void decode_q3_k(float *out, const uint8_t *b) {
    const uint8_t *high = b, *q = b + 32;
    const float d = half_at(b + 108);
    for (int i = 0; i < 256; i++) {
        int part = i / 128, shift = i / 32 % 4 * 2, bit = i / 32;
        int value = (q[part * 32 + i % 32] >> shift & 3) - (high[i % 32] >> bit & 1 ? 0 : 4);
        out[i] = d * (float)q3_scale(b + 96, i / 16) * (float)value;
    }
}

// Eight scales and eight minimums of 6 bits in 12 bytes.
static void six_bits(const uint8_t *s, int j, float *scale, float *min) {
    *scale = (float)(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4);
    *min = (float)(j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4);
}

// 64 values lie in 32 bytes, the low halves first. high: the fifth bits, or NULL.
static void decode_45(float *out, const uint8_t *b, const uint8_t *q, const uint8_t *high) {
    const float d = half_at(b), m = half_at(b + 2);
    for (int group = 0; group < 8; group++) {
        float scale, min;
        six_bits(b + 4, group, &scale, &min);
        const float by = d * scale, from = m * min;
        for (int l = 0; l < 32; l++) {
            int value = q[group / 2 * 32 + l] >> (group % 2 * 4) & 15;
            if (high && high[l] >> group & 1) value += 16;
            *out++ = by * (float)value - from;
        }
    }
}

static void decode_q4_k(float *out, const uint8_t *b) {
    decode_45(out, b, b + 16, NULL);
}

static void decode_q5_k(float *out, const uint8_t *b) {
    decode_45(out, b, b + 48, b + 16);
}

static void decode_q6_k(float *out, const uint8_t *b) {
    const uint8_t *low = b, *high = b + 128;
    const float d = half_at(b + 208);
    for (int g = 0; g < 16; g++) { // a part of 128 values: r and r + 64 share a byte of low
        const int part = g / 8, r = g % 8 * 16;
        const uint8_t *four = low + part * 64 + r % 64, *two = high + part * 32 + r % 32;
        const float by = d * (float)(int8_t)b[192 + g];
        for (int l = 0; l < 16; l++)
            *out++ =
                by *
                (float)(((four[l] >> (r / 64 * 4) & 15) | (two[l] >> (r / 32 * 2) & 3) << 4) - 32);
    }
}

static void decode_iq4_xs(float *out, const uint8_t *b) {
    const float d = half_at(b);
    const int high = b[2] | b[3] << 8;
    for (int group = 0; group < 8; group++, out += 32) {
        int scale = (b[4 + group / 2] >> (group % 2 * 4) & 15) | (high >> (2 * group) & 3) << 4;
        const float by = d * (float)(scale - 32);
        for (int j = 0; j < HALF; j++) {
            uint8_t q = b[8 + group * HALF + j];
            out[j] = by * (float)iq4[q & 15];
            out[j + HALF] = by * (float)iq4[q >> 4];
        }
    }
}

// --- small integers with one scale for all ---

static void decode_q1_0(float *out, const uint8_t *b) {
    const float d = half_at(b);
    for (int j = 0; j < 128; j++) out[j] = b[2 + j / 8] >> (j % 8) & 1 ? d : -d;
}

static void decode_q2_0(float *out, const uint8_t *b) {
    const float d = half_at(b);
    for (int j = 0; j < 64; j++) out[j] = (float)((b[2 + j / 4] >> (j % 4 * 2) & 3) - 1) * d;
}

static void decode_tq2_0(float *out, const uint8_t *b) {
    const float d = half_at(b + 64);
    for (int i = 0; i < 256; i++)
        out[i] = (float)((b[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) - 1) * d;
}

// A byte is a fraction of 256 whose digits to base 3 are five values: 240 of them in 48 bytes, by 32 and by 16 bytes,
// and 16 values in four bytes of four digits.
int tq1_0_code(const uint8_t *b, int i) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    const int at = i < 160 ? i % 32 : i < 240 ? 32 + (i - 160) % 16 : 48 + i % 4;
    const int digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
    return (uint8_t)(b[at] * power[digit]) * 3 >> 8;
}

static void decode_tq1_0(float *out, const uint8_t *b) {
    const float d = half_at(b + 52);
    for (int i = 0; i < 256; i++) out[i] = (float)(tq1_0_code(b, i) - 1) * d;
}

bool block_values_finite(const float *values, int64_t n) {
    uint32_t other = 0, u;
    for (int64_t i = 0; i < n; i++) { // as integers, without a branch: vector code
        memcpy(&u, values + i, sizeof u);
        other |= (u & 0x7f800000) == 0x7f800000;
    }
    return !other;
}

// --- the table ---

static const struct block_type types[] = {
    {0, "F32", 1, 4, decode_f32},           {1, "F16", 1, 2, decode_f16},
    {2, "Q4_0", 32, 18, decode_q4_0},       {3, "Q4_1", 32, 20, decode_q4_1},
    {6, "Q5_0", 32, 22, decode_q5_0},       {7, "Q5_1", 32, 24, decode_q5_1},
    {8, "Q8_0", 32, 34, decode_q8_0},       {10, "Q2_K", 256, 84, decode_q2_k},
    {11, "Q3_K", 256, 110, decode_q3_k},    {12, "Q4_K", 256, 144, decode_q4_k},
    {13, "Q5_K", 256, 176, decode_q5_k},    {14, "Q6_K", 256, 210, decode_q6_k},
    {20, "IQ4_NL", 32, 18, decode_iq4_nl},  {23, "IQ4_XS", 256, 136, decode_iq4_xs},
    {30, "BF16", 1, 2, decode_bf16},        {39, "MXFP4", 32, 17, decode_mxfp4},
    {40, "NVFP4", 64, 36, decode_nvfp4},    {16, "IQ2_XXS", 256, 66, iq2_xxs_decode},
    {17, "IQ2_XS", 256, 74, iq2_xs_decode}, {18, "IQ3_XXS", 256, 98, iq3_xxs_decode},
    {19, "IQ1_S", 256, 50, iq1_s_decode},   {21, "IQ3_S", 256, 110, iq3_s_decode},
    {22, "IQ2_S", 256, 82, iq2_s_decode},   {29, "IQ1_M", 256, 56, iq1_m_decode},
    {34, "TQ1_0", 256, 54, decode_tq1_0},   {35, "TQ2_0", 256, 66, decode_tq2_0},
    {41, "Q1_0", 128, 18, decode_q1_0},     {42, "Q2_0", 64, 18, decode_q2_0},
};

const struct block_type *block_type_find(uint32_t id) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].id == id) return &types[i];
    return NULL;
}

const char *block_type_foreign_name(uint32_t id) {
    static const char *const names[] = {[9] = "Q8_1", [15] = "Q8_K", [24] = "I8", [25] = "I16",
                                        [26] = "I32", [27] = "I64",  [28] = "F64"};
    return id < sizeof names / sizeof *names ? names[id] : NULL;
}

const char *block_type_names(void) {
    return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ1_S to IQ4_XS, MXFP4, "
           "NVFP4, TQ1_0, TQ2_0, Q1_0 and Q2_0";
}
