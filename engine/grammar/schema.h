// The parts of the compiler of JSON Schema, for engine/grammar/schema*.c.
//
// Each schema becomes a rule, found by the address of its JSON value, so that references and recursion are
// calls. A queue emits the rules, so that nested schemas do not nest C calls.
#pragma once
#include "base/hash.h"
#include "base/json.h"
#include "engine/grammar/net.h"

// The types of JSON, as bits: 1 << i is the one that schema_type_words[i] names.
enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_OBJECT = 4,
    TYPE_ARRAY = 8,
    TYPE_STRING = 16,
    TYPE_NUMBER = 32,
    TYPE_INTEGER = 64,
    TYPE_EVERY = 63, // TYPE_NUMBER has the integers
    SCHEMA_N_TYPES = 7
};
extern const char *const schema_type_words[SCHEMA_N_TYPES];
// The types that a value of "type" names: a word, or a list of them. Unknown words are left out.
unsigned schema_type_names(const cJSON *type);
unsigned schema_kinds(const cJSON *type); // the same, with TYPE_NUMBER for TYPE_INTEGER
unsigned schema_type_of(const cJSON *v);  // of a value; a whole number has two

extern const cJSON schema_always, schema_never; // true, false

struct schema_rule {
    const cJSON *schema; // key
    int32_t rule;
    char *path;
    UT_hash_handle hh;
};

struct schema_compiler {
    struct net *net;
    const cJSON *root;
    struct schema_rule *rules; // uthash, in the order of creation: also the queue
    cJSON *made;               // an array that owns schemas made by merging
    int n_made;                // values in it
    int merge_depth;
    const char *path; // of the schema that is emitted, for messages
    int32_t space, character, string, number, integer, any; // rules; -1: not made yet
    // The texts between members and behind a key, if the answer is written in one way only (schema_calls.c): then there
    // is no other white space, and each character of a string has one form. NULL: white space and escapes are free.
    const char *comma, *colon;
    struct err *err;
};

// The rule of a schema inside the one being emitted; `key` and `index` (-1: none) are its path from there.
// Negative: E_NOMEM.
int schema_rule_of(struct schema_compiler *c, const cJSON *schema, const char *key, int index);
// Takes ownership of the schema; a failure deletes it.
int schema_own(struct schema_compiler *c, cJSON *schema);
// Sets the error "<path>/key: why"; code is E_UNSUPPORTED or E_INVAL.
int schema_refuse(struct schema_compiler *c, int code, const char *key, const char *why);
int schema_no_memory(struct schema_compiler *c, const char *key);
const cJSON *schema_get(const cJSON *schema, const char *key);
// Reads a keyword whose value is a count (minLength, maxItems); *out is `absent` if the schema lacks it.
int schema_count(struct schema_compiler *c, const cJSON *schema, const char *key, int64_t absent,
                 int64_t *out);
int schema_resolve(struct schema_compiler *c, const char *ref, const cJSON **out);

void schema_space(struct schema_compiler *c, int32_t from, int32_t to); // optional white space
// A comma or a colon, and white space. Each returns the state behind.
int32_t schema_comma(struct schema_compiler *c, int32_t from);
int32_t schema_colon(struct schema_compiler *c, int32_t from);
// Emits both brackets ("{}"), with white space inside; the caller emits what stands between.
struct schema_inside {
    int32_t from, to;
};
struct schema_inside schema_enclose(struct schema_compiler *c, const char *brackets, int32_t from,
                                    int32_t to);
static inline int64_t schema_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// A string with its quotes, as "pattern", "format" and the lengths of s ask; see schema_emit_content.
int schema_emit_string(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to);
// The characters between a string's quotes.
int schema_emit_content(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to);
int schema_emit_number(struct schema_compiler *c, const cJSON *s, bool integer, int32_t from,
                       int32_t to);
int schema_emit_object(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to);
int schema_emit_array(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to);
// A copy of the compiler that writes into *net, which it initialises.
struct schema_compiler schema_aside(const struct schema_compiler *c, struct net *net);
// 1 if the finished network matches the text, else 0; E_NOMEM.
int schema_matches(const struct net *n, const char *text, struct err *err);

// {key: a copy of the value}; the caller owns it. NULL: no memory.
cJSON *schema_with(const char *key, const cJSON *value);
// {key: [a, b]}; takes both, which may be NULL: then there is no memory, as when it returns NULL.
cJSON *schema_pair(const char *key, cJSON *a, cJSON *b);
// The schema without this keyword and those that assert nothing. NULL in *out: nothing else is asserted.
int schema_without(struct schema_compiler *c, const cJSON *s, const char *key, const cJSON **out);

// --- schema_calls.c

// The rule of an answer whose root schema has GRAMMAR_WRITTEN (text.h). Negative: E_INVAL, E_NOMEM.
int schema_calls_rule(struct schema_compiler *c);

// --- schema_rewrite.c, schema_negate.c

// Replaces `if`, `not` and those about dependent properties by entries of allOf. A `not` that schema_excludes_strings
// knows stays: schema_emit_string serves it.
int schema_rewrite(struct schema_compiler *c, const cJSON *s, const cJSON **out);
bool schema_excludes_strings(const cJSON *s);
// A keyword of ours in the schemas that schema_negate makes: for unevaluated*, their properties count as not evaluated.
#define SCHEMA_NEGATED "$negated"
// Makes a schema that accepts only values that s rejects, perhaps not all of them; the caller owns it. E_UNSUPPORTED:
// none is known.
int schema_negate(struct schema_compiler *c, const cJSON *s, cJSON **out);

// --- schema_merge.c

// Makes a schema that accepts the values that both accept; the caller owns it. Negative: the two cannot be merged;
// c->err has the reason.
int schema_merge(struct schema_compiler *c, const cJSON *a, const cJSON *b, cJSON **out);
// As schema_merge; unevaluated* of `outer`, which is a or b, see what the other evaluates.
int schema_merge_around(struct schema_compiler *c, const cJSON *a, const cJSON *b,
                        const cJSON *outer, cJSON **out);
// Merges the entries of allOf into the schema. An entry with an anyOf or a oneOf beside another one stays in allOf;
// *stuck: nothing else is left there.
int schema_fold(struct schema_compiler *c, const cJSON *s, const cJSON **out, bool *stuck);
// Replaces unevaluated* by the keywords that close the schema as it is.
int schema_close(struct schema_compiler *c, const cJSON *s, const cJSON **out);
// The schema itself, or the one that it only refers to.
int schema_target(struct schema_compiler *c, const cJSON *s, const cJSON **out);

// --- schema_one.c

// Follows references and merges allOf, as far as that makes one schema.
int schema_flatten(struct schema_compiler *c, const cJSON *s, const cJSON **out);
// True if it proves that no value matches both.
bool schema_disjoint(struct schema_compiler *c, const cJSON *a, const cJSON *b, int depth);
// Replaces branches (n) of oneOf by schemas of which no two match the same value.
int schema_tell_apart(struct schema_compiler *c, const cJSON **branches, int n);
