// Filters of chat templates on lists, dicts and strings. Filters that are lazy in Jinja are eager
// here.
#include "engine/jinja/eval.h"
#include <string.h>

// --- parts of items

static bool is_index(struct jinja_string s, int64_t *out) {
    *out = 0;
    for (size_t i = 0; i < s.len && i < 10; i++) {
        if (s.s[i] < '0' || s.s[i] > '9') return false;
        *out = *out * 10 + (s.s[i] - '0');
    }
    return s.len > 0 && s.len < 10;
}

// "a.b.0" of an item; an integer is an index.
static int part_of(struct jinja_run *r, const struct jinja_value *item,
                   const struct jinja_value *attribute, struct jinja_value *out) {
    if (attribute->kind != JINJA_STRING) return jinja_get_item(r, item, attribute, out);
    struct jinja_string s = attribute->s;
    struct jinja_value v = *item;
    int64_t index;
    for (size_t from = 0, to; from <= s.len; from = to + 1) {
        to = jinja_string_find(s, JINJA_LITERAL("."), from);
        if (to == SIZE_MAX) to = s.len;
        struct jinja_value key = jinja_str(jinja_string_sub(s, from, to));
        if (is_index(key.s, &index)) key = jinja_int(index);
        TRY(jinja_get_item(r, &v, &key, &v));
    }
    *out = v;
    return 0;
}

// The key by which an item is sorted or compared: its part, in lower case unless case_sensitive.
static int key_of(struct jinja_run *r, const struct jinja_value *item,
                  const struct jinja_value *attribute, const struct jinja_value *case_sensitive,
                  struct jinja_value *out) {
    *out = *item;
    if (attribute->kind != JINJA_ABSENT && attribute->kind != JINJA_NONE)
        TRY(part_of(r, item, attribute, out));
    if (out->kind != JINJA_STRING || jinja_want_bool(case_sensitive, false)) return 0;
    return jinja_cased(r, out->s, JINJA_LOWER, out);
}

// Parallel lists; a stable sort by inserting.
static int sort_by(struct jinja_run *r, struct jinja_list *keys, struct jinja_list *items,
                   bool reverse) {
    int order;
    for (size_t i = 1; i < items->len; i++) {
        struct jinja_value key = keys->items[i], item = items->items[i];
        size_t low = 0, high = i;
        while (low < high) {
            size_t middle = (low + high) / 2;
            TRY(jinja_order(r, reverse ? &keys->items[middle] : &key,
                            reverse ? &key : &keys->items[middle], "<", &order));
            if (order < 0)
                high = middle;
            else
                low = middle + 1;
        }
        TRY(jinja_spend(r, (i - low) / 16));
        memmove(keys->items + low + 1, keys->items + low, (i - low) * sizeof key);
        memmove(items->items + low + 1, items->items + low, (i - low) * sizeof item);
        keys->items[low] = key;
        items->items[low] = item;
    }
    return 0;
}

static int sorted(struct jinja_run *r, const struct jinja_list *l,
                  const struct jinja_value *attribute, const struct jinja_value *case_sensitive,
                  bool reverse, struct jinja_value *out) {
    struct jinja_value keys, key;
    TRY(jinja_list_new(r, JINJA_LIST, &keys));
    TRY(jinja_list_new(r, JINJA_LIST, out));
    for (size_t i = 0; i < l->len; i++) {
        TRY(key_of(r, &l->items[i], attribute, case_sensitive, &key));
        TRY(jinja_list_push(r, keys.list, key));
        TRY(jinja_list_push(r, out->list, l->items[i]));
    }
    return sort_by(r, keys.list, out->list, reverse);
}

// --- whole lists

JINJA_FN(f_list) {
    struct jinja_list *l;
    TRY(jinja_items(r, &a[0], &l));
    *out = (struct jinja_value){.kind = JINJA_LIST, .list = l};
    if (l->is == JINJA_PLAIN) return 0;
    TRY(jinja_list_new(r, JINJA_LIST, out));
    for (size_t i = 0; i < l->len; i++) TRY(jinja_list_push(r, out->list, l->items[i]));
    return 0;
}

JINJA_FN(f_first) {
    struct jinja_list *l;
    TRY(jinja_items(r, &a[0], &l));
    if (l->len == 0) return jinja_undefined(r, out, "No first item, sequence was empty.");
    *out = l->items[0];
    return 0;
}

JINJA_FN(f_last) {
    struct jinja_list *l;
    if (jinja_is_sequence(&a[0]) && a[0].list->is == JINJA_GENERATOR)
        return jinja_fail(r, E_INVAL, "'generator' object is not reversible");
    TRY(jinja_items(r, &a[0], &l));
    if (l->len == 0) return jinja_undefined(r, out, "No last item, sequence was empty.");
    *out = l->items[l->len - 1];
    return 0;
}

JINJA_FN(f_reverse) {
    static const struct jinja_value back[3] = {{0}, {0}, {.kind = JINJA_INT, .i = -1}};
    struct jinja_list *l;
    if (a[0].kind == JINJA_STRING) return jinja_get_slice(r, &a[0], back, out);
    bool lazy = !jinja_is_sequence(&a[0]) || a[0].list->is != JINJA_GENERATOR;
    TRY(jinja_items(r, &a[0], &l));
    TRY(jinja_lazy_new(r, lazy ? JINJA_GENERATOR : JINJA_PLAIN, out));
    for (size_t i = l->len; i-- > 0;) TRY(jinja_list_push(r, out->list, l->items[i]));
    return 0;
}

// join(value, d='', attribute=None)
JINJA_FN(f_join) {
    struct jinja_list *l;
    struct jinja_string between = {.s = ""};
    struct jinja_text t;
    struct jinja_value part;
    TRY(jinja_items(r, &a[0], &l));
    if (a[1].kind != JINJA_ABSENT) TRY(jinja_to_string(r, &a[1], &between));
    jinja_text_init(&t, &r->arena);
    for (size_t i = 0; i < l->len; i++) {
        part = l->items[i];
        if (a[2].kind != JINJA_ABSENT) TRY(part_of(r, &l->items[i], &a[2], &part));
        if (i > 0) jinja_text_add(&t, between);
        TRY(jinja_print(r, &part, false, &t));
    }
    return jinja_text_take_value(&t, out);
}

// sort(value, reverse=False, case_sensitive=False, attribute=None)
JINJA_FN(f_sort) {
    struct jinja_list *l;
    TRY(jinja_items(r, &a[0], &l));
    return sorted(r, l, &a[3], &a[2], jinja_want_bool(&a[1], false), out);
}

static int extreme(struct jinja_run *r, const struct jinja_value *a, bool most,
                   struct jinja_value *out) {
    struct jinja_list *l;
    TRY(jinja_items(r, &a[0], &l));
    if (l->len == 0) return jinja_undefined(r, out, "No aggregated item, sequence was empty.");
    TRY(sorted(r, l, &a[2], &a[1], most, out));
    *out = out->list->items[0];
    return 0;
}

JINJA_FN(f_min) {
    return extreme(r, a, false, out);
}

JINJA_FN(f_max) {
    return extreme(r, a, true, out);
}

// unique(value, case_sensitive=False, attribute=None)
JINJA_FN(f_unique) {
    struct jinja_list *l;
    struct jinja_value seen, key;
    bool known;
    TRY(jinja_items(r, &a[0], &l));
    TRY(jinja_list_new(r, JINJA_LIST, &seen));
    TRY(jinja_lazy_new(r, JINJA_GENERATOR, out));
    for (size_t i = 0; i < l->len; i++) {
        TRY(key_of(r, &l->items[i], &a[2], &a[1], &key));
        TRY(jinja_contains(r, &seen, &key, &known));
        if (known) continue;
        TRY(jinja_list_push(r, seen.list, key));
        TRY(jinja_list_push(r, out->list, l->items[i]));
    }
    return 0;
}

// sum(iterable, attribute=None, start=0)
JINJA_FN(f_sum) {
    struct jinja_list *l;
    struct jinja_value part, sum = a[2].kind == JINJA_ABSENT ? jinja_int(0) : a[2];
    TRY(jinja_items(r, &a[0], &l));
    for (size_t i = 0; i < l->len; i++) {
        part = l->items[i];
        if (a[1].kind != JINJA_ABSENT && a[1].kind != JINJA_NONE)
            TRY(part_of(r, &l->items[i], &a[1], &part));
        TRY(jinja_binary(r, '+', &sum, &part, &sum));
    }
    *out = sum;
    return 0;
}

// batch(value, linecount, fill_with=None)
JINJA_FN(f_batch) {
    struct jinja_list *l;
    struct jinja_value row = {0};
    int64_t width;
    TRY(jinja_items(r, &a[0], &l));
    TRY(jinja_want_int(r, &a[1], 1, &width));
    if (width < 1) return jinja_fail(r, E_INVAL, "batch needs a positive number");
    TRY(jinja_lazy_new(r, JINJA_GENERATOR, out));
    for (size_t i = 0; i < l->len;) {
        TRY(jinja_list_new(r, JINJA_LIST, &row));
        for (int64_t n = 0; n < width && i < l->len; n++)
            TRY(jinja_list_push(r, row.list, l->items[i++]));
        while (a[2].kind != JINJA_ABSENT && (int64_t)row.list->len < width)
            TRY(jinja_list_push(r, row.list, a[2]));
        TRY(jinja_list_push(r, out->list, row));
    }
    return 0;
}

// --- dicts

static int pairs_of(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *out) {
    struct jinja_value pair;
    TRY(jinja_list_new(r, JINJA_LIST, out));
    if (v->kind == JINJA_UNDEFINED) return 0;
    if (v->kind != JINJA_DICT)
        return jinja_fail(r, E_INVAL, "Can only get item pairs from a mapping.");
    for (size_t i = 0; i < v->dict->len; i++) {
        TRY(jinja_list_new(r, JINJA_TUPLE, &pair));
        TRY(jinja_list_push(r, pair.list, v->dict->pairs[i].key));
        TRY(jinja_list_push(r, pair.list, v->dict->pairs[i].value));
        TRY(jinja_list_push(r, out->list, pair));
    }
    return 0;
}

JINJA_FN(f_items) {
    TRY(pairs_of(r, &a[0], out));
    out->list->is = JINJA_GENERATOR;
    return 0;
}

// dictsort(value, case_sensitive=False, by='key', reverse=False)
JINJA_FN(f_dictsort) {
    struct jinja_value pairs, at = jinja_int(0);
    struct jinja_string by = JINJA_LITERAL("key");
    if (a[2].kind != JINJA_ABSENT) TRY(jinja_want_string(r, &a[2], &by));
    if (jinja_string_is(by, "value"))
        at = jinja_int(1);
    else if (!jinja_string_is(by, "key"))
        return jinja_fail(r, E_INVAL, "You can only sort by either \"key\" or \"value\"");
    TRY(pairs_of(r, &a[0], &pairs));
    return sorted(r, pairs.list, &at, &a[1], jinja_want_bool(&a[3], false), out);
}

// One group: the items from *i on that have the first one's key.
static int group_from(struct jinja_run *r, const struct jinja_list *l, size_t *i,
                      const struct jinja_value *a, struct jinja_value *out) {
    struct jinja_value first, key, list, shown;
    bool same = true;
    TRY(key_of(r, &l->items[*i], &a[1], &a[3], &first));
    shown = l->items[*i];
    if (a[1].kind != JINJA_NONE) TRY(part_of(r, &shown, &a[1], &shown));
    TRY(jinja_list_new(r, JINJA_LIST, &list));
    while (same) {
        TRY(jinja_list_push(r, list.list, l->items[(*i)++]));
        if (*i == l->len) break;
        TRY(key_of(r, &l->items[*i], &a[1], &a[3], &key));
        TRY(jinja_equal(r, &key, &first, &same));
    }
    TRY(jinja_list_new(r, JINJA_TUPLE, out));
    out->list->is = JINJA_GROUP;
    TRY(jinja_list_push(r, out->list, shown));
    return jinja_list_push(r, out->list, list);
}

// groupby(value, attribute, default=None, case_sensitive=False): sorted, as (grouper, list) tuples
JINJA_FN(f_groupby) {
    struct jinja_value by_key, group;
    struct jinja_list *l;
    if (a[2].kind != JINJA_ABSENT && a[2].kind != JINJA_NONE)
        return jinja_fail(r, E_UNSUPPORTED, "groupby with a default is not supported");
    TRY(jinja_items(r, &a[0], &l));
    TRY(sorted(r, l, &a[1], &a[3], false, &by_key));
    TRY(jinja_list_new(r, JINJA_LIST, out));
    for (size_t i = 0; i < by_key.list->len;) {
        TRY(group_from(r, by_key.list, &i, a, &group));
        TRY(jinja_list_push(r, out->list, group));
    }
    return 0;
}

// --- filters and tests by name

static struct jinja_call rest_of(const struct jinja_call *c, size_t skip) {
    if (skip == 0) return *c; // args may be NULL
    return (struct jinja_call){c->args + skip, c->names + skip, c->n - skip};
}

static const struct jinja_value *named(const struct jinja_call *c, const char *name) {
    for (size_t i = 0; i < c->n; i++)
        if (c->names[i].s && jinja_string_is(c->names[i], name)) return &c->args[i];
    return NULL;
}

// What map, select and their like give for none, 0 and whatever else is false in Python: nothing, without looking at it.
static int nothing(struct jinja_run *r, struct jinja_value *out) {
    return jinja_lazy_new(r, JINJA_GENERATOR, out);
}

// map('filter', ...) or map(attribute='a.b', default=...)
JINJA_FN(f_map) {
    struct jinja_list *l;
    struct jinja_value v;
    const struct jinja_value *attribute = named(c, "attribute"), *missing = named(c, "default");
    const struct jinja_builtin *filter = NULL;
    if (!jinja_truth(&a[0])) return nothing(r, out);
    TRY(jinja_items(r, &a[0], &l));
    TRY(jinja_lazy_new(r, JINJA_GENERATOR, out));
    if (!attribute && (c->n == 0 || c->args[0].kind != JINJA_STRING))
        return jinja_fail(r, E_INVAL, "map requires a filter argument");
    if (!attribute && !(filter = jinja_filter_find(c->args[0].s)))
        return jinja_fail(r, E_UNSUPPORTED, "no filter named '%.*s'", JINJA_QUOTED(c->args[0].s));
    for (size_t i = 0; i < l->len; i++) {
        struct jinja_call rest = attribute ? *c : rest_of(c, 1);
        if (attribute)
            TRY(part_of(r, &l->items[i], attribute, &v));
        else
            TRY(jinja_builtin_call(r, filter, &l->items[i], &rest, &v));
        if (attribute && missing && v.kind == JINJA_UNDEFINED) v = *missing;
        TRY(jinja_list_push(r, out->list, v));
    }
    return 0;
}

// select and reject: [test, its arguments]; selectattr and rejectattr: attribute, [test, ...]
static int choose(struct jinja_run *r, const struct jinja_value *a, const struct jinja_call *c,
                  bool by_attribute, bool keep, struct jinja_value *out) {
    struct jinja_list *l;
    struct jinja_value v;
    const struct jinja_builtin *test = NULL;
    size_t skip = by_attribute;
    if (!jinja_truth(&a[0])) return nothing(r, out);
    TRY(jinja_items(r, &a[0], &l));
    TRY(jinja_lazy_new(r, JINJA_GENERATOR, out));
    if (c->n < skip) return jinja_fail(r, E_INVAL, "an attribute's name is missing");
    if (c->n > skip) {
        if (c->args[skip].kind != JINJA_STRING ||
            !(test = jinja_builtin_find(jinja_tests, c->args[skip].s)))
            return jinja_fail(r, E_UNSUPPORTED, "no such test in select or reject");
    }
    for (size_t i = 0; i < l->len; i++) {
        struct jinja_call rest = rest_of(c, test ? skip + 1 : c->n);
        v = l->items[i];
        if (by_attribute) TRY(part_of(r, &l->items[i], &c->args[0], &v));
        if (test) TRY(jinja_builtin_call(r, test, &v, &rest, &v));
        if (jinja_truth(&v) == keep) TRY(jinja_list_push(r, out->list, l->items[i]));
    }
    return 0;
}

JINJA_FN(f_select) {
    return choose(r, a, c, false, true, out);
}

JINJA_FN(f_reject) {
    return choose(r, a, c, false, false, out);
}

JINJA_FN(f_selectattr) {
    return choose(r, a, c, true, true, out);
}

JINJA_FN(f_rejectattr) {
    return choose(r, a, c, true, false, out);
}

const struct jinja_builtin jinja_list_filters[] = {
    {"batch", f_batch, "value linecount fill_with", 2},
    {"dictsort", f_dictsort, "value case_sensitive by reverse", 1},
    {"first", f_first, "seq", 1},
    {"groupby", f_groupby, "value attribute default case_sensitive", 2},
    {"items", f_items, "value", 1},
    {"join", f_join, "value d attribute", 1},
    {"last", f_last, "seq", 1},
    {"list", f_list, "value", 1},
    {"map", f_map, "value *", 1},
    {"max", f_max, "value case_sensitive attribute", 1},
    {"min", f_min, "value case_sensitive attribute", 1},
    {"reject", f_reject, "value *", 1},
    {"rejectattr", f_rejectattr, "value *", 1},
    {"reverse", f_reverse, "value", 1},
    {"select", f_select, "value *", 1},
    {"selectattr", f_selectattr, "value *", 1},
    {"sort", f_sort, "value reverse case_sensitive attribute", 1},
    {"sum", f_sum, "iterable attribute start", 1},
    {"unique", f_unique, "value case_sensitive attribute", 1},
    {0},
};
