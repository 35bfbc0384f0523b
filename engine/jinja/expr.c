// Expressions of chat templates: see eval.h.
#include "engine/jinja/eval.h"
#include <string.h>

// --- operators

static int eval_sign(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    struct jinja_value v;
    TRY(jinja_eval(r, n->a, &v));
    if (!jinja_is_number(&v) && v.kind != JINJA_UNDEFINED)
        return jinja_fail(r, E_INVAL, "bad operand type for unary %c: '%s'", n->op,
                          jinja_type_name(&v));
    struct jinja_value zero = v.kind == JINJA_FLOAT ? jinja_float(-0.0) : jinja_int(0);
    return jinja_binary(r, n->op, &zero, &v, out);
}

static int eval_binary(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    struct jinja_value a, b;
    TRY(jinja_eval(r, n->a, &a));
    TRY(jinja_eval(r, n->b, &b));
    r->line = n->line;
    return jinja_binary(r, n->op, &a, &b, out);
}

static int eval_concat(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    struct jinja_text t;
    struct jinja_value v;
    jinja_text_init(&t, &r->arena);
    for (const struct jinja_node *part = n->a; part; part = part->next) {
        TRY(jinja_eval(r, part, &v));
        TRY(jinja_print(r, &v, false, &t));
    }
    return jinja_text_take_value(&t, out);
}

static int compare(struct jinja_run *r, int op, const struct jinja_value *a,
                   const struct jinja_value *b, bool *out) {
    int order, rc;
    switch (op) {
    case JINJA_OP('=', '='):
        return jinja_equal(r, a, b, out);
    case JINJA_OP('!', '='):
        rc = jinja_equal(r, a, b, out);
        *out = !*out;
        return rc;
    case JINJA_OP_IN:
        return jinja_contains(r, b, a, out);
    case JINJA_OP_NOT_IN:
        rc = jinja_contains(r, b, a, out);
        *out = !*out;
        return rc;
    default:
        break;
    }
    bool less = (op & 0xff) == '<', or_equal = op >> 8 == '=';
    TRY(jinja_order(r, a, b, less ? or_equal ? "<=" : "<" : or_equal ? ">=" : ">", &order));
    *out = (less ? order < 0 : order > 0) || (or_equal && order == 0);
    return 0;
}

static int eval_compare(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    struct jinja_value a, b;
    bool holds = true;
    TRY(jinja_eval(r, n->a, &a));
    for (const struct jinja_node *operand = n->b; operand && holds; operand = operand->next) {
        TRY(jinja_eval(r, operand->a, &b));
        r->line = n->line;
        TRY(compare(r, operand->op, &a, &b, &holds));
        a = b;
    }
    *out = jinja_bool(holds);
    return 0;
}

static int eval_and_or(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    TRY(jinja_eval(r, n->a, out));
    if (jinja_truth(out) == (n->kind == JINJA_N_OR)) return 0;
    return jinja_eval(r, n->b, out);
}

static int eval_cond(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    struct jinja_value test;
    TRY(jinja_eval(r, n->b, &test));
    if (jinja_truth(&test)) return jinja_eval(r, n->a, out);
    if (n->c) return jinja_eval(r, n->c, out);
    return jinja_undefined(r, out,
                           "the inline if-expression on line %d evaluated to false and no else "
                           "section was defined.",
                           n->line);
}

// --- containers

static int eval_list(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    struct jinja_value l, v;
    TRY(jinja_list_new(r, n->kind == JINJA_N_LIST ? JINJA_LIST : JINJA_TUPLE, &l));
    for (const struct jinja_node *item = n->a; item; item = item->next) {
        TRY(jinja_eval(r, item, &v));
        TRY(jinja_list_push(r, l.list, v));
    }
    *out = l;
    return 0;
}

static int eval_dict(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    struct jinja_value d, key, v;
    TRY(jinja_dict_new(r, &d));
    for (const struct jinja_node *pair = n->a; pair; pair = pair->next) {
        TRY(jinja_eval(r, pair->a, &key));
        TRY(jinja_eval(r, pair->b, &v));
        TRY(jinja_dict_set(r, d.dict, key, v));
    }
    *out = d;
    return 0;
}

static int eval_item(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    struct jinja_value v, bounds[3] = {{0}};
    TRY(jinja_eval(r, n->a, &v));
    if (n->b->kind != JINJA_N_SLICE) {
        TRY(jinja_eval(r, n->b, &bounds[0]));
        r->line = n->line;
        return jinja_get_item(r, &v, &bounds[0], out);
    }
    const struct jinja_node *const parts[] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++)
        if (parts[i]) TRY(jinja_eval(r, parts[i], &bounds[i]));
    r->line = n->line;
    return jinja_get_slice(r, &v, bounds, out);
}

static int eval_attr(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    struct jinja_value v;
    TRY(jinja_eval(r, n->a, &v));
    r->line = n->line;
    return jinja_get_attr(r, &v, n->name, out);
}

// --- calls

int jinja_eval_args(struct jinja_run *r, const struct jinja_node *args, struct jinja_call *out) {
    size_t n = 0;
    for (const struct jinja_node *a = args; a; a = a->next) n++;
    *out = (struct jinja_call){.n = n};
    if (n == 0) return 0;
    out->args = jinja_arena_get(&r->arena, n * sizeof *out->args);
    out->names = jinja_arena_get(&r->arena, n * sizeof *out->names);
    if (!out->args || !out->names) return r->arena.error;
    for (size_t i = 0; i < n; i++, args = args->next) {
        TRY(jinja_eval(r, args->a, &out->args[i]));
        out->names[i] = args->name;
    }
    return 0;
}

int jinja_call_value(struct jinja_run *r, const struct jinja_value *callee,
                     const struct jinja_call *c, const struct jinja_value *caller,
                     struct jinja_value *out) {
    struct jinja_macro m;
    switch (callee->kind) {
    case JINJA_MACRO:
        m = *callee->macro;
        if (!m.is_caller) m.caller = caller;
        return jinja_macro_call(r, &m, c, out);
    case JINJA_METHOD:
    case JINJA_FUNCTION:
        return jinja_builtin_call(r, callee->call.builtin, callee->call.self, c, out);
    case JINJA_UNDEFINED:
        return jinja_fail(r, E_INVAL, "%.*s", JINJA_QUOTED(callee->s));
    default:
        return jinja_fail(r, E_INVAL, "'%s' object is not callable", jinja_type_name(callee));
    }
}

static int eval_call(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    struct jinja_value callee;
    struct jinja_call c;
    TRY(jinja_eval(r, n->a, &callee));
    TRY(jinja_eval_args(r, n->b, &c));
    r->line = n->line;
    return jinja_call_value(r, &callee, &c, NULL, out);
}

static int eval_on_value(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    struct jinja_value v;
    TRY(jinja_eval(r, n->a, &v));
    struct jinja_call c;
    TRY(jinja_eval_args(r, n->b, &c));
    r->line = n->line;
    return jinja_builtin_call(r, n->builtin, &v, &c, out);
}

int jinja_apply(struct jinja_run *r, const struct jinja_node *filters, const struct jinja_value *v,
                struct jinja_value *out) {
    struct jinja_value inner = *v;
    struct jinja_call c;
    if (filters->a) {
        TRY(jinja_enter(r, filters->line));
        TRY(jinja_apply(r, filters->a, v, &inner));
        r->depth--;
    }
    TRY(jinja_eval_args(r, filters->b, &c));
    r->line = filters->line;
    return jinja_builtin_call(r, filters->builtin, &inner, &c, out);
}

static int eval_kind(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    int rc;
    switch (n->kind) {
    case JINJA_N_CONST:
        *out = n->value;
        return 0;
    case JINJA_N_NAME:
        return jinja_lookup(r, n->name, out);
    case JINJA_N_LIST:
    case JINJA_N_TUPLE:
        return eval_list(r, n, out);
    case JINJA_N_DICT:
        return eval_dict(r, n, out);
    case JINJA_N_COND:
        return eval_cond(r, n, out);
    case JINJA_N_AND:
    case JINJA_N_OR:
        return eval_and_or(r, n, out);
    case JINJA_N_NOT:
        rc = jinja_eval(r, n->a, out);
        *out = jinja_bool(rc == 0 && !jinja_truth(out));
        return rc;
    case JINJA_N_SIGN:
        return eval_sign(r, n, out);
    case JINJA_N_BINARY:
        return eval_binary(r, n, out);
    case JINJA_N_CONCAT:
        return eval_concat(r, n, out);
    case JINJA_N_COMPARE:
        return eval_compare(r, n, out);
    case JINJA_N_ATTR:
        return eval_attr(r, n, out);
    case JINJA_N_ITEM:
        return eval_item(r, n, out);
    case JINJA_N_CALL:
        return eval_call(r, n, out);
    default: // JINJA_N_FILTER, JINJA_N_TEST
        return eval_on_value(r, n, out);
    }
}

int jinja_eval(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out) {
    TRY(jinja_enter(r, n->line));
    TRY(eval_kind(r, n, out));
    r->depth--;
    return 0;
}
