// The parts of the compiler of JSON Schema, for engine/grammar/schema*.c.
//
// Each schema becomes a rule, found by the address of its JSON value, so that references and recursion are
// calls. Rules are emitted from a queue: no depth of schemas is a depth of C.
#pragma once
#include "base/hash.h"
#include "base/json.h"
#include "engine/grammar/net.h"

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
    int n_made,                // values in it
        merge_depth;
    const char *path; // of the schema that is emitted, for messages
    int32_t space, character, string, number, integer, any; // rules; -1: not made yet
    struct err *err;
};

// The rule of a schema below the one that is emitted; `key` and `index` (-1: none) are its path from there.
// Negative: E_NOMEM.
int schema_rule_of(struct schema_compiler *c, const cJSON *schema, const char *key, int index);
// The schema belongs to the compiler from now on. E_NOMEM: it was deleted.
int schema_own(struct schema_compiler *c, cJSON *schema);
// "<path>/key: ..." with E_UNSUPPORTED or E_INVAL.
int schema_refuse(struct schema_compiler *c, int code, const char *key, const char *why);
const cJSON *schema_get(const cJSON *schema, const char *key);
// A count of a schema: 0 .. most, `absent` where there is none.
int schema_count(struct schema_compiler *c, const cJSON *schema, const char *key, int64_t absent,
                 int64_t *out);
int schema_resolve(struct schema_compiler *c, const char *ref, const cJSON **out);

void schema_space(struct schema_compiler *c, int32_t from, int32_t to); // optional white space
void schema_any(struct schema_compiler *c, int32_t from, int32_t to);   // any JSON value

int schema_emit_string(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to);
// The inside of a string's quotes.
int schema_emit_content(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to);
int schema_emit_number(struct schema_compiler *c, const cJSON *s, bool integer, int32_t from,
                       int32_t to);
int schema_emit_object(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to);
int schema_emit_array(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to);
// The same compiler, writing into a network of its own, which it begins.
struct schema_compiler schema_aside(const struct schema_compiler *c, struct net *net);
// 1: the finished network matches the text; 0; E_NOMEM.
int schema_matches(const struct net *n, const char *text, struct err *err);
void schema_emit_free_string(struct schema_compiler *c, int32_t from, int32_t to);

// A schema that accepts what both accept; owned by the caller. Negative: refused.
int schema_merge(struct schema_compiler *c, const cJSON *a, const cJSON *b, cJSON **out);
// Whether no value can match both.
bool schema_disjoint(struct schema_compiler *c, const cJSON *a, const cJSON *b, int depth);
