// linear for 8-bit weights on AMX: TDPBSUD multiplies a tile of x's digits (16 rows x 64 K) by a
// tile of weights (64 K x 16 outputs, PANEL_I8 in place) and adds in 32 bits, exactly. The digits
// and the bits are therefore those of linear_int8.inc, which keeps few rows because memory limits
// them anyway.
//
// Two tiles of rows by one panel, each digit's sums apart: six tiles of sums, one of x, one of
// weights. K goes in blocks small enough that the digits of 32 rows stay in L1 for all panels of
// the item.
#if defined(__x86_64__)
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#include "kernels/cpu/linear_finish.inc"
#define INT8_VNNI 1
#include "kernels/cpu/linear_int8.inc"

enum {
    TILE_ROWS = 16,
    TILE_SUMS = 256,  // of a tile: 16 rows x 16 outputs
    BLOCK_TILES = 4,  // of K: 24 KiB of digits of 32 rows
    GROUP_ROWS = 64,  // rows whose sums are kept at a time: 192 KiB for 16 panels
    FEW_ROWS = 8,     // fewer rows than this use VNNI
    MAX_TILES = 1024, // of K: beyond it 32 bits could overflow
};

#ifndef AMX_TILES // a test may define its own tiles
#define AMX_TILES
static void configure(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = TILE_ROWS;
    }
    _tile_loadconfig(&config);
}
#endif

// sums: (2 or 1 tiles of rows, 3 digits, 256), the first tile's and the second's.
#define SUMS_LOAD(T, FROM) _tile_loadd(T, (FROM) + T % 3 * TILE_SUMS, 64)
#define SUMS_STORE(T, TO) _tile_stored(T, (TO) + T % 3 * TILE_SUMS, 64)
#define ADD_DIGIT(T, X, STRIDE)                                                                    \
    do {                                                                                           \
        _tile_loadd(6, (X) + T % 3 * COLUMN_BYTES, STRIDE);                                        \
        _tile_dpbsud(T, 6, 7);                                                                     \
    } while (0)

VEC_INLINE void block(const bool two, const uint8_t *x0, const uint8_t *x1, int64_t x_bytes,
                      const uint8_t *w, int32_t n_tiles, int32_t *s0, int32_t *s1) {
    SUMS_LOAD(0, s0);
    SUMS_LOAD(1, s0);
    SUMS_LOAD(2, s0);
    if (two) {
        SUMS_LOAD(3, s1);
        SUMS_LOAD(4, s1);
        SUMS_LOAD(5, s1);
    }
    for (int32_t t = 0; t < n_tiles; t++, w += INT8_TILE_BYTES) {
        _tile_loadd(7, w, 64);
        ADD_DIGIT(0, x0, x_bytes);
        ADD_DIGIT(1, x0, x_bytes);
        ADD_DIGIT(2, x0, x_bytes);
        if (two) {
            ADD_DIGIT(3, x1, x_bytes);
            ADD_DIGIT(4, x1, x_bytes);
            ADD_DIGIT(5, x1, x_bytes);
        }
        x0 += COLUMNS * COLUMN_BYTES;
        x1 += COLUMNS * COLUMN_BYTES;
    }
    SUMS_STORE(0, s0);
    SUMS_STORE(1, s0);
    SUMS_STORE(2, s0);
    if (two) {
        SUMS_STORE(3, s1);
        SUMS_STORE(4, s1);
        SUMS_STORE(5, s1);
    }
}

// Sums of a group of rows: (tiles of rows, panels, 3, 256). Rows past the last one give sums that
// are not read; the buffer of digits has room for them.
static void group_sums(const struct linear_args *a, const struct linear_item *item, int32_t row,
                       int32_t n_row_tiles, int32_t *sums) {
    const struct weight *w = a->w;
    const int64_t panel_sums = DIGITS * TILE_SUMS, tile_sums = item->n_panels * panel_sums;
    const int64_t x_bytes = row_bytes(w);
    memset(sums, 0, (size_t)(n_row_tiles * tile_sums) * sizeof *sums);
    for (int32_t k = 0; k < weight_int8_tiles(w); k += BLOCK_TILES) {
        int32_t rest = weight_int8_tiles(w) - k, n = rest < BLOCK_TILES ? rest : BLOCK_TILES;
        for (int32_t t = 0; t < n_row_tiles; t += 2) {
            const uint8_t *x = row_digits(a, row - a->split_row + t * TILE_ROWS) +
                               (int64_t)k * COLUMNS * COLUMN_BYTES;
            for (int32_t p = 0; p < item->n_panels; p++) {
                const uint8_t *panel = weight_panel(w, item->panel + p) + k * INT8_TILE_BYTES;
                int32_t *s = sums + t * tile_sums + p * panel_sums;
                if (t + 1 < n_row_tiles)
                    block(true, x, x + TILE_ROWS * x_bytes, x_bytes, panel, n, s, s + tile_sums);
                else
                    block(false, x, x, x_bytes, panel, n, s, s);
            }
        }
    }
}

static void group_finish(const struct linear_args *a, const struct linear_item *item, int32_t row,
                         int32_t n, const int32_t *sums) {
    int64_t totals[LINEAR_GROUP_PANELS * WEIGHT_PANEL];
    for (int32_t r = 0; r < n; r++) {
        for (int32_t p = 0; p < item->n_panels; p++) {
            const int32_t *s = sums +
                               ((int64_t)r / TILE_ROWS * item->n_panels + p) * DIGITS * TILE_SUMS +
                               r % TILE_ROWS * WEIGHT_PANEL;
            for (int i = 0; i < WEIGHT_PANEL; i += VL / 2) {
                half_i64 t = {0};
                for (int d = 0; d < DIGITS; d++)
                    t += __builtin_convertvector(*(const half_i32 *)(s + d * TILE_SUMS + i),
                                                 half_i64)
                         << d * DIGIT_BITS;
                *(half_i64 *)(totals + p * WEIGHT_PANEL + i) = t;
            }
        }
        finish_row(a, item, row + r, totals);
    }
}

// The tiles are released at the end, so that a thread's saved state stays small between items.
void int8_amx_item(const struct linear_args *a, const struct linear_item *item, void *scratch) {
    if (item->n_rows < FEW_ROWS || weight_int8_tiles(a->w) > MAX_TILES) {
        int8_item(a, item, scratch);
        return;
    }
    configure();
    for (int32_t at = 0, n; at < item->n_rows; at += n) {
        n = item->n_rows - at < GROUP_ROWS ? item->n_rows - at : GROUP_ROWS;
        group_sums(a, item, item->row + at, (n + TILE_ROWS - 1) / TILE_ROWS, scratch);
        group_finish(a, item, item->row + at, n, scratch);
    }
    _tile_release();
}

void int8_amx_split(const struct linear_args *a, int32_t row, int32_t n_rows) {
    int8_split(a, row, n_rows);
}
#endif
