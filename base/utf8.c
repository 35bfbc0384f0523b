// Finds well-formed, malformed and unfinished UTF-8 sequences. See utf8.h.
#include "base/utf8.h"
#include <stdint.h>
#include <string.h>

enum sequence { VALID, INVALID, UNFINISHED };

// Classifies the sequence that starts at s (len > 0). *n: its length if valid, else the length of
// the maximal subpart: the longest start of a well-formed sequence, or one byte. The second byte
// carries the rules against overlong forms, surrogates and values above U+10FFFF (Unicode 15, table
// 3-7).
static enum sequence sequence(const unsigned char *s, size_t len, size_t *n) {
    unsigned char lead = s[0], low = 0x80, high = 0xbf;
    *n = 1;
    if (lead < 0x80) return VALID;
    if (lead < 0xc2 || lead > 0xf4) return INVALID;
    size_t need = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    for (; *n < need; ++*n) {
        if (*n == len) return UNFINISHED;
        if (s[*n] < low || s[*n] > high) return INVALID;
        low = 0x80;
        high = 0xbf;
    }
    return VALID;
}

size_t utf8_next(const char *s, size_t len, bool *valid) {
    size_t n;
    *valid = sequence((const unsigned char *)s, len, &n) == VALID;
    return n;
}

// Length of the run of ASCII at s, eight bytes at a time: most text is ASCII, and files are large.
static size_t ascii_run(const unsigned char *s, size_t len) {
    size_t i = 0;
    for (uint64_t word; len - i >= 8; i += 8) {
        memcpy(&word, s + i, 8);
        if (word & 0x8080808080808080u) break;
    }
    while (i < len && s[i] < 0x80) i++;
    return i;
}

bool utf8_valid(const char *s, size_t len) {
    const unsigned char *u = (const unsigned char *)s;
    size_t n;
    for (size_t i = ascii_run(u, len); i < len; i += ascii_run(u + i, len - i)) {
        if (sequence(u + i, len - i, &n) != VALID) return false;
        i += n;
    }
    return true;
}

size_t utf8_complete_len(const char *s, size_t len) {
    const unsigned char *u = (const unsigned char *)s;
    size_t n;
    // A lead byte never continues another sequence, so the last lead byte decides.
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        if ((u[len - back] & 0xc0) == 0x80) continue;
        return sequence(u + len - back, back, &n) == UNFINISHED ? len - back : len;
    }
    return len;
}
