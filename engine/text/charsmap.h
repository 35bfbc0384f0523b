// SentencePiece's table of normalisation rules, "precompiled_charsmap": a double-array trie (Yata
// 2007, as the darts-clone library lays it out) whose values are offsets into a block of
// NUL-terminated strings. Layout: the trie's size in bytes (32 bits, little endian), the trie's
// 32-bit units, the strings.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct charsmap {
    uint32_t *units;
    size_t n_units;
    char *strings;
    size_t n_strings;
    bool begins[256]; // some key begins with this byte
};

// Copies the table and checks every transition and value that a text can reach, so that look-ups
// need no checks. Replacements must be whole characters. E_FORMAT, E_NOMEM.
int charsmap_init(struct charsmap *c, const char *blob, size_t len, struct err *err);
void charsmap_release(struct charsmap *c);
// The replacement for the shortest or the longest key that text begins with, and the key's length;
// NULL for none.
const char *charsmap_find(const struct charsmap *c, const char *text, size_t len, bool longest,
                          size_t *key_len);
