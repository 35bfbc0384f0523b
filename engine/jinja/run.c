// The bounds of one rendering and its errors. See run.h.
#include "engine/jinja/run.h"
#include <stdarg.h>
#include <stdio.h>

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

int jinja_too_deep(struct jinja_run *r) {
    return jinja_fail(r, E_LIMIT, "nested deeper than %d", JINJA_MAX_DEPTH);
}
