// Methods of strings in chat templates: Python's.
#include "engine/jinja/case_tables.h"
#include "engine/jinja/run.h"
#include "engine/text/char_class.h"
#include <string.h>
#include <utf8proc.h>

// --- the ends of strings

JINJA_FN(m_strip) {
    return jinja_strip(r, a[0].s, &a[1], true, true, out);
}
JINJA_FN(m_lstrip) {
    return jinja_strip(r, a[0].s, &a[1], true, false, out);
}
JINJA_FN(m_rstrip) {
    return jinja_strip(r, a[0].s, &a[1], false, true, out);
}

// The argument is one string or a tuple of strings, any of which may match.
static int has_end(struct jinja_run *r, const struct jinja_value *a,
                   bool (*has)(struct jinja_string, struct jinja_string), struct jinja_value *out) {
    struct jinja_string s;
    bool any = false;
    size_t n = a[1].kind == JINJA_TUPLE ? a[1].list->len : 1;
    const struct jinja_value *ends = a[1].kind == JINJA_TUPLE ? a[1].list->items : &a[1];
    for (size_t i = 0; i < n && !any; i++) {
        TRY(jinja_want_string(r, &ends[i], &s));
        any = has(a[0].s, s);
    }
    *out = jinja_bool(any);
    return 0;
}
JINJA_FN(m_startswith) {
    return has_end(r, a, jinja_string_starts, out);
}
JINJA_FN(m_endswith) {
    return has_end(r, a, jinja_string_ends, out);
}
JINJA_FN(m_removeprefix) {
    struct jinja_string s;
    TRY(jinja_want_string(r, &a[1], &s));
    bool has = jinja_string_starts(a[0].s, s);
    *out = jinja_str(jinja_string_sub(a[0].s, has ? s.len : 0, a[0].s.len));
    return 0;
}
JINJA_FN(m_removesuffix) {
    struct jinja_string s;
    TRY(jinja_want_string(r, &a[1], &s));
    bool has = jinja_string_ends(a[0].s, s);
    *out = jinja_str(jinja_string_sub(a[0].s, 0, a[0].s.len - (has ? s.len : 0)));
    return 0;
}

// --- taking apart

static int push_part(struct jinja_run *r, struct jinja_list *l, struct jinja_string s, size_t from,
                     size_t to) {
    return jinja_list_push(r, l, jinja_str(jinja_string_sub(s, from, to)));
}

// Splits at runs of white space; the rest after the last split keeps the white space at its end.
static int split_words(struct jinja_run *r, struct jinja_string s, int64_t max,
                       struct jinja_list *l) {
    for (;; max--) {
        s = jinja_string_strip(s, NULL, true, false);
        size_t to = 0;
        while (to < s.len && !jinja_is_space(char_decode(s.s + to))) to += char_utf8_len(s.s + to);
        if (s.len == 0) return 0;
        if (max == 0) return push_part(r, l, s, 0, s.len);
        TRY(push_part(r, l, s, 0, to));
        s = jinja_string_sub(s, to, s.len);
    }
}

static int split_words_back(struct jinja_run *r, struct jinja_string s, int64_t max,
                            struct jinja_list *l) {
    const char *start;
    for (;; max--) {
        s = jinja_string_strip(s, NULL, false, true);
        size_t from = s.len;
        while (from > 0 && !jinja_is_space(char_decode_back(s.s + from, &start)))
            from = (size_t)(start - s.s);
        if (s.len == 0) return 0;
        if (max == 0) return push_part(r, l, s, 0, s.len);
        TRY(push_part(r, l, s, from, s.len));
        s.len = from;
    }
}

static int split_at(struct jinja_run *r, struct jinja_string s, struct jinja_string at, int64_t max,
                    struct jinja_list *l) {
    size_t from = 0, found;
    for (; max != 0 && (found = jinja_string_find(s, at, from)) != SIZE_MAX; max--) {
        TRY(push_part(r, l, s, from, found));
        from = found + at.len;
    }
    return push_part(r, l, s, from, s.len);
}

static int split_at_back(struct jinja_run *r, struct jinja_string s, struct jinja_string at,
                         int64_t max, struct jinja_list *l) {
    size_t found;
    for (; max != 0 && (found = jinja_string_find_last(s, at)) != SIZE_MAX; max--) {
        TRY(push_part(r, l, s, found + at.len, s.len));
        s.len = found;
    }
    return push_part(r, l, s, 0, s.len);
}

// split(sep=None, maxsplit=-1)
static int split(struct jinja_run *r, const struct jinja_value *a, bool back,
                 struct jinja_value *out) {
    struct jinja_string at;
    int64_t max;
    bool words = a[1].kind == JINJA_ABSENT || a[1].kind == JINJA_NONE;
    TRY(jinja_want_int(r, &a[2], -1, &max));
    if (!words) TRY(jinja_want_string(r, &a[1], &at));
    if (!words && at.len == 0) return jinja_fail(r, E_INVAL, "empty separator");
    TRY(jinja_spend(r, words ? a[0].s.len / 16 : jinja_search_cost(a[0].s, at)));
    TRY(jinja_list_new(r, JINJA_LIST, out));
    struct jinja_list *l = out->list;
    if (!back) return words ? split_words(r, a[0].s, max, l) : split_at(r, a[0].s, at, max, l);
    TRY(words ? split_words_back(r, a[0].s, max, l) : split_at_back(r, a[0].s, at, max, l));
    for (size_t i = 0; i < l->len / 2; i++) { // found from the end
        struct jinja_value v = l->items[i];
        l->items[i] = l->items[l->len - 1 - i];
        l->items[l->len - 1 - i] = v;
    }
    return 0;
}
JINJA_FN(m_split) {
    return split(r, a, false, out);
}
JINJA_FN(m_rsplit) {
    return split(r, a, true, out);
}

JINJA_FN(m_splitlines) {
    struct jinja_string line;
    size_t at = 0;
    bool keep = jinja_want_bool(&a[1], false);
    TRY(jinja_spend(r, a[0].s.len / 16));
    TRY(jinja_list_new(r, JINJA_LIST, out));
    for (size_t from = 0; at < a[0].s.len; from = at) {
        jinja_next_line(a[0].s, &at, &line);
        TRY(push_part(r, out->list, a[0].s, from, keep ? at : from + line.len));
    }
    return 0;
}

static int partition(struct jinja_run *r, const struct jinja_value *a, bool back,
                     struct jinja_value *out) {
    struct jinja_string s = a[0].s, at;
    TRY(jinja_want_string(r, &a[1], &at));
    if (at.len == 0) return jinja_fail(r, E_INVAL, "empty separator");
    TRY(jinja_spend(r, jinja_search_cost(s, at)));
    TRY(jinja_list_new(r, JINJA_TUPLE, out));
    size_t found = back ? jinja_string_find_last(s, at) : jinja_string_find(s, at, 0);
    size_t first = found != SIZE_MAX ? found : back ? 0 : s.len;
    size_t second = found != SIZE_MAX ? found + at.len : first;
    TRY(push_part(r, out->list, s, 0, first));
    TRY(push_part(r, out->list, s, first, second));
    return push_part(r, out->list, s, second, s.len);
}
JINJA_FN(m_partition) {
    return partition(r, a, false, out);
}
JINJA_FN(m_rpartition) {
    return partition(r, a, true, out);
}

// --- looking

static int find(struct jinja_run *r, const struct jinja_value *a, bool back,
                struct jinja_value *out) {
    struct jinja_string s = a[0].s, needle;
    TRY(jinja_want_string(r, &a[1], &needle));
    TRY(jinja_spend(r, jinja_search_cost(s, needle)));
    size_t at = back ? jinja_string_find_last(s, needle) : jinja_string_find(s, needle, 0);
    *out =
        jinja_int(at == SIZE_MAX ? -1 : (int64_t)jinja_string_n_chars(jinja_string_sub(s, 0, at)));
    return 0;
}
JINJA_FN(m_find) {
    return find(r, a, false, out);
}
JINJA_FN(m_rfind) {
    return find(r, a, true, out);
}
JINJA_FN(m_index) {
    TRY(find(r, a, false, out));
    return out->i < 0 ? jinja_fail(r, E_INVAL, "substring not found") : 0;
}

JINJA_FN(m_count) {
    struct jinja_string needle;
    int64_t n = 0;
    TRY(jinja_want_string(r, &a[1], &needle));
    TRY(jinja_spend(r, a[0].s.len / 16));
    if (needle.len == 0) n = (int64_t)jinja_string_n_chars(a[0].s) + 1;
    for (size_t at = 0; needle.len > 0; at += needle.len, n++)
        if ((at = jinja_string_find(a[0].s, needle, at)) == SIZE_MAX) break;
    *out = jinja_int(n);
    return 0;
}

static bool is_digit(uint32_t c) {
    if (utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND) return true;
    for (size_t i = 0; i < jinja_n_digits && jinja_digits[i].from <= c; i++)
        if (c <= jinja_digits[i].to) return true;
    return false;
}

static int all_are(struct jinja_run *r, struct jinja_string s, bool (*is)(uint32_t),
                   struct jinja_value *out) {
    bool all = s.len > 0;
    TRY(jinja_spend(r, s.len / 16));
    for (size_t i = 0; i < s.len && all; i += char_utf8_len(s.s + i))
        all = is(char_decode(s.s + i));
    *out = jinja_bool(all);
    return 0;
}
JINJA_FN(m_isalpha) {
    return all_are(r, a[0].s, jinja_is_alpha, out);
}
JINJA_FN(m_isdigit) {
    return all_are(r, a[0].s, is_digit, out);
}
JINJA_FN(m_isalnum) {
    return all_are(r, a[0].s, jinja_is_alnum, out);
}
JINJA_FN(m_isspace) {
    return all_are(r, a[0].s, jinja_is_space, out);
}

static int by_test(struct jinja_run *r, const char *test, const struct jinja_value *a,
                   const struct jinja_call *c, struct jinja_value *out) {
    return jinja_builtin_find(jinja_tests, jinja_z(test).s)->fn(r, a, c, out);
}
JINJA_FN(m_isupper) {
    return by_test(r, "upper", a, c, out);
}
JINJA_FN(m_islower) {
    return by_test(r, "lower", a, c, out);
}

// --- making others

JINJA_FN(m_upper) {
    return jinja_cased(r, a[0].s, JINJA_UPPER, out);
}
JINJA_FN(m_lower) {
    return jinja_cased(r, a[0].s, JINJA_LOWER, out);
}
JINJA_FN(m_capitalize) {
    return jinja_cased(r, a[0].s, JINJA_CAPITALIZE, out);
}
JINJA_FN(m_title) {
    return jinja_cased(r, a[0].s, JINJA_TITLE, out);
}

JINJA_FN(m_replace) {
    struct jinja_string old, new;
    int64_t count;
    TRY(jinja_want_string(r, &a[1], &old));
    TRY(jinja_want_string(r, &a[2], &new));
    TRY(jinja_want_int(r, &a[3], -1, &count));
    return jinja_replace(r, a[0].s, old, new, count, out);
}

JINJA_FN(m_join) {
    struct jinja_list *l;
    struct jinja_text t;
    TRY(jinja_items(r, &a[1], &l));
    jinja_text_init(&t, &r->arena);
    for (size_t i = 0; i < l->len; i++) {
        if (l->items[i].kind != JINJA_STRING)
            return jinja_fail(r, E_INVAL, "sequence item %zu: expected str instance, %s found", i,
                              jinja_type_name(&l->items[i]));
        TRY(jinja_spend(r, 1 + (a[0].s.len + l->items[i].s.len) / 64));
        if (i > 0) jinja_text_add(&t, a[0].s);
        jinja_text_add(&t, l->items[i].s);
    }
    return jinja_text_take_value(&t, out);
}

// The argument for a field, which has come as "" (the next one), "0" or "name".
static const struct jinja_value *field(const struct jinja_call *c, struct jinja_string name,
                                       size_t *next) {
    size_t at = 0;
    if (name.len == 0) at = (*next)++;
    for (size_t i = 0; i < name.len; i++) {
        if (name.s[i] < '0' || name.s[i] > '9' || i > 3) at = SIZE_MAX;
        if (at != SIZE_MAX) at = at * 10 + (size_t)(name.s[i] - '0');
    }
    for (size_t i = 0, position = 0; i < c->n; i++) {
        bool here = c->names[i].s ? at == SIZE_MAX && jinja_string_equal(c->names[i], name)
                                  : position++ == at;
        if (here) return &c->args[i];
    }
    return NULL;
}

// format(): {}, {0} and {name}, without formats of their own.
JINJA_FN(m_format) {
    struct jinja_string s = a[0].s;
    struct jinja_text t;
    size_t next = 0;
    TRY(jinja_spend(r, s.len / 16));
    jinja_text_init(&t, &r->arena);
    for (size_t i = 0; i < s.len; i++) {
        bool twice = i + 1 < s.len && s.s[i + 1] == s.s[i];
        if ((s.s[i] != '{' && s.s[i] != '}') || twice) {
            i += s.s[i] == '{' || s.s[i] == '}';
            jinja_text_add(&t, jinja_string_sub(s, i, i + 1));
            continue;
        }
        size_t end = jinja_string_find(s, JINJA_LITERAL("}"), i);
        if (s.s[i] == '}' || end == SIZE_MAX)
            return jinja_fail(r, E_INVAL, "single '%c' encountered in format string", s.s[i]);
        struct jinja_string name = jinja_string_sub(s, i + 1, end);
        if (name.len > 0 && memchr(name.s, ':', name.len))
            return jinja_fail(r, E_UNSUPPORTED, "format() knows {}, {0} and {name} only");
        TRY(jinja_spend(r, c->n / 4));
        const struct jinja_value *v = field(c, name, &next);
        if (!v)
            return jinja_fail(r, E_INVAL, "format() has no argument for '%.*s'",
                              JINJA_QUOTED(name));
        TRY(jinja_print(r, v, false, &t));
        i = end;
    }
    return jinja_text_take_value(&t, out);
}

static int pad(struct jinja_run *r, const struct jinja_value *a, bool front, bool zero,
               struct jinja_value *out) {
    struct jinja_text t;
    struct jinja_string s = a[0].s;
    int64_t width, n = (int64_t)jinja_string_n_chars(s);
    TRY(jinja_want_int(r, &a[1], 0, &width));
    if (width > 1 << 20) return jinja_fail(r, E_LIMIT, "more than %d characters wide", 1 << 20);
    TRY(jinja_spend(r, s.len / 64 + (width > 0 ? (size_t)width / 64 : 0)));
    size_t more = width > n ? (size_t)(width - n) : 0,
           sign = zero && s.len > 0 && (*s.s == '-' || *s.s == '+');
    jinja_text_init(&t, &r->arena);
    jinja_text_add(&t, jinja_string_sub(s, 0, sign));
    if (front) jinja_text_repeat(&t, zero ? '0' : ' ', more);
    jinja_text_add(&t, jinja_string_sub(s, sign, s.len));
    if (!front) jinja_text_repeat(&t, ' ', more);
    return jinja_text_take_value(&t, out);
}
JINJA_FN(m_ljust) {
    return pad(r, a, false, false, out);
}
JINJA_FN(m_rjust) {
    return pad(r, a, true, false, out);
}
JINJA_FN(m_zfill) {
    return pad(r, a, true, true, out);
}

const struct jinja_builtin jinja_str_methods[] = {
    {"capitalize", m_capitalize, "self", 1},
    {"count", m_count, "self sub", 2},
    {"endswith", m_endswith, "self suffix", 2},
    {"find", m_find, "self sub", 2},
    {"format", m_format, "self *", 1},
    {"index", m_index, "self sub", 2},
    {"isalnum", m_isalnum, "self", 1},
    {"isalpha", m_isalpha, "self", 1},
    {"isdigit", m_isdigit, "self", 1},
    {"islower", m_islower, "self", 1},
    {"isspace", m_isspace, "self", 1},
    {"isupper", m_isupper, "self", 1},
    {"join", m_join, "self iterable", 2},
    {"ljust", m_ljust, "self width", 2},
    {"lower", m_lower, "self", 1},
    {"lstrip", m_lstrip, "self chars", 1},
    {"partition", m_partition, "self sep", 2},
    {"removeprefix", m_removeprefix, "self prefix", 2},
    {"removesuffix", m_removesuffix, "self suffix", 2},
    {"replace", m_replace, "self old new count", 3},
    {"rfind", m_rfind, "self sub", 2},
    {"rjust", m_rjust, "self width", 2},
    {"rpartition", m_rpartition, "self sep", 2},
    {"rsplit", m_rsplit, "self sep maxsplit", 1},
    {"rstrip", m_rstrip, "self chars", 1},
    {"split", m_split, "self sep maxsplit", 1},
    {"splitlines", m_splitlines, "self keepends", 1},
    {"startswith", m_startswith, "self prefix", 2},
    {"strip", m_strip, "self chars", 1},
    {"title", m_title, "self", 1},
    {"upper", m_upper, "self", 1},
    {"zfill", m_zfill, "self width", 2},
    {0},
};
