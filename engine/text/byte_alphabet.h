// GPT-2's byte alphabet: each of the 256 bytes as one printable Unicode character, so that JSON can
// hold a vocabulary of byte strings. A printable Latin-1 character stands for its own byte; the other
// 68 bytes have the characters from U+0100 on, in order (space is U+0120, newline U+010A). From
// OpenAI's GPT-2 encoder, `bytes_to_unicode`.
#pragma once
#include <stddef.h>

// The byte that a character of the alphabet stands for, or -1.
int byte_alphabet_byte(unsigned codepoint);
// Decodes a whole string of the alphabet (UTF-8) into out, which has room for len bytes. Returns the
// number of bytes written, or -1 if a character is not in the alphabet: such a token stands for its
// own UTF-8 bytes.
ptrdiff_t byte_alphabet_decode(const char *s, size_t len, char *out);
// The alphabet's character for a byte, as UTF-8. Returns its length, 1 or 2.
size_t byte_alphabet_encode(unsigned char byte, char out[2]);
