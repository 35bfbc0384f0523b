// The state of one rendering of a chat template: its bounds and its names; and the calls of built-in
// functions, filters, tests and methods. Internal to this folder; other folders include jinja.h.
#pragma once
#include "base/err.h"
#include "engine/jinja/text.h"
#include <stddef.h>
#include <time.h>

struct jinja_var {
    struct jinja_var *next;
    struct jinja_string name;
    struct jinja_value value;
};
struct jinja_scope {
    struct jinja_scope *parent; // searched next
    struct jinja_var *vars;
};

// A name that a dict lacked, by its place in memory, and the sentence that says so.
struct jinja_missing {
    const char *name; // (len) NULL: none yet
    size_t len;
    struct jinja_string sentence;
};
enum { JINJA_MISSING = 8 };

// Of the evaluator's own recursion: trees of a parser's depth, chains of operators, macros in macros.
enum { JINJA_MAX_DEPTH = 500 };

struct jinja_run {
    struct jinja_arena arena;
    struct jinja_scope root;   // the caller's names and the built-in functions
    struct jinja_scope *scope; // the innermost
    struct jinja_text *out;    // receives output: the whole text, or the buffer of a macro or block
    size_t output_max;
    int64_t steps_left;
    int depth;                                   // nesting of expressions, statements and macros
    int line;                                    // of the current node, for error messages
    struct jinja_var *spare_vars;                // of rounds that are over
    size_t n_macros;                             // defined so far: each keeps its scope
    struct jinja_missing missing[JINJA_MISSING]; // by the name's length
    struct tm now;                               // the time that strftime_now shows
    struct err *err, own_err;                    // err: the caller's, or own_err
};

// Spends n of the steps that bound the time: one for each node, name and element read, one for 64
// bytes of text.
static inline int jinja_spend(struct jinja_run *r, size_t n);
int jinja_spend_past(struct jinja_run *r); // more than are left: the error
// Goes one level deeper; the caller decrements r->depth afterwards.
static inline int jinja_enter(struct jinja_run *r, int line);
int jinja_too_deep(struct jinja_run *r); // the error
// Sets the error to "line N: " and the message.
int jinja_fail(struct jinja_run *r, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static inline int jinja_spend(struct jinja_run *r, size_t n) {
    if (r->steps_left <= 0 || n >= (size_t)r->steps_left) return jinja_spend_past(r);
    r->steps_left -= (int64_t)n;
    return 0;
}
static inline int jinja_enter(struct jinja_run *r, int line) {
    r->line = line;
    if (r->depth >= JINJA_MAX_DEPTH) return jinja_too_deep(r);
    TRY(jinja_spend(r, 1));
    r->depth++;
    return 0;
}
#define JINJA_QUOTED(string) (int)((string).len < 100 ? (string).len : 100), (string).s

// A name's value in the innermost scope that has it; JINJA_UNDEFINED.
int jinja_lookup(struct jinja_run *r, struct jinja_string name, struct jinja_value *out);
int jinja_assign(struct jinja_run *r, struct jinja_scope *scope, struct jinja_string name,
                 struct jinja_value v);
int jinja_scope_enter(struct jinja_run *r, struct jinja_scope *parent);
// Takes all names out of a scope that no macro keeps.
void jinja_scope_empty(struct jinja_run *r, struct jinja_scope *s);

// Arguments as written. names[i].s == NULL: by position.
struct jinja_call {
    struct jinja_value *args;
    struct jinja_string *names;
    size_t n;
};
enum { JINJA_MAX_PARAMS = 6 };
// a: the values of the row's parameters, in order, JINJA_ABSENT if not given; for filters, tests and
// methods, a[0] is the value that they are applied to. c: the call as written, for functions that
// take any arguments.
typedef int (*jinja_fn)(struct jinja_run *r, const struct jinja_value *a,
                        const struct jinja_call *c, struct jinja_value *out);
struct jinja_builtin {
    const char *name;
    jinja_fn fn;
    const char *params; // "value chars"; the last may be "*": any further arguments
    size_t n_required;
};

// The tables, each ended by a NULL name. The find functions return NULL if there is no such row.
extern const struct jinja_builtin jinja_filters[], jinja_list_filters[], jinja_tests[],
    jinja_functions[], jinja_str_methods[], jinja_list_methods[], jinja_dict_methods[],
    jinja_loop_methods[];
const struct jinja_builtin *jinja_builtin_find(const struct jinja_builtin *table,
                                               struct jinja_string name);
const struct jinja_builtin *jinja_filter_find(
    struct jinja_string name); // in both tables of filters
// The method `name` of v's kind, or NULL.
const struct jinja_builtin *jinja_method_find(const struct jinja_value *v,
                                              struct jinja_string name);
// Binds the arguments to the parameters and calls. self: NULL for a function.
int jinja_builtin_call(struct jinja_run *r, const struct jinja_builtin *b,
                       const struct jinja_value *self, const struct jinja_call *c,
                       struct jinja_value *out);

// Attributes and elements; JINJA_UNDEFINED if there is none.
int jinja_get_attr(struct jinja_run *r, const struct jinja_value *v, struct jinja_string name,
                   struct jinja_value *out);
int jinja_get_item(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key,
                   struct jinja_value *out);
int jinja_get_slice(struct jinja_run *r, const struct jinja_value *v,
                    const struct jinja_value bounds[3], struct jinja_value *out);
int jinja_undefined(struct jinja_run *r, struct jinja_value *out, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Converts an argument to the kind that a function needs, or fails with an error that names the
// kind. An absent argument gives the default.
int jinja_want_string(struct jinja_run *r, const struct jinja_value *v, struct jinja_string *out);
int jinja_want_int(struct jinja_run *r, const struct jinja_value *v, int64_t absent, int64_t *out);
enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_CAPITALIZE, JINJA_TITLE, JINJA_TITLE_FILTER };
int jinja_cased(struct jinja_run *r, struct jinja_string s, enum jinja_case how,
                struct jinja_value *out);
bool jinja_is_alpha(uint32_t c); // Python's str.isalpha, str.isalnum of one character
bool jinja_is_alnum(uint32_t c);
// The line at *at, without its line end; *at moves to the next line. False after the last line.
bool jinja_next_line(struct jinja_string s, size_t *at, struct jinja_string *line);
// strip(chars): *chars may be absent or none.
int jinja_strip(struct jinja_run *r, struct jinja_string s, const struct jinja_value *chars,
                bool front, bool back, struct jinja_value *out);
// With &, <, >, ' and " as HTML has them, and marked as safe.
int jinja_escape(struct jinja_run *r, struct jinja_string s, struct jinja_value *out);
int jinja_replace(struct jinja_run *r, struct jinja_string s, struct jinja_string old,
                  struct jinja_string new, int64_t count, struct jinja_value *out);
bool jinja_want_bool(const struct jinja_value *v, bool absent);
int jinja_to_json(struct jinja_run *r, const struct jinja_value *a, const struct jinja_call *c,
                  struct jinja_value *out); // the filter tojson
int jinja_from_json(struct jinja_run *r, const struct jinja_value *a, const struct jinja_call *c,
                    struct jinja_value *out); // the filter from_json
// Declares the function of a built-in.
#define JINJA_FN(name)                                                                             \
    static int name(struct jinja_run *r, const struct jinja_value *a, const struct jinja_call *c,  \
                    struct jinja_value *out)
