// Python's methods of lists, dicts and loops in chat templates. Methods that change a list or dict are
// refused, as in the sandbox of transformers.
#include "engine/jinja/run.h"

// Row by row, since the sentence names the method.
#define UNSAFE(method, type)                                                                       \
    JINJA_FN(m_##type##_##method) {                                                                \
        return jinja_fail(r, E_INVAL,                                                              \
                          "access to attribute '" #method "' of '" #type "' object is unsafe.");   \
    }
UNSAFE(append, list)
UNSAFE(clear, list)
UNSAFE(extend, list)
UNSAFE(insert, list)
UNSAFE(pop, list)
UNSAFE(remove, list)
UNSAFE(reverse, list)
UNSAFE(sort, list)
UNSAFE(clear, dict)
UNSAFE(pop, dict)
UNSAFE(popitem, dict)
UNSAFE(setdefault, dict)
UNSAFE(update, dict)

// --- lists

static int look(struct jinja_run *r, const struct jinja_value *a, int64_t *first, int64_t *n) {
    bool same;
    *first = -1;
    *n = 0;
    for (size_t i = 0; i < a[0].list->len; i++) {
        TRY(jinja_equal(r, &a[0].list->items[i], &a[1], &same));
        if (same && *first < 0) *first = (int64_t)i;
        *n += same;
    }
    return 0;
}

JINJA_FN(m_index) {
    int64_t first, n;
    TRY(look(r, a, &first, &n));
    *out = jinja_int(first);
    return first < 0 ? jinja_fail(r, E_INVAL, "the value is not in the list") : 0;
}

JINJA_FN(m_count) {
    int64_t first, n;
    TRY(look(r, a, &first, &n));
    *out = jinja_int(n);
    return 0;
}

// --- dicts

JINJA_FN(m_get) {
    const struct jinja_value *found;
    TRY(jinja_dict_get(r, a[0].dict, &a[1], &found));
    *out = found ? *found : a[2].kind == JINJA_ABSENT ? jinja_none() : a[2];
    return 0;
}

JINJA_FN(m_items) {
    TRY(jinja_filter_find(JINJA_LITERAL("items"))->fn(r, a, c, out));
    out->list->is = JINJA_VIEW;
    return 0;
}

JINJA_FN(m_keys) {
    out->kind = JINJA_LIST;
    TRY(jinja_items(r, &a[0], &out->list));
    out->list->is = JINJA_VIEW;
    return 0;
}

JINJA_FN(m_values) {
    TRY(jinja_lazy_new(r, JINJA_VIEW, out));
    for (size_t i = 0; i < a[0].dict->len; i++)
        TRY(jinja_list_push(r, out->list, a[0].dict->pairs[i].value));
    return 0;
}

JINJA_FN(m_copy) { // values never change, so no copy is needed
    *out = a[0];
    return 0;
}

// --- loops

JINJA_FN(m_cycle) {
    static const struct jinja_value name = {.kind = JINJA_STRING, .s = JINJA_LITERAL("index0")};
    const struct jinja_value *index;
    TRY(jinja_dict_get(r, a[0].dict, &name, &index));
    if (c->n == 0) return jinja_fail(r, E_INVAL, "no items for cycling given");
    *out = c->args[(size_t)index->i % c->n];
    return 0;
}

const struct jinja_builtin jinja_list_methods[] = {
    {"append", m_list_append, "self *", 1},
    {"clear", m_list_clear, "self *", 1},
    {"copy", m_copy, "self", 1},
    {"count", m_count, "self value", 2},
    {"extend", m_list_extend, "self *", 1},
    {"index", m_index, "self value", 2},
    {"insert", m_list_insert, "self *", 1},
    {"pop", m_list_pop, "self *", 1},
    {"remove", m_list_remove, "self *", 1},
    {"reverse", m_list_reverse, "self *", 1},
    {"sort", m_list_sort, "self *", 1},
    {0},
};
const struct jinja_builtin jinja_dict_methods[] = {
    {"clear", m_dict_clear, "self *", 1},
    {"copy", m_copy, "self", 1},
    {"get", m_get, "self key default", 2},
    {"items", m_items, "self", 1},
    {"keys", m_keys, "self", 1},
    {"pop", m_dict_pop, "self *", 1},
    {"popitem", m_dict_popitem, "self *", 1},
    {"setdefault", m_dict_setdefault, "self *", 1},
    {"update", m_dict_update, "self *", 1},
    {"values", m_values, "self", 1},
    {0},
};
const struct jinja_builtin jinja_loop_methods[] = {{"cycle", m_cycle, "self *", 1}, {0}};
