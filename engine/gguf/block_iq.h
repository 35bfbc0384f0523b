// ggml's types of 1 to 3 bits (IQ1_S to IQ3_S): blocks of 256 values, of which each eight or four are one index into a grid.
// Here they become 4 bits a value, which choose from a book of 16 numbers, and a scale for 16 or 32 values.
#pragma once
#include <stdint.h>

enum { IQ_VALUES = 256, IQ_MAX_GROUPS = 16, IQ_ZERO = 128 };

// value = scale * (book[code] - IQ_ZERO), exact in F32.
extern const uint8_t iq1_book[16], iq2_book[16], iq3_xxs_book[16], iq3_s_book[16];

// codes (256), scales (16 or, with groups of 32, 8).
void iq1_s_put(const uint8_t *block, uint8_t *codes, float *scales);
void iq1_m_put(const uint8_t *block, uint8_t *codes, float *scales); // groups of 16
void iq2_xxs_put(const uint8_t *block, uint8_t *codes, float *scales);
void iq2_xs_put(const uint8_t *block, uint8_t *codes, float *scales); // groups of 16
void iq2_s_put(const uint8_t *block, uint8_t *codes, float *scales);  // groups of 16
void iq3_xxs_put(const uint8_t *block, uint8_t *codes, float *scales);
void iq3_s_put(const uint8_t *block, uint8_t *codes, float *scales);

// The same as numbers: out (256).
void iq1_s_decode(float *out, const uint8_t *block);
void iq1_m_decode(float *out, const uint8_t *block);
void iq2_xxs_decode(float *out, const uint8_t *block);
void iq2_xs_decode(float *out, const uint8_t *block);
void iq2_s_decode(float *out, const uint8_t *block);
void iq3_xxs_decode(float *out, const uint8_t *block);
void iq3_s_decode(float *out, const uint8_t *block);
