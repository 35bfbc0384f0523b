// The keys of an object's members: the names that `propertyNames` allows, the patterns that they match, and the
// automaton of the keys that `properties` does not list.
#pragma once
#include "engine/grammar/product.h"
#include "engine/grammar/schema.h"

// Part 0: any text; 1 .. n_limits: the assertions of propertyNames; then the listed names; then the patterns.
struct schema_keys {
    struct net parts[PRODUCT_MAX_PARTS];
    int n, n_limits;
    const cJSON *patterns; // NULL: none
    bool none;             // propertyNames allows no name
    bool ambiguous;        // a key may match two patterns
    // The state after a key that matches no pattern [0], only the first pattern [1] ..; -1: no such key is allowed.
    int32_t targets[PRODUCT_MAX_PARTS];
};

// Compiles both keywords of the schema. The caller zeroes *k before, and releases it even after an error.
int schema_keys_read(struct schema_keys *k, struct schema_compiler *c, const cJSON *schema);
void schema_keys_release(struct schema_keys *k);
// Narrows the schema of a listed or required name (NULL: it has none) by the patterns and propertyNames that apply
// to the name.
int schema_keys_value(struct schema_keys *k, struct schema_compiler *c, const char *name,
                      const cJSON **schema);
// Emits the characters between the quotes of all keys that are not among the names, from `from` to k->targets.
int schema_keys_emit(struct schema_keys *k, struct schema_compiler *c, const char *const *names,
                     int n_names, int32_t from);
