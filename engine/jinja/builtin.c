// Binds and checks the arguments of built-in functions, filters, tests and methods.
#include "engine/jinja/run.h"
#include <string.h>

// --- finding

const struct jinja_builtin *jinja_builtin_find(const struct jinja_builtin *table,
                                               struct jinja_string name) {
    for (; table->name; table++)
        if (jinja_string_is(name, table->name)) return table;
    return NULL;
}

const struct jinja_builtin *jinja_filter_find(struct jinja_string name) {
    const struct jinja_builtin *b = jinja_builtin_find(jinja_filters, name);
    return b ? b : jinja_builtin_find(jinja_list_filters, name);
}

const struct jinja_builtin *jinja_method_find(const struct jinja_value *v,
                                              struct jinja_string name) {
    switch (v->kind) {
    case JINJA_STRING:
        return jinja_builtin_find(jinja_str_methods, name);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return jinja_is_plain(v) ? jinja_builtin_find(jinja_list_methods, name) : NULL;
    case JINJA_DICT:
        return jinja_builtin_find(jinja_dict_methods, name);
    case JINJA_LOOP:
        return jinja_builtin_find(jinja_loop_methods, name);
    default:
        return NULL;
    }
}

// --- binding

struct params {
    struct jinja_string names[JINJA_MAX_PARAMS];
    size_t n;
    bool any; // more may follow
};

static struct params read_params(const char *s) {
    struct params p = {.n = 0};
    while (*s) {
        size_t len = strcspn(s, " ");
        if (*s == '*')
            p.any = true;
        else
            p.names[p.n++] = (struct jinja_string){.s = s, .len = len};
        s += len + (s[len] == ' ');
    }
    return p;
}

static int bind_named(struct jinja_run *r, const struct jinja_builtin *b, const struct params *p,
                      struct jinja_string name, const struct jinja_value *v,
                      struct jinja_value *a) {
    for (size_t i = 0; i < p->n; i++) {
        if (!jinja_string_equal(p->names[i], name)) continue;
        if (a[i].kind != JINJA_ABSENT)
            return jinja_fail(r, E_INVAL, "%s() got multiple values for argument '%.*s'", b->name,
                              JINJA_QUOTED(name));
        a[i] = *v;
        return 0;
    }
    if (p->any) return 0;
    return jinja_fail(r, E_INVAL, "%s() got an unexpected keyword argument '%.*s'", b->name,
                      JINJA_QUOTED(name));
}

int jinja_builtin_call(struct jinja_run *r, const struct jinja_builtin *b,
                       const struct jinja_value *self, const struct jinja_call *c,
                       struct jinja_value *out) {
    struct jinja_value a[JINJA_MAX_PARAMS] = {{0}};
    struct params p = read_params(b->params);
    size_t position = 0;
    if (self) a[position++] = *self;
    for (size_t i = 0; i < c->n; i++) {
        if (c->names[i].s) continue;
        if (position < p.n)
            a[position++] = c->args[i];
        else if (!p.any)
            return jinja_fail(r, E_INVAL, "%s() takes at most %zu arguments", b->name,
                              p.n - (self ? 1 : 0));
    }
    for (size_t i = 0; i < c->n; i++)
        if (c->names[i].s) TRY(bind_named(r, b, &p, c->names[i], &c->args[i], a));
    for (size_t i = 0; i < b->n_required; i++)
        if (a[i].kind == JINJA_ABSENT)
            return jinja_fail(r, E_INVAL, "%s() missing the argument '%.*s'", b->name,
                              JINJA_QUOTED(p.names[i]));
    bool markup = self && jinja_is_markup(self); // *out may be where self is
    TRY(jinja_spend(r, 1 + c->n));
    TRY(b->fn(r, a, c, out));
    if (markup && out->kind == JINJA_STRING) out->markup = true;
    return 0;
}

// --- kinds of arguments

int jinja_want_string(struct jinja_run *r, const struct jinja_value *v, struct jinja_string *out) {
    if (v->kind == JINJA_STRING) {
        *out = v->s;
        return jinja_spend(r, v->s.len / 64);
    }
    if (v->kind == JINJA_UNDEFINED) return jinja_fail(r, E_INVAL, "%.*s", JINJA_QUOTED(v->s));
    return jinja_fail(r, E_INVAL, "a string is expected, not '%s'", jinja_type_name(v));
}

int jinja_want_int(struct jinja_run *r, const struct jinja_value *v, int64_t absent, int64_t *out) {
    *out = absent;
    if (v->kind == JINJA_ABSENT || v->kind == JINJA_NONE) return 0;
    if (v->kind == JINJA_UNDEFINED) return jinja_fail(r, E_INVAL, "%.*s", JINJA_QUOTED(v->s));
    if (v->kind != JINJA_INT && v->kind != JINJA_BOOL)
        return jinja_fail(r, E_INVAL, "'%s' object cannot be interpreted as an integer",
                          jinja_type_name(v));
    *out = v->kind == JINJA_INT ? v->i : v->b;
    return 0;
}

bool jinja_want_bool(const struct jinja_value *v, bool absent) {
    return v->kind == JINJA_ABSENT ? absent : jinja_truth(v);
}
