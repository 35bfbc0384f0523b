// See groups.h.
#include "kernels/groups.h"
#include <stdio.h>
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
