// How each format lays codes into words (packed_matrix.h).
#include "base/parallel.h"
#include "engine/model/packed_matrix.h"
#include <stdlib.h>
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

// Eight codes of 4 bits, from the lowest on, as bytes.
static inline uint64_t bytes_of(uint32_t word) {
    uint64_t x = word;
    x = (x | x << 16) & 0x0000ffff0000ffffull;
    x = (x | x << 8) & 0x00ff00ff00ff00ffull;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0full;
}

// n codes of `bits`, from number `first` of a row of words on, which lie `apart` bytes from each other. The usual case, whole
// words of eight, is a loop of its own: it is what loading most files of 4 bits consists of.
static void codes_of_words(uint8_t *out, const uint8_t *words, size_t apart, int bits,
                           int64_t first, int64_t n) {
    const int per_word = 32 / bits;
    const uint32_t mask = (1u << bits) - 1;
    int64_t k = 0;
    if (bits == 4 && first % 8 == 0)
        for (const uint8_t *at = words + (size_t)(first / 8) * apart; k + 8 <= n;
             k += 8, at += apart) {
            const uint64_t eight = bytes_of(word_at(at, 0));
            memcpy(out + k, &eight, sizeof eight);
        }
    for (; k < n; k++) {
        const uint8_t *at = words + (size_t)((first + k) / per_word) * apart;
        out[k] = (uint8_t)(word_at(at, 0) >> ((first + k) % per_word * bits) & mask);
    }
}

static int64_t words_of_row(int64_t cols) {
    return (cols + 7) / 8;
}

struct turn {
    const uint8_t *from; // (cols, width) words, each of eight rows
    uint8_t *to;         // (8 width, words_of_row) words, each of eight columns
    int64_t cols, width;
};

enum { LINE_WORDS = 16 }; // of 64 bytes

// Words [first, first + n) of each row, n <= LINE_WORDS, of the rows in words [j, j + some) of a line. Neighbouring words of a
// line are vector code; rows get whole cache lines.
static void turn_tile(const struct turn *t, int64_t first, int64_t n, int64_t j, int64_t some) {
    uint32_t tile[8 * LINE_WORDS][LINE_WORDS];
    for (int64_t k = 0; k < n; k++) {
        uint32_t eight[8][LINE_WORDS] = {{0}}; // zeros for columns that do not exist
        for (int64_t i = 0; i < 8 && (first + k) * 8 + i < t->cols; i++)
            memcpy(eight[i], t->from + (((first + k) * 8 + i) * t->width + j) * 4,
                   (size_t)some * 4);
        for (int row = 0; row < 8; row++) {
            const int slot = 4 * awq_slot(row);
            uint32_t words[LINE_WORDS] = {0};
            for (int i = 0; i < 8; i++)
                for (int at = 0; at < LINE_WORDS; at++)
                    words[at] |= (eight[i][at] >> slot & 15) << 4 * i;
            for (int at = 0; at < LINE_WORDS; at++) tile[at * 8 + row][k] = words[at];
        }
    }
    for (int64_t row = 0; row < some * 8; row++)
        memcpy(t->to + ((j * 8 + row) * words_of_row(t->cols) + first) * 4, tile[row],
               (size_t)n * 4);
}

static void turn_words(void *ctx, int64_t first, int64_t n) {
    const struct turn *t = ctx;
    for (int64_t at = 0; at < n; at += LINE_WORDS)
        for (int64_t j = 0; j < t->width; j += LINE_WORDS)
            turn_tile(t, first + at, n - at < LINE_WORDS ? n - at : LINE_WORDS, j,
                      t->width - j < LINE_WORDS ? t->width - j : LINE_WORDS);
}

int packed_turn_awq(const struct matrix *m, struct strip *s, struct err *err) {
    const int64_t pitch = words_of_row(m->cols);
    uint8_t *turned = malloc((size_t)(s->count * pitch) * 4 + 1);
    if (!turned) return err_set(err, E_NOMEM, "no memory for '%s'", m->codes->name);
    struct turn t = {s->codes, turned, m->cols, s->count / 8};
    parallel_ranges(pitch, (1 << 14) / s->count + 1, turn_words, &t);
    free(s->codes);
    s->codes = turned;
    return 0;
}

void packed_codes(const struct matrix *m, const struct strip *s, int64_t r, int64_t first,
                  int64_t n, uint8_t *out) {
    const uint8_t *at = s->codes;
    switch (m->kind) {
    case CODES_AWQ:
        codes_of_words(out, at + r * words_of_row(m->cols) * 4, 4, 4, first, n);
        return;
    case CODES_GPTQ:
        codes_of_words(out, at + r * 4, (size_t)s->count * 4, m->bits, first, n);
        return;
    case CODES_INTEGERS:
        codes_of_words(out, at + r * m->codes->shape[1] * 4, 4, m->bits, first, n);
        return;
    case CODES_E2M1: // a row may end in the midst of a word
        at += r * (m->cols / 2);
        codes_of_words(out, at, 4, 4, first, n / 8 * 8);
        for (int64_t k = n / 8 * 8; k < n; k++)
            out[k] = at[(first + k) / 2] >> ((first + k) % 2 * 4) & 15;
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
