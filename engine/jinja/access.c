// Parts of a value in a chat template: attributes, elements, slices of strings and lists. A missing
// part is an undefined value with Jinja's error message, which using the value raises.
#include "engine/jinja/eval.h"
#include "engine/text/char_class.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int jinja_undefined(struct jinja_run *r, struct jinja_value *out, const char *fmt, ...) {
    char text[256];
    struct jinja_text t;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    jinja_text_init(&t, &r->arena);
    jinja_text_addz(&t, text);
    out->kind = JINJA_UNDEFINED;
    return jinja_text_take(&t, &out->s);
}

static const char *object_name(const struct jinja_value *v, char *to, size_t size) {
    if (v->kind == JINJA_NONE) return "None";
    snprintf(to, size, "%s object", jinja_type_name(v));
    return to;
}

#define NAME_BYTES 100 // as JINJA_QUOTED cuts a name

// Templates ask every message for members that few have, so this is not left to printf, and the sentence is
// made once for each name.
static int no_attr(struct jinja_run *r, const struct jinja_value *v, struct jinja_string name,
                   struct jinja_value *out) {
    struct jinja_missing *last = &r->missing[name.len % JINJA_MISSING];
    bool again = last->name == name.s && last->len == name.len;
    const char *label = v->kind == JINJA_DICT ? v->dict->label : NULL;
    bool dict = v->kind == JINJA_DICT && !label; // others of one kind can be of several types
    struct jinja_text t;
    if (again && dict) {
        *out = (struct jinja_value){.kind = JINJA_UNDEFINED, .s = last->sentence};
        return 0;
    }
    jinja_text_init(&t, &r->arena);
    jinja_text_reserve(&t, (name.len < NAME_BYTES ? name.len : NAME_BYTES) + 64, false);
    jinja_text_addz(&t, "'");
    jinja_text_addz(&t, v->kind == JINJA_NONE ? "None" : jinja_type_name(v));
    jinja_text_addz(&t, v->kind == JINJA_NONE ? "" : " object");
    jinja_text_addz(&t, "' has no attribute '");
    struct jinja_string shown = {.s = name.s, .len = name.len < NAME_BYTES ? name.len : NAME_BYTES};
    jinja_text_add(&t, shown);
    jinja_text_addz(&t, "'");
    if (label) {
        jinja_text_addz(&t, " (");
        jinja_text_addz(&t, label);
        jinja_text_addz(&t, ")");
    }
    out->kind = JINJA_UNDEFINED;
    TRY(jinja_text_take(&t, &out->s));
    if (dict) *last = (struct jinja_missing){name.s, name.len, out->s};
    return 0;
}

static int dict_value(struct jinja_run *r, const struct jinja_value *v,
                      const struct jinja_value *key, const struct jinja_value **out) {
    *out = NULL;
    if (v->kind != JINJA_DICT && v->kind != JINJA_NAMESPACE && v->kind != JINJA_LOOP) return 0;
    return jinja_dict_get(r, v->dict, key, out);
}

static int get_method(struct jinja_run *r, const struct jinja_value *v,
                      const struct jinja_builtin *method, struct jinja_value *out) {
    struct jinja_value *self = jinja_arena_get(&r->arena, sizeof *self);
    if (!self) return r->arena.error;
    *self = *v;
    out->kind = JINJA_METHOD;
    out->call.builtin = method;
    out->call.self = self;
    return 0;
}

// lacks: a dict that has no such key.
static int get_attr(struct jinja_run *r, const struct jinja_value *v, struct jinja_string name,
                    bool lacks, struct jinja_value *out) {
    const struct jinja_value *found = NULL, key = jinja_str(name);
    const struct jinja_builtin *method = jinja_method_find(v, name);
    if (v->kind == JINJA_UNDEFINED) return jinja_fail(r, E_INVAL, "%.*s", JINJA_QUOTED(v->s));
    if (name.len > 1 && memcmp(name.s, "__", 2) == 0)
        return jinja_undefined(r, out, "access to attribute '%.*s' of '%s' object is unsafe.",
                               JINJA_QUOTED(name), jinja_type_name(v));
    if (method && jinja_is_markup(v))
        return jinja_fail(r, E_UNSUPPORTED, "methods of a string marked as safe are not supported");
    if (method) return get_method(r, v, method, out);
    if (v->kind == JINJA_TUPLE && v->list->is == JINJA_GROUP &&
        (jinja_string_is(name, "grouper") || jinja_string_is(name, "list"))) {
        *out = v->list->items[jinja_string_is(name, "list")];
        return 0;
    }
    if (!lacks) TRY(dict_value(r, v, &key, &found));
    if (!found) return no_attr(r, v, name, out);
    *out = *found;
    return 0;
}

// Methods come before a dict's keys with a dot, and behind them in brackets.
int jinja_get_attr(struct jinja_run *r, const struct jinja_value *v, struct jinja_string name,
                   struct jinja_value *out) {
    return get_attr(r, v, name, false, out);
}

// The index of element i of n, counted from the end if negative; -1: out of range.
static int64_t index_in(int64_t i, size_t n) {
    if (i < 0) i += (int64_t)n;
    return i >= 0 && i < (int64_t)n ? i : -1;
}

static int get_index(struct jinja_run *r, const struct jinja_value *v, int64_t i,
                     struct jinja_value *out) {
    char object[64];
    bool is_string = v->kind == JINJA_STRING;
    if (is_string) TRY(jinja_spend(r, v->s.len / 64));
    size_t n = is_string ? jinja_string_n_chars(v->s) : v->list->len;
    int64_t at = index_in(i, n);
    if (at < 0)
        return jinja_undefined(r, out, "%s has no element %lld",
                               object_name(v, object, sizeof object), (long long)i);
    if (!is_string) {
        *out = v->list->items[at];
        return 0;
    }
    size_t from = jinja_string_offset(v->s, (size_t)at);
    bool markup = v->markup; // *out may be where v is
    *out = jinja_str(jinja_string_sub(v->s, from, from + char_utf8_len(v->s.s + from)));
    out->markup = markup;
    return 0;
}

int jinja_get_item(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key,
                   struct jinja_value *out) {
    const struct jinja_value *found;
    char object[64];
    if (v->kind == JINJA_UNDEFINED) return jinja_fail(r, E_INVAL, "%.*s", JINJA_QUOTED(v->s));
    TRY(dict_value(r, v, key, &found));
    if (found) {
        *out = *found;
        return 0;
    }
    bool indexed = v->kind == JINJA_STRING || jinja_is_plain(v) ||
                   (jinja_is_sequence(v) && v->list->is == JINJA_RANGE);
    if ((key->kind == JINJA_INT || key->kind == JINJA_BOOL) && indexed)
        return get_index(r, v, key->kind == JINJA_INT ? key->i : key->b, out);
    if (key->kind == JINJA_STRING) return get_attr(r, v, key->s, v->kind == JINJA_DICT, out);
    struct jinja_string shown;
    TRY(jinja_to_string(r, key, &shown));
    return jinja_undefined(r, out, "%s has no element %.*s", object_name(v, object, sizeof object),
                           JINJA_QUOTED(shown));
}

// --- slices

struct slice {
    int64_t from, step, n;
};

static int64_t clamp(int64_t v, int64_t low, int64_t high) {
    return v < low ? low : v > high ? high : v;
}

// Python's slice.indices(): bounds are cut to the sequence, so any number is allowed.
static int slice_of(struct jinja_run *r, const struct jinja_value bounds[3], size_t len,
                    struct slice *out) {
    int64_t n = (int64_t)len, from, to, step = 1;
    for (int i = 0; i < 3; i++)
        if (bounds[i].kind != JINJA_ABSENT && bounds[i].kind != JINJA_NONE &&
            bounds[i].kind != JINJA_INT)
            return jinja_fail(r, E_INVAL, "slice indices must be integers or None");
    if (bounds[2].kind == JINJA_INT) step = clamp(bounds[2].i, -INT32_MAX, INT32_MAX);
    if (step == 0) return jinja_fail(r, E_INVAL, "slice step cannot be zero");
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    from = step > 0 ? low : high;
    to = step > 0 ? high : low;
    if (bounds[0].kind == JINJA_INT)
        from = clamp(bounds[0].i < 0 ? bounds[0].i + n : bounds[0].i, low, high);
    if (bounds[1].kind == JINJA_INT)
        to = clamp(bounds[1].i < 0 ? bounds[1].i + n : bounds[1].i, low, high);
    int64_t span = step > 0 ? to - from : from - to, width = step > 0 ? step : -step;
    *out = (struct slice){from, step, span > 0 ? (span + width - 1) / width : 0};
    return 0;
}

static int slice_string(struct jinja_run *r, struct jinja_string s, const struct jinja_value *b,
                        struct jinja_value *out) {
    struct slice cut;
    struct jinja_text t;
    struct jinja_value chars = jinja_str(s);
    struct jinja_list *l;
    TRY(jinja_spend(r, s.len / 64));
    TRY(slice_of(r, b, jinja_string_n_chars(s), &cut));
    if (cut.step == 1) {
        size_t from = jinja_string_offset(s, (size_t)cut.from);
        struct jinja_string rest = jinja_string_sub(s, from, s.len);
        *out = jinja_str(jinja_string_sub(rest, 0, jinja_string_offset(rest, (size_t)cut.n)));
        return 0;
    }
    TRY(jinja_items(r, &chars, &l));
    jinja_text_init(&t, &r->arena);
    for (int64_t i = 0; i < cut.n; i++) jinja_text_add(&t, l->items[cut.from + i * cut.step].s);
    return jinja_text_take_value(&t, out);
}

int jinja_get_slice(struct jinja_run *r, const struct jinja_value *v,
                    const struct jinja_value bounds[3], struct jinja_value *out) {
    struct slice cut;
    if (v->kind == JINJA_STRING) {
        bool markup = v->markup; // *out may be where v is
        TRY(slice_string(r, v->s, bounds, out));
        out->markup = markup;
        return 0;
    }
    if (v->kind == JINJA_UNDEFINED) return jinja_fail(r, E_INVAL, "%.*s", JINJA_QUOTED(v->s));
    if (!jinja_is_sequence(v) || v->list->is >= JINJA_VIEW)
        return jinja_fail(r, E_INVAL, "'%s' object is not subscriptable", jinja_type_name(v));
    const struct jinja_list *l = v->list; // *out may be where v is
    TRY(slice_of(r, bounds, l->len, &cut));
    TRY(jinja_list_new(r, v->kind, out));
    out->list->is = l->is == JINJA_RANGE ? JINJA_RANGE : JINJA_PLAIN;
    for (int64_t i = 0; i < cut.n; i++)
        TRY(jinja_list_push(r, out->list, l->items[cut.from + i * cut.step]));
    return 0;
}
