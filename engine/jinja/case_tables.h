// See case_tables.c. Both in ascending order.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct jinja_capital { // upper and title end with 0 if they are shorter
    uint32_t letter;
    uint16_t upper[3], title[3];
};
struct jinja_digit_range {
    uint32_t from, to;
};
extern const struct jinja_capital jinja_capitals[];
extern const size_t jinja_n_capitals;
extern const struct jinja_digit_range jinja_digits[];
extern const size_t jinja_n_digits;
