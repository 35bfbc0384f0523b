// See chars.h.
#include "engine/grammar/chars.h"
#include "base/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SURROGATES_LO 0xd800
#define SURROGATES_HI 0xdfff

// --- sets ----------------------------------------------------------------------------------------

void char_set_release(struct char_set *s) {
    free(s->ranges);
    *s = (struct char_set){0};
}

int char_set_add(struct char_set *s, uint32_t lo, uint32_t hi) {
    if (s->n == s->cap) {
        int32_t cap = s->cap ? s->cap * 2 : 8;
        struct char_range *moved = realloc(s->ranges, (size_t)cap * sizeof *moved);
        if (!moved) return E_NOMEM;
        s->ranges = moved;
        s->cap = cap;
    }
    s->ranges[s->n++] = (struct char_range){lo, hi};
    return 0;
}

int char_set_add_ranges(struct char_set *s, const struct char_range *ranges, int32_t n,
                        bool complement) {
    uint32_t from = 0; // of the next gap
    for (int32_t i = 0; i < n; i++) {
        if (!complement) TRY(char_set_add(s, ranges[i].lo, ranges[i].hi));
        if (complement && ranges[i].lo > from) TRY(char_set_add(s, from, ranges[i].lo - 1));
        from = ranges[i].hi + 1;
    }
    return complement && from <= CHAR_MAX_CODE ? char_set_add(s, from, CHAR_MAX_CODE) : 0;
}

int char_set_add_all(struct char_set *s, const struct char_set *more) {
    return char_set_add_ranges(s, more->ranges, more->n, false);
}

static int compare_ranges(const void *a, const void *b) {
    const struct char_range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

void char_set_order(struct char_set *s) {
    int32_t n = 0;
    if (s->n > 1) qsort(s->ranges, (size_t)s->n, sizeof *s->ranges, compare_ranges);
    for (int32_t i = 0; i < s->n; i++) {
        struct char_range r = s->ranges[i];
        if (n > 0 && r.lo <= s->ranges[n - 1].hi + 1) {
            if (r.hi > s->ranges[n - 1].hi) s->ranges[n - 1].hi = r.hi;
        } else {
            s->ranges[n++] = r;
        }
    }
    s->n = n;
}

int char_set_complement(struct char_set *s) {
    struct char_set out = {0};
    int rc = char_set_add_ranges(&out, s->ranges, s->n, true);
    char_set_release(s);
    *s = out;
    return rc;
}

// --- UTF-8 ---------------------------------------------------------------------------------------

static int encode(uint32_t c, uint8_t *out) {
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)((0xf00 >> n) | c);
    return n;
}

// A range whose ends have n bytes. Where the first bytes differ it is cut in at most three: what remains
// of the low end's, whole ones between, what there is of the high end's (Thompson's and RE2's way).
static void emit_same_length(struct net *net, int32_t from, const uint8_t *lo, const uint8_t *hi,
                             int n, int32_t to) {
    static const uint8_t lowest[4] = {0x80, 0x80, 0x80, 0x80},
                         highest[4] = {0xbf, 0xbf, 0xbf, 0xbf};
    if (n == 1) {
        net_byte_range(net, from, lo[0], hi[0], to);
        return;
    }
    if (lo[0] == hi[0]) {
        int32_t next = net_state_new(net);
        net_byte_range(net, from, lo[0], lo[0], next);
        emit_same_length(net, next, lo + 1, hi + 1, n - 1, to);
        return;
    }
    uint8_t first = lo[0], last = hi[0];
    if (memcmp(lo + 1, lowest, (size_t)n - 1) != 0) {
        int32_t next = net_state_new(net);
        net_byte_range(net, from, first, first, next);
        emit_same_length(net, next, lo + 1, highest, n - 1, to);
        first++;
    }
    if (memcmp(hi + 1, highest, (size_t)n - 1) != 0) {
        int32_t next = net_state_new(net);
        net_byte_range(net, from, last, last, next);
        emit_same_length(net, next, lowest, hi + 1, n - 1, to);
        last--;
    }
    if (first > last) return;
    int32_t next = net_state_new(net);
    net_byte_range(net, from, first, last, next);
    emit_same_length(net, next, lowest, highest, n - 1, to);
}

// NUL is left out: a set that leaves characters out names it without meaning it.
static void emit_utf8(struct net *net, int32_t from, uint32_t lo, uint32_t hi, int32_t to) {
    static const struct char_range lengths[] = {{1, 0x7f},
                                                {0x80, 0x7ff},
                                                {0x800, SURROGATES_LO - 1},
                                                {SURROGATES_HI + 1, 0xffff},
                                                {0x10000, CHAR_MAX_CODE}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t a = lo > lengths[i].lo ? lo : lengths[i].lo;
        uint32_t b = hi < lengths[i].hi ? hi : lengths[i].hi;
        uint8_t low[4], high[4];
        if (a > b) continue;
        int n = encode(a, low);
        encode(b, high);
        emit_same_length(net, from, low, high, n, to);
    }
}

// --- the inside of a JSON string -----------------------------------------------------------------

static void emit_escape(struct net *net, int32_t from, uint32_t c, int32_t to) {
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char text[8];
    for (size_t i = 0; i + 1 < sizeof shorts; i += 2) {
        if ((uint8_t)shorts[i] != c) continue;
        text[0] = '\\';
        text[1] = shorts[i + 1];
        net_text(net, from, text, 2, to);
        return;
    }
    snprintf(text, sizeof text, "\\u%04x", (unsigned)c & 0xffff);
    net_text(net, from, text, 6, to);
}

static void emit_json(struct net *net, int32_t from, uint32_t lo, uint32_t hi, int32_t to) {
    static const struct char_range plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, CHAR_MAX_CODE}};
    for (uint32_t c = lo; c <= hi && c < 0x5d; c++)
        if (c < 0x20 || c == '"' || c == '\\') emit_escape(net, from, c, to);
    for (int i = 0; i < 3; i++) {
        uint32_t a = lo > plain[i].lo ? lo : plain[i].lo;
        uint32_t b = hi < plain[i].hi ? hi : plain[i].hi;
        if (a <= b) emit_utf8(net, from, a, b, to);
    }
}

void chars_emit(struct net *n, int32_t from, const struct char_set *s, enum chars_form form,
                int32_t to) {
    for (int32_t i = 0; i < s->n; i++) {
        if (form == CHARS_JSON)
            emit_json(n, from, s->ranges[i].lo, s->ranges[i].hi, to);
        else
            emit_utf8(n, from, s->ranges[i].lo, s->ranges[i].hi, to);
    }
}

void chars_emit_one(struct net *n, int32_t from, uint32_t c, enum chars_form form, int32_t to) {
    struct char_range one = {c, c};
    struct char_set set = {.ranges = &one, .n = 1};
    chars_emit(n, from, &set, form, to);
}

void chars_emit_text(struct net *n, int32_t from, const char *text, size_t len,
                     enum chars_form form, int32_t to) {
    if (len == 0) net_empty(n, from, to);
    for (size_t i = 0, taken; i < len && !net_failed(n); i += taken) {
        uint32_t c = chars_next(text + i, len - i, &taken);
        int32_t next = i + taken < len ? net_state_new(n) : to;
        if (c == UINT32_MAX) {
            net_fail(n, E_INVAL, "a text in it is not UTF-8");
            return;
        }
        chars_emit_one(n, from, c, form, next);
        from = next;
    }
}

uint32_t chars_next(const char *s, size_t len, size_t *n) {
    bool valid;
    *n = utf8_next(s, len, &valid);
    if (!valid) return UINT32_MAX;
    uint8_t first = (uint8_t)s[0];
    if (*n == 1) return first;
    uint32_t c = first & (0x3fu >> (*n - 1));
    for (size_t i = 1; i < *n; i++) c = c << 6 | ((uint8_t)s[i] & 0x3f);
    return c;
}
