// Classes of code points as defined by Rust's `char` and `regex`, which Hugging Face's tokenizers
// use; and reading code points from valid UTF-8.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool char_is_space(uint32_t c);       // White_Space: regex \s, char::is_whitespace
bool char_is_word(uint32_t c);        // regex \w: Alphabetic, Mark, Nd, Pc, Join_Control
bool char_is_punctuation(uint32_t c); // ASCII's (symbols too) and the categories P
bool char_is_numeric(uint32_t c);     // Nd, Nl, No: char::is_numeric

// The length of the sequence that begins with *s, in valid UTF-8.
static inline size_t char_utf8_len(const char *s) {
    unsigned char c = (unsigned char)*s;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}
// The first occurrence of a character (or a few bytes) in text, or NULL: memmem for short needles.
// It stops at the match, under every sanitizer too.
const char *char_find(const char *text, size_t len, const char *needle, size_t needle_len);
uint32_t char_decode(const char *s);
// The character before end; there must be one. *start: its first byte.
uint32_t char_decode_back(const char *end, const char **start);
