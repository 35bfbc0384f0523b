// Weights of few bits on the device (kernels/groups.h): codes of 4 bits, or of 8 where a format has more than 4, in the order
// of the tensor cores' products.
//
//   tile: 16 rows; chunk: 128 columns of a tile, of 8 bits 64: 1,024 bytes
//   chunk: [rows 0-7, rows 8-15][lane][16 bytes]; lane = row % 8 * 4 + t
//   a lane's 16 bytes: codes of columns 16 j + 8 h + 2 t + i, j 0 .. 7 (0 .. 3), h and i 0 or 1
//   8 bits: word j has signed bytes, from the lowest on (h, i) = (0, 0), (1, 0), (0, 1), (1, 1)
//   4 bits: word w has those of j = 2 w, 2 w + 1:
//   pair m = j % 2 * 2 + h has nibbles m and m + 4, with a book 2 m and 2 m + 1. Of e2m1, half i of the word has
//   the sign and the other three bits of pair 0 in bits 15, 8 .. 6, of 1 in 12, 5 .. 3, of 2 in 9, 2 .. 0, of 3 in 14,
//   13, 11, 10: they become bf16's bits by few shifts (groups.cuh)
//
// The codes start GROUPS_HEAD bytes into the data, behind the numbers that a book's codes stand for (16 floats, less the
// zero). scales: (tiles, groups, 16 rows) F16, with offsets (tiles, groups, 16 rows, 2): scale and offset, both times
// GROUPS_SCALED. Element = scale * (code - zero), or scale * code + offset. Files have scales of F16, BF16, powers of two or e4m3,
// which F16 holds exactly within its range, and products of F16 and an integer of 6 bits, which are rounded at 2^-11.
#pragma once
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GROUPS_HEAD = 256,
    GROUPS_CHUNK_BYTES = 1024, // of a tile of 16 rows
    GROUPS_CHUNK_MOST = 128,   // columns
    // struct weight's layout: columns of a group, then
    GROUPS_SIZE = 511,
    GROUPS_OFFSET = 512,
    GROUPS_BOOK = 1024,
    GROUPS_E2M1 = 2048,
    GROUPS_BYTES = 4096, // codes of 8 bits
    GROUPS_ZERO = 65536, // times the zero
    // The least scale that is a normal number is 2^-22, the largest 255.9. A matrix whose scales do not fit is widened.
    GROUPS_SCALED = 256
};

// Columns of a chunk, and how many chunks a row has.
static inline int32_t groups_chunk(int32_t layout) {
    return layout & GROUPS_BYTES ? GROUPS_CHUNK_MOST / 2 : GROUPS_CHUNK_MOST;
}
static inline int32_t groups_chunks(int32_t layout, int32_t cols) {
    return (cols + groups_chunk(layout) - 1) / groups_chunk(layout);
}
// A head or an embedding, which are not widened: that would take as much memory as some ten matrices of a layer, and of a
// prompt's rows few have logits.
static inline bool cuda_groups_tall(int32_t rows, int32_t cols) {
    return rows / 8 > cols && rows > 16384;
}

// A row of x in the order of the codes is as long as whole times 128 columns, of which a lane finds its own side by side:
// element 32 t + 4 j + 2 h + i is column 16 j + 8 h + 2 t + i.
static inline int32_t groups_pitch(int32_t cols) {
    return (cols + GROUPS_CHUNK_MOST - 1) / GROUPS_CHUNK_MOST * GROUPS_CHUNK_MOST;
}
// Groups of so many columns; what no column fills has scale 0.
static inline int32_t groups_count(int32_t layout, int32_t cols) {
    const int32_t group = layout & GROUPS_SIZE;
    return (groups_pitch(cols) + group - 1) / group;
}

// a->w_dtype is DTYPE_U8 and a->ld the layout, in all of these.

// Any number of rows, 32 at a time, and any device; a row's bits do not depend on the others. For what the next two do
// not cover. No fused arguments.
int cuda_groups_linear(const struct cuda_linear *a, cudaStream_t stream);
// One row; fuses a norm of up to 4,096 columns, activation and gate. CUDA_UNSUPPORTED for shapes and kinds that it does
// not cover. ticket: as cuda_gemv_stay's.
int cuda_groups_stay(const struct cuda_linear *a, uint32_t *ticket, cudaStream_t stream);
enum { GROUPS_STREAM_ROWS = 64 };
// Up to GROUPS_STREAM_ROWS rows on sm_90a; a row's bits do not depend on the others, nor on their number if `same`. Fuses
// activation and gate, but no norm. CUDA_UNSUPPORTED likewise.
int cuda_groups_stream(const struct cuda_linear *a, bool same, cudaStream_t stream);
enum { GROUPS_CHAIN = 4, GROUPS_CHAIN_COLS = 28672 };
struct cuda_chain_work {   // device memory, zero before the first launch
    uint32_t launch, left; // launches so far; blocks that have left the present one
    uint32_t reserved[14];
    uint64_t box[GROUPS_CHAIN - 1][GROUPS_CHAIN_COLS / 2];
};
// Linears of one row that follow each other, a (n <= GROUPS_CHAIN), in one launch; each of them may read what those before it
// wrote. Fuses a norm of up to 8,192 columns, activation and gate. All of them are such that cuda_groups_chains. CUDA_UNSUPPORTED:
// several, of which the longest row and the widest stages have no room beside each other.
bool cuda_groups_chains(const struct cuda_linear *a);
int cuda_groups_chain(const struct cuda_linear *a, int n, struct cuda_chain_work *work,
                      cudaStream_t stream);
// dst (rows, cols) of a->dtype. The successor in the stream starts after it.
int cuda_groups_widen(void *dst, const struct cuda_linear *a, cudaStream_t stream);
// As cuda_embed.
int cuda_groups_embed(void *y, const int32_t *ids, const int32_t *drawn, int32_t n,
                      const struct cuda_linear *w, float scale, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
