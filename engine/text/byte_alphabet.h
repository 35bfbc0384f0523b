// GPT-2's byte alphabet: each of the 256 bytes as one printable Unicode character, so that a
// vocabulary of byte strings can be written as JSON. Printable Latin-1 stands for itself; the other
// 68 bytes take U+0100 onwards in order (space is U+0120, newline U+010A). From OpenAI's GPT-2
// encoder, `bytes_to_unicode`.
#pragma once
#include <stddef.h>

// The byte that a character of the alphabet stands for, or -1.
int byte_alphabet_byte(unsigned codepoint);
// Decodes a whole string of the alphabet (UTF-8) into out, which has room for len bytes. Returns
// how many, or -1 when some character is not of the alphabet: such a token stands for its own UTF-8
// bytes.
ptrdiff_t byte_alphabet_decode(const char *s, size_t len, char *out);
// The alphabet's character for a byte, as UTF-8. Returns its length, 1 or 2.
size_t byte_alphabet_encode(unsigned char byte, char out[2]);
