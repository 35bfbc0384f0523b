// linear for bf16 weights with x rounded to bf16: `compute_dtype = bf16` on AVX512-BF16. One
// instruction, vdpbf16ps, takes 16 outputs x 2 K as they lie in PANEL_BF16, where F32 activations
// take two to widen the weights and two to multiply.
//
// What it computes, in each of 16 lanes (tests/ops/test_bf16_linear.c has it in C):
//   sum = fma(x[2k + 1], w[2k + 1], sum), then sum = fma(x[2k], w[2k], sum)
// to nearest, ties to even, whatever MXCSR says; denormals count as zero, as input and as result.
// Pairs come in ascending order, one chain for each output: the order of a sum is the same for any
// number of rows. x is rounded once for a call, to nearest even (denormals to zero).
//
// Two ways to the same bits:
//   few rows   eight panels side by side, as linear.inc does: the memory is what takes the time
//   many rows  two panels x BLOCK_K of weights stay in L1 while all rows pass over them
// PANEL_BF12 is widened to pairs of bf16, in registers or to such a strip.
//
// x in bf16: [block of BLOCK_K][row][BLOCK_BYTES], so that rows are a constant and odd number of
// cache lines apart: neighbours fall into other sets, and the loops need one pointer for all.
#if defined(__x86_64__)
#include "kernels/cpu/linear_bf16.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/bf12.inc"
#include "kernels/cpu/linear_finish.inc"

enum {
    TILE_BYTES = WEIGHT_TILE_K * 2, // of a row of x: a cache line
    TILE_PAIRS = WEIGHT_TILE_K / 2,
    BLOCK_TILES = 8,
    BLOCK_BYTES = (BLOCK_TILES + 1) * TILE_BYTES,
    PAIR_BYTES = 64, // of a panel: 16 outputs x 2 K
    STREAMS = 8,
    SPAN_TILES =
        4, // few rows: tiles taken at once where they are of one size, a divisor of a block
    PREFETCH_BYTES = 4096,
    MICRO_ROWS = 14, // x 2 panels: 28 sums, 2 weights and an x in 32 registers
    STRIP_PANELS = 2,
    STRIP_LANES = STRIP_PANELS * WEIGHT_PANEL,
};

static int32_t n_blocks(const struct weight *w) {
    return (weight_tiles(w) + BLOCK_TILES - 1) / BLOCK_TILES;
}

size_t bf16_linear_row_bytes(const struct weight *w) {
    return (size_t)n_blocks(w) * BLOCK_BYTES;
}

// Row `row`, counted from split_row, at K tile `tile`.
VEC_INLINE uint8_t *x_at(const struct linear_args *a, int32_t row, int32_t tile) {
    int32_t rest = a->n - a->split_row, n = rest < LINEAR_BLOCK_ROWS ? rest : LINEAR_BLOCK_ROWS;
    return (uint8_t *)a->split_x + ((int64_t)(tile / BLOCK_TILES) * n + row) * BLOCK_BYTES +
           tile % BLOCK_TILES * TILE_BYTES;
}

void bf16_linear_split(const struct linear_args *a, int32_t row, int32_t n_rows) {
    const int32_t cols = a->w->cols, n_tiles = weight_tiles(a->w);
    for (int32_t r = row; r < row + n_rows; r++) {
        const float *x = a->x + (int64_t)(a->split_row + r) * cols;
        for (int32_t t = 0; t < n_tiles; t++, x += WEIGHT_TILE_K) {
            vf v[2];
            for (int half = 0; half < 2; half++) {
                int32_t n = cols - t * WEIGHT_TILE_K - half * VL;
                v[half] = n >= VL ? v_load(x + half * VL) : v_load_n(x + half * VL, n > 0 ? n : 0);
            }
            _mm512_storeu_si512(x_at(a, r, t), (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0]));
        }
    }
}

// sum + the two products of each lane's pairs; x: one pair for all lanes.
VEC_INLINE vf dot_pairs(vf sum, __m512i x, __m512i w) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w);
}

VEC_INLINE __m512i x_pair(const uint8_t *x, int pair) {
    int32_t bits;
    memcpy(&bits, x + pair * 4, sizeof bits);
    return _mm512_set1_epi32(bits);
}

// --- few rows
// ---------------------------------------------------------------------------------------------
typedef float stream_sums[STREAMS][WEIGHT_PANEL]; // of one row

// Panels whose sums a tile function keeps in registers: a chain's step takes six cycles, so twelve
// chains keep two multipliers busy; sixteen leave room for weights.
VEC_INLINE int panels_at_once(const int mr) {
    return mr <= 2 ? 8 : mr <= 4 ? 4 : mr <= 8 ? 2 : 1;
}

VEC_INLINE void sums_load(const int mr, vf acc[LINEAR_FEW_ROWS], const stream_sums *sum, int p) {
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++) acc[r] = v_load(sum[r][p]);
}

VEC_INLINE void sums_store(const int mr, vf acc[LINEAR_FEW_ROWS], stream_sums *sum, int p) {
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++) v_store(sum[r][p], acc[r]);
}

// Adds the next n tiles of panels_at_once(mr) panels, `first` and on, to the sums of mr rows. x:
// row 0 at these tiles' K.
VEC_INLINE void tiles_plain(const int mr, const struct weight_stream *s, const uint8_t *x,
                            int n_tiles, stream_sums *sum, int first) {
    const int np = panels_at_once(mr);
    s += first;
    vf acc[STREAMS][LINEAR_FEW_ROWS];
#pragma GCC unroll 8
    for (int p = 0; p < np; p++) sums_load(mr, acc[p], sum, first + p);
    for (int pair = 0; pair < n_tiles * TILE_PAIRS; pair++) {
        __m512i w[STREAMS];
#pragma GCC unroll 8
        for (int p = 0; p < np; p++) {
            prefetch_l2(s[p].tile + PREFETCH_BYTES + pair * PAIR_BYTES);
            w[p] = _mm512_loadu_si512(s[p].tile + pair * PAIR_BYTES);
        }
#pragma GCC unroll 16
        for (int r = 0; r < mr; r++) {
            __m512i xk = x_pair(x + r * BLOCK_BYTES, pair);
#pragma GCC unroll 8
            for (int p = 0; p < np; p++) acc[p][r] = dot_pairs(acc[p][r], xk, w[p]);
        }
    }
#pragma GCC unroll 8
    for (int p = 0; p < np; p++) sums_store(mr, acc[p], sum, first + p);
}

// The same for one tile of PANEL_BF12; the panels take turns group by group.
VEC_INLINE void tile_packed(const int mr, const struct weight_stream *s, const uint8_t *x,
                            stream_sums *sum, int first) {
    const int np = panels_at_once(mr);
    s += first;
    vf acc[STREAMS][LINEAR_FEW_ROWS];
    __m512i table[STREAMS];
#pragma GCC unroll 8
    for (int p = 0; p < np; p++) {
        sums_load(mr, acc[p], sum, first + p);
        table[p] = bf12_table(*s[p].base);
    }
    for (int group = 0; group < 4; group++, x += 16) {
#pragma GCC unroll 8
        for (int p = 0; p < np; p++) {
            __m512i raw[4];
            bf12_prefetch(s[p].tile + PREFETCH_BYTES, group);
            bf12_group(s[p].tile, *s[p].base, table[p], group, raw);
            const uint8_t *xp = x;
            v_reload(xp); // else the compiler keeps x for the next panel, and spills the sums
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
#pragma GCC unroll 16
                for (int r = 0; r < mr; r++)
                    acc[p][r] = dot_pairs(acc[p][r], x_pair(xp + r * BLOCK_BYTES, j), raw[j]);
        }
    }
#pragma GCC unroll 8
    for (int p = 0; p < np; p++) sums_store(mr, acc[p], sum, first + p);
}

typedef void tiles_fn(const struct weight_stream *s, const uint8_t *x, int n_tiles,
                      stream_sums *sum, int first);
// clang-format off
#define TILES(M)                                                                                   \
    static void plain_##M(const struct weight_stream *s, const uint8_t *x, int n_tiles,            \
                          stream_sums *sum, int first) {                                           \
        tiles_plain(M, s, x, n_tiles, sum, first);                                                 \
    }                                                                                              \
    static void packed_##M(const struct weight_stream *s, const uint8_t *x, int n_tiles,           \
                           stream_sums *sum, int first) {                                          \
        tile_packed(M, s, x, sum, first);                                                          \
    }
TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6) TILES(7) TILES(8)
TILES(9) TILES(10) TILES(11) TILES(12) TILES(13) TILES(14) TILES(15) TILES(16)
static tiles_fn *const plain_table[LINEAR_FEW_ROWS] = {
    plain_1, plain_2,  plain_3,  plain_4,  plain_5,  plain_6,  plain_7,  plain_8,
    plain_9, plain_10, plain_11, plain_12, plain_13, plain_14, plain_15, plain_16};
static tiles_fn *const packed_table[LINEAR_FEW_ROWS] = {
    packed_1, packed_2,  packed_3,  packed_4,  packed_5,  packed_6,  packed_7,  packed_8,
    packed_9, packed_10, packed_11, packed_12, packed_13, packed_14, packed_15, packed_16};
// clang-format on

// One group of up to STREAMS panels. As many streams as whole calls take; those past np repeat the
// last panel, and what they give is dropped.
static void streams(const struct linear_args *a, const struct linear_item *item, int32_t panel,
                    int np) {
    const struct weight *w = a->w;
    const bool packed = w->layout == PANEL_BF12;
    const int32_t mr = item->n_rows, row = item->row - a->split_row, n_tiles = weight_tiles(w);
    tiles_fn *const add = (packed ? packed_table : plain_table)[mr - 1];
    const int at_once = panels_at_once(mr), n_streams = (np + at_once - 1) / at_once * at_once,
              span = packed ? 1 : SPAN_TILES;
    struct weight_stream s[STREAMS];
    _Alignas(64) stream_sums sum[LINEAR_FEW_ROWS];
    memset(sum, 0, sizeof *sum * (size_t)mr);
    for (int p = 0; p < n_streams; p++) weight_stream_open(&s[p], w, panel + (p < np ? p : np - 1));
    for (int32_t t = 0, n; t < n_tiles; t += n) {
        n = n_tiles - t < span ? n_tiles - t : span;
        for (int p = 0; p < n_streams; p += at_once) add(s, x_at(a, row, t), n, sum, p);
        for (int p = 0; p < n_streams; p++) weight_stream_next(&s[p], w, n);
    }
    for (int p = 0; p < np; p++)
        linear_finish(a, item->row, mr, panel + p, sum[0][p], STREAMS * WEIGHT_PANEL);
}

static void few_rows(const struct linear_args *a, const struct linear_item *item) {
    for (int32_t p = 0; p < item->n_panels; p += STREAMS)
        streams(a, item, item->panel + p,
                item->n_panels - p < STREAMS ? item->n_panels - p : STREAMS);
}

// --- many rows
// --------------------------------------------------------------------------------------------
struct block {
    const uint8_t *x;               // row 0 at this block's K
    const uint8_t *w[STRIP_PANELS]; // each panel's pairs of the block
    float *sum;                     // (rows, STRIP_LANES)
    int32_t n_pairs;
    bool add; // to what sum holds
};

VEC_INLINE void micro(const int mr, const int nv, const struct block *b, int32_t row) {
    const uint8_t *x = b->x + (int64_t)row * BLOCK_BYTES, *w0 = b->w[0], *w1 = b->w[nv - 1];
    float *sum = b->sum + (int64_t)row * STRIP_LANES;
    vf acc[MICRO_ROWS][STRIP_PANELS];
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            acc[r][v] = b->add ? v_load(sum + r * STRIP_LANES + v * VL) : v_zero();
    for (int32_t pair = 0; pair < b->n_pairs; pair++) {
        __m512i wk[STRIP_PANELS] = {_mm512_loadu_si512(w0 + pair * PAIR_BYTES),
                                    _mm512_loadu_si512(w1 + pair * PAIR_BYTES)};
#pragma GCC unroll 16
        for (int r = 0; r < mr; r++) {
            __m512i xk = x_pair(x + r * BLOCK_BYTES, pair);
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++) acc[r][v] = dot_pairs(acc[r][v], xk, wk[v]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) v_store(sum + r * STRIP_LANES + v * VL, acc[r][v]);
}

typedef void micro_fn(const struct block *b, int32_t row);
// clang-format off
#define MICRO(M)                                                                                   \
    static void micro_##M##_1(const struct block *b, int32_t row) {                                \
        micro(M, 1, b, row);                                                                       \
    }                                                                                              \
    static void micro_##M##_2(const struct block *b, int32_t row) {                                \
        micro(M, 2, b, row);                                                                       \
    }
MICRO(1) MICRO(2) MICRO(3) MICRO(4) MICRO(5) MICRO(6) MICRO(7)
MICRO(8) MICRO(9) MICRO(10) MICRO(11) MICRO(12) MICRO(13) MICRO(14)
#define MICRO_ROW(M) {micro_##M##_1, micro_##M##_2}
static micro_fn *const micro_table[MICRO_ROWS][STRIP_PANELS] = {
    MICRO_ROW(1), MICRO_ROW(2), MICRO_ROW(3),  MICRO_ROW(4),  MICRO_ROW(5),  MICRO_ROW(6),  MICRO_ROW(7),
    MICRO_ROW(8), MICRO_ROW(9), MICRO_ROW(10), MICRO_ROW(11), MICRO_ROW(12), MICRO_ROW(13), MICRO_ROW(14)};
// clang-format on

// All rows, in blocks of a height as even as can be.
static void multiply(const struct block *b, int32_t n_rows, int n_panels) {
    for (int32_t row = 0, mr; row < n_rows; row += mr) {
        int32_t rest = n_rows - row, n = (rest + MICRO_ROWS - 1) / MICRO_ROWS;
        mr = (rest + n - 1) / n;
        micro_table[mr - 1][n_panels - 1](b, row);
    }
}

// n tiles of a panel from its stream as PANEL_BF16: where they lie, or widened in `out`.
static const uint8_t *next_tiles(struct weight_stream *s, const struct weight *w, int32_t n,
                                 uint8_t *out) {
    if (w->layout == PANEL_BF16) {
        const uint8_t *tiles = s->tile;
        weight_stream_next(s, w, n);
        return tiles;
    }
    for (int32_t t = 0; t < n; t++, weight_stream_next(s, w, 1)) {
        const __m512i table = bf12_table(*s->base);
        for (int group = 0; group < 4; group++) {
            __m512i raw[4];
            bf12_prefetch(s->tile + PREFETCH_BYTES, group);
            bf12_group(s->tile, *s->base, table, group, raw);
            for (int j = 0; j < 4; j++)
                _mm512_storeu_si512(out + ((t * 4 + group) * 4 + j) * PAIR_BYTES, raw[j]);
        }
    }
    return out;
}

static void many_rows(const struct linear_args *a, const struct linear_item *item, void *scratch) {
    const struct weight *w = a->w;
    const int32_t n_tiles = weight_tiles(w), row = item->row - a->split_row;
    enum { PANEL_BYTES = BLOCK_TILES * TILE_PAIRS * PAIR_BYTES };
    uint8_t *strip = scratch;
    float *sums = (float *)(strip + STRIP_PANELS * PANEL_BYTES); // (strips, rows, STRIP_LANES)
    struct weight_stream s[LINEAR_GROUP_PANELS];
    for (int32_t p = 0; p < item->n_panels; p++) weight_stream_open(&s[p], w, item->panel + p);
    for (int32_t t = 0; t < n_tiles; t += BLOCK_TILES) {
        int32_t n = n_tiles - t < BLOCK_TILES ? n_tiles - t : BLOCK_TILES;
        struct block b = {
            .x = x_at(a, row, t), .sum = sums, .n_pairs = n * TILE_PAIRS, .add = t > 0};
        for (int32_t p = 0, np; p < item->n_panels; p += np) {
            np = item->n_panels - p < STRIP_PANELS ? item->n_panels - p : STRIP_PANELS;
            for (int32_t i = 0; i < np; i++)
                b.w[i] = next_tiles(&s[p + i], w, n, strip + i * PANEL_BYTES);
            multiply(&b, item->n_rows, np);
            for (int32_t i = 0; i < np && t + n == n_tiles; i++)
                linear_finish(a, item->row, item->n_rows, item->panel + p + i,
                              b.sum + i * WEIGHT_PANEL, STRIP_LANES);
            b.sum += (int64_t)item->n_rows * STRIP_LANES;
        }
    }
}

void bf16_linear_item(const struct linear_args *a, const struct linear_item *item, void *scratch) {
    if (item->n_rows <= LINEAR_FEW_ROWS)
        few_rows(a, item);
    else
        many_rows(a, item, scratch);
}
#endif
