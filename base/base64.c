// Base64. See base64.h.
#include "base/base64.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_encode(struct buf *out, const void *bytes, size_t len) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t v = (uint32_t)p[i] << 16;
        if (n > 1) v |= (uint32_t)p[i + 1] << 8;
        if (n > 2) v |= p[i + 2];
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63], digits[v >> 6 & 63], digits[v & 63]};
        for (size_t j = n + 1; j < 4; j++) four[j] = '=';
        buf_add(out, four, 4);
    }
    return out->error;
}

// Returns -1 for a character that is not a digit.
static int value_of(char c) {
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static int decode_four(struct buf *out, const char *four, bool last) {
    size_t n = last && four[3] == '=' ? four[2] == '=' ? 1 : 2 : 3;
    uint32_t v = 0;
    for (size_t j = 0; j < 4; j++) {
        int digit = j <= n ? value_of(four[j]) : 0;
        if (digit < 0) return E_FORMAT;
        v = v << 6 | (uint32_t)digit;
    }
    unsigned char bytes[3] = {(unsigned char)(v >> 16), (unsigned char)(v >> 8), (unsigned char)v};
    for (size_t j = n; j < 3; j++)
        if (bytes[j]) return E_FORMAT;
    return buf_add(out, bytes, n);
}

int base64_decode(struct buf *out, const char *text, size_t len) {
    if (len % 4 != 0) return E_FORMAT;
    for (size_t i = 0; i < len; i += 4) TRY(decode_four(out, text + i, i + 4 == len));
    return 0;
}
