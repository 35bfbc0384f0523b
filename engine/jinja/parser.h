// The parser's state, and the functions on its tokens that statements (parse.c) and expressions
// (parse_expr.c) share.
#pragma once
#include "base/err.h"
#include "engine/jinja/lex.h"
#include "engine/jinja/node.h"

struct jinja_parser {
    const struct jinja_token *at;
    struct jinja_arena *arena;
    int depth, n_loops, n_macros; // nesting at this place: break and continue need a loop
    struct err *err;
};
// Puts "line N: " of the token at p->at before the message. Returns code.
int jinja_parser_fail(struct jinja_parser *p, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// A zeroed node with the line of the token at p->at. E_NOMEM, E_LIMIT.
int jinja_parser_new(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node **out);
// Whether the token at p->at is this name or operator; `take` moves behind it if it is; `want` also makes E_FORMAT of
// another one. A string literal with the same text is neither.
bool jinja_parser_is(const struct jinja_parser *p, const char *name_or_operator);
bool jinja_parser_take(struct jinja_parser *p, const char *name_or_operator);
int jinja_parser_want(struct jinja_parser *p, const char *name_or_operator);
// Takes a name, borrowed from the source. E_FORMAT.
int jinja_parser_name(struct jinja_parser *p, struct jinja_string *out);
// Goes one level deeper; the caller decrements p->depth afterwards.
int jinja_parser_enter(struct jinja_parser *p);
// Parses an expression. tuple: also a tuple without parentheses. cond: also "a if b else c".
int jinja_parse_expr(struct jinja_parser *p, bool tuple, bool cond, struct jinja_node **out);
int jinja_parse_filters(struct jinja_parser *p, struct jinja_node **inout, bool first_is_named);
