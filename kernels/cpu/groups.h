// PANEL_GROUPS: weights of few bits (kernels/groups.h) in the CPU's memory. Like all layouts, panels of 16 outputs whose
// K runs downwards, here in tiles of 256 K; the last is padded with scales of 0.
//
//   data    struct group_panels, padded to 64 bytes; then the panels
//   tile    scales, zeros or minimums, padded to 64 bytes; then the codes
//     scales  a number each  [group][16]
//             nested         F16 [16], int8 [group][16]
//     zeros   bytes          [group][16]
//     minimums               F16 [group][16]; nested: F16 [16], uint8 [group][16]
//     codes   8 bits         [k / 4][16][4] bytes
//             fewer          planes one after the other, of 4, 2 or 1 bits of each code, the lowest bits first:
//                            4 = 4, 2 = 2, 3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2
//     plane   of b bits      [k / (32 / b)][16] words. From the lowest bits on, a word's bytes have b bits of columns 0
//                            to 3, then 4 to 7 and so on, so that a shift and a mask give the bytes of four columns
#pragma once
#include "kernels/backend.h"

enum { GROUP_MAX_RUNS = 3, GROUP_DATA_AT = 256 };

// Panels of one format: from first_panel on to the next run's, or the end.
struct group_run {
    struct group_format format;
    int32_t first_panel;
    int32_t zeros_at, codes_at, tile_bytes; // in a tile
    int64_t at, panel_bytes;                // from data
};
struct group_panels {
    int32_t n_runs;
    struct group_run runs[GROUP_MAX_RUNS];
};
_Static_assert(sizeof(struct group_panels) <= GROUP_DATA_AT, "panels begin behind their table");

// Of x as linear_groups.inc prepares it: a row's tile, and a row, which is an odd number of cache lines so that
// neighbours fall into other sets.
enum {
    GROUP_X_BYTES = GROUP_TILE_K * 2,
    GROUP_TILE_X_BYTES = GROUP_X_BYTES + GROUP_TILE_K / GROUP_MIN * (int)sizeof(float),
};
static inline size_t group_x_bytes(int64_t cols) {
    const size_t tiles = (size_t)group_tiles(cols);
    return ((tiles * (GROUP_TILE_X_BYTES + sizeof(float)) + 63) / 64 | 1) * 64;
}

// The bits of a code in the first plane; 8: no planes.
static inline int32_t group_plane_bits(int32_t bits) {
    return bits == 8 ? 8 : bits >= 4 ? 4 : 2;
}
// Bytes of a tile's codes of so many bits, a plane's too.
static inline int32_t group_code_bytes(int32_t bits) {
    return GROUP_TILE_K * GROUP_PANEL * bits / 8;
}

static inline const struct group_run *group_run_of(const void *data, int32_t panel) {
    const struct group_panels *p = data;
    const struct group_run *run = &p->runs[p->n_runs - 1];
    while (panel < run->first_panel) run--;
    return run;
}
// Of all runs.
static inline int32_t group_most_bits(const void *data) {
    const struct group_panels *p = data;
    int32_t most = 0;
    for (int32_t i = 0; i < p->n_runs; i++)
        most = p->runs[i].format.bits > most ? p->runs[i].format.bits : most;
    return most;
}
static inline const uint8_t *group_panel(const void *data, int32_t panel) {
    const struct group_run *run = group_run_of(data, panel);
    return (const uint8_t *)data + run->at + (panel - run->first_panel) * run->panel_bytes;
}
