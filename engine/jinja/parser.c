// Takes tokens and makes nodes for the parser of chat templates. See parser.h.
#include "engine/jinja/parser.h"
#include "engine/jinja/run.h"
#include <stdarg.h>
#include <stdio.h>

// The evaluator recurses along the tree, so this bounds its stack too.
#define MAX_DEPTH 150

int jinja_parser_fail(struct jinja_parser *p, int code, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(p->err, code, "line %d: %s", p->at->line, text);
}

int jinja_parser_new(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node **out) {
    *out = jinja_arena_get(p->arena, sizeof **out);
    if (!*out) return jinja_parser_fail(p, p->arena->error, "the template is too large");
    (*out)->kind = kind;
    (*out)->line = p->at->line;
    return 0;
}

bool jinja_parser_is(const struct jinja_parser *p, const char *what) {
    return (p->at->kind == JINJA_T_NAME || p->at->kind == JINJA_T_OP) &&
           jinja_string_is(p->at->s, what);
}

bool jinja_parser_take(struct jinja_parser *p, const char *what) {
    if (!jinja_parser_is(p, what)) return false;
    p->at++;
    return true;
}

int jinja_parser_want(struct jinja_parser *p, const char *what) {
    static const char *const kinds[] = {
        [JINJA_T_TEXT] = "text",    [JINJA_T_PRINT] = "'{{'",     [JINJA_T_PRINT_END] = "'}}'",
        [JINJA_T_TAG] = "'{%'",     [JINJA_T_TAG_END] = "'%}'",   [JINJA_T_STRING] = "a string",
        [JINJA_T_INT] = "a number", [JINJA_T_FLOAT] = "a number", [JINJA_T_END] = "the end"};
    if (jinja_parser_take(p, what)) return 0;
    if (kinds[p->at->kind])
        return jinja_parser_fail(p, E_FORMAT, "%s where %s is expected", kinds[p->at->kind], what);
    return jinja_parser_fail(p, E_FORMAT, "'%.*s' where %s is expected", JINJA_QUOTED(p->at->s),
                             what);
}

int jinja_parser_name(struct jinja_parser *p, struct jinja_string *out) {
    if (p->at->kind != JINJA_T_NAME) return jinja_parser_want(p, "a name");
    *out = p->at->s;
    p->at++;
    return 0;
}

int jinja_parser_enter(struct jinja_parser *p) {
    if (p->depth < MAX_DEPTH) {
        p->depth++;
        return 0;
    }
    return jinja_parser_fail(p, E_LIMIT, "nested deeper than %d", MAX_DEPTH);
}
