// The layouts of a weight matrix W (rows = outputs, cols = inputs = K) in memory on the CPU.
//
// Outputs are grouped in panels of 16. A vector's lanes are outputs and K runs downwards, so one
// pass over the panel reads its memory once, and each lane's sum runs over K in ascending order.
// The last panel is padded with zero outputs, K with zeros to a whole tile.
//
//   PANEL_F32, PANEL_F16, PANEL_F8   [panel][k][16]
//   PANEL_BF16                       [panel][k / 2][16][2]: pairs of K, as AMX wants its B tiles
//   PANEL_BF12                       bf16 in 12 bits a weight, without loss, by tiles of 16
//                                    outputs x 32 K
//
// PANEL_BF12: most of the exponent bits in a bf16 weight's high byte are redundant, since the
// weights of a tile lie within a few powers of two. A packed tile stores the low byte and, for the
// high one, a 4-bit code: the sign, and the index of its other seven bits among the tile's eight
// values. A tile with more than eight values (about one in twenty for normally distributed weights)
// is stored raw. A decode step reads each weight once, so its time is proportional to the bytes.
//
//   data:   int64 offset[n_panels + 1], from data, padded to 64 bytes
//   panel:  head[n_tiles], each uint8 value[8] of which [0] is WEIGHT_RAW_TILE if the tile is raw;
//           padded to 64 bytes; then the tiles
//   packed tile, 768 bytes: 4 groups of 4 pair rows. A group: 64 bytes of codes, those of two rows
//           in the low halves and of the other two in the high halves; then the low bytes, 64 for
//           each two rows. The two rows' 32 bytes alternate in groups of eight, which is the order
//           in which one vector operation joins codes and low bytes
//   raw tile, 1024 bytes: 16 pair rows of 16 pairs, as PANEL_BF16
//
// PANEL_I8: kernels/int8.h's panels, which a file may hold too, in tiles for AMX. The scales of all
// outputs lie after the last panel, or separately if the panels are mapped.
//
// PANEL_F8: e4m3 numbers. Their scales also lie after the last panel, [panel][block of K][16], each
// times 2^8, because widening a vector of e4m3 gives the values times 2^-8 (v_load_e4m3). Both are
// exact.
//
// PANEL_GROUPS: few bits (groups.h in this folder).
#pragma once
#include "kernels/cpu/groups.h"
#include "kernels/fp8.h"
#include "kernels/int8.h"

enum weight_layout {
    PANEL_F32,
    PANEL_F16,
    PANEL_BF16,
    PANEL_BF12,
    PANEL_I8,
    PANEL_F8,
    PANEL_GROUPS
};

enum {
    WEIGHT_PANEL = 16,
    WEIGHT_TILE_K = 32,
    WEIGHT_PACKED_BYTES = 768,
    WEIGHT_RAW_BYTES = 1024,
    WEIGHT_HEAD_BYTES = 8,
    WEIGHT_RAW_TILE = 255,
    WEIGHT_NO_VALUE = 128, // in a head: more than any high byte without its sign
};
#define WEIGHT_F8_FACTOR 256.0f // of PANEL_F8's scales

static inline int32_t weight_panels(const struct weight *w) { // the last may have rows to spare
    return (w->rows + WEIGHT_PANEL - 1) / WEIGHT_PANEL;
}
// K as stored: whole tiles.
static inline int32_t weight_tiles(const struct weight *w) {
    return (w->cols + WEIGHT_TILE_K - 1) / WEIGHT_TILE_K;
}
static inline int32_t weight_int8_tiles(const struct weight *w) { // K of int8 panels likewise
    return (w->cols + INT8_TILE_K - 1) / INT8_TILE_K;
}
// A PANEL_BF12 panel's heads, one for each tile, padded to a cache line; the tiles follow.
static inline int64_t weight_header_bytes(const struct weight *w) {
    return ((int64_t)weight_tiles(w) * WEIGHT_HEAD_BYTES + 63) & ~63;
}
// By a PANEL_BF12 tile's head.
static inline bool weight_tile_is_raw(const uint8_t *head) {
    return *head == WEIGHT_RAW_TILE;
}
static inline int32_t weight_tile_bytes(const uint8_t *head) { // in memory
    return weight_tile_is_raw(head) ? WEIGHT_RAW_BYTES : WEIGHT_PACKED_BYTES;
}
// A panel's first byte. In the layouts without a table all panels are of one size.
static inline const uint8_t *weight_panel(const struct weight *w, int32_t panel) {
    const uint8_t *data = w->data;
    if (w->layout == PANEL_BF12) return data + ((const int64_t *)w->data)[panel];
    if (w->layout == PANEL_I8) return data + panel * int8_panel_bytes(w->cols);
    if (w->layout == PANEL_GROUPS) return group_panel(w->data, panel);
    return data + (int64_t)panel * weight_tiles(w) * WEIGHT_TILE_K * WEIGHT_PANEL *
                      (int64_t)dtype_size(w->dtype);
}
// The offset of tile k of a PANEL_BF12 panel: the tiles before it have two sizes.
static inline const uint8_t *weight_tile(const struct weight *w, const uint8_t *panel,
                                         int32_t tile) {
    int64_t at = weight_header_bytes(w);
    for (int32_t i = 0; i < tile; i++) at += weight_tile_bytes(panel + i * WEIGHT_HEAD_BYTES);
    return panel + at;
}

// The 16 scales of a panel's block of K (0 where outputs have one scale).
static inline const float *weight_scales(const struct weight *w, int32_t panel, int32_t block) {
    return w->scales + ((int64_t)panel * fp8_blocks(w->cols, w->block_k) + block) * WEIGHT_PANEL;
}

// A panel read front to back, tile by tile of 32 K.
struct weight_stream {
    const uint8_t *tile, *head; // head: this tile's entry in PANEL_BF12's header
};

// Before the panel's first tile.
static inline void weight_stream_open(struct weight_stream *s, const struct weight *w,
                                      int32_t panel) {
    s->tile = s->head = weight_panel(w, panel);
    if (w->layout == PANEL_BF12) s->tile += weight_header_bytes(w);
}
// Of the tile at which s stands.
static inline int32_t weight_stream_bytes(const struct weight_stream *s, const struct weight *w) {
    if (w->layout == PANEL_BF12) return weight_tile_bytes(s->head);
    return WEIGHT_TILE_K * WEIGHT_PANEL * (int32_t)dtype_size(w->dtype);
}
// n tiles further; of PANEL_BF12 one at a time.
static inline void weight_stream_next(struct weight_stream *s, const struct weight *w, int32_t n) {
    s->tile += n * weight_stream_bytes(s, w);
    if (w->layout == PANEL_BF12) s->head += WEIGHT_HEAD_BYTES;
}

// The end of a panel and the data read after it, for prefetching.
struct panel_end {
    const uint8_t *end, *next;
};
// next: the panel that is read then; any number. Except in PANEL_BF12 it may be past the last one:
// the next matrix lies there.
static inline struct panel_end panel_end(const struct weight *w, int32_t panel, int32_t next) {
    const int32_t last = weight_panels(w) - 1;
    if (w->layout == PANEL_BF12 && next > last) next = last;
    return (struct panel_end){weight_panel(w, panel + 1), weight_panel(w, next)};
}
// From `at` in the panel to what will be read `bytes` later.
static inline int64_t panel_ahead(const struct panel_end *e, const uint8_t *at, int64_t bytes) {
    return e->end - at > bytes ? bytes : bytes + (e->next - e->end);
}

// Row `row` of W, (cols) widened: for embed, and to look at a weight.
void weight_row(const struct weight *w, int32_t row, float *out);
