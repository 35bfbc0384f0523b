// Chat templates in Jinja, as published with models: a parsed template and its renderings. Time,
// memory, depth and output of a rendering are bounded for any template. The environment is that of
// Hugging Face transformers (trim_blocks, lstrip_blocks, loop controls, generation blocks, tojson
// without ASCII escapes, raise_exception, strftime_now; no autoescape). Unsupported parts are errors
// that name line and construct: include, import, extends, block, do, recursive loops, unpacking
// with *.
#pragma once
#include "base/err.h"
#include "engine/jinja/run.h"

struct jinja_template;

// Copies text, which must be valid UTF-8. E_FORMAT, E_UNSUPPORTED, E_LIMIT with "line N: ...".
int jinja_open(struct jinja_template **out, const char *text, size_t len, struct err *err);
void jinja_close(struct jinja_template *t);

// One rendering, on one thread: begin, set names (whose values are in r->arena), render, end.
// n_input: bytes of the values that will be set; the memory bound grows with it. Call end on
// failure too. jinja_set may replace a built-in function. strftime_now shows r->now.
int jinja_begin(struct jinja_run *r, size_t n_input, const struct tm *now, struct err *err);
void jinja_end(struct jinja_run *r);
int jinja_set(struct jinja_run *r, const char *name, struct jinja_value v);
// *out is valid until jinja_end. E_INVAL: the template's own error, or an operation that is an
// error in Python ("line N: ..."); E_LIMIT; E_UNSUPPORTED; E_NOMEM.
int jinja_render(struct jinja_run *r, const struct jinja_template *t, struct jinja_string *out);
