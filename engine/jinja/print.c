// Values as text: Python's str() and repr(), and JSON as transformers' tojson filter writes it.
#include "engine/jinja/run.h"
#include "engine/text/char_class.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

// Python's repr: the shortest digits that read back, with an exponent from 1e16 on and below 1e-4.
static void print_double(struct jinja_text *to, double v) {
    char s[40], digits[24];
    if (isnan(v) || isinf(v)) {
        jinja_text_addz(to, isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    int precision = 0;
    do snprintf(s, sizeof s, "%.*e", precision, v);
    while (strtod(s, NULL) != v && ++precision < 17);
    int exponent = atoi(strchr(s, 'e') + 1), n = 0;
    for (const char *p = s; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    digits[n] = 0;
    if (s[0] == '-') jinja_text_addz(to, "-");
    if (exponent < -4 || exponent >= 16) {
        jinja_text_addf(to, "%c%s%s%s", digits[0], n > 1 ? "." : "", digits + 1, strchr(s, 'e'));
    } else if (exponent < 0) {
        jinja_text_addz(to, "0.");
        jinja_text_repeat(to, '0', (size_t)(-exponent - 1));
        jinja_text_addz(to, digits);
    } else {
        for (int i = 0; i <= exponent; i++) jinja_text_addf(to, "%c", i < n ? digits[i] : '0');
        jinja_text_addf(to, ".%s", n > exponent + 1 ? digits + exponent + 1 : "0");
    }
}

// --- Python

static bool is_printable(uint32_t c) {
    if (c == ' ') return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static void print_quoted(struct jinja_string s, struct jinja_text *to) {
    bool single = memchr(s.s, '\'', s.len) && !memchr(s.s, '"', s.len);
    const char *quote = single ? "\"" : "'";
    jinja_text_addz(to, quote);
    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t c = char_decode(s.s + i);
        n = char_utf8_len(s.s + i);
        if (c == '\n' || c == '\r' || c == '\t')
            jinja_text_addz(to, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (c == '\\' || c == (unsigned char)*quote)
            jinja_text_addf(to, "\\%c", (char)c);
        else if (!is_printable(c))
            jinja_text_addf(to, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        else
            jinja_text_add(to, jinja_string_sub(s, i, i + n));
    }
    jinja_text_addz(to, quote);
}

static int print_list(struct jinja_run *r, const struct jinja_value *v, struct jinja_text *to) {
    const struct jinja_list *l = v->list;
    jinja_text_addz(to, v->kind == JINJA_LIST ? "[" : "(");
    for (size_t i = 0; i < l->len; i++) {
        if (i > 0) jinja_text_addz(to, ", ");
        TRY(jinja_print(r, &l->items[i], true, to));
    }
    jinja_text_addz(to, v->kind == JINJA_LIST ? "]" : l->len == 1 ? ",)" : ")");
    return 0;
}

static int print_dict(struct jinja_run *r, const struct jinja_dict *d, struct jinja_text *to) {
    jinja_text_addz(to, "{");
    for (size_t i = 0; i < d->len; i++) {
        if (i > 0) jinja_text_addz(to, ", ");
        TRY(jinja_print(r, &d->pairs[i].key, true, to));
        jinja_text_addz(to, ": ");
        TRY(jinja_print(r, &d->pairs[i].value, true, to));
    }
    jinja_text_addz(to, "}");
    return 0;
}

int jinja_print(struct jinja_run *r, const struct jinja_value *v, bool repr,
                struct jinja_text *to) {
    TRY(jinja_spend(r, v->kind == JINJA_STRING ? 1 + v->s.len / 64 : 1));
    switch (v->kind) {
    case JINJA_ABSENT:
    case JINJA_UNDEFINED:
        jinja_text_addz(to, repr ? "Undefined" : "");
        break;
    case JINJA_NONE:
        jinja_text_addz(to, "None");
        break;
    case JINJA_BOOL:
        jinja_text_addz(to, v->b ? "True" : "False");
        break;
    case JINJA_INT:
        jinja_text_addf(to, "%lld", (long long)v->i);
        break;
    case JINJA_FLOAT:
        print_double(to, v->f);
        break;
    case JINJA_STRING:
        if (repr && v->markup)
            return jinja_fail(r, E_UNSUPPORTED, "a string marked as safe inside a list");
        if (repr)
            print_quoted(v->s, to);
        else
            jinja_text_add(to, v->s);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (!jinja_is_plain(v))
            return jinja_fail(r, E_UNSUPPORTED, "a '%s' has no text", jinja_type_name(v));
        TRY(print_list(r, v, to));
        break;
    case JINJA_DICT:
        TRY(print_dict(r, v->dict, to));
        break;
    default: // Python prints its address
        return jinja_fail(r, E_UNSUPPORTED, "a '%s' has no text", jinja_type_name(v));
    }
    return to->arena->error;
}

int jinja_to_string(struct jinja_run *r, const struct jinja_value *v, struct jinja_string *out) {
    struct jinja_text t;
    if (v->kind == JINJA_STRING) {
        *out = v->s;
        return 0;
    }
    jinja_text_init(&t, &r->arena);
    TRY(jinja_print(r, v, false, &t));
    return jinja_text_take(&t, out);
}

// --- JSON

struct json_style {
    bool ascii, sort;
    int64_t indent; // < 0: all in one line
    struct jinja_string comma, colon;
};

static void json_string(struct jinja_string s, bool ascii, struct jinja_text *to) {
    static const char from[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    jinja_text_addz(to, "\"");
    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t c = char_decode(s.s + i);
        const char *short_form = c < 0x80 && c ? strchr(from, (int)c) : NULL;
        n = char_utf8_len(s.s + i);
        if (short_form)
            jinja_text_addf(to, "\\%c", letter[short_form - from]);
        else if (c >= 0x10000 && ascii)
            jinja_text_addf(to, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                            0xdc00 + (c & 0x3ff));
        else if (c < 0x20 || (c > 0x7e && ascii))
            jinja_text_addf(to, "\\u%04x", c);
        else
            jinja_text_add(to, jinja_string_sub(s, i, i + n));
    }
    jinja_text_addz(to, "\"");
}

static void json_line(const struct json_style *style, int depth, struct jinja_text *to) {
    if (style->indent < 0) return;
    jinja_text_addz(to, "\n");
    jinja_text_repeat(to, ' ', (size_t)style->indent * (size_t)depth);
}

static int json_value(struct jinja_run *r, const struct jinja_value *v,
                      const struct json_style *style, int depth, struct jinja_text *to);

static int json_list(struct jinja_run *r, const struct jinja_list *l,
                     const struct json_style *style, int depth, struct jinja_text *to) {
    jinja_text_addz(to, "[");
    for (size_t i = 0; i < l->len; i++) {
        if (i > 0) jinja_text_add(to, style->comma);
        json_line(style, depth + 1, to);
        TRY(json_value(r, &l->items[i], style, depth + 1, to));
    }
    if (l->len > 0) json_line(style, depth, to);
    jinja_text_addz(to, "]");
    return 0;
}

static int json_key(struct jinja_run *r, const struct jinja_value *key,
                    const struct json_style *style, struct jinja_text *to) {
    if (key->kind == JINJA_STRING) {
        json_string(key->s, style->ascii, to);
        return 0;
    }
    if (key->kind == JINJA_TUPLE)
        return jinja_fail(r, E_INVAL, "keys must be str, int, float, bool or None, not tuple");
    jinja_text_addz(to, "\"");
    TRY(json_value(r, key, style, 0, to));
    jinja_text_addz(to, "\"");
    return 0;
}

static int by_key(const void *a, const void *b) {
    const struct jinja_pair *x = a, *y = b;
    return jinja_string_order(x->key.s, y->key.s);
}

static int json_sorted(struct jinja_run *r, const struct jinja_dict *d, struct jinja_dict *out) {
    *out = (struct jinja_dict){0};
    for (size_t i = 0; i < d->len; i++) {
        if (d->pairs[i].key.kind != JINJA_STRING)
            return jinja_fail(r, E_UNSUPPORTED, "tojson sorts keys that are strings only");
        TRY(jinja_dict_set(r, out, d->pairs[i].key, d->pairs[i].value));
    }
    if (out->len > 1) qsort(out->pairs, out->len, sizeof *out->pairs, by_key);
    return 0;
}

static int json_dict(struct jinja_run *r, const struct jinja_dict *d,
                     const struct json_style *style, int depth, struct jinja_text *to) {
    struct jinja_dict sorted = *d;
    if (style->sort) TRY(json_sorted(r, d, &sorted));
    jinja_text_addz(to, "{");
    for (size_t i = 0; i < d->len; i++) {
        if (i > 0) jinja_text_add(to, style->comma);
        json_line(style, depth + 1, to);
        TRY(json_key(r, &sorted.pairs[i].key, style, to));
        jinja_text_add(to, style->colon);
        TRY(json_value(r, &sorted.pairs[i].value, style, depth + 1, to));
    }
    if (d->len > 0) json_line(style, depth, to);
    jinja_text_addz(to, "}");
    return 0;
}

static int json_value(struct jinja_run *r, const struct jinja_value *v,
                      const struct json_style *style, int depth, struct jinja_text *to) {
    TRY(jinja_spend(r, v->kind == JINJA_STRING ? 1 + v->s.len / 64 : 1));
    if (to->arena->error) return to->arena->error;
    switch (v->kind) {
    case JINJA_NONE:
        jinja_text_addz(to, "null");
        return 0;
    case JINJA_BOOL:
        jinja_text_addz(to, v->b ? "true" : "false");
        return 0;
    case JINJA_STRING:
        json_string(v->s, style->ascii, to);
        return 0;
    case JINJA_INT:
        return jinja_print(r, v, false, to);
    case JINJA_FLOAT:
        if (isnan(v->f) || isinf(v->f))
            jinja_text_addz(to, isnan(v->f) ? "NaN" : v->f > 0 ? "Infinity" : "-Infinity");
        else
            print_double(to, v->f);
        return 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (!jinja_is_plain(v)) break;
        return json_list(r, v->list, style, depth, to);
    case JINJA_DICT:
        return json_dict(r, v->dict, style, depth, to);
    default:
        break;
    }
    return jinja_fail(r, E_INVAL, "Object of type %s is not JSON serializable", jinja_type_name(v));
}

// tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
int jinja_to_json(struct jinja_run *r, const struct jinja_value *a, const struct jinja_call *c,
                  struct jinja_value *out) {
    struct jinja_text t;
    struct json_style style = {.ascii = jinja_want_bool(&a[1], false),
                               .sort = jinja_want_bool(&a[4], false),
                               .comma = JINJA_LITERAL(", "),
                               .colon = JINJA_LITERAL(": ")};
    TRY(jinja_want_int(r, &a[2], -1, &style.indent));
    if (style.indent < 0 && a[2].kind == JINJA_INT) style.indent = 0; // new lines all the same
    if (style.indent > 64) return jinja_fail(r, E_LIMIT, "tojson indents by at most 64");
    if (style.indent >= 0) style.comma = JINJA_LITERAL(",");
    if (a[3].kind != JINJA_ABSENT && a[3].kind != JINJA_NONE) {
        if (!jinja_is_sequence(&a[3]) || a[3].list->len != 2)
            return jinja_fail(r, E_INVAL, "tojson's separators are two strings");
        TRY(jinja_want_string(r, &a[3].list->items[0], &style.comma));
        TRY(jinja_want_string(r, &a[3].list->items[1], &style.colon));
    }
    jinja_text_init(&t, &r->arena);
    TRY(json_value(r, &a[0], &style, 0, &t));
    return jinja_text_take_value(&t, out);
}
