// What a chat template computes with: Python's values as far as templates use them. Strings know of
// each byte where it came from, so that what a person typed is still known as such after the
// template has trimmed, cut and joined it. Everything lies in the arena of one rendering; values
// are never changed after they were made (namespaces excepted), so parts are shared freely.
#pragma once
#include "engine/jinja/arena.h"
#include <stdbool.h>
#include <stdint.h>

struct jinja_run;
struct jinja_scope;
struct jinja_node;
struct jinja_value;

// origin: one byte for each byte of s, 0 for the template's own and otherwise whatever the caller
// marked his texts with; NULL: all 0.
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
    JINJA_LOOP, // as a namespace
    JINJA_MACRO,
    JINJA_METHOD,
    JINJA_FUNCTION
};

// What a list or tuple is in Python. Those that are none there are gone through and asked for what
// they can tell, and refused where Python would show or compare the object itself.
enum jinja_list_is {
    JINJA_PLAIN,
    JINJA_GROUP,    // one of groupby's tuples: has grouper and list
    JINJA_RANGE,    // has elements and a length
    JINJA_VIEW,     // keys(), values(), items(): has a length
    JINJA_GENERATOR // what filters give item by item: true whatever is in it, and empty afterwards
};
struct jinja_list {
    struct jinja_value *items;
    size_t len, cap;
    int depth; // of lists and dicts inside: bounded, since printing and comparing recurse
    enum jinja_list_is is;
    bool used; // a generator that was gone through
};
struct jinja_dict { // in the order of insertion, as Python's
    struct jinja_pair *pairs;
    size_t len, cap;
    int depth;
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
    bool markup; // a string that `safe` or `escape` gave: Jinja escapes what is added to it
    union {
        bool b;
        int64_t i;
        double f;
        struct jinja_string s; // of JINJA_UNDEFINED: the sentence that says what is not there
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
bool jinja_is_plain(const struct jinja_value *v);         // one that is a list or a tuple in Python
bool jinja_is_markup(const struct jinja_value *v);
bool jinja_is_number(const struct jinja_value *v);   // bool included
double jinja_as_double(const struct jinja_value *v); // of a number
bool jinja_truth(const struct jinja_value *v);

// 0 or E_LIMIT, E_NOMEM, as everything below that takes the run.
int jinja_list_new(struct jinja_run *r, enum jinja_kind kind, struct jinja_value *out);
// As jinja_list_new, for a list that is none in Python.
int jinja_lazy_new(struct jinja_run *r, enum jinja_list_is is, struct jinja_value *out);
int jinja_list_push(struct jinja_run *r, struct jinja_list *l, struct jinja_value v);
int jinja_dict_new(struct jinja_run *r, struct jinja_value *out);
int jinja_dict_set(struct jinja_run *r, struct jinja_dict *d, struct jinja_value key,
                   struct jinja_value v);
int jinja_dict_setz(struct jinja_run *r, struct jinja_dict *d, const char *key,
                    struct jinja_value v);
// *out = NULL where there is none.
int jinja_dict_get(struct jinja_run *r, const struct jinja_dict *d, const struct jinja_value *key,
                   const struct jinja_value **out);

int jinja_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                bool *out);
// *out < 0, 0, > 0. E_INVAL where Python has no order; op ("<") is for the sentence.
int jinja_order(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                const char *op, int *out);
// item in container.
int jinja_contains(struct jinja_run *r, const struct jinja_value *container,
                   const struct jinja_value *item, bool *out);
// What a loop goes through: lists and tuples themselves, a dict's keys, a string's characters.
// E_UNSUPPORTED for a generator that was gone through before: what is left of it depends on how far
// that went.
int jinja_items(struct jinja_run *r, const struct jinja_value *v, struct jinja_list **out);
// str(v); with quotes and escapes where repr is set.
struct jinja_text;
int jinja_print(struct jinja_run *r, const struct jinja_value *v, bool repr, struct jinja_text *to);
int jinja_to_string(struct jinja_run *r, const struct jinja_value *v, struct jinja_string *out);
void jinja_print_double(struct jinja_text *to, double v); // as Python's repr
