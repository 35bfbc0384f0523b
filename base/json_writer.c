// Writes JSON directly into a buf; every streamed token passes through here. See json.h.
//
// Text is copied in spans: the loop finds the next byte that needs an escape and copies everything
// before it at once. Numbers are formatted here because printf would cost more than everything
// else.
#include "base/json.h"
#include "base/utf8.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Bytes that end a clean span: controls, '"', '\', '/' (escaped after '<') and the bytes of a
// multi-byte character, which is checked as a whole.
static const bool stops[256] = {
    [0 ... 0x1f] = true, ['"'] = true, ['/'] = true, ['\\'] = true, [0x80 ... 0xff] = true,
};

// buf_add for the common case, without the call: most additions are a byte or a word. A buf's cap
// is at most its max + 1, so everything that fits the allocation is allowed.
static inline void put(struct buf *b, const char *s, size_t len) {
    if (b->error || len >= b->cap - b->len) {
        buf_add(b, s, len);
        return;
    }
    memcpy(b->data + b->len, s, len);
    b->len += len;
    b->data[b->len] = '\0';
}

static inline void put_pair(struct buf *b, char first, char second) {
    if (b->error || b->cap - b->len <= 2) {
        buf_add(b, (char[]){first, second}, 2);
        return;
    }
    b->data[b->len++] = first;
    b->data[b->len++] = second;
    b->data[b->len] = '\0';
}

static inline void put_char(struct buf *b, char c) {
    put(b, &c, 1);
}

// Escapes of one letter: \" \\ \n \r \t \b \f.
static const char letters[256] = {['"'] = '"',  ['\\'] = '\\', ['\n'] = 'n', ['\r'] = 'r',
                                  ['\t'] = 't', ['\b'] = 'b',  ['\f'] = 'f'};

// The escape for the character of n bytes at s[i], which has none of one letter, with its length; NULL
// if it is written as it is.
static const char *replacement(const char *s, size_t i, size_t len, size_t *n, char scratch[6],
                               size_t *escape_len) {
    static const char hex[] = "0123456789abcdef";
    unsigned char c = (unsigned char)s[i];
    bool valid;
    *n = 1;
    *escape_len = 6;
    if (c == '/') { // "</script" must not end a script
        *escape_len = 2;
        return i > 0 && s[i - 1] == '<' ? "\\/" : NULL;
    }
    if (c < 0x20) {
        memcpy(scratch, "\\u00", 4);
        scratch[4] = hex[c >> 4];
        scratch[5] = hex[c & 15];
        return scratch;
    }
    *n = utf8_next(s + i, len - i, &valid);
    if (!valid) {
        *escape_len = 3;
        return "\xef\xbf\xbd";
    }
    // Line and paragraph separators: line ends in JavaScript before 2019, fine in JSON.
    if (*n == 3 && memcmp(s + i, "\xe2\x80\xa8", 3) == 0) return "\\u2028";
    if (*n == 3 && memcmp(s + i, "\xe2\x80\xa9", 3) == 0) return "\\u2029";
    return NULL;
}

// A hostile text has nothing but escapes, so each must cost a few nanoseconds only.
void json_escape(struct buf *b, const char *s, size_t len) {
    size_t start = 0, n, escape_len;
    char scratch[6];
    for (size_t i = 0; i < len; i += n) {
        unsigned char c = (unsigned char)s[i];
        n = 1;
        if (!stops[c]) continue;
        const char *text = letters[c] ? NULL : replacement(s, i, len, &n, scratch, &escape_len);
        if (!text && !letters[c]) continue;
        if (i > start) put(b, s + start, i - start);
        if (text)
            put(b, text, escape_len);
        else
            put_pair(b, '\\', letters[c]);
        start = i + n;
    }
    put(b, s + start, len - start);
}

size_t json_escape_fits(const char *s, size_t len, size_t max) {
    size_t n = 0;
    for (size_t bytes = 0; n < len; n++) {
        unsigned char c = (unsigned char)s[n];
        bytes += !stops[c] ? 1 : c >= 0x80 ? 3 : letters[c] || c == '/' ? 2 : 6;
        if (bytes > max) break;
    }
    if (n == len) return n;
    n = utf8_complete_len(s, n);
    return n > 1 && s[n - 1] == '<' ? n - 1 : n; // '/' behind it is escaped
}

static void add_quoted(struct buf *b, const char *s, size_t len) {
    put_char(b, '"');
    json_escape(b, s, len);
    put_char(b, '"');
}

// Comma and key, before every value.
static void begin(struct json_writer *w, const char *key) {
    if (w->comma) put_char(w->buf, ',');
    w->comma = true;
    if (!key) return;
    add_quoted(w->buf, key, strlen(key));
    put_char(w->buf, ':');
}

void json_writer_init(struct json_writer *w, struct buf *buf) {
    *w = (struct json_writer){.buf = buf};
}

void json_open(struct json_writer *w, const char *key, char bracket) {
    begin(w, key);
    put_char(w->buf, bracket);
    w->comma = false;
}

void json_close(struct json_writer *w, char bracket) {
    put_char(w->buf, bracket);
    w->comma = true;
}

void json_put_string(struct json_writer *w, const char *key, const char *s) {
    if (s)
        json_put_text(w, key, s, strlen(s));
    else
        json_put_null(w, key);
}

void json_put_text(struct json_writer *w, const char *key, const char *s, size_t len) {
    bool gap = w->gaps && len >= JSON_GAP_BYTES && w->gaps->n < JSON_GAPS;
    begin(w, key);
    add_quoted(w->buf, s, gap ? 0 : len);
    if (gap) w->gaps->list[w->gaps->n++] = (struct json_gap){w->buf->len - 1, s, len};
}

// Writes v in decimal, ending before `end`; returns the first character.
static char *decimal(char *end, uint64_t v) {
    do *--end = (char)('0' + v % 10);
    while (v /= 10);
    return end;
}

void json_put_int(struct json_writer *w, const char *key, int64_t v) {
    char text[24], *end = text + sizeof text;
    char *p = decimal(end, v < 0 ? -(uint64_t)v : (uint64_t)v);
    if (v < 0) *--p = '-';
    begin(w, key);
    put(w->buf, p, (size_t)(end - p));
}

void json_put_u64_string(struct json_writer *w, const char *key, uint64_t v) {
    char text[24], *end = text + sizeof text;
    *--end = '"';
    char *p = decimal(end, v);
    *--p = '"';
    begin(w, key);
    put(w->buf, p, (size_t)(end + 1 - p));
}

// %.9g for 1e-4 <= v < 1e9, where %g has no exponent, without printf: v as nine digits and the
// place of the point. Powers of ten up to 10^22 are exact, so the product is off by at most half a
// unit of a double: the ninth digit may differ from printf's only where the tenth is a tie to 15
// digits.
static size_t nine_digits(char out[24], double v) {
    static const double powers[] = {1e0, 1e1, 1e2, 1e3,  1e4,  1e5, 1e6,
                                    1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
    int places = 8; // digits after the point
    while (places > 0 && v >= powers[9 - places]) places--;
    for (int i = 0; i < 4 && v * powers[places] < 1e8; i++) places++;
    uint64_t digits = (uint64_t)(v * powers[places] + 0.5);
    while (places > 0 && digits % 10 == 0) { // a tenth digit, from 9.9999999996, is a zero too
        digits /= 10;
        places--;
    }
    char text[24], *end = text + sizeof text, *p = decimal(end, digits);
    while (end - p <= places) *--p = '0'; // 0.0001: zeros up to the one before the point
    size_t whole = (size_t)(end - p) - (size_t)places;
    memcpy(out, p, whole);
    if (places == 0) return whole;
    out[whole] = '.';
    memcpy(out + whole + 1, p + whole, (size_t)places);
    return whole + 1 + (size_t)places;
}

void json_put_double(struct json_writer *w, const char *key, double v) {
    char text[40], *p = text;
    size_t n;
    double magnitude = fabs(v);
    if (!isfinite(v)) {
        json_put_null(w, key);
        return;
    }
    if (magnitude >= 1e-4 && magnitude < 999999999.0) {
        if (v < 0) *p++ = '-';
        n = (size_t)(p - text) + nine_digits(p, magnitude);
    } else {
        n = (size_t)snprintf(text, sizeof text, "%.9g", v);
        p = memchr(text, ',', n); // the program has called setlocale()
        if (p) *p = '.';
    }
    begin(w, key);
    put(w->buf, text, n);
}

void json_put_float(struct json_writer *w, const char *key, float v) {
    char text[40];
    int digits = 6;
    if (!isfinite(v)) {
        json_put_null(w, key);
        return;
    }
    do snprintf(text, sizeof text, "%.*g", digits, (double)v);
    while (strtof(text, NULL) != v && ++digits <= 9);
    char *comma = strchr(text, ','); // a program that called setlocale()
    if (comma) *comma = '.';
    begin(w, key);
    put(w->buf, text, strlen(text));
}

void json_put_bool(struct json_writer *w, const char *key, bool v) {
    begin(w, key);
    put(w->buf, v ? "true" : "false", v ? 4 : 5);
}

void json_put_null(struct json_writer *w, const char *key) {
    begin(w, key);
    put(w->buf, "null", 4);
}

void json_put_int_or_null(struct json_writer *w, const char *key, int64_t v) {
    if (v < 0)
        json_put_null(w, key);
    else
        json_put_int(w, key, v);
}

void json_put_ids(struct json_writer *w, const char *key, const int32_t *ids, size_t n) {
    json_open(w, key, '[');
    for (size_t i = 0; i < n; i++) json_put_int(w, NULL, ids[i]);
    json_close(w, ']');
}

void json_put_floats(struct json_writer *w, const char *key, const float *values, size_t n) {
    json_open(w, key, '[');
    for (size_t i = 0; i < n; i++) json_put_double(w, NULL, (double)values[i]);
    json_close(w, ']');
}

void json_put_raw(struct json_writer *w, const char *key, const char *json, size_t len) {
    begin(w, key);
    put(w->buf, json ? json : "null", json ? len : 4);
}
