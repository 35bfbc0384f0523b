// linear for bf16 weights on AMX, in F32: an F32 value is exactly the sum of three bf16 values (24
// bits of significand are 8 + 8 + 8), products of two bf16 are exact in F32, and TDPBF16PS adds in
// F32. So three passes, x's high, middle and low parts against the same weights, keep the contract
// on numbers; each addition rounds as F32 does.
//
// The order of every output's sum: for each tile of 32 K ascending, high, then middle, then low
// part; inside a tile what TDPBF16PS does (even and odd K apart, ascending, then both added to the
// sum). It depends on no other row, so one row alone gives the bits that it gives among 512.
// Denormals count as zero.
//
// PANEL_BF16's tiles have the multiplier's layout and are read in place; PANEL_BF12's are first
// widened to it.
//
// With x rounded to bf16 (compute_dtype bf16) there is one part, and one pass.
//
// x is split once for a call, by linear_split: [tile of 16 rows][tile of K][parts][16 rows][32
// bf16]. `parts` below is a constant, 3 or 1.
#if defined(__x86_64__)
#include "kernels/cpu/linear_amx.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/bf12.inc"
#include "kernels/cpu/linear_finish.inc"

enum {
    TILE_BYTES = 1024, // 16 rows of 64 bytes
    TILE_ROWS = 16,
    TILE_FLOATS = 256, // of a tile of sums
    BLOCK_TILES =
        4,       // many rows: K is walked in blocks of so many tiles: 24 KiB of split x stay in L1
    STREAMS = 4, // few rows: panels at a time, which leaves tiles for x and weights
    PREFETCH_BYTES = 4096,
};

VEC_INLINE uint8_t *split_tile(const int parts, const struct linear_args *a, int32_t row_tile,
                               int32_t k_tile) {
    return (uint8_t *)a->split_x +
           ((int64_t)row_tile * weight_tiles(a->w) + k_tile) * parts * TILE_BYTES;
}

size_t amx_linear_row_bytes(const struct weight *w) {
    return (size_t)weight_tiles(w) * 3 * WEIGHT_TILE_K * sizeof(uint16_t);
}

size_t amx_bf16_linear_row_bytes(const struct weight *w) {
    return amx_linear_row_bytes(w) / 3;
}

// Cuts 16 floats into three parts by truncation: exact, and no part can overflow. An infinity or
// NaN stays in the high part.
VEC_INLINE void split3(__m512 x, __m256i part[3]) {
    const __m512i high_mask = _mm512_set1_epi32((int)0xffff0000);
    __m512i high = _mm512_and_si512(_mm512_castps_si512(x), high_mask);
    __mmask16 finite =
        _mm512_cmplt_epu32_mask(_mm512_slli_epi32(high, 1), _mm512_set1_epi32((int)0xff000000));
    __m512 rest = _mm512_maskz_sub_ps(finite, x, _mm512_castsi512_ps(high));
    __m512i middle = _mm512_and_si512(_mm512_castps_si512(rest), high_mask);
    __m512i low = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(middle)));
    part[0] = _mm512_cvtepi32_epi16(_mm512_srli_epi32(high, 16));
    part[1] = _mm512_cvtepi32_epi16(_mm512_srli_epi32(middle, 16));
    part[2] = _mm512_cvtepi32_epi16(_mm512_srli_epi32(low, 16));
}

VEC_INLINE void split_rows(const int parts, const struct linear_args *a, int32_t row,
                           int32_t n_rows) {
    const int32_t cols = a->w->cols;
    for (int32_t r = row; r < row + n_rows; r++) {
        const float *x = a->x + (int64_t)(a->split_row + r) * cols;
        for (int32_t t = 0; t < weight_tiles(a->w); t++) {
            uint8_t *to = split_tile(parts, a, r / TILE_ROWS, t) + r % TILE_ROWS * 64;
            for (int half = 0; half < 2; half++) {
                int32_t n = cols - t * WEIGHT_TILE_K - half * 16;
                vf v = n >= 16 ? v_load(x + t * WEIGHT_TILE_K + half * 16)
                               : v_load_n(x + t * WEIGHT_TILE_K + half * 16, n > 0 ? n : 0);
                __m256i part[3] = {(__m256i)_mm512_cvtneps_pbh(v)};
                if (parts == 3) split3(v, part);
                for (int i = 0; i < parts; i++)
                    _mm256_store_si256((__m256i *)(to + i * TILE_BYTES + half * 32), part[i]);
            }
        }
    }
}

void amx_linear_split(const struct linear_args *a, int32_t row, int32_t n_rows) {
    split_rows(3, a, row, n_rows);
}

void amx_bf16_linear_split(const struct linear_args *a, int32_t row, int32_t n_rows) {
    split_rows(1, a, row, n_rows);
}

// All tiles have rows of 64 bytes: those of x and of sums `rows` of them, those of weights 16.
static void configure(int32_t rows, unsigned weight_tile_set) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (unsigned i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = weight_tile_set >> i & 1 ? TILE_ROWS : (uint8_t)rows;
    }
    _tile_loadconfig(&config);
}

// The next tile of a panel's stream as 16 pair rows: where it lies, or widened in `out`.
VEC_INLINE const uint8_t *next_tile(struct weight_stream *s, const struct weight *w, uint8_t *out) {
    if (w->layout == PANEL_BF16) { // no prefetch: loading a tile already requests 16 lines at once
        const uint8_t *tile = s->tile;
        s->tile += TILE_BYTES;
        return tile;
    }
    const __m512i table = bf12_table(s->head);
    for (int group = 0; group < 4; group++) {
        __m512i raw[4];
        bf12_prefetch(s->tile + PREFETCH_BYTES, group);
        bf12_group(s->tile, weight_tile_is_raw(s->head), table, group, raw);
        for (int j = 0; j < 4; j++) _mm512_store_si512(out + group * 256 + j * 64, raw[j]);
    }
    weight_stream_next(s, w, 1);
    return out;
}

// --- few rows

// Up to 16 rows, one tile of x. Sums of four panels in tiles 0 to 3, x's parts in 4, 5 and 7, weights
// in 6.
#define FEW_PANEL(P)                                                                               \
    do {                                                                                           \
        _tile_loadd(6, tile[P], 64);                                                               \
        _tile_dpbf16ps(P, 4, 6);                                                                   \
        if (parts == 1) break;                                                                     \
        _tile_dpbf16ps(P, 5, 6);                                                                   \
        _tile_dpbf16ps(P, 7, 6);                                                                   \
    } while (0)

// Streams past np repeat the last panel, and their results are dropped.
VEC_INLINE void few_rows(const int parts, const struct linear_args *a,
                         const struct linear_item *item, int32_t panel, int np) {
    const struct weight *w = a->w;
    struct weight_stream s[STREAMS];
    _Alignas(64) uint8_t wide[STREAMS][TILE_BYTES];
    _Alignas(64) float sums[STREAMS][TILE_FLOATS];
    for (int p = 0; p < STREAMS; p++) weight_stream_open(&s[p], w, panel + (p < np ? p : np - 1));
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int32_t t = 0; t < weight_tiles(w); t++) {
        const uint8_t *x = split_tile(parts, a, (item->row - a->split_row) / TILE_ROWS, t);
        _tile_loadd(4, x, 64);
        if (parts == 3) {
            _tile_loadd(5, x + TILE_BYTES, 64);
            _tile_loadd(7, x + 2 * TILE_BYTES, 64);
        }
        const uint8_t *tile[STREAMS];
        for (int p = 0; p < STREAMS; p++) tile[p] = next_tile(&s[p], w, wide[p]);
        FEW_PANEL(0);
        FEW_PANEL(1);
        FEW_PANEL(2);
        FEW_PANEL(3);
    }
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    _tile_stored(2, sums[2], 64);
    _tile_stored(3, sums[3], 64);
    for (int p = 0; p < np; p++)
        linear_finish(a, item->row, item->n_rows, panel + p, sums[p], WEIGHT_PANEL);
}

// --- many rows -----------------------------------------------------------------------------------

// Two tiles of rows by two panels: sums in 0 (first rows, first panel), 1 (first, second), 2 and 3
// (second rows); x in 4 and 5, weights in 6 and 7. `rows2`, `panels2` are constants: an odd last
// tile leaves half of it out.
VEC_INLINE void block(const int parts, const bool rows2, const bool panels2, const uint8_t *x0,
                      const uint8_t *x1, const uint8_t *w0, const uint8_t *w1, int32_t n_tiles,
                      float *s00, float *s01, float *s10, float *s11) {
    _tile_loadd(0, s00, 64);
    if (panels2) _tile_loadd(1, s01, 64);
    if (rows2) _tile_loadd(2, s10, 64);
    if (rows2 && panels2) _tile_loadd(3, s11, 64);
    for (int32_t t = 0; t < n_tiles; t++, w0 += TILE_BYTES, w1 += TILE_BYTES) {
        _tile_loadd(6, w0, 64);
        if (panels2) _tile_loadd(7, w1, 64);
        for (int part = 0; part < parts; part++, x0 += TILE_BYTES, x1 += TILE_BYTES) {
            _tile_loadd(4, x0, 64);
            _tile_dpbf16ps(0, 4, 6);
            if (panels2) _tile_dpbf16ps(1, 4, 7);
            if (!rows2) continue;
            _tile_loadd(5, x1, 64);
            _tile_dpbf16ps(2, 5, 6);
            if (panels2) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, s00, 64);
    if (panels2) _tile_stored(1, s01, 64);
    if (rows2) _tile_stored(2, s10, 64);
    if (rows2 && panels2) _tile_stored(3, s11, 64);
}

// All panels for one or two tiles of rows, over one block of K. weights: each panel's tiles of the
// block, one behind another.
VEC_INLINE void row_tiles(const int parts, const bool rows2, const struct linear_args *a,
                          const struct linear_item *item, int32_t row_tile, int32_t k_tile,
                          int32_t n_tiles, const uint8_t *const *weights, float *sums) {
    const uint8_t *x0 =
        split_tile(parts, a, (item->row - a->split_row) / TILE_ROWS + row_tile, k_tile);
    const uint8_t *x1 = x0 + (int64_t)weight_tiles(a->w) * parts * TILE_BYTES;
    float *s0 = sums + (int64_t)row_tile * item->n_panels * TILE_FLOATS,
          *s1 = s0 + item->n_panels * TILE_FLOATS;
    int32_t p = 0;
    for (; p + 2 <= item->n_panels; p += 2) {
        float *s00 = s0 + p * TILE_FLOATS, *s10 = s1 + p * TILE_FLOATS;
        block(parts, rows2, true, x0, x1, weights[p], weights[p + 1], n_tiles, s00,
              s00 + TILE_FLOATS, s10, s10 + TILE_FLOATS);
    }
    if (p < item->n_panels)
        block(parts, rows2, false, x0, x1, weights[p], weights[p], n_tiles, s0 + p * TILE_FLOATS,
              s0, s1 + p * TILE_FLOATS, s0);
}

// The next n tiles of a panel, one behind another: where they lie, or widened in `out`.
static const uint8_t *next_block(struct weight_stream *s, const struct weight *w, int32_t n,
                                 uint8_t *out) {
    const uint8_t *first = next_tile(s, w, out);
    for (int32_t t = 1; t < n; t++) next_tile(s, w, out + t * TILE_BYTES);
    return first;
}

VEC_INLINE void many_rows(const int parts, const struct linear_args *a,
                          const struct linear_item *item, void *scratch) {
    const struct weight *w = a->w;
    struct weight_stream s[LINEAR_GROUP_PANELS];
    uint8_t *weights = scratch; // [panel][tile][1024], of what is not read in place
    // [row tile][panel][16][16]
    float *sums = (float *)(weights + LINEAR_GROUP_PANELS * BLOCK_TILES * TILE_BYTES);
    int32_t row_tiles_n = (item->n_rows + TILE_ROWS - 1) / TILE_ROWS;
    memset(sums, 0, (size_t)row_tiles_n * (size_t)item->n_panels * TILE_FLOATS * sizeof *sums);
    for (int32_t p = 0; p < item->n_panels; p++) weight_stream_open(&s[p], w, item->panel + p);
    for (int32_t k = 0; k < weight_tiles(w); k += BLOCK_TILES) {
        int32_t n = weight_tiles(w) - k < BLOCK_TILES ? weight_tiles(w) - k : BLOCK_TILES;
        const uint8_t *blocks[LINEAR_GROUP_PANELS];
        for (int32_t p = 0; p < item->n_panels; p++)
            blocks[p] = next_block(&s[p], w, n, weights + p * BLOCK_TILES * TILE_BYTES);
        int32_t r = 0;
        for (; r + 2 <= row_tiles_n; r += 2) row_tiles(parts, true, a, item, r, k, n, blocks, sums);
        if (r < row_tiles_n) row_tiles(parts, false, a, item, r, k, n, blocks, sums);
    }
    for (int32_t r = 0; r < item->n_rows; r += TILE_ROWS)
        for (int32_t p = 0; p < item->n_panels; p++)
            linear_finish(
                a, item->row + r, item->n_rows - r < TILE_ROWS ? item->n_rows - r : TILE_ROWS,
                item->panel + p,
                sums + ((int64_t)(r / TILE_ROWS) * item->n_panels + p) * TILE_FLOATS, WEIGHT_PANEL);
}

// The tiles are given back at the end, so that a thread's saved state stays small between items.
VEC_INLINE void linear_item(const int parts, const struct linear_args *a,
                            const struct linear_item *item, void *scratch) {
    if (item->n_rows <= TILE_ROWS) {
        configure(item->n_rows, 1u << 6);
        for (int32_t p = 0; p < item->n_panels; p += STREAMS)
            few_rows(parts, a, item, item->panel + p,
                     item->n_panels - p < STREAMS ? item->n_panels - p : STREAMS);
    } else {
        configure(TILE_ROWS, 1u << 6 | 1u << 7);
        many_rows(parts, a, item, scratch);
    }
    _tile_release();
}

void amx_linear_item(const struct linear_args *a, const struct linear_item *item, void *scratch) {
    linear_item(3, a, item, scratch);
}

void amx_bf16_linear_item(const struct linear_args *a, const struct linear_item *item,
                          void *scratch) {
    linear_item(1, a, item, scratch);
}
#endif
