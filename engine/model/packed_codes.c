// How each format lays codes into words (packed_matrix.h).
#include "engine/model/packed_matrix.h"
#include <string.h>

static uint32_t word_at(const uint8_t *bytes, int64_t i) {
    uint32_t w;
    memcpy(&w, bytes + 4 * i, sizeof w);
    return w;
}

// AWQ: the place in its word of output 8 c + i.
static int awq_slot(int64_t i) {
    static const int slots[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return slots[i % 8];
}

void packed_codes(const struct matrix *m, const struct strip *s, int64_t r, int64_t first,
                  int64_t n, uint8_t *out) {
    const int bits = m->bits ? m->bits : 8, per_word = 32 / bits, mask = (1 << bits) - 1;
    const uint8_t *at = s->codes;
    switch (m->kind) {
    case CODES_AWQ:
        at += r / 8 * 4;
        for (int64_t k = 0; k < n; k++)
            out[k] = word_at(at, (first + k) * (s->count / 8)) >> (4 * awq_slot(r)) & 15;
        return;
    case CODES_GPTQ:
        at += r * 4;
        for (int64_t k = 0; k < n; k++)
            out[k] = (uint8_t)(word_at(at, (first + k) / per_word * s->count) >>
                                   ((first + k) % per_word * bits) &
                               (uint32_t)mask);
        return;
    case CODES_INTEGERS:
        at += r * m->codes->shape[1] * 4;
        for (int64_t k = 0; k < n; k++)
            out[k] =
                (uint8_t)(word_at(at, (first + k) / per_word) >> ((first + k) % per_word * bits) &
                          (uint32_t)mask);
        return;
    case CODES_E2M1:
        at += r * (m->cols / 2);
        for (int64_t k = 0; k < n; k++) out[k] = at[(first + k) / 2] >> ((first + k) % 2 * 4) & 15;
        return;
    case CODES_BNB: // has no strips
        return;
    case CODES_I8:
    case CODES_E4M3:
        memcpy(out, at + r * m->cols + first, (size_t)n);
        return;
    }
}

// The code that stands for 0 in a group of a row.
int packed_zero_at(const struct matrix *m, const struct strip *s, int64_t row, int64_t g) {
    if (m->kind == CODES_I8) return (int8_t)s->zeros[row / m->block_rows * m->groups + g];
    const int per_word = 32 / m->bits, mask = (1 << m->bits) - 1;
    if (m->kind == CODES_AWQ && s->zeros)
        return (int)(word_at(s->zeros, g * (m->rows / 8) + row / 8) >> (4 * awq_slot(row))) & 15;
    if (m->kind == CODES_GPTQ) {
        uint32_t w = word_at(s->zeros, g * (m->rows / per_word) + row / per_word);
        return ((int)(w >> (row % per_word * m->bits)) & mask) + m->zero_plus;
    }
    if (m->kind == CODES_INTEGERS && s->zeros)
        return (int)(word_at(s->zeros, row / per_word * m->groups + g) >>
                     (row % per_word * m->bits)) &
               mask;
    return 1 << (m->bits - 1);
}
