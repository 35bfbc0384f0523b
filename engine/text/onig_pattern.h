// Tokenizer files hold patterns in Oniguruma's Ruby dialect; Parley runs them on PCRE2. This module
// rewrites a pattern so that both match the same text. It refuses constructs for which it cannot
// guarantee that.
#pragma once
#include "base/buf.h"
#include "base/err.h"

#define ONIG_PATTERN_MAX 65536 // bytes; the longest published one has under 1,000

// Appends the PCRE2 form, to be compiled with UTF, UCP, MULTILINE and newline LF. pattern must be
// valid UTF-8. E_UNSUPPORTED names the construct; E_LIMIT: the pattern is too long.
int onig_pattern_translate(const char *pattern, struct buf *out, struct err *err);
