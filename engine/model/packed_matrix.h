// What packed_tensors.c and packed_groups.c share: a packed matrix, and its parts in memory.
#pragma once
#include "engine/model/packed_bnb.h"

#define FP8_BLOCK 128

enum code_kind {
    CODES_AWQ,      // (K, N / 8) words
    CODES_GPTQ,     // (K b / 32, N) words
    CODES_INTEGERS, // (N, K b / 32) words, each code 2^(b-1) above its value
    CODES_E2M1,     // (N, K / 2) bytes, the even element in the low half
    CODES_I8,       // (N, K) bytes
    CODES_E4M3,     // (N, K) bytes
    CODES_BNB       // bitsandbytes' 4 bits: bnb has all else
};

struct matrix {
    const char *stem; // owned
    enum code_kind kind;
    int64_t rows, cols; // N, K
    int bits;           // of a code in words
    int64_t groups;     // scales of a row; of blocks: of a row of blocks
    int64_t group_cols; // columns of a scale
    int64_t block_rows; // rows that share their scales: 1, FP8_BLOCK, or all of them
    int zero_plus;      // added to stored zeros
    const struct tensor *codes, *scales;
    const struct tensor *zeros, *order, *global; // NULL: none; order: the group of each column
    struct bnb_matrix *bnb;                      // owned; of CODES_BNB
    float scale_by;                              // of stored scales
    bool divides;                                // by global; else multiplies
    bool scales_across;                          // scales are (groups, rows)
};

struct packed_tensors {
    struct tensor *own;      // (n_matrices)
    struct matrix *matrices; // (n_matrices)
    size_t n_matrices;
    const struct tensor **all; // (n)
    size_t n;
    struct packed_reader reader;
};

// Elements of a tensor.
static inline int64_t packed_values(const struct tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= t->shape[i];
    return n;
}

struct span {
    int64_t first, end;
};

// The parts of a strip of rows, in memory.
struct strip {
    int64_t first, count; // rows
    struct span cols;     // of AWQ and GPTQ: whose codes are there, the others are 0
    uint8_t *codes; // as stored, but AWQ's turned; of AWQ and GPTQ only the words of these rows
    uint8_t *zeros; // all of them; NULL: none
    int32_t *order; // (cols) or NULL
    float global;   // 1: none; the scales are multiplied or divided by it
    float *scales;  // (count, groups), or of blocks and tensors (block rows, groups)
};

// Rows [first, first + count) of m, with those that share their words: the rows of AWQ come by eights. All columns.
struct strip packed_strip(const struct matrix *m, int64_t first, int64_t count);
// Reads the parts of a strip; release also after an error.
int packed_read_strip(const struct packed_tensors *p, const struct matrix *m, struct strip *s,
                      struct err *err);
void packed_release_strip(struct strip *s);
// From (K, count / 8) words, AWQ's, to (count, K / 8) words of eight columns, from the lowest on: a column of the former meets a
// cache line for each code. E_NOMEM.
int packed_turn_awq(const struct matrix *m, struct strip *s, struct err *err);
// The scales of the matrix's row `row`, one of the strip's.
const float *packed_scales_at(const struct matrix *m, const struct strip *s, int64_t row);
// The codes of row s->first + r, columns [first, first + n).
void packed_codes(const struct matrix *m, const struct strip *s, int64_t r, int64_t first,
                  int64_t n, uint8_t *out);
// The code that stands for 0 in a group of a row.
int packed_zero_at(const struct matrix *m, const struct strip *s, int64_t row, int64_t g);
