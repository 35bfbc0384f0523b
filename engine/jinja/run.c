// The bounds of one rendering and its errors. See run.h.
#include "engine/jinja/run.h"
#include <stdarg.h>
#include <stdio.h>

// The evaluator's own recursion: trees of a parser's depth, chains of operators, macros in macros.
#define MAX_DEPTH 500

int jinja_spend_past(struct jinja_run *r) {
    r->steps_left = 0;
    return jinja_fail(r, E_LIMIT, "the chat template takes too many steps");
}

int jinja_fail(struct jinja_run *r, int code, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(r->err, code, "line %d: %s", r->line, text);
}

int jinja_enter(struct jinja_run *r, int line) {
    r->line = line;
    if (r->depth >= MAX_DEPTH) return jinja_fail(r, E_LIMIT, "nested deeper than %d", MAX_DEPTH);
    TRY(jinja_spend(r, 1));
    r->depth++;
    return 0;
}
