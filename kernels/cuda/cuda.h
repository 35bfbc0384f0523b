// The launchers of the CUDA kernels: raw pointers, dimensions, a stream. This header is the only
// interface between the kernels (*.cu) and the host side (*.c).
//
// Every launcher returns 0 or E_DEVICE: the launch failed, and cuda_launched has logged why. Where
// noted, it returns CUDA_UNSUPPORTED: the kernel does not cover this shape, launched nothing, and
// the caller uses the simple kernel. No launcher allocates, synchronises or reads configuration.
//
// Recorded steps. A decode step is recorded once as a graph and launched again with other contents.
// So a launcher's grid, pointers and branches may depend on its arguments, never on the contents of
// device memory (positions, lengths, block ids). Kernels read those through struct cuda_batch,
// whose pointers are the same in every step.
//
// Dtypes. Activations and weights have one dtype T (`dtype`: F32, F16 or BF16) unless a weight is
// quantised. Sums are F32, and results are rounded to T once. Biases, norm weights, cosines and
// slopes are F32.
#pragma once
#include "base/dtype.h"
#include "base/err.h"
#include "kernels/backend.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_UNSUPPORTED = 1 };

// 0, or E_DEVICE after logging which launch failed and why. Ends every launcher:
//     return cuda_launched("norm");
int cuda_launched(const char *what);

// Whether the program holds code for the current device.
bool cuda_has_code(void);

// --- the step, in device memory ------------------------------------------------------------------

enum { CUDA_TILE_ROWS = 64 }; // most rows of a prefill tile, all of one sequence

struct cuda_seq { // kernels/batch.h's struct batch_seq, flattened
    int32_t first_row, n_rows;
    int32_t memory_len, sink_len;
    int32_t n_sink_blocks, n_ring_blocks, block_tokens;
    int32_t map; // its blocks are maps[map ...]; kv_map.h has the arithmetic
};

struct cuda_tile { // rows [row, row + n_rows) of sequence seq, at most CUDA_TILE_ROWS
    int32_t seq, row, n_rows, reserved;
};

// Passed to kernels by value. All int32_t, in one allocation, 16-byte aligned each.
struct cuda_batch {
    const int32_t *ids;       // (n_rows)
    const int32_t *positions; // (n_rows)
    // (n_rows) the row's sequence. -1: a padding row. Its inputs are finite and its results unused,
    // but nothing may be written to the cache.
    const int32_t *row_seq;
    const int32_t *short_rope; // (n_rows) the row's sequence has batch_seq.short_rope
    const int32_t *logit_rows; // (n_logits)
    const struct cuda_seq *seqs;
    const int32_t *maps;
    // Attention's work. A decode row is the only row of its sequence in this step; all other rows are
    // in tiles. n_decode and n_tiles are launchers' arguments, because the grid depends on them.
    const int32_t *decode_rows;    // (n_decode) row numbers; -1: none
    const struct cuda_tile *tiles; // (n_tiles)
};

// --- linear --------------------------------------------------------------------------------------

// A weight on the device is row-major: element (row, col) is w[row * ld + col], rows are 16-byte
// aligned, and columns cols to ld are zero. x (n, cols) and y (n, rows) are packed, so their rows
// are 16-byte aligned only where cols (rows) is a multiple of 16 / sizeof(T). Wide loads must check
// that.
struct cuda_linear {
    void *y;
    const void *x;
    const void *w;
    const float *scale; // of a quantised weight, (rows), with blocks (blocks, rows); else NULL
    const float *bias;  // (rows) or NULL
    int32_t n, rows, cols, ld;
    enum dtype dtype;   // of x, and of y unless y_f32
    enum dtype w_dtype; // = dtype, or DTYPE_I8, DTYPE_F8_E4M3: y = scale[row] * (x . w[row])
    int32_t block_k;    // 0, or FP8_BLOCK: scale[k / block_k][row] belongs to column k (F8_E4M3)
    bool y_f32;         // y is F32: logits
    bool add;           // y += , read in y's dtype, added in F32, rounded once
    // x is e4m3, from cuda_quantize, with x_scale (n); w_dtype is e4m3 too, and y is as for any other x. cuBLASLt,
    // linear_stream.cu and linear_tiles.cu. With y_f32 cuBLASLt gives the products of the stored numbers, without the
    // scales of x and W.
    bool x_8bit;
    const float *x_scale;
    // --- fused, all optional; zero: none

    // The rounding to T happens where the separate ops would do it, so that fused and unfused agree.

    // x is normed on the way in: x' = round(norm(x)), norm_weight (cols) not NULL.
    enum norm_kind norm;
    const float *norm_weight, *norm_bias;
    float norm_eps;
    // y (n, rows / 2) = act(round(row r)) * round(row r + rows / 2) if gated, else y (n, rows) =
    // act(round(..)).
    bool activate, gated;
    enum activation act;
};

// Narrow: n <= 32, bound by reading w once. Fuses a norm only for n = 1 and few columns.
// CUDA_UNSUPPORTED for shapes that it does not cover.
int cuda_gemv(const struct cuda_linear *a, cudaStream_t stream);
// One row, normed, and a W of 16 bits of so many rows that blocks take several parts each.
// CUDA_UNSUPPORTED likewise. ticket: device memory, zero, of no launch that may still run; zero again
// when this launch has ended.
int cuda_gemv_stay(const struct cuda_linear *a, uint32_t *ticket, cudaStream_t stream);
// One row, W of 8 bits. CUDA_UNSUPPORTED likewise.
int cuda_gemv_8bit(const struct cuda_linear *a, cudaStream_t stream);
// Any shape; F32 sums in an order that does not depend on n. The reference, and the fallback
// without cuBLASLt. CUDA_UNSUPPORTED for fused arguments.
int cuda_linear_simple(const struct cuda_linear *a, cudaStream_t stream);

// x (n, cols) of `dtype` (F16, BF16) as e4m3: q (n, cols) and scale (n). scale = max |x| / 448, q = x times 1 / scale, to
// nearest even; zeros have scale 0. A row with an infinity or a NaN has a NaN in q. CUDA_UNSUPPORTED: cols is no multiple
// of 16, or above 32,768.
int cuda_quantize(uint8_t *q, float *scale, const void *x, enum dtype dtype, int32_t n,
                  int32_t cols, cudaStream_t stream);
// The end of the linear *a whose products without scales are in sums (n, rows): scales of W and x
// (a->x_scale), bias, activation or gate, addition to y. rows (of y) are a multiple of 4.
int cuda_linear_end(const struct cuda_linear *a, const float *sums, cudaStream_t stream);

// --- cache and attention -------------------------------------------------------------------------

// Layer l's part of block b is at data + l * layer_bytes + b * block_bytes: K (n_kv_heads,
// block_tokens, head_dim), then V likewise; of latents K alone, which is V too. K is rotated. A layer's parts are adjacent because
// attention reads that layer of all blocks (kv_store.c).
struct cuda_kv {
    void *data;
    size_t layer_bytes, block_bytes; // from a layer's, a block's part to the next
    size_t bytes;                    // of the arena
    enum dtype dtype;
    int32_t n_layers, n_kv_heads, head_dim, block_tokens;
    bool latent;
};

struct cuda_attention {
    void *out; // (n_rows, n_heads * head_dim)
    // (n_rows, (n_heads + 2 n_kv_heads) * head_dim); q is rotated, k and v are in the cache
    const void *qkv; // (or q alone: row_heads)
    enum dtype dtype;
    struct cuda_kv kv;
    struct cuda_batch b;
    int32_t layer, n_heads;
    int32_t row_heads; // heads in a row of qkv
    float scale;
    float soft_cap;            // scores become cap * tanh(score / cap); 0: they do not
    int32_t window;            // the model's own; 0 for none
    const float *alibi_slopes; // (n_heads) or NULL; adds slope * (key position - row position)
    const float *sinks;        // (n_heads) or NULL: a score without a value, for each head
    int32_t n_decode, n_tiles;
    bool early; // what earlier steps wrote to the cache may be read before the wait (pdl.cuh)
    // A power of two above the positions of all rows. The decode kernel's grid may depend on it.
    int32_t max_position;
    // Partial results of thread blocks that share rows: cuda_attention_work_bytes(max decode rows,
    // ...) bytes, zeroed before the first launch. Ends with counters, which every launch leaves
    // zero: the decode kernel's, then CUDA_TILE_COUNTERS for tiles (attention_exact.h).
    void *work;
    size_t work_bytes;
};

size_t cuda_attention_work_bytes(int32_t max_rows, int32_t n_heads, int32_t n_kv_heads,
                                 int32_t head_dim);
// n_decode rows of b.decode_rows. CUDA_UNSUPPORTED for shapes that it does not cover.
int cuda_attention_decode(const struct cuda_attention *a, cudaStream_t stream);
// n_tiles tiles of b.tiles. CUDA_UNSUPPORTED likewise.
int cuda_attention_prefill(const struct cuda_attention *a, cudaStream_t stream);
// Any shape and dtype; a thread block for each (row, head), keys in ascending order. The reference.
// rows: the n rows, or NULL for rows 0 .. n - 1.
int cuda_attention_simple(const struct cuda_attention *a, const int32_t *rows, int32_t n,
                          cudaStream_t stream);

// Stores k and v of qkv's rows in the cache. First norms the heads of q, k and v that have a weight, clips them,
// rotates those of q and k if rot_dim > 0 and scales q (kernels/backend.h, struct qkv_args).
struct cuda_kv_write {
    void *qkv; // q and k are written back normed and rotated
    enum dtype dtype;
    struct cuda_kv kv;
    struct cuda_batch b;
    int32_t n_rows, layer, n_heads;
    bool store; // false: norm and rotate only
    enum rope_style style;
    int32_t rot_dim;
    const float *cos_sin;                        // (n_rows, rot_dim)
    const float *q_weight, *k_weight, *v_weight; // (head_dim) or NULL
    float eps;
    bool norm_late; // q and k are normed after they are rotated
    float clip;     // > 0: q, k and v are cut to [-clip, clip], behind their norms
    float query_beta, query_length;
    const int32_t *positions; // (n_rows) where query_beta is not 0
};
int cuda_kv_write(const struct cuda_kv_write *a, cudaStream_t stream);

// --- the rest; what each does is in kernels/backend.h --------------------------------------------

// The rows `ids` of the weight that *w describes. drawn: struct cuda_drawn's ids, which ids below 0 name.
int cuda_embed(void *y, const int32_t *ids, const int32_t *drawn, int32_t n,
               const struct cuda_linear *w, float scale, cudaStream_t stream);
int cuda_embed_positions(void *y, enum dtype dtype, const int32_t *positions, int32_t n,
                         const float *table, int32_t cols, int32_t offset, cudaStream_t stream);
int cuda_norm(void *y, const void *x, enum dtype dtype, int32_t n, int32_t width,
              const struct norm_args *args, cudaStream_t stream);
// In place, rows `stride` elements apart.
int cuda_norm_strided(void *x, enum dtype dtype, int32_t n, int32_t width, int64_t stride,
                      const struct norm_args *args, cudaStream_t stream);
int cuda_norm_add(void *y, const void *x, enum dtype dtype, int32_t n, int32_t width,
                  const struct norm_args *args, cudaStream_t stream);
int cuda_scale(void *x, enum dtype dtype, int64_t n_elements, const float *by, float factor,
               cudaStream_t stream);
int cuda_multiply_rows(void *y, const void *x, enum dtype dtype, int32_t n, int32_t width,
                       int64_t stride, cudaStream_t stream);
int cuda_xielu(void *y, const void *x, enum dtype dtype, int64_t n_elements, const float *alpha,
               cudaStream_t stream);
int cuda_finish_logits(float *x, int64_t n_elements, float scale, float cap, cudaStream_t stream);
int cuda_add_gated(void *y, const void *x, enum dtype dtype, const float *gate, int32_t n,
                   int32_t width, cudaStream_t stream);
// A layer's experts (kernels/backend.h, experts). At most so many rows, and pairs (row, expert) unless one row
// has more, are computed at once.
enum { CUDA_EXPERT_PAIRS = 16 * 1024, CUDA_EXPERT_ROWS = 4096 };
struct cuda_experts {
    struct experts_args args; // up and down: the host's structs
    enum linear_mode mode;
    enum dtype dtype;
    void *y;
    const void *x;
    const int32_t *ids;
    const float *weights;
    int32_t n;
    void *work; // cuda_experts_bytes(n, ..)
    bool deterministic;
    // Two words of device memory, zero between launches, where the blocks of a launch meet (experts_stay.cu); NULL:
    // they may not.
    uint32_t *meeting;
};
size_t cuda_experts_bytes(int32_t n, const struct experts_args *args, enum dtype dtype);
// CUDA_UNSUPPORTED: args.shared, and more than one row or a kind that does not take it along; nothing is done.
int cuda_experts(const struct cuda_experts *a, cudaStream_t stream);

int cuda_route(int32_t *ids, float *weights, const float *logits, int32_t n,
               const struct route_args *args, cudaStream_t stream);
// a: x, the norm and the router, not y; normed (n, cols). CUDA_UNSUPPORTED: more rows, another shape, dtype or device.
int cuda_norm_route(int32_t *ids, float *weights, void *normed, const struct cuda_linear *a,
                    const struct route_args *args, cudaStream_t stream);
int cuda_rope_angles(float *cos_sin, const struct cuda_batch *b, int32_t n, const float *inv_freq,
                     const float *short_inv_freq, int32_t rot_dim, float scale,
                     cudaStream_t stream);
int cuda_activate(enum activation act, bool gated, void *y, const void *x, enum dtype dtype,
                  int32_t n, int32_t width, cudaStream_t stream);
int cuda_add(void *y, const void *x, enum dtype dtype, int64_t n_elements, cudaStream_t stream);
// y (n, width) = or += bias (width) in every row.
int cuda_add_bias(void *y, enum dtype dtype, const float *bias, int32_t n, int32_t width, bool add,
                  cudaStream_t stream);
int cuda_gather(void *y, const void *x, enum dtype dtype, const int32_t *rows, int32_t n,
                int32_t width, cudaStream_t stream);
// Reads all of data (a multiple of 16 bytes), to measure the rate. out: any word of device memory.
int cuda_read_all(const void *data, size_t bytes, uint32_t *out, cudaStream_t stream);
// Where draws go: to the host, and to the step after, whose embed may read ids.
struct cuda_drawn {
    struct batch_drawn *host; // (2, max) pinned memory: of two steps in turns
    const int32_t *slot;      // device memory: which of the two
    int32_t *ids;             // (max) device memory
    int32_t max;
};
// Draws n rows from logits (n, vocab) by draws (n), in device memory. work: cuda_draw_work_bytes.
size_t cuda_draw_work_bytes(int32_t max_rows, int32_t vocab);
int cuda_draw(const struct cuda_drawn *to, const float *logits, const struct batch_draw *draws,
              int32_t n, int32_t vocab, void *work, cudaStream_t stream);
// The same for rows whose draws change their logits (struct batch_adjusted). rows (n) and their penalties,
// biases and allowed are device memory. work: cuda_draw_adjusted_work_bytes. vocab is at most
// CUDA_ADJUSTED_VOCAB.
enum { CUDA_ADJUSTED_ROWS = 64, CUDA_ADJUSTED_VOCAB = 384 * 1024 };
struct cuda_adjusted {
    int32_t row;
    struct batch_draw draw;
    float repetition, presence, frequency;
    int32_t n_penalties, n_biases;
    bool biases_distinct;
    const struct batch_penalty *penalties;
    const struct batch_bias *biases;
    const uint64_t *allowed;
};
size_t cuda_draw_adjusted_work_bytes(int32_t vocab);
int cuda_draw_adjusted(const struct cuda_drawn *to, const float *logits,
                       const struct cuda_adjusted *rows, int32_t n, int32_t vocab, void *work,
                       cudaStream_t stream);
// dst (n, w->ld) of w->dtype = rows [row, row + n) of a weight of 8 bits, times their scales; w->ld
// a multiple of 16.
int cuda_widen(void *dst, const struct cuda_linear *w, int32_t row, int32_t n, cudaStream_t stream);
// dst (rows, ld of dst_dtype)[r][c] = src[r * row_stride + c * col_stride], for r < rows, c < cols.
int cuda_convert(void *dst, enum dtype dst_dtype, int64_t ld, const void *src, enum dtype src_dtype,
                 int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif
