// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <stdbool.h>
#include <stddef.h>

bool utf8_valid(const char *s, size_t len);
// Bytes of the sequence at the start of s (len > 0): of one character where *valid, else of the
// maximal invalid subpart, which a replacement character stands for.
size_t utf8_next(const char *s, size_t len, bool *valid);
// Length of the longest prefix of s that can be shown now: everything but an unfinished sequence at
// the end (at most 3 bytes). Invalid bytes count as finished: they will be replaced, not waited
// for.
size_t utf8_complete_len(const char *s, size_t len);
