// Expressions of chat templates, by the precedence of Jinja's own parser: condition, or, and, not,
// comparison, + -, ~, * / // %, **, sign, then the filters and tests after a value.
#include "engine/jinja/parser.h"
#include "engine/jinja/run.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int parse_unary(struct jinja_parser *p, bool filters, struct jinja_node **out);
static int parse_compare(struct jinja_parser *p, struct jinja_node **out);

// --- values

static int parse_number(struct jinja_parser *p, struct jinja_node *n) {
    char digits[64], *end;
    size_t len = 0;
    for (size_t i = 0; i < p->at->s.len; i++) {
        if (p->at->s.s[i] == '_') continue;
        if (len + 1 == sizeof digits)
            return jinja_parser_fail(p, E_LIMIT, "a number of more than %zu digits", len);
        digits[len++] = p->at->s.s[i];
    }
    digits[len] = 0;
    errno = 0;
    if (p->at->kind == JINJA_T_FLOAT) {
        n->value = jinja_float(strtod(digits, &end));
    } else {
        int base = digits[0] != '0'          ? 10
                   : (digits[1] | 32) == 'x' ? 16
                   : (digits[1] | 32) == 'o' ? 8
                   : (digits[1] | 32) == 'b' ? 2
                                             : 10;
        const char *from = base == 10 ? digits : digits + 2;
        n->value = jinja_int(strtoll(from, &end, base));
        if (end == from) end = digits;
    }
    if (*end || end == digits || errno)
        return jinja_parser_fail(p, E_FORMAT, "'%s' is not a number", digits);
    p->at++;
    return 0;
}

static int parse_strings(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_text t;
    jinja_text_init(&t, p->arena);
    for (; p->at->kind == JINJA_T_STRING; p->at++) jinja_text_add(&t, p->at->s);
    int rc = jinja_text_take_value(&t, &n->value);
    return rc < 0 ? jinja_parser_fail(p, rc, "no memory for a chat template") : 0;
}

// Elements up to `close`, which is taken. *n_commas tells (a) from (a,).
static int parse_elements(struct jinja_parser *p, const char *close, struct jinja_node **out,
                          int *n_commas) {
    for (*n_commas = 0; !jinja_parser_take(p, close); out = &(*out)->next) {
        TRY(jinja_parse_expr(p, false, true, out));
        if (jinja_parser_take(p, ","))
            ++*n_commas;
        else if (!jinja_parser_is(p, close))
            return jinja_parser_want(p, close);
    }
    return 0;
}

static int parse_dict(struct jinja_parser *p, struct jinja_node *n) {
    n->kind = JINJA_N_DICT;
    for (struct jinja_node **to = &n->a; !jinja_parser_take(p, "}"); to = &(*to)->next) {
        TRY(jinja_parser_new(p, JINJA_N_PAIR, to));
        TRY(jinja_parse_expr(p, false, true, &(*to)->a));
        TRY(jinja_parser_want(p, ":"));
        TRY(jinja_parse_expr(p, false, true, &(*to)->b));
        if (!jinja_parser_take(p, ",") && !jinja_parser_is(p, "}"))
            return jinja_parser_want(p, "}");
    }
    return 0;
}

static int parse_name(struct jinja_parser *p, struct jinja_node *n) {
    static const struct {
        const char *name;
        enum jinja_kind kind;
        bool b;
    } words[] = {{"true", JINJA_BOOL, true},   {"True", JINJA_BOOL, true},
                 {"false", JINJA_BOOL, false}, {"False", JINJA_BOOL, false},
                 {"none", JINJA_NONE, false},  {"None", JINJA_NONE, false}};
    struct jinja_string name = p->at->s;
    p->at++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!jinja_string_is(name, words[i].name)) continue;
        n->value = words[i].kind == JINJA_NONE ? jinja_none() : jinja_bool(words[i].b);
        return 0;
    }
    if (p->n_macros > 0 && (jinja_string_is(name, "varargs") || jinja_string_is(name, "kwargs")))
        return jinja_parser_fail(p, E_UNSUPPORTED, "'%.*s' in a macro is not supported",
                                 JINJA_QUOTED(name));
    n->kind = JINJA_N_NAME;
    n->name = name;
    return 0;
}

static int parse_primary(struct jinja_parser *p, struct jinja_node **out) {
    int n_commas;
    TRY(jinja_parser_new(p, JINJA_N_CONST, out));
    switch (p->at->kind) {
    case JINJA_T_STRING:
        return parse_strings(p, *out);
    case JINJA_T_INT:
    case JINJA_T_FLOAT:
        return parse_number(p, *out);
    case JINJA_T_NAME:
        return parse_name(p, *out);
    default:
        break;
    }
    if (jinja_parser_take(p, "{")) return parse_dict(p, *out);
    if (jinja_parser_take(p, "[")) {
        (*out)->kind = JINJA_N_LIST;
        return parse_elements(p, "]", &(*out)->a, &n_commas);
    }
    if (!jinja_parser_take(p, "(")) return jinja_parser_want(p, "an expression");
    (*out)->kind = JINJA_N_TUPLE;
    TRY(parse_elements(p, ")", &(*out)->a, &n_commas));
    if (n_commas == 0 && (*out)->a) *out = (*out)->a;
    return 0;
}

// --- behind a value

static int parse_args(struct jinja_parser *p, struct jinja_node **out) {
    while (!jinja_parser_take(p, ")")) {
        if (jinja_parser_is(p, "*") || jinja_parser_is(p, "**"))
            return jinja_parser_fail(p, E_UNSUPPORTED,
                                     "arguments unpacked with * are not supported");
        TRY(jinja_parser_new(p, JINJA_N_ARG, out));
        bool named =
            p->at->kind == JINJA_T_NAME && p->at[1].kind == JINJA_T_OP && p->at[1].op == '=';
        if (named) {
            (*out)->name = p->at->s;
            p->at += 2;
        }
        TRY(jinja_parse_expr(p, false, true, &(*out)->a));
        out = &(*out)->next;
        if (!jinja_parser_take(p, ",") && !jinja_parser_is(p, ")"))
            return jinja_parser_want(p, ")");
    }
    return 0;
}

// Behind '[': an element or a slice, and ']'.
static int parse_subscript(struct jinja_parser *p, struct jinja_node **out) {
    struct jinja_node *first = NULL, *slice;
    if (!jinja_parser_is(p, ":")) TRY(jinja_parse_expr(p, false, true, &first));
    if (!jinja_parser_is(p, ":")) {
        *out = first;
        return jinja_parser_want(p, "]");
    }
    TRY(jinja_parser_new(p, JINJA_N_SLICE, &slice));
    *out = slice;
    slice->a = first;
    p->at++;
    if (!jinja_parser_is(p, ":") && !jinja_parser_is(p, "]"))
        TRY(jinja_parse_expr(p, false, true, &slice->b));
    if (jinja_parser_take(p, ":") && !jinja_parser_is(p, "]"))
        TRY(jinja_parse_expr(p, false, true, &slice->c));
    return jinja_parser_want(p, "]");
}

static int parse_dot(struct jinja_parser *p, struct jinja_node *n) {
    if (p->at->kind == JINJA_T_INT) {
        n->kind = JINJA_N_ITEM;
        TRY(jinja_parser_new(p, JINJA_N_CONST, &n->b));
        return parse_number(p, n->b);
    }
    n->kind = JINJA_N_ATTR;
    return jinja_parser_name(p, &n->name);
}

static int wrap(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node **inout) {
    struct jinja_node *n;
    TRY(jinja_parser_new(p, kind, &n));
    n->a = *inout;
    *inout = n;
    return 0;
}

static int parse_postfix(struct jinja_parser *p, struct jinja_node **inout) {
    for (;;) {
        if (jinja_parser_take(p, ".")) {
            TRY(wrap(p, JINJA_N_ATTR, inout));
            TRY(parse_dot(p, *inout));
        } else if (jinja_parser_take(p, "[")) {
            TRY(wrap(p, JINJA_N_ITEM, inout));
            TRY(parse_subscript(p, &(*inout)->b));
        } else if (jinja_parser_take(p, "(")) {
            TRY(wrap(p, JINJA_N_CALL, inout));
            TRY(parse_args(p, &(*inout)->b));
        } else {
            return 0;
        }
    }
}

static int parse_filter(struct jinja_parser *p, struct jinja_node **inout) {
    struct jinja_string name;
    TRY(wrap(p, JINJA_N_FILTER, inout));
    TRY(jinja_parser_name(p, &name));
    (*inout)->name = name;
    if (!((*inout)->builtin = jinja_filter_find(name)))
        return jinja_parser_fail(p, E_UNSUPPORTED, "no filter named '%.*s'", JINJA_QUOTED(name));
    return jinja_parser_take(p, "(") ? parse_args(p, &(*inout)->b) : 0;
}

// Whether the token begins the one argument that a test may have without brackets.
static bool begins_argument(const struct jinja_parser *p) {
    static const char *const no[] = {"else", "or", "and", "if", "is", "in", "not"};
    if (p->at->kind == JINJA_T_OP)
        return jinja_parser_is(p, "(") || jinja_parser_is(p, "[") || jinja_parser_is(p, "{");
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (jinja_parser_is(p, no[i])) return false;
    return p->at->kind == JINJA_T_NAME || p->at->kind == JINJA_T_STRING ||
           p->at->kind == JINJA_T_INT || p->at->kind == JINJA_T_FLOAT;
}

static int parse_test(struct jinja_parser *p, struct jinja_node **inout) {
    struct jinja_string name;
    bool negated = jinja_parser_take(p, "not");
    TRY(wrap(p, JINJA_N_TEST, inout));
    TRY(jinja_parser_name(p, &name));
    struct jinja_node *test = *inout;
    test->name = name;
    if (!(test->builtin = jinja_builtin_find(jinja_tests, name)))
        return jinja_parser_fail(p, E_UNSUPPORTED, "no test named '%.*s'", JINJA_QUOTED(name));
    if (jinja_parser_take(p, "(")) {
        TRY(parse_args(p, &test->b));
    } else if (begins_argument(p)) {
        TRY(jinja_parser_new(p, JINJA_N_ARG, &test->b));
        TRY(parse_primary(p, &test->b->a));
        TRY(parse_postfix(p, &test->b->a));
    }
    return negated ? wrap(p, JINJA_N_NOT, inout) : 0;
}

int jinja_parse_filters(struct jinja_parser *p, struct jinja_node **inout, bool first_is_named) {
    if (first_is_named) TRY(parse_filter(p, inout));
    for (;;) {
        if (jinja_parser_take(p, "|"))
            TRY(parse_filter(p, inout));
        else if (*inout && jinja_parser_take(p, "is"))
            TRY(parse_test(p, inout));
        else if (*inout && jinja_parser_is(p, "("))
            TRY(parse_postfix(p, inout));
        else
            return 0;
    }
}

// --- operators

static int parse_unary(struct jinja_parser *p, bool filters, struct jinja_node **out) {
    TRY(jinja_parser_enter(p));
    int op = jinja_parser_is(p, "-") ? '-' : jinja_parser_is(p, "+") ? '+' : 0;
    if (op) {
        p->at++;
        TRY(jinja_parser_new(p, JINJA_N_SIGN, out));
        (*out)->op = op;
        TRY(parse_unary(p, false, &(*out)->a));
    } else {
        TRY(parse_primary(p, out));
    }
    TRY(parse_postfix(p, out));
    if (filters) TRY(jinja_parse_filters(p, out, false));
    p->depth--;
    return 0;
}

static int parse_operand(struct jinja_parser *p, struct jinja_node **out) {
    return parse_unary(p, true, out);
}

typedef int (*operand_fn)(struct jinja_parser *p, struct jinja_node **out);

static int parse_binary(struct jinja_parser *p, const char *const *operators, operand_fn operand,
                        struct jinja_node **out) {
    TRY(operand(p, out));
    for (;;) {
        const char *const *op = operators;
        while (*op && !jinja_parser_is(p, *op)) op++;
        if (!*op) return 0;
        int code = p->at->op;
        p->at++;
        TRY(wrap(p, JINJA_N_BINARY, out));
        (*out)->op = code;
        TRY(operand(p, &(*out)->b));
    }
}

static int parse_power(struct jinja_parser *p, struct jinja_node **out) {
    static const char *const operators[] = {"**", NULL};
    return parse_binary(p, operators, parse_operand, out);
}

static int parse_product(struct jinja_parser *p, struct jinja_node **out) {
    static const char *const operators[] = {"*", "/", "//", "%", NULL};
    return parse_binary(p, operators, parse_power, out);
}

static int parse_concat(struct jinja_parser *p, struct jinja_node **out) {
    TRY(parse_product(p, out));
    if (!jinja_parser_is(p, "~")) return 0;
    TRY(wrap(p, JINJA_N_CONCAT, out));
    for (struct jinja_node **to = &(*out)->a->next; jinja_parser_take(p, "~"); to = &(*to)->next)
        TRY(parse_product(p, to));
    return 0;
}

static int parse_sum(struct jinja_parser *p, struct jinja_node **out) {
    static const char *const operators[] = {"+", "-", NULL};
    return parse_binary(p, operators, parse_concat, out);
}

// The code of the comparison at hand, taken; 0: there is none.
static int take_comparison(struct jinja_parser *p) {
    static const char *const operators[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        int code = p->at->op;
        if (jinja_parser_take(p, operators[i])) return code;
    }
    if (jinja_parser_take(p, "in")) return JINJA_OP_IN;
    if (!jinja_parser_is(p, "not") || p->at[1].kind != JINJA_T_NAME ||
        !jinja_string_is(p->at[1].s, "in"))
        return 0;
    p->at += 2;
    return JINJA_OP_NOT_IN;
}

static int parse_compare(struct jinja_parser *p, struct jinja_node **out) {
    TRY(parse_sum(p, out));
    int op = take_comparison(p);
    if (op == 0) return 0;
    TRY(wrap(p, JINJA_N_COMPARE, out));
    for (struct jinja_node **to = &(*out)->b; op; op = take_comparison(p), to = &(*to)->next) {
        TRY(jinja_parser_new(p, JINJA_N_OPERAND, to));
        (*to)->op = op;
        TRY(parse_sum(p, &(*to)->a));
    }
    return 0;
}

static int parse_not(struct jinja_parser *p, struct jinja_node **out) {
    if (!jinja_parser_take(p, "not")) return parse_compare(p, out);
    TRY(jinja_parser_enter(p));
    TRY(jinja_parser_new(p, JINJA_N_NOT, out));
    TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return 0;
}

static int parse_and(struct jinja_parser *p, struct jinja_node **out) {
    TRY(parse_not(p, out));
    while (jinja_parser_take(p, "and")) {
        TRY(wrap(p, JINJA_N_AND, out));
        TRY(parse_not(p, &(*out)->b));
    }
    return 0;
}

static int parse_or(struct jinja_parser *p, struct jinja_node **out) {
    TRY(parse_and(p, out));
    while (jinja_parser_take(p, "or")) {
        TRY(wrap(p, JINJA_N_OR, out));
        TRY(parse_and(p, &(*out)->b));
    }
    return 0;
}

static int parse_condition(struct jinja_parser *p, bool cond, struct jinja_node **out) {
    TRY(jinja_parser_enter(p));
    TRY(parse_or(p, out));
    while (cond && jinja_parser_take(p, "if")) {
        TRY(wrap(p, JINJA_N_COND, out));
        TRY(parse_or(p, &(*out)->b));
        if (jinja_parser_take(p, "else")) TRY(parse_condition(p, true, &(*out)->c));
    }
    p->depth--;
    return 0;
}

int jinja_parse_expr(struct jinja_parser *p, bool tuple, bool cond, struct jinja_node **out) {
    TRY(parse_condition(p, cond, out));
    if (!tuple || !jinja_parser_is(p, ",")) return 0;
    TRY(wrap(p, JINJA_N_TUPLE, out));
    for (struct jinja_node **to = &(*out)->a->next; jinja_parser_take(p, ",");) {
        if (p->at->kind == JINJA_T_TAG_END || p->at->kind == JINJA_T_PRINT_END) break;
        TRY(parse_condition(p, cond, to));
        to = &(*to)->next;
    }
    return 0;
}
