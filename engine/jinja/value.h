// The values of a chat template: Python's, as far as templates use them. Strings record the origin
// of each byte, so that a user's text can be recognised after the template has trimmed, cut and
// joined it. All values are in the arena of one rendering. Values are immutable, except namespaces,
// so parts can be shared.
#pragma once
#include "engine/jinja/arena.h"
#include <stdbool.h>
#include <stdint.h>

// The deepest nesting of lists and dicts; bounds the recursion through values.
enum { JINJA_MAX_NESTING = 64 };

struct jinja_run;
struct jinja_scope;
struct jinja_node;
struct jinja_value;

// origin has a byte for each byte of s: 0 for the template's own text, otherwise the caller's mark.
// NULL: all 0.
struct jinja_string {
    const char *s; // UTF-8, not terminated
    const uint8_t *origin;
    size_t len;
};

enum jinja_kind {
    JINJA_ABSENT, // an argument that was not given
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP, // has attributes like a namespace
    JINJA_MACRO,
    JINJA_METHOD,
    JINJA_FUNCTION
};

// The Python type of a list or tuple. Types that are not lists in Python support iteration and
// their own attributes, and are refused where Python would print or compare the object itself.
enum jinja_list_is {
    JINJA_PLAIN,
    JINJA_GROUP,    // one of groupby's tuples: has grouper and list
    JINJA_RANGE,    // has elements and a length
    JINJA_VIEW,     // keys(), values(), items(): has a length
    JINJA_GENERATOR // results of lazy filters: always true, and empty after one iteration
};
struct jinja_list {
    struct jinja_value *items;
    size_t len, cap;
    int depth; // nesting of the lists and dicts inside: bounded, since printing and comparing recurse
    enum jinja_list_is is;
    bool used; // an exhausted generator
};
struct jinja_dict { // in the order of insertion, as Python's
    struct jinja_pair *pairs;
    size_t len, cap;
    int depth;
    const char *label; // what it is to the client, for errors; NULL: nothing
};
struct jinja_macro {
    const struct jinja_node *node; // its parameters and body
    struct jinja_scope *scope;     // where it was defined
    const struct jinja_value *caller;
    bool is_caller; // the body of a call block
};
struct jinja_builtin; // run.h

struct jinja_value {
    enum jinja_kind kind;
    bool markup; // a result of `safe` or `escape`: Jinja escapes a string that is added to it
    union {
        bool b;
        int64_t i;
        double f;
        struct jinja_string s; // of JINJA_UNDEFINED: the message that names the missing value
        struct jinja_list *list;
        struct jinja_dict *dict;
        struct jinja_macro *macro;
        struct {
            const struct jinja_builtin *builtin;
            const struct jinja_value *self; // of a method
        } call;
    };
};
struct jinja_pair {
    struct jinja_value key, value;
};

#define JINJA_LITERAL(z) ((struct jinja_string){.s = (z), .len = sizeof(z) - 1})

// Values are passed by copy. Strings, lists and dicts in them belong to the run's arena or outlive it.
static inline struct jinja_value jinja_none(void) {
    return (struct jinja_value){.kind = JINJA_NONE};
}
static inline struct jinja_value jinja_bool(bool b) {
    return (struct jinja_value){.kind = JINJA_BOOL, .b = b};
}
static inline struct jinja_value jinja_int(int64_t i) {
    return (struct jinja_value){.kind = JINJA_INT, .i = i};
}
static inline struct jinja_value jinja_float(double f) {
    return (struct jinja_value){.kind = JINJA_FLOAT, .f = f};
}
static inline struct jinja_value jinja_str(struct jinja_string s) {
    return (struct jinja_value){.kind = JINJA_STRING, .s = s};
}
struct jinja_value jinja_z(const char *zstring); // borrows it

const char *jinja_type_name(const struct jinja_value *v); // Python's: "str", "NoneType"
bool jinja_is_sequence(const struct jinja_value *v);      // a list or a tuple
bool jinja_is_plain(const struct jinja_value *v);         // a list or a tuple in Python too
bool jinja_is_markup(const struct jinja_value *v);        // a result of `safe` or `escape`
bool jinja_is_number(const struct jinja_value *v);        // bool included
double jinja_as_double(const struct jinja_value *v);      // of a number
bool jinja_truth(const struct jinja_value *v);            // Python's bool(v)

// 0, E_LIMIT or E_NOMEM, like every function below that takes the run.
int jinja_list_new(struct jinja_run *r, enum jinja_kind kind, struct jinja_value *out);
// As jinja_list_new, for a type that is not a list in Python.
int jinja_lazy_new(struct jinja_run *r, enum jinja_list_is is, struct jinja_value *out);
int jinja_list_push(struct jinja_run *r, struct jinja_list *l, struct jinja_value v);
int jinja_dict_new(struct jinja_run *r, struct jinja_value *out);
int jinja_dict_reserve(struct jinja_run *r, struct jinja_dict *d, size_t n); // of an empty one
int jinja_dict_set(struct jinja_run *r, struct jinja_dict *d, struct jinja_value key,
                   struct jinja_value v);
int jinja_dict_setz(struct jinja_run *r, struct jinja_dict *d, const char *key,
                    struct jinja_value v);
// A key that the dict does not have: it is not looked for.
int jinja_dict_add(struct jinja_run *r, struct jinja_dict *d, struct jinja_string key,
                   struct jinja_value v);
// *out = NULL if the key is missing.
int jinja_dict_get(struct jinja_run *r, const struct jinja_dict *d, const struct jinja_value *key,
                   const struct jinja_value **out);

// Python's ==: 1 == 1.0 == true, values of other kinds differ.
int jinja_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                bool *out);
// *out < 0, 0, > 0. E_INVAL if Python does not order such values; op ("<") is for the message.
int jinja_order(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                const char *op, int *out);
// *out: `item in container`.
int jinja_contains(struct jinja_run *r, const struct jinja_value *container,
                   const struct jinja_value *item, bool *out);
// The items of a loop: those of a list or tuple, a dict's keys, a string's characters.
// E_UNSUPPORTED for a generator that was iterated before: its remaining items depend on that loop.
int jinja_items(struct jinja_run *r, const struct jinja_value *v, struct jinja_list **out);
// str(v), or repr(v), which has quotes and escapes.
struct jinja_text;
int jinja_print(struct jinja_run *r, const struct jinja_value *v, bool repr, struct jinja_text *to);
int jinja_to_string(struct jinja_run *r, const struct jinja_value *v, struct jinja_string *out);
