// linear for bf16 weights with x rounded to bf16: `compute_dtype = bf16` on AVX512-BF16. One
// instruction, vdpbf16ps, takes 16 outputs x 2 K as they lie in PANEL_BF16, where F32 activations
// take two to widen the weights and two to multiply.
//
// What it computes, in each of 16 lanes (tests/ops/test_bf16_linear.c has it in C):
//   sum = fma(x[2k + 1], w[2k + 1], sum), then sum = fma(x[2k], w[2k], sum)
// to nearest, ties to even, independent of MXCSR; denormals count as zero, as input and as result.
// Pairs come in ascending order, one chain for each output: the order of a sum is the same for any
// number of rows. x is rounded once for a call, to nearest even (denormals to zero).
//
// Two ways to the same bits:
//   few rows   panels side by side, read once from end to end: memory limits the speed
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
    AHEAD_BYTES = 4096, // few rows: the prefetch distance
    MICRO_ROWS = 14,    // x 2 panels: 28 sums, 2 weights and an x in 32 registers
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
VEC_INLINE uint8_t *x_tile(const struct linear_args *a, int32_t row, int32_t tile) {
    int32_t rest = a->n - a->split_row, n = rest < LINEAR_BLOCK_ROWS ? rest : LINEAR_BLOCK_ROWS;
    return (uint8_t *)a->split_x + ((int64_t)(tile / BLOCK_TILES) * n + row) * BLOCK_BYTES +
           tile % BLOCK_TILES * TILE_BYTES;
}

// A tile of a row, rounded.
VEC_INLINE void round_tile(uint8_t *to, vf low, vf high) {
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
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
            round_tile(x_tile(a, r, t), v[0], v[1]);
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

// --- few rows ------------------------------------------------------------------------------------

// A group of panels is read from end to end, with its sums in registers. Lines are prefetched
// AHEAD_BYTES ahead. Near a panel's end these are lines of the panel that takes its place in the
// next group: the panels of a small model are only a few times AHEAD_BYTES long.
struct group {
    const uint8_t *tile[STREAMS], *head[STREAMS]; // as weight_stream's
    struct panel_end end[STREAMS];
};

typedef float stream_sums[STREAMS][WEIGHT_PANEL]; // of one row

// Panels of a group: a chain's step takes six cycles, so twelve chains keep two multipliers busy;
// sixteen leave room for weights.
VEC_INLINE int panels_at_once(const int mr) {
    return mr <= 2 ? 8 : mr <= 4 ? 4 : mr <= 8 ? 2 : 1;
}

VEC_INLINE void sums_store(const int mr, const int np, vf acc[STREAMS][LINEAR_FEW_ROWS],
                           stream_sums *sum) {
#pragma GCC unroll 8
    for (int p = 0; p < np; p++)
#pragma GCC unroll 16
        for (int r = 0; r < mr; r++) v_store(sum[r][p], acc[p][r]);
}

VEC_INLINE void sums_zero(const int mr, const int np, vf acc[STREAMS][LINEAR_FEW_ROWS]) {
#pragma GCC unroll 8
    for (int p = 0; p < np; p++)
#pragma GCC unroll 16
        for (int r = 0; r < mr; r++) acc[p][r] = v_zero();
}

// The sums of mr rows, `row` and on, with np panels.
VEC_INLINE void group_plain(const int mr, const int np, const struct linear_args *a, int32_t row,
                            const struct group *g, stream_sums *sum) {
    const int32_t n_tiles = weight_tiles(a->w);
    vf acc[STREAMS][LINEAR_FEW_ROWS];
    const uint8_t *tile[STREAMS];
    sums_zero(mr, np, acc);
#pragma GCC unroll 8
    for (int p = 0; p < np; p++) tile[p] = g->tile[p];
    for (int32_t t = 0; t < n_tiles; t++) {
        const uint8_t *x = x_tile(a, row, t);
        const int64_t ahead = panel_ahead(&g->end[0], tile[0], AHEAD_BYTES);
        for (int pair = 0; pair < TILE_PAIRS; pair++) {
            __m512i w[STREAMS];
#pragma GCC unroll 8
            for (int p = 0; p < np; p++) {
                prefetch_l2(tile[p] + ahead);
                w[p] = _mm512_loadu_si512(tile[p]);
                tile[p] += PAIR_BYTES;
            }
#pragma GCC unroll 16
            for (int r = 0; r < mr; r++) {
                __m512i xk = x_pair(x + r * BLOCK_BYTES, pair);
#pragma GCC unroll 8
                for (int p = 0; p < np; p++) acc[p][r] = dot_pairs(acc[p][r], xk, w[p]);
            }
        }
    }
    sums_store(mr, np, acc, sum);
}

// The same for PANEL_BF12; within a tile the panels take turns group by group of its pairs.
VEC_INLINE void group_packed(const int mr, const int np, const struct linear_args *a, int32_t row,
                             const struct group *g, stream_sums *sum) {
    const int32_t n_tiles = weight_tiles(a->w);
    vf acc[STREAMS][LINEAR_FEW_ROWS];
    const uint8_t *tile[STREAMS];
    sums_zero(mr, np, acc);
#pragma GCC unroll 8
    for (int p = 0; p < np; p++) tile[p] = g->tile[p];
    for (int32_t t = 0; t < n_tiles; t++) {
        const uint8_t *x = x_tile(a, row, t), *ahead[STREAMS];
        __m512i table[STREAMS];
#pragma GCC unroll 8
        for (int p = 0; p < np; p++) {
            table[p] = bf12_table(g->head[p] + t * WEIGHT_HEAD_BYTES);
            ahead[p] = tile[p] + panel_ahead(&g->end[p], tile[p], AHEAD_BYTES);
        }
        for (int quarter = 0; quarter < 4; quarter++, x += 16) {
#pragma GCC unroll 8
            for (int p = 0; p < np; p++) {
                __m512i raw[4];
                bf12_prefetch(ahead[p], quarter);
                bf12_group(tile[p], weight_tile_is_raw(g->head[p] + t * WEIGHT_HEAD_BYTES),
                           table[p], quarter, raw);
                const uint8_t *xp = x;
                // otherwise the compiler keeps x for the next panel and spills the sums
                v_reload(xp);
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++)
#pragma GCC unroll 16
                    for (int r = 0; r < mr; r++)
                        acc[p][r] = dot_pairs(acc[p][r], x_pair(xp + r * BLOCK_BYTES, j), raw[j]);
            }
        }
#pragma GCC unroll 8
        for (int p = 0; p < np; p++)
            tile[p] += weight_tile_bytes(g->head[p] + t * WEIGHT_HEAD_BYTES);
    }
    sums_store(mr, np, acc, sum);
}

typedef void group_fn(const struct linear_args *a, int32_t row, const struct group *g,
                      stream_sums *sum);
// clang-format off
#define GROUP(M, N)                                                                                \
    static void plain_##M##_##N(const struct linear_args *a, int32_t row, const struct group *g,   \
                                stream_sums *sum) {                                                \
        group_plain(M, N, a, row, g, sum);                                                         \
    }                                                                                              \
    static void packed_##M##_##N(const struct linear_args *a, int32_t row, const struct group *g,  \
                                 stream_sums *sum) {                                               \
        group_packed(M, N, a, row, g, sum);                                                        \
    }
// panels_at_once panels, and half as many for the rest.
GROUP(1, 8) GROUP(1, 4) GROUP(2, 8) GROUP(2, 4) GROUP(3, 4) GROUP(3, 2) GROUP(4, 4) GROUP(4, 2)
GROUP(5, 2) GROUP(5, 1) GROUP(6, 2) GROUP(6, 1) GROUP(7, 2) GROUP(7, 1) GROUP(8, 2) GROUP(8, 1)
GROUP(9, 1) GROUP(10, 1) GROUP(11, 1) GROUP(12, 1) GROUP(13, 1) GROUP(14, 1) GROUP(15, 1) GROUP(16, 1)
#define TABLE(KIND)                                                                                \
    static group_fn *const KIND##_table[LINEAR_FEW_ROWS][2] = {                                    \
        {KIND##_1_8, KIND##_1_4}, {KIND##_2_8, KIND##_2_4}, {KIND##_3_4, KIND##_3_2}, {KIND##_4_4, KIND##_4_2}, \
        {KIND##_5_2, KIND##_5_1}, {KIND##_6_2, KIND##_6_1}, {KIND##_7_2, KIND##_7_1}, {KIND##_8_2, KIND##_8_1}, \
        {KIND##_9_1, NULL}, {KIND##_10_1, NULL}, {KIND##_11_1, NULL}, {KIND##_12_1, NULL},         \
        {KIND##_13_1, NULL}, {KIND##_14_1, NULL}, {KIND##_15_1, NULL}, {KIND##_16_1, NULL}};
TABLE(plain)
TABLE(packed)
    // clang-format on

    // Panels past the last repeat it, and their results are dropped.
    static void group_open(struct group *g, const struct weight *w, int32_t panel, int n,
                           int32_t next_panel) {
    const int32_t last = weight_panels(w) - 1;
    for (int p = 0; p < n; p++) {
        struct weight_stream s;
        int32_t i = panel + p < last ? panel + p : last;
        weight_stream_open(&s, w, i);
        g->tile[p] = s.tile;
        g->head[p] = s.head;
        g->end[p] = panel_end(w, i, next_panel + p);
    }
}

// --- few rows of a gated matrix, activated and rounded

// A group has as many panels of the gate as panels that they gate, side by side: the gate first,
// then the same panels half a matrix on. Returns how many of each.
static int gated_open(struct group *g, const struct weight *w, int32_t panel, int n, int32_t end) {
    const int32_t half = weight_panels(w) / 2, pairs = n / 2;
    for (int p = 0; p < n; p++) {
        struct weight_stream s;
        int32_t at = panel + p % pairs, next = at + pairs;
        int32_t i = (at < end ? at : end - 1) + p / pairs * half;
        weight_stream_open(&s, w, i);
        g->tile[p] = s.tile;
        g->head[p] = s.head;
        g->end[p] = panel_end(w, i, next + p / pairs * half);
    }
    return pairs;
}

// acc (16) + bias to out.
static void gated_store(float *out, const float *acc, const float *bias) {
    vf v = v_load(acc);
    if (bias) v = v + v_load(bias);
    v_store(out, v);
}

void bf16_gated_item(const struct linear_args *a, const struct linear_item *item,
                     const struct bf16_gated *gated, void *scratch) {
    const struct weight *w = a->w;
    const int mr = item->n_rows, n = panels_at_once(mr), width = item->n_panels * WEIGHT_PANEL;
    const int32_t end = item->panel + item->n_panels, half = w->rows / 2;
    group_fn *fn = w->layout == PANEL_BF12 ? packed_table[mr - 1][0] : plain_table[mr - 1][0];
    float *gate = scratch, *open = gate + mr * width; // (mr, width) each
    struct group g;
    _Alignas(64) stream_sums sum[LINEAR_FEW_ROWS];
    for (int32_t panel = item->panel, pairs; panel < end; panel += pairs) {
        pairs = gated_open(&g, w, panel, n, end);
        fn(a, item->row, &g, sum);
        for (int p = 0; p < pairs && panel + p < end; p++)
            for (int r = 0; r < mr; r++) {
                int32_t to = r * width + (panel + p - item->panel) * WEIGHT_PANEL;
                const float *bias = a->bias ? a->bias + (panel + p) * WEIGHT_PANEL : NULL;
                gated_store(gate + to, sum[r][p], bias);
                gated_store(open + to, sum[r][pairs + p], bias ? bias + half : NULL);
            }
    }
    for (int r = 0; r < mr; r++) {
        float *y = gate + r * width;
        gated->activate_row(gated->act, y, y, open + r * width, width);
        for (int32_t k = 0; k < width; k += WEIGHT_TILE_K) {
            int32_t tile = (item->panel * WEIGHT_PANEL + k) / WEIGHT_TILE_K;
            round_tile(x_tile(gated->next, r, tile), v_load(y + k), v_load(y + k + VL));
        }
    }
}

static void few_rows(const struct linear_args *a, const struct linear_item *item) {
    const struct weight *w = a->w;
    const int mr = item->n_rows, whole = panels_at_once(mr);
    const int32_t row = item->row - a->split_row, end = item->panel + item->n_panels;
    const bool packed = w->layout == PANEL_BF12;
    struct group g;
    _Alignas(64) stream_sums sum[LINEAR_FEW_ROWS];
    for (int32_t panel = item->panel, n; panel < end; panel += n) {
        bool half = end - panel <= whole / 2;
        n = half ? whole / 2 : whole;
        group_open(&g, w, panel, n, panel + n < end ? panel + n : item->next_panel);
        group_fn *fn = packed ? packed_table[mr - 1][half] : plain_table[mr - 1][half];
        fn(a, row, &g, sum);
        for (int p = 0; p < n && panel + p < end; p++)
            linear_finish(a, item->row, mr, panel + p, sum[0][p], STREAMS * WEIGHT_PANEL);
    }
}

// --- many rows -----------------------------------------------------------------------------------
struct block {
    const uint8_t *x;               // row 0 at this block's K
    const uint8_t *w[STRIP_PANELS]; // each panel's pairs of the block
    float *sum;                     // (rows, STRIP_LANES)
    int32_t n_pairs;
    bool add; // adds to sum, else overwrites it
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

// All rows, in blocks of nearly equal height.
static void multiply_block(const struct block *b, int32_t n_rows, int n_panels) {
    for (int32_t row = 0, mr; row < n_rows; row += mr) {
        int32_t rest = n_rows - row, n = (rest + MICRO_ROWS - 1) / MICRO_ROWS;
        mr = (rest + n - 1) / n;
        micro_table[mr - 1][n_panels - 1](b, row);
    }
}

// n tiles of a panel from its stream as PANEL_BF16: in place, or widened in `out`.
static const uint8_t *next_tiles(struct weight_stream *s, const struct weight *w, int32_t n,
                                 uint8_t *out) {
    if (w->layout == PANEL_BF16) {
        const uint8_t *tiles = s->tile;
        weight_stream_next(s, w, n);
        return tiles;
    }
    for (int32_t t = 0; t < n; t++, weight_stream_next(s, w, 1)) {
        const __m512i table = bf12_table(s->head);
        for (int group = 0; group < 4; group++) {
            __m512i raw[4];
            bf12_prefetch(s->tile + AHEAD_BYTES, group);
            bf12_group(s->tile, weight_tile_is_raw(s->head), table, group, raw);
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
            .x = x_tile(a, row, t), .sum = sums, .n_pairs = n * TILE_PAIRS, .add = t > 0};
        for (int32_t p = 0, np; p < item->n_panels; p += np) {
            np = item->n_panels - p < STRIP_PANELS ? item->n_panels - p : STRIP_PANELS;
            for (int32_t i = 0; i < np; i++)
                b.w[i] = next_tiles(&s[p + i], w, n, strip + i * PANEL_BYTES);
            multiply_block(&b, item->n_rows, np);
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
