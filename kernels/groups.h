// Matrices of few bits: small integers with a scale, and often a zero, for each group of columns of a row. One form for
// what GGUF, AWQ, GPTQ, compressed-tensors, MXFP4 and NVFP4 files store; loading repacks their codes and scales
// without a change of value.
//
//   element (r, k) = scale * code + offset, rounded once to F32
//
//   code    0 .. 255: the stored bits, or with a book, the one of its 16 numbers that four stored bits choose
//   scale   of row r and group k / group: a number of its own, or nested: an F16 for 256 columns times an integer
//   offset  -zero * scale, with a zero for all or one a group; or a minimum, a number of its own or nested
//
// `group` divides 256, so that a tile of 256 columns has whole groups.
#pragma once
#include "base/dtype.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GROUP_TILE_K = 256, GROUP_MIN = 16, GROUP_PANEL = 16 };

enum group_scale {
    GROUP_SCALE_F16,
    GROUP_SCALE_BF16,
    GROUP_SCALE_F32,
    GROUP_SCALE_NESTED // an F16 a tile times an int8 a group
};
enum group_zero {
    GROUP_ZERO_SAME,  // zero
    GROUP_ZERO_U8,    // zero + a byte a group
    GROUP_MIN_F16,    // added
    GROUP_MIN_NESTED, // subtracted: an F16 a tile times a byte a group
};

struct group_format {
    int32_t bits;  // of a stored code: 2 to 6, or 8
    int32_t group; // columns: 16, 32, 64, 128 or 256
    enum group_scale scale;
    enum group_zero zero_kind;
    int32_t zero;
    const uint8_t *book; // (16), static; or NULL
};

extern const uint8_t group_book_e2m1[16]; // twice the number, plus 16
extern const uint8_t group_book_iq4[16];  // llama.cpp's IQ4_NL and IQ4_XS, plus 128

bool group_format_equal(const struct group_format *a, const struct group_format *b);
// "4 bits in groups of 32" and so on, for sentences.
void group_format_text(char out[64], const struct group_format *f);
// Bytes of a row's codes, scales and zeros. Padding of a backend's layout comes on top.
int64_t group_format_row_bytes(const struct group_format *f, int64_t cols);

// One row, as a source gives it and before it is packed.
struct group_row {
    uint8_t *codes;       // (cols) one a byte
    void *scales;         // (groups) uint16_t, float or, nested, int8_t
    uint16_t *supers;     // (tiles) of nested scales
    void *zeros;          // (groups) uint8_t, or uint16_t of GROUP_MIN_F16
    uint16_t *min_supers; // (tiles) of GROUP_MIN_NESTED
};

// Room for a row of any format, zeroed: sets *row's pointers, and returns what free() takes. NULL: no memory.
void *group_row_alloc(struct group_row *row, int64_t cols);

// Rows [0, rows) of a part, at the part's columns. `row` fills what the format has, and is called by several threads
// at once. E_FORMAT: a scale that is infinite or no number.
struct group_source {
    struct group_format format;
    int (*row)(const void *ctx, int64_t row, struct group_row *out, struct err *err);
    const void *ctx;
};

static inline int64_t group_tiles(int64_t cols) {
    return (cols + GROUP_TILE_K - 1) / GROUP_TILE_K;
}
static inline int64_t group_count(const struct group_format *f, int64_t cols) {
    return (cols + f->group - 1) / f->group;
}
