// See block_iq.h. Layouts: ggml's ggml-common.h.
//
// A code's low three bits are the index of a magnitude, its fourth is the sign. Of IQ1 types the low bits are -1, 0 or 1
// and the fourth bit is the sign of an eighth that is added, so that all numbers are eighths.
#include "engine/gguf/block_iq.h"
#include "base/dtype.h"
#include "engine/gguf/iq_tables.h"

#define BOOK(A, B, C, D, E, F, G, H)                                                               \
    {                                                                                              \
        IQ_ZERO + (A), IQ_ZERO + (B), IQ_ZERO + (C), IQ_ZERO + (D), IQ_ZERO + (E), IQ_ZERO + (F),  \
            IQ_ZERO + (G), IQ_ZERO + (H), IQ_ZERO - (A), IQ_ZERO - (B), IQ_ZERO - (C),             \
            IQ_ZERO - (D), IQ_ZERO - (E), IQ_ZERO - (F), IQ_ZERO - (G), IQ_ZERO - (H)              \
    }
const uint8_t iq2_book[16] = BOOK(8, 25, 43, 0, 0, 0, 0, 0);
const uint8_t iq3_xxs_book[16] = BOOK(4, 12, 20, 28, 36, 44, 52, 62);
const uint8_t iq3_s_book[16] = BOOK(1, 3, 5, 7, 9, 11, 13, 15);
const uint8_t iq1_book[16] = {IQ_ZERO - 7, IQ_ZERO + 1, IQ_ZERO + 9, 0,           0,          0,
                              0,           0,           IQ_ZERO - 9, IQ_ZERO - 1, IQ_ZERO + 7};

static uint32_t u16_at(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32_at(const uint8_t *p) {
    return u16_at(p) | u16_at(p + 2) << 16;
}

static void put_eight(uint8_t *codes, uint32_t grid, uint32_t signs) {
    for (int j = 0; j < 8; j++) codes[j] = (uint8_t)((grid >> (2 * j) & 3) | (signs >> j & 1) << 3);
}

static void put_fours(uint8_t *codes, uint32_t low, uint32_t high, uint32_t signs) {
    const uint32_t grid = low | high << 12;
    for (int j = 0; j < 8; j++) codes[j] = (uint8_t)((grid >> (3 * j) & 7) | (signs >> j & 1) << 3);
}

// Eight signs in seven bits: their number is even.
static uint32_t even_signs(uint32_t seven) {
    return seven | (uint32_t)__builtin_parity(seven) << 7;
}

// Scales of IQ2 types are 4 bits and a half, in quarters.
static float iq2_scale(float d, uint32_t four) {
    return d * (0.5f + (float)four) * 0.25f;
}

// --- by type ---

// For 32 values two words: four indices; seven signs for each and the scale.
void iq2_xxs_put(const uint8_t *b, uint8_t *codes, float *scales) {
    const float d = f16_to_f32((uint16_t)u16_at(b));
    for (int g = 0; g < 8; g++) {
        const uint8_t *index = b + 2 + 8 * g;
        const uint32_t word = u32_at(index + 4);
        scales[g] = iq2_scale(d, word >> 28);
        for (int l = 0; l < 4; l++, codes += 8)
            put_eight(codes, iq2_xxs_grid[index[l]], even_signs(word >> (7 * l) & 127));
    }
}

void iq2_xs_put(const uint8_t *b, uint8_t *codes, float *scales) {
    const float d = f16_to_f32((uint16_t)u16_at(b));
    for (int g = 0; g < 16; g++) scales[g] = iq2_scale(d, b[66 + g / 2] >> (g % 2 * 4) & 15);
    for (int i = 0; i < 32; i++, codes += 8) {
        const uint32_t word = u16_at(b + 2 + 2 * i);
        put_eight(codes, iq2_xs_grid[word & 511], even_signs(word >> 9));
    }
}

void iq2_s_put(const uint8_t *b, uint8_t *codes, float *scales) {
    const float d = f16_to_f32((uint16_t)u16_at(b));
    const uint8_t *low = b + 2, *signs = b + 34, *high = b + 66;
    for (int g = 0; g < 16; g++) scales[g] = iq2_scale(d, b[74 + g / 2] >> (g % 2 * 4) & 15);
    for (int i = 0; i < 32; i++, codes += 8)
        put_eight(codes, iq2_s_grid[low[i] | (high[i / 4] >> (i % 4 * 2) & 3) << 8], signs[i]);
}

void iq3_xxs_put(const uint8_t *b, uint8_t *codes, float *scales) {
    const float d = f16_to_f32((uint16_t)u16_at(b));
    const uint8_t *index = b + 2;
    for (int g = 0; g < 8; g++) {
        const uint32_t word = u32_at(b + 66 + 4 * g);
        scales[g] = d * (0.5f + (float)(word >> 28)) * 0.5f;
        for (int l = 0; l < 4; l++, codes += 8, index += 2)
            put_fours(codes, iq3_xxs_grid[index[0]], iq3_xxs_grid[index[1]],
                      even_signs(word >> (7 * l) & 127));
    }
}

void iq3_s_put(const uint8_t *b, uint8_t *codes, float *scales) {
    const float d = f16_to_f32((uint16_t)u16_at(b));
    const uint8_t *low = b + 2, *high = b + 66, *signs = b + 74, *s = b + 106;
    for (int g = 0; g < 8; g++) scales[g] = d * (float)(1 + 2 * (s[g / 2] >> (g % 2 * 4) & 15));
    for (int i = 0; i < 32; i++, codes += 8) {
        const int two = high[i / 4] >> (i % 4 * 2) & 3; // the ninth bits of two indices
        put_fours(codes, iq3_s_grid[low[2 * i] | (two & 1) << 8],
                  iq3_s_grid[low[2 * i + 1] | (two & 2) << 7], signs[i]);
    }
}

void iq1_s_put(const uint8_t *b, uint8_t *codes, float *scales) {
    const float d = f16_to_f32((uint16_t)u16_at(b));
    for (int g = 0; g < 8; g++) {
        const uint32_t high = u16_at(b + 34 + 2 * g);
        scales[g] = d * (float)(2 * (high >> 12 & 7) + 1) * 0.125f;
        for (int l = 0; l < 4; l++, codes += 8)
            put_eight(codes, iq1_grid[b[2 + 4 * g + l] | (high >> (3 * l) & 7) << 8],
                      high >> 15 ? 0xff : 0);
    }
}

// The scale of all is in the upper four bits of the words that have those of groups.
void iq1_m_put(const uint8_t *b, uint8_t *codes, float *scales) {
    uint32_t words[4], all = 0;
    for (int i = 0; i < 4; i++) {
        words[i] = u16_at(b + 48 + 2 * i);
        all |= (words[i] >> 12) << (4 * i);
    }
    const float d = f16_to_f32((uint16_t)all);
    for (int g = 0; g < 16; g++)
        scales[g] = d * (float)(2 * (words[g / 4] >> (g % 4 * 3) & 7) + 1) * 0.125f;
    for (int i = 0; i < 32; i++, codes += 8) {
        const uint32_t four = b[32 + i / 2] >> (i % 2 * 4) & 15;
        put_eight(codes, iq1_grid[b[i] | (four & 7) << 8], four & 8 ? 0xff : 0);
    }
}

// --- as numbers ---

static void decode(float *out, const uint8_t *block, const uint8_t *book, int group,
                   void (*put)(const uint8_t *, uint8_t *, float *)) {
    uint8_t codes[IQ_VALUES];
    float scales[IQ_MAX_GROUPS];
    put(block, codes, scales);
    for (int i = 0; i < IQ_VALUES; i++)
        out[i] = scales[i / group] * (float)(book[codes[i]] - IQ_ZERO);
}

void iq1_s_decode(float *out, const uint8_t *block) {
    decode(out, block, iq1_book, 32, iq1_s_put);
}

void iq1_m_decode(float *out, const uint8_t *block) {
    decode(out, block, iq1_book, 16, iq1_m_put);
}

void iq2_xxs_decode(float *out, const uint8_t *block) {
    decode(out, block, iq2_book, 32, iq2_xxs_put);
}

void iq2_xs_decode(float *out, const uint8_t *block) {
    decode(out, block, iq2_book, 16, iq2_xs_put);
}

void iq2_s_decode(float *out, const uint8_t *block) {
    decode(out, block, iq2_book, 16, iq2_s_put);
}

void iq3_xxs_decode(float *out, const uint8_t *block) {
    decode(out, block, iq3_xxs_book, 32, iq3_xxs_put);
}

void iq3_s_decode(float *out, const uint8_t *block) {
    decode(out, block, iq3_s_book, 32, iq3_s_put);
}
