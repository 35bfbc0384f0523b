// Regular expressions in ECMAScript's notation, as far as they are regular: alternation, groups (named
// ones too), * + ? {m,n} (lazy marks change nothing), classes, \d \w \s, \p of general categories (unicode_class.h),
// escapes, ^ and $ at the ends, also within groups, and look-aheads before the last part of the expression.
// Look-behind, back-references and \b are refused by name.
#pragma once
#include "engine/grammar/chars.h"

struct regex;

// search: as in JSON Schema's pattern, any text may surround the match unless ^ and $ anchor it. Otherwise the
// whole text must match.
int regex_parse(struct regex **out, const char *text, size_t len, bool search, struct err *err);
void regex_free(struct regex *r); // NULL is allowed
void regex_emit(const struct regex *r, struct net *n, int32_t from, enum chars_form form,
                int32_t to);
// Has it a \p? Then it must not stand for what is forbidden: in a later version of Unicode it may match more.
bool regex_has_property(const struct regex *r);

enum { REGEX_MOST_LENGTH = 1 << 30 };
struct regex_lengths {
    int64_t min, max; // in characters; REGEX_MOST_LENGTH: so many or more
};
// Bounds of the lengths of all texts that match.
struct regex_lengths regex_lengths(const struct regex *r);
