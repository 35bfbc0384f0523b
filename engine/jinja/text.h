// Strings of a chat template: a builder that keeps the origin of every byte, and functions that cut,
// search and compare strings. Positions are bytes unless a name says chars.
#pragma once
#include "engine/jinja/value.h"
#include <string.h>

struct jinja_text {
    struct jinja_arena *arena; // keeps the builder's error, so one check after many adds suffices
    char *s;
    uint8_t *origin; // NULL until a byte with an origin is added
    size_t len, cap;
};

// Takes no memory until something is added, and needs no release: the arena owns its bytes.
void jinja_text_init(struct jinja_text *t, struct jinja_arena *a);
// Makes room for n more bytes at once, with origins if they have some: the text then grows without copies.
void jinja_text_reserve(struct jinja_text *t, size_t n, bool origins);
void jinja_text_add(struct jinja_text *t, struct jinja_string s);
void jinja_text_addz(struct jinja_text *t, const char *zstring);
void jinja_text_addf(struct jinja_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void jinja_text_add_char(struct jinja_text *t, uint32_t c, uint8_t origin); // as UTF-8
void jinja_text_repeat(struct jinja_text *t, char c, size_t n);
int jinja_text_take(struct jinja_text *t, struct jinja_string *out); // 0, E_NOMEM or E_LIMIT
int jinja_text_take_value(struct jinja_text *t, struct jinja_value *out);

// Bytes alone are compared, not their origins; order is by byte, as Python's by code point.
bool jinja_string_is(struct jinja_string s, const char *zstring);
static inline bool jinja_string_equal(struct jinja_string a, struct jinja_string b) {
    return a.len == b.len && memcmp(a.s, b.s, a.len) == 0;
}
int jinja_string_order(struct jinja_string a, struct jinja_string b);
// from <= to <= s.len. Shares s's bytes and origins.
struct jinja_string jinja_string_sub(struct jinja_string s, size_t from, size_t to);
// The position of the first needle at or after `from`; SIZE_MAX: none.
size_t jinja_string_find(struct jinja_string s, struct jinja_string needle, size_t from);
// The position of the last needle. The worst case takes the product of both lengths: spend
// jinja_search_cost first.
size_t jinja_string_find_last(struct jinja_string s, struct jinja_string needle);
static inline size_t jinja_search_cost(struct jinja_string s, struct jinja_string needle) {
    return s.len / 64 * (1 + needle.len / 64);
}
bool jinja_string_starts(struct jinja_string s, struct jinja_string with);
bool jinja_string_ends(struct jinja_string s, struct jinja_string with);
size_t jinja_string_n_chars(struct jinja_string s);              // of valid UTF-8
size_t jinja_string_offset(struct jinja_string s, size_t chars); // at most s.len
// at < s.len; 0: of the template itself.
uint8_t jinja_string_origin(struct jinja_string s, size_t at);
bool jinja_is_space(uint32_t c); // Python's str.isspace: U+001C to U+001F too
// Removes white space, or the characters of *chars, from the front and from the back if set.
struct jinja_string jinja_string_strip(struct jinja_string s, const struct jinja_string *chars,
                                       bool front, bool back);
