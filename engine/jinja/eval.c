// Statements of chat templates: see eval.h. Scopes are Jinja's: a loop's body, a macro, a call or
// filter block, a set block and `with` have a scope; a condition has none. An assignment goes to the
// innermost scope, and a loop's body gets a new scope in each iteration.
#include "engine/jinja/eval.h"
#include <string.h>

// --- assignment

static int assign_attr(struct jinja_run *r, const struct jinja_node *target,
                       const struct jinja_value *v) {
    struct jinja_value ns;
    TRY(jinja_lookup(r, target->a->name, &ns));
    if (ns.kind != JINJA_NAMESPACE)
        return jinja_fail(r, E_INVAL, "cannot assign attribute on non-namespace object");
    return jinja_dict_set(r, ns.dict, jinja_str(target->name), *v);
}

// target: a name, ns.name, or a tuple of names.
static int assign_target(struct jinja_run *r, const struct jinja_node *target,
                         const struct jinja_value *v) {
    struct jinja_list *l;
    size_t want = 0, i = 0;
    if (target->kind == JINJA_N_NAME) return jinja_assign(r, r->scope, target->name, *v);
    if (target->kind == JINJA_N_ATTR) return assign_attr(r, target, v);
    for (const struct jinja_node *t = target->a; t; t = t->next) want++;
    if (v->kind != JINJA_STRING && v->kind != JINJA_DICT && !jinja_is_sequence(v))
        return jinja_fail(r, E_INVAL, "cannot unpack non-iterable %s object", jinja_type_name(v));
    TRY(jinja_items(r, v, &l));
    if (l->len > want)
        return jinja_fail(r, E_INVAL, "too many values to unpack (expected %zu)", want);
    if (l->len < want)
        return jinja_fail(r, E_INVAL, "not enough values to unpack (expected %zu, got %zu)", want,
                          l->len);
    for (const struct jinja_node *t = target->a; t; t = t->next)
        TRY(jinja_assign(r, r->scope, t->name, l->items[i++]));
    return 0;
}

// --- output

static bool is_unmarked(const struct jinja_value *v) {
    return v->kind == JINJA_STRING && !v->markup;
}

// Takes back what has been printed from byte `from` on, escaped: a string marked as safe is to be added to it.
static int take_back(struct jinja_run *r, size_t from, struct jinja_value *out) {
    struct jinja_text *t = r->out;
    const struct jinja_string s = {
        .s = t->s + from, .origin = t->origin ? t->origin + from : NULL, .len = t->len - from};
    TRY(s.len > 0 ? jinja_escape(r, s, out) : 0);
    t->len = from;
    return 0;
}

// Prints a sum of strings, the usual way to write a message, without joining them first. *printed: it was one;
// else *v is the expression's value.
static int print_sum(struct jinja_run *r, const struct jinja_node *n, bool *printed,
                     struct jinja_value *v) {
    struct jinja_value value;
    const struct jinja_value *b = &value;
    const size_t from = r->out->len;
    bool left = false;
    *printed = false;
    if (n->kind != JINJA_N_BINARY || n->op != '+') return jinja_eval(r, n, v);
    TRY(jinja_enter(r, n->line));
    TRY(print_sum(r, n->a, &left, v));
    if (n->b->kind == JINJA_N_CONST) {
        b = &n->b->value;
        TRY(jinja_spend(r, 1)); // as jinja_eval
    } else {
        TRY(jinja_eval(r, n->b, &value));
    }
    r->line = n->line;
    if (left) *v = jinja_str(JINJA_LITERAL("")); // stands for what is printed
    if (left && jinja_is_markup(b)) TRY(take_back(r, from, v));
    if (is_unmarked(v) && is_unmarked(b)) {
        TRY(jinja_spend(r, (v->s.len + b->s.len) / 64));
        jinja_text_add(r->out, v->s);
        jinja_text_add(r->out, b->s);
        *printed = true;
    } else {
        TRY(jinja_binary(r, '+', v, b, v));
    }
    r->depth--;
    return 0;
}

static int print(struct jinja_run *r, const struct jinja_node *n) {
    struct jinja_value v;
    bool printed;
    for (const struct jinja_node *e = n->a; e; e = e->next) {
        TRY(print_sum(r, e, &printed, &v));
        r->line = e->line;
        if (!printed) TRY(jinja_print(r, &v, false, r->out));
        if (r->out->len > r->output_max)
            return jinja_fail(r, E_LIMIT, "the text grows past %zu bytes", r->output_max);
    }
    return 0;
}

// Runs statements in a scope of their own and returns their output as a string.
static int capture(struct jinja_run *r, const struct jinja_node *body, struct jinja_value *out) {
    struct jinja_text t, *outer = r->out;
    struct jinja_scope *scope = r->scope;
    TRY(jinja_scope_enter(r, scope));
    jinja_text_init(&t, &r->arena);
    r->out = &t;
    int rc = jinja_exec(r, body);
    r->out = outer;
    r->scope = scope;
    if (rc != 0) return rc;
    return jinja_text_take_value(&t, out);
}

static int exec_set(struct jinja_run *r, const struct jinja_node *n) {
    struct jinja_value v;
    TRY(jinja_eval(r, n->b, &v));
    r->line = n->line;
    return assign_target(r, n->a, &v);
}

static int exec_set_block(struct jinja_run *r, const struct jinja_node *n) {
    struct jinja_value v;
    int rc = capture(r, n->c, &v);
    if (rc != 0) return rc;
    if (n->b) TRY(jinja_apply(r, n->b, &v, &v));
    return assign_target(r, n->a, &v);
}

static int exec_apply(struct jinja_run *r, const struct jinja_node *n) {
    struct jinja_value v;
    int rc = capture(r, n->c, &v);
    if (rc != 0) return rc;
    TRY(jinja_apply(r, n->b, &v, &v));
    return jinja_print(r, &v, false, r->out);
}

// The values of `with` are computed outside its scope, so that they do not see each other.
static int exec_with(struct jinja_run *r, const struct jinja_node *n) {
    struct jinja_scope *outer = r->scope, *inner;
    struct jinja_value v;
    TRY(jinja_scope_enter(r, outer));
    inner = r->scope;
    for (const struct jinja_node *set = n->a; set; set = set->next) {
        r->scope = outer;
        TRY(jinja_eval(r, set->b, &v));
        r->scope = inner;
        TRY(assign_target(r, set->a, &v));
    }
    int rc = jinja_exec(r, n->c);
    r->scope = outer;
    return rc;
}

// --- macros

static int define(struct jinja_run *r, const struct jinja_node *n, bool is_caller,
                  struct jinja_value *out) {
    struct jinja_macro *m = jinja_arena_get(&r->arena, sizeof *m);
    if (!m) return r->arena.error;
    *m = (struct jinja_macro){.node = n, .scope = r->scope, .is_caller = is_caller};
    r->n_macros++;
    *out = (struct jinja_value){.kind = JINJA_MACRO, .macro = m};
    return 0;
}

// The argument for a parameter: by position, by name, its default. *n_used counts those taken.
static int bind(struct jinja_run *r, const struct jinja_node *param, size_t position,
                const struct jinja_call *c, size_t *n_used, struct jinja_value *out) {
    TRY(jinja_spend(r, c->n / 4));
    for (size_t i = 0; i < c->n; i++) {
        bool here = c->names[i].s ? jinja_string_equal(c->names[i], param->name) : i == position;
        if (!here) continue;
        ++*n_used;
        *out = c->args[i];
        return 0;
    }
    if (param->a) return jinja_eval(r, param->a, out);
    return jinja_undefined(r, out, "parameter '%.*s' was not provided", JINJA_QUOTED(param->name));
}

static bool has_param(const struct jinja_node *macro, struct jinja_string name) {
    const struct jinja_node *p = macro->a;
    while (p && !jinja_string_equal(p->name, name)) p = p->next;
    return p;
}

static int bind_all(struct jinja_run *r, const struct jinja_macro *m, const struct jinja_call *c) {
    size_t n_used = 0, position = 0;
    struct jinja_value v;
    for (const struct jinja_node *p = m->node->a; p; p = p->next) {
        TRY(bind(r, p, position++, c, &n_used, &v));
        TRY(jinja_assign(r, r->scope, p->name, v));
    }
    if (n_used == c->n) return 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!c->names[i].s && i >= position)
            return jinja_fail(r, E_INVAL, "macro '%.*s' takes not more than %zu argument(s)",
                              JINJA_QUOTED(m->node->name), position);
        TRY(jinja_spend(r, position / 4));
        if (c->names[i].s && !has_param(m->node, c->names[i]))
            return jinja_fail(r, E_INVAL, "macro '%.*s' takes no keyword argument '%.*s'",
                              JINJA_QUOTED(m->node->name), JINJA_QUOTED(c->names[i]));
    }
    return jinja_fail(r, E_INVAL, "macro '%.*s' got an argument twice",
                      JINJA_QUOTED(m->node->name));
}

int jinja_macro_call(struct jinja_run *r, const struct jinja_macro *m, const struct jinja_call *c,
                     struct jinja_value *out) {
    struct jinja_scope *scope = r->scope;
    int line = r->line;
    TRY(jinja_enter(r, line));
    TRY(jinja_scope_enter(r, m->scope));
    if (m->caller) TRY(jinja_assign(r, r->scope, JINJA_LITERAL("caller"), *m->caller));
    TRY(bind_all(r, m, c));
    TRY(capture(r, m->node->c, out));
    r->scope = scope;
    r->line = line;
    r->depth--;
    return 0;
}

static int exec_macro(struct jinja_run *r, const struct jinja_node *n) {
    struct jinja_value v;
    TRY(define(r, n, false, &v));
    return jinja_assign(r, r->scope, n->name, v);
}

static int exec_call_block(struct jinja_run *r, const struct jinja_node *n) {
    struct jinja_value callee, caller, v;
    struct jinja_call c;
    TRY(define(r, n, true, &caller));
    TRY(jinja_eval(r, n->b->a, &callee));
    TRY(jinja_eval_args(r, n->b->b, &c));
    TRY(jinja_call_value(r, &callee, &c, &caller, &v));
    return jinja_print(r, &v, false, r->out);
}

// --- loops

struct round { // of a loop
    const struct jinja_list *items;
    size_t i;
    struct jinja_value loop;
};

static int set_loop(struct jinja_run *r, const struct round *now) {
    static const struct jinja_value before = {.kind = JINJA_UNDEFINED,
                                              .s = JINJA_LITERAL("there is no previous item")},
                                    after = {.kind = JINJA_UNDEFINED,
                                             .s = JINJA_LITERAL("there is no next item")};
    struct jinja_dict *d = now->loop.dict;
    const struct jinja_value *item = now->items->items + now->i;
    int64_t i = (int64_t)now->i, n = (int64_t)now->items->len;
    const struct {
        const char *name;
        struct jinja_value v;
    } members[] = {{"previtem", i > 0 ? item[-1] : before},
                   {"nextitem", i + 1 < n ? item[1] : after},
                   {"index0", jinja_int(i)},
                   {"index", jinja_int(i + 1)},
                   {"first", jinja_bool(i == 0)},
                   {"last", jinja_bool(i + 1 == n)},
                   {"length", jinja_int(n)},
                   {"revindex", jinja_int(n - i)},
                   {"revindex0", jinja_int(n - i - 1)},
                   {"depth", jinja_int(1)},
                   {"depth0", jinja_int(0)}};
    size_t n_members = sizeof members / sizeof *members;
    bool first = d->len == 0;
    for (size_t k = 0; k < n_members && first; k++)
        TRY(jinja_dict_setz(r, d, members[k].name, members[k].v));
    // They have their places now: looking for all of them again costs more than a short body.
    for (size_t k = 0; k < n_members && !first; k++) d->pairs[k].value = members[k].v;
    return first ? 0 : jinja_spend(r, 3 * n_members); // as if each had been looked for
}

// An item of a filtered loop: with several loop names, a tuple of their values.
static int as_bound(struct jinja_run *r, const struct jinja_node *target, struct jinja_value v,
                    struct jinja_value *out) {
    struct jinja_list *l;
    *out = v;
    if (target->kind != JINJA_N_TUPLE || v.kind == JINJA_TUPLE) return 0;
    TRY(jinja_items(r, &v, &l));
    TRY(jinja_list_new(r, JINJA_TUPLE, out));
    for (size_t i = 0; i < l->len; i++) TRY(jinja_list_push(r, out->list, l->items[i]));
    return 0;
}

// The items for which the loop's own condition holds.
static int filtered(struct jinja_run *r, const struct jinja_node *n, struct jinja_list **items) {
    struct jinja_scope *scope = r->scope;
    struct jinja_value kept, keep, v;
    TRY(jinja_list_new(r, JINJA_LIST, &kept));
    for (size_t i = 0; i < (*items)->len; i++) {
        TRY(jinja_scope_enter(r, scope));
        TRY(assign_target(r, n->a, &(*items)->items[i]));
        TRY(jinja_eval(r, n->filter, &keep));
        if (!jinja_truth(&keep)) continue;
        TRY(as_bound(r, n->a, (*items)->items[i], &v));
        TRY(jinja_list_push(r, kept.list, v));
    }
    r->scope = scope;
    *items = kept.list;
    return 0;
}

// A scope for the next round: the last one's, unless a macro may keep that.
static int enter_round(struct jinja_run *r, struct jinja_scope *around, struct jinja_scope **scope,
                       size_t *n_macros) {
    if (!*scope || *n_macros != r->n_macros) {
        TRY(jinja_scope_enter(r, around));
        *scope = r->scope;
    } else {
        jinja_scope_empty(r, *scope);
        r->scope = *scope;
    }
    *n_macros = r->n_macros;
    return 0;
}

// *whole: at least one round reached the end of the body.
static int exec_rounds(struct jinja_run *r, const struct jinja_node *n,
                       const struct jinja_list *items, bool *whole) {
    struct jinja_scope *outer = r->scope, *around, *scope = NULL;
    size_t n_macros = r->n_macros;
    struct round now = {.items = items};
    TRY(jinja_dict_new(r, &now.loop));
    now.loop.kind = JINJA_LOOP;
    TRY(jinja_scope_enter(r, outer)); // around all rounds, for the name that they share
    around = r->scope;
    TRY(jinja_assign(r, around, JINJA_LITERAL("loop"), now.loop));
    for (; now.i < items->len; now.i++) {
        TRY(enter_round(r, around, &scope, &n_macros));
        TRY(set_loop(r, &now));
        TRY(assign_target(r, n->a, &items->items[now.i]));
        int rc = jinja_exec(r, n->c);
        r->scope = outer;
        if (rc < 0) return rc;
        if (rc == 0) *whole = true;
        if (rc == JINJA_BREAK) break;
    }
    r->scope = outer;
    return 0;
}

static int exec_for(struct jinja_run *r, const struct jinja_node *n) {
    struct jinja_value v;
    struct jinja_list *items;
    TRY(jinja_eval(r, n->b, &v));
    r->line = n->line;
    TRY(jinja_items(r, &v, &items));
    if (n->filter) TRY(filtered(r, n, &items));
    bool whole = false; // Jinja also runs `else` if every round ended by break or continue
    if (items->len > 0) TRY(exec_rounds(r, n, items, &whole));
    if (whole || !n->d) return 0;
    struct jinja_scope *scope = r->scope;
    TRY(jinja_scope_enter(r, scope));
    int rc = jinja_exec(r, n->d);
    r->scope = scope;
    return rc;
}

static int exec_if(struct jinja_run *r, const struct jinja_node *n) {
    struct jinja_value test;
    for (;; n = n->c) {
        TRY(jinja_eval(r, n->a, &test));
        if (jinja_truth(&test)) return jinja_exec(r, n->b);
        if (!n->op) return jinja_exec(r, n->c);
    }
}

static int exec_one(struct jinja_run *r, const struct jinja_node *n) {
    switch (n->kind) {
    case JINJA_N_PRINT:
        return print(r, n);
    case JINJA_N_IF:
        return exec_if(r, n);
    case JINJA_N_FOR:
        return exec_for(r, n);
    case JINJA_N_SET:
        return exec_set(r, n);
    case JINJA_N_SET_BLOCK:
        return exec_set_block(r, n);
    case JINJA_N_MACRO:
        return exec_macro(r, n);
    case JINJA_N_CALLER:
        return exec_call_block(r, n);
    case JINJA_N_APPLY:
        return exec_apply(r, n);
    case JINJA_N_WITH:
        return exec_with(r, n);
    case JINJA_N_BREAK:
        return JINJA_BREAK;
    default:
        return JINJA_CONTINUE;
    }
}

int jinja_exec(struct jinja_run *r, const struct jinja_node *n) {
    for (; n; n = n->next) {
        TRY(jinja_enter(r, n->line));
        int rc = exec_one(r, n);
        if (rc < 0) return rc;
        r->depth--;
        if (rc != 0) return rc;
    }
    return 0;
}
