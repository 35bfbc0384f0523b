// See groups.h.
#include "kernels/groups.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const uint8_t group_book_e2m1[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};
const uint8_t group_book_iq4[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                    129, 141, 153, 166, 181, 197, 217, 241};

bool group_format_equal(const struct group_format *a, const struct group_format *b) {
    return a->bits == b->bits && a->group == b->group && a->scale == b->scale &&
           a->zero_kind == b->zero_kind && a->zero == b->zero && a->book == b->book;
}

void group_format_text(char out[64], const struct group_format *f) {
    snprintf(out, 64, "%d bits in groups of %d", f->bits, f->group);
}

int64_t group_format_row_bytes(const struct group_format *f, int64_t cols) {
    static const int64_t scale_bytes[] = {[GROUP_SCALE_F16] = 2,
                                          [GROUP_SCALE_BF16] = 2,
                                          [GROUP_SCALE_F32] = 4,
                                          [GROUP_SCALE_NESTED] = 1};
    static const int64_t zero_bytes[] = {
        [GROUP_ZERO_SAME] = 0, [GROUP_ZERO_U8] = 1, [GROUP_MIN_F16] = 2, [GROUP_MIN_NESTED] = 1};
    const int64_t tile =
        2 * ((f->scale == GROUP_SCALE_NESTED) + (f->zero_kind == GROUP_MIN_NESTED));
    return (cols * f->bits + 7) / 8 + group_tiles(cols) * tile +
           group_count(f, cols) * (scale_bytes[f->scale] + zero_bytes[f->zero_kind]);
}

void *group_row_alloc(struct group_row *row, int64_t cols) {
    const size_t tiles = (size_t)group_tiles(cols), wide = tiles * GROUP_TILE_K;
    const size_t groups = wide / GROUP_MIN;
    char *p = calloc(1, groups * (sizeof(float) + sizeof(uint16_t)) + 2 * tiles * sizeof(uint16_t) +
                            wide);
    if (!p) return NULL;
    row->scales = p;
    row->zeros = p + groups * sizeof(float);
    row->supers = (uint16_t *)(void *)((char *)row->zeros + groups * sizeof(uint16_t));
    row->min_supers = row->supers + tiles;
    row->codes = (uint8_t *)(row->min_supers + tiles);
    return p;
}
