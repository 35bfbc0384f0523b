// Statements of chat templates; see parse.h.
#include "engine/jinja/parse.h"
#include "engine/jinja/parser.h"
#include "engine/jinja/run.h"
#include <string.h>

// --- parts of statements

static int parse_body(struct jinja_parser *p, const char *const *ends, struct jinja_node **out);

static int want_tag_end(struct jinja_parser *p) {
    if (p->at->kind != JINJA_T_TAG_END) return jinja_parser_want(p, "'%}'");
    p->at++;
    return 0;
}

static int parse_target(struct jinja_parser *p, struct jinja_node **out) {
    struct jinja_node *first, **to = &first;
    bool brackets = jinja_parser_take(p, "("), tuple = false;
    for (;;) {
        TRY(jinja_parser_new(p, JINJA_N_NAME, to));
        TRY(jinja_parser_name(p, &(*to)->name));
        to = &(*to)->next;
        if (!jinja_parser_take(p, ",")) break;
        tuple = true;
        if (p->at->kind != JINJA_T_NAME || jinja_parser_is(p, "in")) break;
    }
    if (brackets) TRY(jinja_parser_want(p, ")"));
    *out = first;
    if (!tuple) return 0;
    TRY(jinja_parser_new(p, JINJA_N_TUPLE, out));
    (*out)->a = first;
    return 0;
}

static int parse_params(struct jinja_parser *p, struct jinja_node **out) {
    bool defaults = false;
    TRY(jinja_parser_want(p, "("));
    while (!jinja_parser_take(p, ")")) {
        TRY(jinja_parser_new(p, JINJA_N_ARG, out));
        TRY(jinja_parser_name(p, &(*out)->name));
        if (jinja_parser_take(p, "=")) {
            TRY(jinja_parse_expr(p, false, true, &(*out)->a));
            defaults = true;
        } else if (defaults) {
            return jinja_parser_fail(p, E_FORMAT,
                                     "a parameter without a default after one with a default");
        }
        out = &(*out)->next;
        if (!jinja_parser_take(p, ",") && !jinja_parser_is(p, ")"))
            return jinja_parser_want(p, ")");
    }
    return 0;
}

// The statements up to {% end %}, which is taken.
static int parse_to_end(struct jinja_parser *p, const char *end, struct jinja_node **out) {
    const char *const ends[] = {end, NULL};
    TRY(want_tag_end(p));
    TRY(parse_body(p, ends, out));
    p->at++; // its name
    return want_tag_end(p);
}

// --- statements

static int parse_if(struct jinja_parser *p, struct jinja_node *n) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    for (;;) {
        n->kind = JINJA_N_IF;
        TRY(jinja_parse_expr(p, true, true, &n->a));
        TRY(want_tag_end(p));
        TRY(parse_body(p, ends, &n->b));
        if (!jinja_parser_take(p, "elif")) break;
        TRY(jinja_parser_new(p, JINJA_N_IF, &n->c));
        n->op = 1; // an elif: the chain is a loop, not a recursion
        n = n->c;
    }
    if (jinja_parser_take(p, "else")) return parse_to_end(p, "endif", &n->c);
    p->at++;
    return want_tag_end(p);
}

static int parse_for(struct jinja_parser *p, struct jinja_node *n) {
    static const char *const ends[] = {"else", "endfor", NULL};
    n->kind = JINJA_N_FOR;
    TRY(parse_target(p, &n->a));
    TRY(jinja_parser_want(p, "in"));
    TRY(jinja_parse_expr(p, true, false, &n->b));
    if (jinja_parser_take(p, "if")) TRY(jinja_parse_expr(p, false, true, &n->filter));
    if (jinja_parser_is(p, "recursive"))
        return jinja_parser_fail(p, E_UNSUPPORTED, "'recursive' loops are not supported");
    TRY(want_tag_end(p));
    p->n_loops++;
    TRY(parse_body(p, ends, &n->c));
    p->n_loops--;
    if (jinja_parser_take(p, "else")) return parse_to_end(p, "endfor", &n->d);
    p->at++;
    return want_tag_end(p);
}

static int parse_set(struct jinja_parser *p, struct jinja_node *n) {
    if (p->at->kind == JINJA_T_NAME && p->at[1].kind == JINJA_T_OP && p->at[1].op == '.') {
        TRY(jinja_parser_new(p, JINJA_N_ATTR, &n->a));
        TRY(jinja_parser_new(p, JINJA_N_NAME, &n->a->a));
        n->a->a->name = p->at->s;
        p->at += 2;
        TRY(jinja_parser_name(p, &n->a->name));
    } else {
        TRY(parse_target(p, &n->a));
    }
    if (jinja_parser_take(p, "=")) {
        n->kind = JINJA_N_SET;
        TRY(jinja_parse_expr(p, true, true, &n->b));
        return want_tag_end(p);
    }
    n->kind = JINJA_N_SET_BLOCK;
    TRY(jinja_parse_filters(p, &n->b, false));
    return parse_to_end(p, "endset", &n->c);
}

static int parse_macro(struct jinja_parser *p, struct jinja_node *n) {
    int n_loops = p->n_loops;
    n->kind = JINJA_N_MACRO;
    TRY(jinja_parser_name(p, &n->name));
    TRY(parse_params(p, &n->a));
    p->n_loops = 0;
    p->n_macros++;
    TRY(parse_to_end(p, "endmacro", &n->c));
    p->n_macros--;
    p->n_loops = n_loops;
    return 0;
}

static int parse_call(struct jinja_parser *p, struct jinja_node *n) {
    int n_loops = p->n_loops;
    n->kind = JINJA_N_CALLER;
    n->name = JINJA_LITERAL("caller");
    if (jinja_parser_is(p, "(")) TRY(parse_params(p, &n->a));
    TRY(jinja_parse_expr(p, false, true, &n->b));
    if (n->b->kind != JINJA_N_CALL)
        return jinja_parser_fail(p, E_FORMAT, "a call block needs a call");
    p->n_loops = 0;
    p->n_macros++;
    TRY(parse_to_end(p, "endcall", &n->c));
    p->n_macros--;
    p->n_loops = n_loops;
    return 0;
}

static int parse_filter_block(struct jinja_parser *p, struct jinja_node *n) {
    n->kind = JINJA_N_APPLY;
    TRY(jinja_parse_filters(p, &n->b, true));
    return parse_to_end(p, "endfilter", &n->c);
}

static int parse_with(struct jinja_parser *p, struct jinja_node *n) {
    n->kind = JINJA_N_WITH;
    for (struct jinja_node **to = &n->a; p->at->kind != JINJA_T_TAG_END; to = &(*to)->next) {
        if (to != &n->a) TRY(jinja_parser_want(p, ","));
        TRY(jinja_parser_new(p, JINJA_N_SET, to));
        TRY(parse_target(p, &(*to)->a));
        TRY(jinja_parser_want(p, "="));
        TRY(jinja_parse_expr(p, false, true, &(*to)->b));
    }
    return parse_to_end(p, "endwith", &n->c);
}

// {% generation %} marks text for training; here it is only a scope.
static int parse_generation(struct jinja_parser *p, struct jinja_node *n) {
    n->kind = JINJA_N_WITH;
    return parse_to_end(p, "endgeneration", &n->c);
}

static int parse_jump(struct jinja_parser *p, struct jinja_node *n) {
    bool is_break = jinja_string_is(p->at[-1].s, "break");
    n->kind = is_break ? JINJA_N_BREAK : JINJA_N_CONTINUE;
    if (p->n_loops == 0)
        return jinja_parser_fail(p, E_FORMAT, "'%s' outside a loop",
                                 is_break ? "break" : "continue");
    return want_tag_end(p);
}

static int parse_statement(struct jinja_parser *p, struct jinja_node **out) {
    static const struct {
        const char *name;
        int (*parse)(struct jinja_parser *p, struct jinja_node *n);
    } tags[] = {{"if", parse_if},      {"for", parse_for},
                {"set", parse_set},    {"macro", parse_macro},
                {"call", parse_call},  {"filter", parse_filter_block},
                {"with", parse_with},  {"generation", parse_generation},
                {"break", parse_jump}, {"continue", parse_jump}};
    TRY(jinja_parser_enter(p));
    TRY(jinja_parser_new(p, JINJA_N_IF, out));
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!jinja_parser_take(p, tags[i].name)) continue;
        TRY(tags[i].parse(p, *out));
        p->depth--;
        return 0;
    }
    if (p->at->kind != JINJA_T_NAME) return jinja_parser_want(p, "a tag's name");
    bool is_end = p->at->s.len > 2 &&
                  (memcmp(p->at->s.s, "end", 3) == 0 || memcmp(p->at->s.s, "els", 3) == 0 ||
                   memcmp(p->at->s.s, "eli", 3) == 0);
    return jinja_parser_fail(p, is_end ? E_FORMAT : E_UNSUPPORTED, "%s '%.*s'",
                             is_end ? "unexpected" : "no tag named", JINJA_QUOTED(p->at->s));
}

// Text and {{ }} beside one another are one statement.
static int parse_print(struct jinja_parser *p, struct jinja_node **out) {
    TRY(jinja_parser_new(p, JINJA_N_PRINT, out));
    struct jinja_node **to = &(*out)->a;
    for (; p->at->kind == JINJA_T_TEXT || p->at->kind == JINJA_T_PRINT; to = &(*to)->next) {
        if (p->at->kind == JINJA_T_TEXT) {
            TRY(jinja_parser_new(p, JINJA_N_CONST, to));
            (*to)->value = jinja_str(p->at->s);
            p->at++;
            continue;
        }
        p->at++;
        TRY(jinja_parse_expr(p, true, true, to));
        if (p->at->kind != JINJA_T_PRINT_END) return jinja_parser_want(p, "'}}'");
        p->at++;
    }
    return 0;
}

static bool is_end(const struct jinja_parser *p, const char *const *ends) {
    for (; *ends; ends++)
        if (jinja_parser_is(p, *ends)) return true;
    return false;
}

// Statements up to one of the tags named, which is left at its name.
static int parse_body(struct jinja_parser *p, const char *const *ends, struct jinja_node **out) {
    int line = p->at->line;
    for (; p->at->kind != JINJA_T_END; out = &(*out)->next) {
        if (p->at->kind != JINJA_T_TAG) {
            TRY(parse_print(p, out));
            continue;
        }
        p->at++;
        if (is_end(p, ends)) return 0;
        TRY(parse_statement(p, out));
    }
    if (!*ends) return 0;
    while (ends[1]) ends++;
    return jinja_parser_fail(p, E_FORMAT, "no '%s' for the block of line %d", *ends, line);
}

int jinja_parse(struct jinja_node **out, struct jinja_arena *a, struct jinja_string text,
                struct err *err) {
    static const char *const no_ends[] = {NULL};
    struct jinja_tokens tokens;
    struct jinja_parser p = {.arena = a, .err = err};
    *out = NULL;
    int rc = jinja_tokens_read(&tokens, a, text, err);
    if (rc == 0) {
        p.at = tokens.items;
        rc = parse_body(&p, no_ends, out);
    }
    jinja_tokens_release(&tokens);
    return rc;
}
