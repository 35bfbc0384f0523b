// See value.h. Comparisons follow Python; print.c prints values.
#include "engine/jinja/run.h"
#include "engine/text/char_class.h"
#include <string.h>

struct jinja_value jinja_z(const char *zstring) {
    return jinja_str((struct jinja_string){.s = zstring, .len = strlen(zstring)});
}

const char *jinja_type_name(const struct jinja_value *v) {
    static const char *const lists[] = {
        [JINJA_RANGE] = "range", [JINJA_VIEW] = "dict_view", [JINJA_GENERATOR] = "generator"};
    static const char *const names[] = {
        [JINJA_ABSENT] = "Undefined",
        [JINJA_UNDEFINED] = "Undefined",
        [JINJA_NONE] = "NoneType",
        [JINJA_BOOL] = "bool",
        [JINJA_INT] = "int",
        [JINJA_FLOAT] = "float",
        [JINJA_STRING] = "str",
        [JINJA_LIST] = "list",
        [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",
        [JINJA_NAMESPACE] = "Namespace",
        [JINJA_LOOP] = "LoopContext",
        [JINJA_MACRO] = "Macro",
        [JINJA_METHOD] = "builtin_function_or_method",
        [JINJA_FUNCTION] = "function",
    };
    if (jinja_is_sequence(v) && !jinja_is_plain(v)) return lists[v->list->is];
    return names[v->kind];
}

bool jinja_is_sequence(const struct jinja_value *v) {
    return v->kind == JINJA_LIST || v->kind == JINJA_TUPLE;
}

bool jinja_is_plain(const struct jinja_value *v) {
    return jinja_is_sequence(v) && v->list->is <= JINJA_GROUP;
}

bool jinja_is_markup(const struct jinja_value *v) {
    return v->kind == JINJA_STRING && v->markup;
}

bool jinja_is_number(const struct jinja_value *v) {
    return v->kind == JINJA_BOOL || v->kind == JINJA_INT || v->kind == JINJA_FLOAT;
}

double jinja_as_double(const struct jinja_value *v) {
    return v->kind == JINJA_FLOAT ? v->f : v->kind == JINJA_INT ? (double)v->i : v->b;
}

bool jinja_truth(const struct jinja_value *v) {
    switch (v->kind) {
    case JINJA_ABSENT:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v->b;
    case JINJA_INT:
        return v->i != 0;
    case JINJA_FLOAT:
        return v->f != 0;
    case JINJA_STRING:
        return v->s.len > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v->list->len > 0 || v->list->is == JINJA_GENERATOR;
    case JINJA_DICT:
        return v->dict->len > 0;
    default:
        return true;
    }
}

// --- containers

int jinja_list_new(struct jinja_run *r, enum jinja_kind kind, struct jinja_value *out) {
    out->kind = kind;
    out->list = jinja_arena_get(&r->arena, sizeof *out->list);
    return out->list ? 0 : r->arena.error;
}

int jinja_lazy_new(struct jinja_run *r, enum jinja_list_is is, struct jinja_value *out) {
    TRY(jinja_list_new(r, JINJA_LIST, out));
    out->list->is = is;
    return 0;
}

int jinja_dict_new(struct jinja_run *r, struct jinja_value *out) {
    out->kind = JINJA_DICT;
    out->dict = jinja_arena_get(&r->arena, sizeof *out->dict);
    return out->dict ? 0 : r->arena.error;
}

int jinja_dict_reserve(struct jinja_run *r, struct jinja_dict *d, size_t n) {
    d->pairs = jinja_arena_bytes(&r->arena, n * sizeof *d->pairs);
    d->cap = d->pairs ? n : 0;
    return d->pairs ? 0 : r->arena.error;
}

static int nest(struct jinja_run *r, int *depth, const struct jinja_value *v) {
    int inner = jinja_is_sequence(v) ? v->list->depth : v->kind == JINJA_DICT ? v->dict->depth : -1;
    if (inner + 1 > *depth) *depth = inner + 1;
    if (*depth <= JINJA_MAX_NESTING) return 0;
    return jinja_fail(r, E_LIMIT, "lists inside one another deeper than %d", JINJA_MAX_NESTING);
}

// Room for one more of `size` bytes.
static int grow(struct jinja_run *r, void **items, size_t len, size_t *cap, size_t size) {
    if (len < *cap) return 0;
    size_t more = *cap ? 2 * *cap : 4;
    void *p = jinja_arena_bytes(&r->arena, more * size);
    if (!p) return r->arena.error;
    if (len > 0) memcpy(p, *items, len * size);
    *items = p;
    *cap = more;
    return 0;
}

int jinja_list_push(struct jinja_run *r, struct jinja_list *l, struct jinja_value v) {
    TRY(jinja_spend(r, 1));
    TRY(nest(r, &l->depth, &v));
    TRY(grow(r, (void **)&l->items, l->len, &l->cap, sizeof *l->items));
    l->items[l->len++] = v;
    return 0;
}

int jinja_dict_get(struct jinja_run *r, const struct jinja_dict *d, const struct jinja_value *key,
                   const struct jinja_value **out) {
    *out = NULL;
    TRY(jinja_spend(r, d->len / 4));
    for (size_t i = 0; i < d->len && !*out; i++) {
        const struct jinja_value *other = &d->pairs[i].key;
        bool same = false;
        if (other->kind != JINJA_STRING || key->kind != JINJA_STRING) {
            TRY(jinja_equal(r, other, key, &same));
        } else if (other->s.len == key->s.len) { // the comparison may have to read all of both
            TRY(jinja_spend(r, key->s.len / 64));
            same = jinja_string_equal(other->s, key->s);
        }
        if (same) *out = &d->pairs[i].value;
    }
    return 0;
}

static int check_hashable(struct jinja_run *r, const struct jinja_value *key) {
    TRY(jinja_spend(r, 1));
    if (key->kind == JINJA_LIST || key->kind == JINJA_DICT)
        return jinja_fail(r, E_INVAL, "unhashable type: '%s'", jinja_type_name(key));
    for (size_t i = 0; key->kind == JINJA_TUPLE && i < key->list->len; i++)
        TRY(check_hashable(r, &key->list->items[i]));
    return 0;
}

int jinja_dict_add(struct jinja_run *r, struct jinja_dict *d, struct jinja_string key,
                   struct jinja_value v) {
    TRY(jinja_spend(r, 1));
    TRY(nest(r, &d->depth, &v));
    TRY(grow(r, (void **)&d->pairs, d->len, &d->cap, sizeof *d->pairs));
    d->pairs[d->len++] = (struct jinja_pair){jinja_str(key), v};
    return 0;
}

int jinja_dict_set(struct jinja_run *r, struct jinja_dict *d, struct jinja_value key,
                   struct jinja_value v) {
    const struct jinja_value *old;
    TRY(check_hashable(r, &key));
    TRY(nest(r, &d->depth, &key));
    TRY(nest(r, &d->depth, &v));
    TRY(jinja_dict_get(r, d, &key, &old));
    if (old) {
        *(struct jinja_value *)old = v;
        return 0;
    }
    TRY(grow(r, (void **)&d->pairs, d->len, &d->cap, sizeof *d->pairs));
    d->pairs[d->len++] = (struct jinja_pair){key, v};
    return 0;
}

int jinja_dict_setz(struct jinja_run *r, struct jinja_dict *d, const char *key,
                    struct jinja_value v) {
    return jinja_dict_set(r, d, jinja_z(key), v);
}

int jinja_items(struct jinja_run *r, const struct jinja_value *v, struct jinja_list **out) {
    struct jinja_value l;
    if (jinja_is_sequence(v)) {
        *out = v->list;
        if (v->list->is == JINJA_GENERATOR && v->list->used)
            return jinja_fail(r, E_UNSUPPORTED,
                              "a generator is gone through twice: |list makes it a list");
        v->list->used = true;
        return 0;
    }
    TRY(jinja_list_new(r, JINJA_LIST, &l));
    *out = l.list;
    switch (v->kind) {
    case JINJA_UNDEFINED:
        return 0;
    case JINJA_DICT:
        for (size_t i = 0; i < v->dict->len; i++)
            TRY(jinja_list_push(r, l.list, v->dict->pairs[i].key));
        return 0;
    case JINJA_STRING:
        for (size_t i = 0, n; i < v->s.len; i += n) {
            n = char_utf8_len(v->s.s + i);
            TRY(jinja_list_push(r, l.list, jinja_str(jinja_string_sub(v->s, i, i + n))));
        }
        return 0;
    default:
        return jinja_fail(r, E_INVAL, "'%s' object is not iterable", jinja_type_name(v));
    }
}

// --- comparing

static int lists_equal(struct jinja_run *r, const struct jinja_list *a, const struct jinja_list *b,
                       bool *out) {
    *out = a->len == b->len;
    for (size_t i = 0; i < a->len && *out; i++)
        TRY(jinja_equal(r, &a->items[i], &b->items[i], out));
    return 0;
}

static int sequences_equal(struct jinja_run *r, const struct jinja_value *a,
                           const struct jinja_value *b, bool *out) {
    *out = a->list == b->list;
    if (*out) return 0;
    if (a->list->is == JINJA_VIEW && b->list->is == JINJA_VIEW)
        return jinja_fail(r, E_UNSUPPORTED, "views of dicts are not compared");
    bool both = jinja_is_plain(a) ? jinja_is_plain(b) : a->list->is == b->list->is;
    return both && a->list->is != JINJA_GENERATOR ? lists_equal(r, a->list, b->list, out) : 0;
}

static int dicts_equal(struct jinja_run *r, const struct jinja_dict *a, const struct jinja_dict *b,
                       bool *out) {
    const struct jinja_value *other;
    *out = a->len == b->len;
    for (size_t i = 0; i < a->len && *out; i++) {
        TRY(jinja_dict_get(r, b, &a->pairs[i].key, &other));
        *out = other;
        if (other) TRY(jinja_equal(r, &a->pairs[i].value, other, out));
    }
    return 0;
}

int jinja_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                bool *out) {
    TRY(jinja_spend(r, 1));
    if (a->kind == JINJA_INT && b->kind == JINJA_INT) {
        *out = a->i == b->i;
        return 0;
    }
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *out = jinja_as_double(a) == jinja_as_double(b);
        return 0;
    }
    *out = false;
    if (a->kind != b->kind) return 0;
    switch (a->kind) {
    case JINJA_STRING:
        TRY(jinja_spend(r, a->s.len / 64));
        *out = jinja_string_equal(a->s, b->s);
        return 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return sequences_equal(r, a, b, out);
    case JINJA_DICT:
        return dicts_equal(r, a->dict, b->dict, out);
    case JINJA_NAMESPACE:
    case JINJA_LOOP:
        *out = a->dict == b->dict;
        return 0;
    case JINJA_MACRO:
        *out = a->macro == b->macro;
        return 0;
    case JINJA_METHOD:
    case JINJA_FUNCTION:
        *out = a->call.builtin == b->call.builtin && a->call.self == b->call.self;
        return 0;
    default:
        *out = true; // None, Undefined
        return 0;
    }
}

static int lists_order(struct jinja_run *r, const struct jinja_list *a, const struct jinja_list *b,
                       const char *op, int *out) {
    bool same = true;
    for (size_t i = 0; i < a->len && i < b->len; i++) {
        TRY(jinja_equal(r, &a->items[i], &b->items[i], &same));
        if (!same) return jinja_order(r, &a->items[i], &b->items[i], op, out);
    }
    *out = (a->len > b->len) - (a->len < b->len);
    return 0;
}

int jinja_order(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                const char *op, int *out) {
    TRY(jinja_spend(r, 1));
    if (a->kind == JINJA_INT && b->kind == JINJA_INT) {
        *out = (a->i > b->i) - (a->i < b->i);
        return 0;
    }
    if (jinja_is_number(a) && jinja_is_number(b)) {
        double x = jinja_as_double(a), y = jinja_as_double(b);
        *out = (x > y) - (x < y);
        return 0;
    }
    if (a->kind == JINJA_STRING && b->kind == JINJA_STRING) {
        TRY(jinja_spend(r, a->s.len / 64));
        *out = jinja_string_order(a->s, b->s);
        return 0;
    }
    if (jinja_is_plain(a) && jinja_is_plain(b) && a->kind == b->kind)
        return lists_order(r, a->list, b->list, op, out);
    const struct jinja_value *u = a->kind == JINJA_UNDEFINED ? a : b;
    if (u->kind == JINJA_UNDEFINED) return jinja_fail(r, E_INVAL, "%.*s", JINJA_QUOTED(u->s));
    return jinja_fail(r, E_INVAL, "'%s' not supported between instances of '%s' and '%s'", op,
                      jinja_type_name(a), jinja_type_name(b));
}

int jinja_contains(struct jinja_run *r, const struct jinja_value *container,
                   const struct jinja_value *item, bool *out) {
    const struct jinja_value *found;
    struct jinja_list *l;
    *out = false;
    switch (container->kind) {
    case JINJA_STRING:
        if (item->kind != JINJA_STRING)
            return jinja_fail(r, E_INVAL, "'in <string>' requires string as left operand, not %s",
                              jinja_type_name(item));
        TRY(jinja_spend(r, container->s.len / 64));
        *out = jinja_string_find(container->s, item->s, 0) != SIZE_MAX;
        return 0;
    case JINJA_DICT:
        TRY(jinja_dict_get(r, container->dict, item, &found));
        *out = found;
        return 0;
    case JINJA_UNDEFINED:
    case JINJA_LIST:
    case JINJA_TUPLE:
        TRY(jinja_items(r, container, &l));
        for (size_t i = 0; i < l->len && !*out; i++) TRY(jinja_equal(r, &l->items[i], item, out));
        return 0;
    default:
        return jinja_fail(r, E_INVAL, "argument of type '%s' is not iterable",
                          jinja_type_name(container));
    }
}
