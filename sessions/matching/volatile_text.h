// Text that changes with every request although the conversation is the same, such as a hash in the first
// line or a count of the tokens left. The setting volatile_patterns declares it; matching conversations
// ignores it (ws/completion/README.md).
#pragma once
#include "base/buf.h"
#include "base/err.h"

#define VOLATILE_PATTERNS_MAX 16
#define VOLATILE_PATTERN_BYTES 1000

// Constant once made; any thread.
struct volatile_text;

// patterns: "/REGEX/ /REGEX/", in PCRE2's dialect; ^ and $ match at lines, and \/ is a slash. NULL and ""
// give *out NULL. E_INVAL says what is wrong with which pattern; E_NOMEM.
int volatile_text_new(struct volatile_text **out, const char *patterns, struct err *err);
void volatile_text_free(struct volatile_text *v); // NULL is fine

// Appends the text without what the patterns match. 1: something was removed; 0: nothing; E_NOMEM.
// A pattern that backtracks too far in this text, or takes more than a tenth of a second and 1 us a byte,
// removes nothing from it.
int volatile_text_remove(const struct volatile_text *v, const char *text, size_t len,
                         struct buf *out);
