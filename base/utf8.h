// UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// Whether all of s is whole sequences. NUL bytes are valid; an empty s too.
bool utf8_valid(const char *s, size_t len);
// Length in bytes of the sequence at the start of s (len > 0): one character if *valid, else the
// maximal invalid subpart, which one replacement character replaces.
size_t utf8_next(const char *s, size_t len, bool *valid);
// Length of the longest prefix of s without an unfinished sequence (at most 3 bytes) at its end.
// Invalid bytes count as finished: they will be replaced.
size_t utf8_complete_len(const char *s, size_t len);
