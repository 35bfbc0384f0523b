// See text.h.
#include "engine/jinja/text.h"
#include "base/err.h"
#include "engine/text/char_class.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// --- building

void jinja_text_init(struct jinja_text *t, struct jinja_arena *a) {
    *t = (struct jinja_text){.arena = a};
}

static bool resize(struct jinja_text *t, size_t cap) {
    char *s = jinja_arena_bytes(t->arena, cap);
    uint8_t *origin = s && t->origin ? jinja_arena_bytes(t->arena, cap) : NULL;
    if (!s || (t->origin && !origin)) return false;
    if (t->len > 0) memcpy(s, t->s, t->len);
    if (origin) memcpy(origin, t->origin, t->len);
    t->s = s;
    t->origin = origin;
    t->cap = cap;
    return true;
}

// Doubles the capacity, so that many adds are linear in their total length.
static bool grow(struct jinja_text *t, size_t more) {
    if (t->arena->error) return false;
    if (more <= t->cap - t->len) return true;
    size_t cap = more > t->len ? t->len + more : 2 * t->len;
    return resize(t, cap < 32 ? 32 : cap);
}

// Bytes so far are the template's.
static bool add_origins(struct jinja_text *t) {
    if (t->origin || t->cap == 0) return true;
    t->origin = jinja_arena_bytes(t->arena, t->cap);
    if (t->origin) memset(t->origin, 0, t->len);
    return t->origin;
}

void jinja_text_reserve(struct jinja_text *t, size_t n, bool origins) {
    if (t->arena->error || n == 0) return;
    if (n > t->cap - t->len && !resize(t, t->len + n)) return;
    if (origins) (void)add_origins(t);
}

void jinja_text_add(struct jinja_text *t, struct jinja_string s) {
    if (s.len == 0 || !grow(t, s.len)) return;
    if (s.origin && !add_origins(t)) return;
    memcpy(t->s + t->len, s.s, s.len);
    if (s.origin)
        memcpy(t->origin + t->len, s.origin, s.len);
    else if (t->origin)
        memset(t->origin + t->len, 0, s.len);
    t->len += s.len;
}

void jinja_text_addz(struct jinja_text *t, const char *zstring) {
    jinja_text_add(t, (struct jinja_string){.s = zstring, .len = strlen(zstring)});
}

void jinja_text_addf(struct jinja_text *t, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    jinja_text_addz(t, text);
}

void jinja_text_add_char(struct jinja_text *t, uint32_t c, uint8_t origin) {
    char s[4];
    uint8_t from[4] = {origin, origin, origin, origin};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6) s[i] = (char)(0x80 | (c & 0x3f));
    s[0] = (char)(lead[n] | c);
    jinja_text_add(t, (struct jinja_string){s, origin ? from : NULL, n});
}

void jinja_text_repeat(struct jinja_text *t, char c, size_t n) {
    if (n == 0 || !grow(t, n)) return;
    memset(t->s + t->len, c, n);
    if (t->origin) memset(t->origin + t->len, 0, n);
    t->len += n;
}

int jinja_text_take(struct jinja_text *t, struct jinja_string *out) {
    *out = (struct jinja_string){t->s ? t->s : "", t->origin, t->len};
    return t->arena->error;
}

int jinja_text_take_value(struct jinja_text *t, struct jinja_value *out) {
    out->kind = JINJA_STRING;
    out->markup = false;
    return jinja_text_take(t, &out->s);
}

// --- looking

bool jinja_string_is(struct jinja_string s, const char *zstring) {
    // Most differ in the first byte: a name is compared with a whole table.
    if (s.len > 0 && s.s[0] != zstring[0]) return false;
    return s.len == strlen(zstring) && memcmp(s.s, zstring, s.len) == 0;
}

int jinja_string_order(struct jinja_string a, struct jinja_string b) {
    int order = memcmp(a.s, b.s, a.len < b.len ? a.len : b.len);
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

struct jinja_string jinja_string_sub(struct jinja_string s, size_t from, size_t to) {
    return (struct jinja_string){s.s + from, s.origin ? s.origin + from : NULL, to - from};
}

size_t jinja_string_find(struct jinja_string s, struct jinja_string needle, size_t from) {
    if (from > s.len) return SIZE_MAX;
    const char *at = memmem(s.s + from, s.len - from, needle.s, needle.len);
    return at ? (size_t)(at - s.s) : SIZE_MAX;
}

size_t jinja_string_find_last(struct jinja_string s, struct jinja_string needle) {
    if (needle.len > s.len) return SIZE_MAX;
    for (size_t at = s.len - needle.len + 1; at-- > 0;)
        if (memcmp(s.s + at, needle.s, needle.len) == 0) return at;
    return SIZE_MAX;
}

bool jinja_string_starts(struct jinja_string s, struct jinja_string with) {
    return s.len >= with.len && memcmp(s.s, with.s, with.len) == 0;
}

bool jinja_string_ends(struct jinja_string s, struct jinja_string with) {
    return s.len >= with.len && memcmp(s.s + s.len - with.len, with.s, with.len) == 0;
}

size_t jinja_string_n_chars(struct jinja_string s) {
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += ((unsigned char)s.s[i] & 0xc0) != 0x80;
    return n;
}

size_t jinja_string_offset(struct jinja_string s, size_t chars) {
    size_t at = 0;
    while (chars-- > 0 && at < s.len) at += char_utf8_len(s.s + at);
    return at;
}

uint8_t jinja_string_origin(struct jinja_string s, size_t at) {
    return s.origin ? s.origin[at] : 0;
}

// --- stripping

bool jinja_is_space(uint32_t c) {
    return char_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

static bool strips(uint32_t c, const struct jinja_string *chars) {
    if (!chars) return jinja_is_space(c);
    for (size_t i = 0; i < chars->len; i += char_utf8_len(chars->s + i))
        if (char_decode(chars->s + i) == c) return true;
    return false;
}

struct jinja_string jinja_string_strip(struct jinja_string s, const struct jinja_string *chars,
                                       bool front, bool back) {
    size_t from = 0, to = s.len;
    const char *start;
    while (front && from < to && strips(char_decode(s.s + from), chars))
        from += char_utf8_len(s.s + from);
    while (back && to > from && strips(char_decode_back(s.s + to, &start), chars))
        to = (size_t)(start - s.s);
    return jinja_string_sub(s, from, to);
}
