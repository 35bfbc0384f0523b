// String functions that filters and methods of chat templates share: upper and lower case, lines,
// stripping and replacing.
#include "engine/jinja/case_tables.h"
#include "engine/jinja/run.h"
#include "engine/text/char_class.h"
#include <string.h>
#include <utf8proc.h>

static const struct jinja_capital *capital_of(uint32_t c) {
    size_t low = 0, high = jinja_n_capitals;
    while (c >= 0x80 && low < high) {
        size_t middle = (low + high) / 2;
        if (jinja_capitals[middle].letter == c) return &jinja_capitals[middle];
        if (jinja_capitals[middle].letter < c)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

// title: the title-case form, for the first letter of a word.
static void add_upper(struct jinja_text *t, uint32_t c, bool title, uint8_t origin) {
    const struct jinja_capital *row = capital_of(c);
    for (size_t k = 0; row && k < 3; k++) {
        uint16_t part = title ? row->title[k] : row->upper[k];
        if (part) jinja_text_add_char(t, part, origin);
    }
    if (row) return;
    utf8proc_int32_t letter = (utf8proc_int32_t)c;
    letter = title ? utf8proc_totitle(letter) : utf8proc_toupper(letter);
    jinja_text_add_char(t, (uint32_t)letter, origin);
}

static bool is_cased(uint32_t c) {
    return utf8proc_isupper((utf8proc_int32_t)c) || utf8proc_islower((utf8proc_int32_t)c) ||
           utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LT;
}

// Characters inside words that are not letters: accents, apostrophes, full stops ...
static bool is_between(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x387 || c == 0x2018 ||
               c == 0x2019 || c == 0x2024 || c == 0x2027 || c == 0x55f || c == 0x5f4;
    }
}

// The lower case of a capital sigma at i: the final sigma at the end of a word.
static uint32_t small_sigma(struct jinja_string s, size_t i) {
    const char *p = s.s + i, *end = s.s + s.len, *start;
    uint32_t c = 0;
    bool before = false;
    while (p > s.s && is_between(c = char_decode_back(p, &start))) p = start;
    if (p > s.s) before = is_cased(c);
    for (p = s.s + i + 2; p < end && is_between(c = char_decode(p));) p += char_utf8_len(p);
    return before && !(p < end && is_cased(c)) ? 0x3c2 : 0x3c3;
}

static void add_lower(struct jinja_text *t, struct jinja_string s, size_t i) {
    uint32_t c = char_decode(s.s + i);
    uint8_t origin = jinja_string_origin(s, i);
    if (c == 0x3a3) {
        jinja_text_add_char(t, small_sigma(s, i), origin);
        return;
    }
    jinja_text_add_char(t, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c), origin);
    if (c == 0x130) jinja_text_add_char(t, 0x307, origin); // the capital's dot stays
}

// Whether the letter behind c begins a word: in Python's str.title() behind anything that is no
// letter, in Jinja's filter behind spaces, hyphens and opening brackets.
static bool ends_word(uint32_t c, enum jinja_case how) {
    if (how == JINJA_TITLE) return !is_cased(c);
    return jinja_is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
}

int jinja_cased(struct jinja_run *r, struct jinja_string s, enum jinja_case how,
                struct jinja_value *out) {
    struct jinja_text t;
    bool begins = true;
    TRY(jinja_spend(r, s.len / 16));
    jinja_text_init(&t, &r->arena);
    for (size_t i = 0; i < s.len; i += char_utf8_len(s.s + i)) {
        uint32_t c = char_decode(s.s + i);
        if (how == JINJA_UPPER || (how != JINJA_LOWER && begins))
            add_upper(&t, c, how == JINJA_CAPITALIZE || how == JINJA_TITLE,
                      jinja_string_origin(s, i));
        else
            add_lower(&t, s, i);
        begins = how >= JINJA_TITLE && ends_word(c, how);
    }
    return jinja_text_take_value(&t, out);
}

bool jinja_is_alpha(uint32_t c) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool jinja_is_alnum(uint32_t c) {
    return jinja_is_alpha(c) || char_is_numeric(c);
}

// Python's str.splitlines().
static bool ends_line(uint32_t c) {
    return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

bool jinja_next_line(struct jinja_string s, size_t *at, struct jinja_string *line) {
    size_t from = *at, to = from;
    while (to < s.len && !ends_line(char_decode(s.s + to))) to += char_utf8_len(s.s + to);
    *line = jinja_string_sub(s, from, to);
    *at = to;
    if (to == s.len) return false;
    *at += char_utf8_len(s.s + to);
    if (s.s[to] == '\r' && *at < s.len && s.s[*at] == '\n') ++*at;
    return true;
}

#define MAX_STRIP_CHARS 256 // each character at an end is compared with all of them

int jinja_strip(struct jinja_run *r, struct jinja_string s, const struct jinja_value *chars,
                bool front, bool back, struct jinja_value *out) {
    struct jinja_string set = {.s = "", .len = 0};
    bool given = chars->kind != JINJA_ABSENT && chars->kind != JINJA_NONE;
    if (given) TRY(jinja_want_string(r, chars, &set));
    if (set.len > MAX_STRIP_CHARS)
        return jinja_fail(r, E_LIMIT, "strip takes at most %d characters", MAX_STRIP_CHARS);
    *out = jinja_str(jinja_string_strip(s, given ? &set : NULL, front, back));
    return jinja_spend(r, (s.len - out->s.len) / 16 * (1 + set.len / 8));
}

int jinja_replace(struct jinja_run *r, struct jinja_string s, struct jinja_string old,
                  struct jinja_string new, int64_t count, struct jinja_value *out) {
    struct jinja_text t;
    size_t at = 0, found;
    TRY(jinja_spend(r, s.len / 64));
    jinja_text_init(&t, &r->arena);
    for (; count != 0 && (found = jinja_string_find(s, old, at)) != SIZE_MAX; count--) {
        TRY(jinja_spend(r, 1 + new.len / 64));
        // An empty one is found between all characters, and at both ends.
        if (old.len == 0 && at > 0) found = at;
        size_t step = old.len > 0 ? old.len : found < s.len ? char_utf8_len(s.s + found) : 1;
        jinja_text_add(&t, jinja_string_sub(s, at, found));
        jinja_text_add(&t, new);
        if (old.len == 0 && found < s.len)
            jinja_text_add(&t, jinja_string_sub(s, found, found + step));
        at = found + step;
        if (at > s.len) break;
    }
    if (at < s.len) jinja_text_add(&t, jinja_string_sub(s, at, s.len));
    return jinja_text_take_value(&t, out);
}

int jinja_escape(struct jinja_run *r, struct jinja_string s, struct jinja_value *out) {
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct jinja_text t;
    TRY(jinja_spend(r, s.len / 64));
    jinja_text_init(&t, &r->arena);
    for (size_t i = 0; i < s.len; i++) {
        const char *special = s.s[i] ? strchr(from, s.s[i]) : NULL;
        if (special)
            jinja_text_addz(&t, to[special - from]);
        else
            jinja_text_add(&t, jinja_string_sub(s, i, i + 1));
    }
    TRY(jinja_text_take_value(&t, out));
    out->markup = true;
    return 0;
}
