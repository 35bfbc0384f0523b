// Parses chat templates to trees. Constructs that the interpreter cannot run are refused here, by
// line and name.
#pragma once
#include "base/err.h"
#include "engine/jinja/node.h"

// The tree is in the arena. E_FORMAT: not a template; E_UNSUPPORTED: a part of Jinja that this
// interpreter lacks; E_LIMIT: nested too deeply. *out is NULL for an empty template.
int jinja_parse(struct jinja_node **out, struct jinja_arena *a, struct jinja_string text,
                struct err *err);
