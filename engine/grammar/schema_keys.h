// The keys of an object's members: which names `propertyNames` allows, which patterns they match, and the
// automaton of those that `properties` does not list.
#pragma once
#include "engine/grammar/product.h"
#include "engine/grammar/schema.h"

// Part 0: any text; 1 .. n_limits: what propertyNames asserts; then the listed names; then the patterns.
struct schema_keys {
    struct net parts[PRODUCT_MAX_PARTS];
    int n, n_limits;
    const cJSON *patterns; // NULL: none
    bool none;             // propertyNames allows no name
    bool ambiguous;        // a key may match two patterns
    // Behind a key of no pattern [0], of the first pattern alone [1] ..; -1: such a key is not allowed.
    int32_t targets[PRODUCT_MAX_PARTS];
};

// Compiles both keywords of the schema. *k is zeroed before, and released in any case.
int schema_keys_read(struct schema_keys *k, struct schema_compiler *c, const cJSON *schema);
void schema_keys_release(struct schema_keys *k);
// Takes the schema of a listed or required name (NULL: it has none) to what its patterns and propertyNames
// leave of it.
int schema_keys_value(struct schema_keys *k, struct schema_compiler *c, const char *name,
                      const cJSON **schema);
// The insides of keys that are none of the names, from `from` to k->targets.
int schema_keys_emit(struct schema_keys *k, struct schema_compiler *c, const char *const *names,
                     int n_names, int32_t from);
