// Weights of few bits on the device (kernels/groups.h): 4-bit codes in the order of the tensor cores' products.
//
//   tile: 16 rows; chunk: 128 columns of a tile, 1,024 bytes
//   chunk: [rows 0-7, rows 8-15][lane][16 bytes]; lane = row % 8 * 4 + t
//   a lane's 16 bytes: codes of columns 16 j + 4 t + i, j 0 .. 7, i 0 .. 3; a 32-bit word has those of j = 2 w, 2 w + 1
//   a word's nibbles: pair m (j even: i 0 and 1, 2 and 3; j odd: the same) has nibbles m and m + 4, with a book
//   2 m and 2 m + 1
//
// The codes start GROUPS_HEAD bytes into the data, behind the numbers that a book's codes stand for (16 floats, less the
// zero). scales: (tiles, groups, 16 rows) F32, with offsets (tiles, groups, 16 rows, 2): scale and offset.
// Element = scale * (code - zero), or scale * code + offset.
#pragma once
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GROUPS_HEAD = 256,
    GROUPS_CHUNK = 128,        // columns
    GROUPS_CHUNK_BYTES = 1024, // of a tile of 16 rows
    // struct weight's layout: columns of a group, then
    GROUPS_SIZE = 511,
    GROUPS_OFFSET = 512,
    GROUPS_BOOK = 1024,
    GROUPS_ZERO = 65536, // times the zero
};

static inline int32_t groups_chunks(int32_t cols) {
    return (cols + GROUPS_CHUNK - 1) / GROUPS_CHUNK;
}
static inline int32_t groups_count(int32_t cols, int32_t group) {
    return (groups_chunks(cols) * GROUPS_CHUNK + group - 1) / group;
}

// a->w_dtype is DTYPE_U8 and a->ld the layout. Any number of rows, 32 at a time; a row's bits do not depend on the
// others. Bound by reading the codes once for each 32 rows. No fused arguments.
int cuda_groups_linear(const struct cuda_linear *a, cudaStream_t stream);
// dst (rows, cols) of a->dtype. The successor in the stream starts after it.
int cuda_groups_widen(void *dst, const struct cuda_linear *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
