// See stores.h.
#include "engine/cache/stores.h"

void cache_stores_shape(struct cache_stores *s, const struct model *m, enum dtype dtype,
                        int32_t block_tokens, int32_t n_blocks) {
    const struct kv_groups *groups = &m->cache_groups;
    *s = (struct cache_stores){.groups = groups};
    bool mixed = false;
    for (int32_t g = 0; g < groups->n; g++) {
        const struct kv_group *group = &groups->group[g];
        struct kv_store *v = &s->views[g];
        *v = (struct kv_store){.group = g,
                               .dtype = dtype,
                               .n_layers = group->n_layers,
                               .n_kv_heads = split_kv_heads(&m->split, group->kv_heads).count,
                               .head_dim = group->head_dim,
                               .latent = group->latent,
                               .block_tokens = block_tokens,
                               .n_blocks = n_blocks};
        v->block_bytes = m->backend->ops->kv_block_bytes(m->backend, v);
        if (v->block_bytes > s->arena.block_bytes) s->arena = *v;
        if (v->n_kv_heads != s->views[0].n_kv_heads || v->head_dim != s->views[0].head_dim)
            mixed = true;
    }
    s->arena.mixed = mixed;
}

int cache_stores_init(struct cache_stores *s, struct backend *be, struct err *err) {
    TRY(be->ops->kv_store_init(be, &s->arena, err));
    for (int32_t g = 0; g < s->groups->n; g++) {
        s->views[g].data = s->arena.data;
        s->views[g].block_bytes = s->arena.block_bytes;
        s->views[g].mixed = s->arena.mixed;
    }
    return 0;
}

void cache_stores_release(struct cache_stores *s, struct backend *be) {
    if (s->arena.data) be->ops->kv_store_release(be, &s->arena);
    *s = (struct cache_stores){0};
}
