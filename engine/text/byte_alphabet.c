// The alphabet is arithmetic: no table to initialise, so nothing for threads to race on.
#include "engine/text/byte_alphabet.h"

// The bytes that do not stand for themselves, in order: 0x00-0x20, 0x7F-0xA0, 0xAD.
static int stands_for_itself(unsigned c) {
    return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xff && c != 0xad);
}

int byte_alphabet_byte(unsigned c) {
    if (stands_for_itself(c)) return (int)c;
    if (c < 0x100 || c > 0x143) return -1;
    unsigned n = c - 0x100;
    if (n <= 0x20) return (int)n;
    if (n <= 0x42) return (int)(n - 0x21 + 0x7f);
    return 0xad;
}

ptrdiff_t byte_alphabet_decode(const char *s, size_t len, char *out) {
    ptrdiff_t n = 0;
    for (size_t i = 0; i < len;) {
        unsigned c = (unsigned char)s[i++];
        if (c >= 0x80) {
            // The alphabet ends at U+0143: nothing longer than two bytes belongs to it.
            if (c < 0xc2 || c > 0xdf || i == len) return -1;
            c = (c & 0x1f) << 6 | ((unsigned char)s[i++] & 0x3f);
        }
        int byte = byte_alphabet_byte(c);
        if (byte < 0) return -1;
        out[n++] = (char)byte;
    }
    return n;
}

size_t byte_alphabet_encode(unsigned char byte, char out[2]) {
    unsigned c = byte;
    if (!stands_for_itself(c)) c = 0x100 + (c <= 0x20 ? c : c <= 0xa0 ? c - 0x7f + 0x21 : 0x43);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}
