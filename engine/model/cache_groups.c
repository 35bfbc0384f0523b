// See cache_groups.h.
#include "engine/model/cache_groups.h"

#include "engine/model/model.h"
#include <stdlib.h>

static int layer_of(const struct model_config *c, int32_t i, struct kv_layer *out,
                    struct err *err) {
    const struct layer_config *row = model_layer(c, i);
    const struct attention_config *a = &row->attention;
    *out = (struct kv_layer){.uses = i};
    if (row->mixer != MIXER_ATTENTION) return 0;
    if (!a->kv_rank && a->v_head_dim && a->v_head_dim != a->head_dim)
        return err_set(err, E_UNSUPPORTED,
                       "layer %d has keys of %d and values of %d: no cache has both", i,
                       a->head_dim, a->v_head_dim);
    *out = (struct kv_layer){.kv_heads = a->n_kv_heads,
                             .head_dim = a->head_dim,
                             .window = a->window,
                             .latent = a->kv_rank > 0,
                             .uses = model_config_kv_layer(c, i)};
    return 0;
}

// A layer's keys and values are kept for every layer that reads them.
static void widen(struct kv_layer *owner, int32_t window) {
    if (window == 0 || (owner->window > 0 && owner->window < window)) owner->window = window;
}

static int groups_of(const struct model_config *c, int32_t first, int32_t n, bool one_group,
                     struct kv_groups *out, struct err *err) {
    struct kv_layer *layers = calloc((size_t)c->n_layers, sizeof *layers);
    int rc = layers ? 0 : err_set(err, E_NOMEM, "no memory for %d layers", c->n_layers);
    for (int32_t i = 0; rc == 0 && i < c->n_layers; i++) {
        rc = layer_of(c, i, &layers[i], err);
        if (rc == 0 && layers[i].uses < i) widen(&layers[layers[i].uses], layers[i].window);
    }
    if (rc == 0) rc = kv_groups_init(out, layers, c->n_layers, first, n, one_group, err);
    free(layers);
    return rc;
}

int model_cache_groups(struct model *m, struct err *err) {
    return groups_of(&m->config, m->first_layer, m->n_layers,
                     m->backend && !m->backend->ops->kv_groups, &m->cache_groups, err);
}

int model_config_cache_groups(const struct model_config *c, struct kv_groups *out,
                              struct err *err) {
    return groups_of(c, 0, c->n_layers, false, out, err);
}
