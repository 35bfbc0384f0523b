// Regular expressions in ECMAScript's notation, as far as they are regular: alternation, groups (named
// ones too), * + ? {m,n} (lazy marks change nothing), classes, \d \w \s, escapes, and ^ $ at the ends.
// Look-around, back-references, \b and \p are refused by name.
#pragma once
#include "engine/grammar/chars.h"

struct regex;

// search: as in JSON Schema's pattern, any text may surround the match unless ^ and $ anchor it. Otherwise the
// whole text must match.
int regex_parse(struct regex **out, const char *text, size_t len, bool search, struct err *err);
void regex_free(struct regex *r); // NULL is allowed
void regex_emit(const struct regex *r, struct net *n, int32_t from, enum chars_form form,
                int32_t to);
