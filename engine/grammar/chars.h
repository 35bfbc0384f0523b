// Sets of Unicode characters, and how they are written: as UTF-8, or as the inside of a JSON string.
#pragma once
#include "engine/grammar/net.h"

#define CHAR_MAX_CODE 0x10ffff

struct char_range {
    uint32_t lo, hi;
};
struct char_set { // ranges in order, apart from each other; surrogates are no characters
    struct char_range *ranges;
    int32_t n, cap;
};

// A zeroed set is empty, and so is a released one.
void char_set_release(struct char_set *s);
int char_set_add(struct char_set *s, uint32_t lo, uint32_t hi); // E_NOMEM
// Adds n ranges that are in order, or what is between them and around them. E_NOMEM: some are added.
int char_set_add_ranges(struct char_set *s, const struct char_range *ranges, int32_t n,
                        bool complement);
int char_set_add_all(struct char_set *s, const struct char_set *more); // E_NOMEM: some are added
void char_set_order(struct char_set *s);     // after adding: sorts, joins, leaves surrogates out
int char_set_complement(struct char_set *s); // of an ordered set; the result is ordered

// How texts are written. CHARS_JSON: a quote, a backslash and control characters as their shortest escapes,
// and all others unescaped, so that each character has one form.
enum chars_form { CHARS_UTF8, CHARS_JSON };

// Emits one character of the set. With an empty set, no text leads to `to`.
void chars_emit(struct net *n, int32_t from, const struct char_set *s, enum chars_form form,
                int32_t to);
void chars_emit_one(struct net *n, int32_t from, uint32_t c, enum chars_form form, int32_t to);
// Emits a UTF-8 text, character by character.
void chars_emit_text(struct net *n, int32_t from, const char *text, size_t len,
                     enum chars_form form, int32_t to);

// The first character of a text (len > 0); *n is its length in bytes. UINT32_MAX: not UTF-8.
uint32_t chars_next(const char *s, size_t len, size_t *n);
