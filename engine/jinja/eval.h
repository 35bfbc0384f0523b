// Running a chat template's tree: expressions (expr.c) and statements (eval.c).
#pragma once
#include "engine/jinja/lex.h"
#include "engine/jinja/node.h"
#include "engine/jinja/run.h"

// Runs statements in order. 0; JINJA_BREAK or JINJA_CONTINUE, which callers pass up to the loop;
// negative: an error.
enum { JINJA_BREAK = 1, JINJA_CONTINUE = 2 };
int jinja_exec(struct jinja_run *r, const struct jinja_node *n);
int jinja_eval(struct jinja_run *r, const struct jinja_node *n, struct jinja_value *out);

// Binds a macro's parameters and returns its body's output.
int jinja_macro_call(struct jinja_run *r, const struct jinja_macro *m, const struct jinja_call *c,
                     struct jinja_value *out);
// Calls a macro, function or method with evaluated arguments. caller: the body of a call block, or
// NULL.
int jinja_call_value(struct jinja_run *r, const struct jinja_value *callee,
                     const struct jinja_call *c, const struct jinja_value *caller,
                     struct jinja_value *out);
int jinja_eval_args(struct jinja_run *r, const struct jinja_node *args, struct jinja_call *out);
// Applies a chain of filters to a value, which takes the place of the chain's missing operand.
int jinja_apply(struct jinja_run *r, const struct jinja_node *filters, const struct jinja_value *v,
                struct jinja_value *out);
int jinja_binary(struct jinja_run *r, int op, const struct jinja_value *a,
                 const struct jinja_value *b, struct jinja_value *out);
