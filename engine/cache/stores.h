// The arena of this rank's cache blocks, and its groups (kvcache/groups.h) as the backend sees them: a
// view of the same blocks for each group, with the shape of the group's layers. Engine thread only.
#pragma once
#include "engine/model/model.h"

struct cache_stores {
    const struct kv_groups *groups;       // the model's
    struct kv_store arena;                // as the view of the group with the largest block
    struct kv_store views[KV_GROUPS_MAX]; // (groups->n)
};

struct cache_layer { // where a layer's keys and values are
    const struct kv_store *kv;
    int32_t index; // the layer's number for the ops on it
};
static inline struct cache_layer cache_layer_of(const struct cache_stores *s, int32_t layer) {
    const struct kv_place at = s->groups->places[layer];
    return (struct cache_layer){&s->views[at.group], at.index};
}

// Sets all but the memory; arena.block_bytes is a block's size.
void cache_stores_shape(struct cache_stores *s, const struct model *m, enum dtype dtype,
                        int32_t block_tokens, int32_t n_blocks);
// Takes the arena's memory for the shape. E_NOMEM, E_UNSUPPORTED.
int cache_stores_init(struct cache_stores *s, struct backend *be, struct err *err);
void cache_stores_release(struct cache_stores *s, struct backend *be); // a zeroed one is allowed
