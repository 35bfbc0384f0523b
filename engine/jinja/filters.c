// Filters on single values of chat templates; those on lists are in list_filters.c.
#include "engine/jinja/eval.h"
#include "engine/text/char_class.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- strings

JINJA_FN(f_string) {
    *out = jinja_z("");
    return jinja_to_string(r, &a[0], &out->s);
}

JINJA_FN(f_safe) {
    TRY(f_string(r, a, c, out));
    out->markup = true;
    return 0;
}

static int cased(struct jinja_run *r, const struct jinja_value *v, enum jinja_case how,
                 struct jinja_value *out) {
    struct jinja_string s;
    TRY(jinja_to_string(r, v, &s));
    return jinja_cased(r, s, how, out);
}

JINJA_FN(f_upper) {
    return cased(r, &a[0], JINJA_UPPER, out);
}

JINJA_FN(f_lower) {
    return cased(r, &a[0], JINJA_LOWER, out);
}

JINJA_FN(f_capitalize) {
    return cased(r, &a[0], JINJA_CAPITALIZE, out);
}

JINJA_FN(f_title) {
    return cased(r, &a[0], JINJA_TITLE_FILTER, out);
}

JINJA_FN(f_trim) {
    struct jinja_string s;
    TRY(jinja_to_string(r, &a[0], &s));
    return jinja_strip(r, s, &a[1], true, true, out);
}

JINJA_FN(f_replace) {
    struct jinja_string s, old, new;
    int64_t count;
    TRY(jinja_to_string(r, &a[0], &s));
    TRY(jinja_to_string(r, &a[1], &old));
    TRY(jinja_to_string(r, &a[2], &new));
    TRY(jinja_want_int(r, &a[3], -1, &count));
    return jinja_replace(r, s, old, new, count, out);
}

JINJA_FN(f_escape) {
    struct jinja_string s;
    if (jinja_is_markup(&a[0])) { // escaped or safe as it is
        *out = a[0];
        return 0;
    }
    TRY(jinja_to_string(r, &a[0], &s));
    return jinja_escape(r, s, out);
}

// indent(s, width=4, first=False, blank=False): a line without words stays empty unless blank.
JINJA_FN(f_indent) {
    struct jinja_string s, line, by = {.s = "", .len = 0};
    struct jinja_text t;
    int64_t width = 4;
    size_t at = 0;
    TRY(jinja_want_string(r, &a[0], &s));
    if (a[1].kind == JINJA_STRING)
        by = a[1].s;
    else
        TRY(jinja_want_int(r, &a[1], 4, &width));
    if (width > 1024) return jinja_fail(r, E_LIMIT, "indent by more than 1024");
    if (s.len > 0 && s.s[s.len - 1] == '\r') s.len--; // Jinja puts a newline behind s first
    jinja_text_init(&t, &r->arena);
    for (bool first = true, more = true; more; first = false) {
        more = jinja_next_line(s, &at, &line);
        bool indents =
            first ? jinja_want_bool(&a[2], false) : line.len > 0 || jinja_want_bool(&a[3], false);
        TRY(jinja_spend(r, 1 + line.len / 64));
        if (!first) jinja_text_addz(&t, "\n");
        if (indents && by.len > 0) jinja_text_add(&t, by);
        if (indents && by.len == 0 && width > 0) jinja_text_repeat(&t, ' ', (size_t)width);
        jinja_text_add(&t, line);
    }
    return jinja_text_take_value(&t, out);
}

static struct jinja_string first_chars(struct jinja_string s, int64_t n) {
    return jinja_string_sub(s, 0, n > 0 ? jinja_string_offset(s, (size_t)n) : 0);
}

// truncate(s, length=255, killwords=False, end='...', leeway=5)
JINJA_FN(f_truncate) {
    struct jinja_string s, end = JINJA_LITERAL("...");
    struct jinja_text t;
    int64_t length, leeway;
    TRY(jinja_want_string(r, &a[0], &s));
    TRY(jinja_want_int(r, &a[1], 255, &length));
    TRY(jinja_want_int(r, &a[4], 5, &leeway));
    if (a[3].kind != JINJA_ABSENT) TRY(jinja_want_string(r, &a[3], &end));
    TRY(jinja_spend(r, s.len / 64));
    *out = jinja_str(s);
    if (length < 0 || leeway < 0 || length > INT32_MAX || leeway > INT32_MAX)
        return jinja_fail(r, E_INVAL, "truncate's length and leeway are out of range");
    if ((int64_t)jinja_string_n_chars(s) <= length + leeway) return 0;
    s = first_chars(s, length - (int64_t)jinja_string_n_chars(end));
    size_t space = jinja_string_find_last(s, JINJA_LITERAL(" "));
    if (!jinja_want_bool(&a[2], false) && space != SIZE_MAX) s.len = space;
    jinja_text_init(&t, &r->arena);
    jinja_text_add(&t, s);
    jinja_text_add(&t, end);
    return jinja_text_take_value(&t, out);
}

JINJA_FN(f_center) {
    struct jinja_string s;
    struct jinja_text t;
    int64_t width;
    TRY(jinja_to_string(r, &a[0], &s));
    TRY(jinja_want_int(r, &a[1], 80, &width));
    int64_t n = (int64_t)jinja_string_n_chars(s), pad = width > n ? width - n : 0;
    if (pad > 1 << 20) return jinja_fail(r, E_LIMIT, "center in more than %d characters", 1 << 20);
    TRY(jinja_spend(r, (s.len + (size_t)pad) / 64));
    int64_t left = pad / 2 + (pad & width & 1);
    jinja_text_init(&t, &r->arena);
    jinja_text_repeat(&t, ' ', (size_t)left);
    jinja_text_add(&t, s);
    jinja_text_repeat(&t, ' ', (size_t)(pad - left));
    return jinja_text_take_value(&t, out);
}

JINJA_FN(f_wordcount) {
    struct jinja_string s;
    int64_t n = 0;
    bool inside = false;
    TRY(jinja_to_string(r, &a[0], &s));
    TRY(jinja_spend(r, s.len / 16));
    for (size_t i = 0; i < s.len; i += char_utf8_len(s.s + i)) {
        bool word = s.s[i] == '_' || jinja_is_alnum(char_decode(s.s + i)); // Python's \\w
        n += word && !inside;
        inside = word;
    }
    *out = jinja_int(n);
    return 0;
}

JINJA_FN(f_format) {
    struct jinja_value args;
    TRY(jinja_list_new(r, JINJA_TUPLE, &args));
    for (size_t i = 0; i < c->n; i++) {
        if (c->names[i].s)
            return jinja_fail(r, E_UNSUPPORTED, "format takes arguments by position only");
        TRY(jinja_list_push(r, args.list, c->args[i]));
    }
    TRY(f_string(r, a, c, out));
    return jinja_binary(r, '%', out, &args, out);
}

// --- numbers

struct number {
    bool known, whole;
    int64_t i; // where whole
    double f;
};

// A string as Python's int() and float() read it: underscores are allowed between digits.
static int number_of(struct jinja_run *r, struct jinja_string s, int base, struct number *out) {
    char digits[64], *end;
    size_t n = 0;
    *out = (struct number){0};
    TRY(jinja_spend(r, s.len / 16));
    s = jinja_string_strip(s, NULL, true, true);
    if (s.len == 0 || s.len >= sizeof digits) return 0;
    for (size_t k = 0; k < s.len; k++) {
        if (s.s[k] != '_')
            digits[n++] = s.s[k];
        else if (k == 0 || k + 1 == s.len || !isalnum((unsigned char)s.s[k - 1]) ||
                 !isalnum((unsigned char)s.s[k + 1]))
            return 0;
    }
    digits[n] = 0;
    errno = 0;
    out->i = strtoll(digits, &end, base);
    out->whole = *end == 0 && end != digits;
    if (out->whole && errno) return jinja_fail(r, E_LIMIT, "a whole number past 64 bits");
    out->f = strtod(digits, &end);
    out->known = out->whole || (*end == 0 && end != digits && !strpbrk(digits, "xXpP("));
    return 0;
}

// int(value, default=0, base=10)
JINJA_FN(f_int) {
    struct number n = {0};
    int64_t base;
    TRY(jinja_want_int(r, &a[2], 10, &base));
    if (base < 2 || base > 36)
        return jinja_fail(r, E_UNSUPPORTED, "int of base %lld", (long long)base);
    if (a[0].kind == JINJA_UNDEFINED) return jinja_fail(r, E_INVAL, "%.*s", JINJA_QUOTED(a[0].s));
    if (a[0].kind == JINJA_STRING)
        TRY(number_of(r, a[0].s, (int)base, &n));
    else if (jinja_is_number(&a[0]))
        n = (struct number){.known = true, .f = jinja_as_double(&a[0])};
    if (n.known && !n.whole && isfinite(n.f) && fabs(n.f) >= 9.2e18 && a[0].kind != JINJA_INT)
        return jinja_fail(r, E_LIMIT, "a whole number past 64 bits");
    if (a[0].kind == JINJA_INT)
        *out = a[0];
    else if (n.known && n.whole)
        *out = jinja_int(n.i);
    else if (n.known && isfinite(n.f))
        *out = jinja_int((int64_t)n.f);
    else
        *out = a[1].kind == JINJA_ABSENT ? jinja_int(0) : a[1];
    return 0;
}

JINJA_FN(f_float) {
    struct number n = {0};
    if (a[0].kind == JINJA_UNDEFINED) return jinja_fail(r, E_INVAL, "%.*s", JINJA_QUOTED(a[0].s));
    if (a[0].kind == JINJA_STRING)
        TRY(number_of(r, a[0].s, 10, &n));
    else if (jinja_is_number(&a[0]))
        n = (struct number){.known = true, .f = jinja_as_double(&a[0])};
    *out = n.known ? jinja_float(n.f) : a[1].kind == JINJA_ABSENT ? jinja_float(0) : a[1];
    return 0;
}

JINJA_FN(f_abs) {
    struct jinja_value zero = jinja_int(0);
    if (!jinja_is_number(&a[0]))
        return jinja_fail(r, E_INVAL, "bad operand type for abs(): '%s'", jinja_type_name(&a[0]));
    *out = a[0].kind == JINJA_BOOL ? jinja_int(a[0].b) : a[0];
    return jinja_as_double(&a[0]) < 0 ? jinja_binary(r, '-', &zero, &a[0], out) : 0;
}

// round(value, precision=0, method='common')
JINJA_FN(f_round) {
    struct jinja_string method = JINJA_LITERAL("common");
    int64_t precision;
    char digits[400];
    TRY(jinja_want_int(r, &a[1], 0, &precision));
    if (a[2].kind != JINJA_ABSENT) TRY(jinja_want_string(r, &a[2], &method));
    if (!jinja_is_number(&a[0]))
        return jinja_fail(r, E_INVAL, "a number is expected, not '%s'", jinja_type_name(&a[0]));
    if (precision < 0 || precision > 15)
        return jinja_fail(r, E_UNSUPPORTED, "round to 0 to 15 digits only");
    bool common = jinja_string_is(method, "common");
    *out = a[0].kind == JINJA_BOOL ? jinja_int(a[0].b) : a[0];
    if (common && out->kind == JINJA_INT) return 0;
    double v = jinja_as_double(&a[0]), scale = pow(10, (double)precision);
    if (common) {
        snprintf(digits, sizeof digits, "%.*f", (int)precision, v); // exact ties go to even
        *out = jinja_float(strtod(digits, NULL));
    } else if (jinja_string_is(method, "ceil")) {
        *out = jinja_float((ceil(v * scale) + 0.0) / scale); // whole numbers have no -0
    } else if (jinja_string_is(method, "floor")) {
        *out = jinja_float((floor(v * scale) + 0.0) / scale);
    } else {
        return jinja_fail(r, E_INVAL, "method must be common, ceil or floor");
    }
    return 0;
}

// --- any value

// default(value, default_value='', boolean=False)
JINJA_FN(f_default) {
    bool missing =
        a[0].kind == JINJA_UNDEFINED || (jinja_want_bool(&a[2], false) && !jinja_truth(&a[0]));
    *out = !missing ? a[0] : a[1].kind == JINJA_ABSENT ? jinja_z("") : a[1];
    return 0;
}

JINJA_FN(f_length) {
    switch (a[0].kind) {
    case JINJA_UNDEFINED:
        *out = jinja_int(0);
        return 0;
    case JINJA_STRING:
        *out = jinja_int((int64_t)jinja_string_n_chars(a[0].s));
        return jinja_spend(r, a[0].s.len / 64);
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (a[0].list->is == JINJA_GENERATOR) break;
        *out = jinja_int((int64_t)a[0].list->len);
        return 0;
    case JINJA_DICT:
        *out = jinja_int((int64_t)a[0].dict->len);
        return 0;
    default:
        break;
    }
    return jinja_fail(r, E_INVAL, "object of type '%s' has no len()", jinja_type_name(&a[0]));
}

JINJA_FN(f_attr) {
    struct jinja_string name;
    TRY(jinja_want_string(r, &a[1], &name));
    if (a[0].kind == JINJA_DICT && !jinja_method_find(&a[0], name)) // its keys are no attributes
        return jinja_undefined(r, out, "'dict object' has no attribute '%.*s'", JINJA_QUOTED(name));
    return jinja_get_attr(r, &a[0], name, out);
}

const struct jinja_builtin jinja_filters[] = {
    {"abs", f_abs, "x", 1},
    {"attr", f_attr, "obj name", 2},
    {"capitalize", f_capitalize, "s", 1},
    {"center", f_center, "value width", 1},
    {"count", f_length, "value", 1},
    {"d", f_default, "value default_value boolean", 1},
    {"default", f_default, "value default_value boolean", 1},
    {"e", f_escape, "value", 1},
    {"escape", f_escape, "value", 1},
    {"float", f_float, "value default", 1},
    {"format", f_format, "value *", 1},
    {"from_json", jinja_from_json, "s", 1},
    {"fromjson", jinja_from_json, "s", 1},
    {"indent", f_indent, "s width first blank", 1},
    {"int", f_int, "value default base", 1},
    {"length", f_length, "value", 1},
    {"lower", f_lower, "s", 1},
    {"replace", f_replace, "s old new count", 3},
    {"round", f_round, "value precision method", 1},
    {"safe", f_safe, "value", 1},
    {"string", f_string, "value", 1},
    {"title", f_title, "s", 1},
    {"tojson", jinja_to_json, "value ensure_ascii indent separators sort_keys", 1},
    {"trim", f_trim, "value chars", 1},
    {"truncate", f_truncate, "s length killwords end leeway", 1},
    {"upper", f_upper, "s", 1},
    {"wordcount", f_wordcount, "s", 1},
    {0},
};
