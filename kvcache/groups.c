// See groups.h.
#include "kvcache/groups.h"

#include <stdlib.h>
#include <string.h>

// MOST_VALUES, MOST_LAYERS: what fits neither overflows the arithmetic below nor any memory.
enum { SIZED_FOR_TOKENS = 16384, NEAR_PART = 16, MOST_VALUES = 1 << 24, MOST_LAYERS = 1 << 16 };

struct class { // layers of one shape and window
    struct kv_group shape;
    int64_t values; // of a position in one layer
    int32_t n_layers;
    int32_t first_group, n_groups, n_dealt;
};

struct classes {
    struct class of[KV_GROUPS_MAX];
    int32_t n;
};

static bool is_own(const struct kv_layer *layers, int32_t i) {
    return layers[i].kv_heads > 0 && layers[i].uses == i;
}

static int check(const struct kv_layer *layers, int32_t n, struct err *err) {
    if (n < 1 || n > MOST_LAYERS)
        return err_set(err, E_INVAL, "no caches for a model of %d layers", n);
    for (int32_t i = 0; i < n; i++) {
        const struct kv_layer *l = &layers[i];
        if (l->kv_heads == 0) continue;
        if (l->kv_heads < 0 || l->head_dim < 1 || l->window < 0 ||
            (int64_t)l->kv_heads * l->head_dim > MOST_VALUES)
            return err_set(err, E_INVAL, "layer %d has no cache of %d heads of %d, window %d", i,
                           l->kv_heads, l->head_dim, l->window);
        if (l->uses < 0 || l->uses > i || !is_own(layers, l->uses))
            return err_set(err, E_INVAL,
                           "layer %d uses the keys and values of layer %d, which has none", i,
                           l->uses);
    }
    return 0;
}

static bool same_shape(const struct kv_group *a, const struct kv_layer *b) {
    return a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->latent == b->latent;
}

static struct class *class_of(struct classes *c, const struct kv_layer *l) {
    for (int32_t i = 0; i < c->n; i++)
        if (same_shape(&c->of[i].shape, l) && c->of[i].shape.window == l->window) return &c->of[i];
    return NULL;
}

static int find_classes(struct classes *c, const struct kv_layer *layers, int32_t n,
                        struct err *err) {
    for (int32_t i = 0; i < n; i++) {
        if (!is_own(layers, i)) continue;
        struct class *class = class_of(c, &layers[i]);
        if (!class && c->n == KV_GROUPS_MAX)
            return err_set(err, E_UNSUPPORTED,
                           "layer %d: a model has at most %d kinds of layers with caches of their "
                           "own shape and window",
                           i, KV_GROUPS_MAX);
        if (!class) {
            class = &c->of[c->n++];
            class->shape = (struct kv_group){.kv_heads = layers[i].kv_heads,
                                             .head_dim = layers[i].head_dim,
                                             .latent = layers[i].latent,
                                             .window = layers[i].window};
            class->values =
                (int64_t)layers[i].kv_heads * layers[i].head_dim * (layers[i].latent ? 1 : 2);
        }
        class->n_layers++;
    }
    if (c->n == 0) return err_set(err, E_UNSUPPORTED, "no layer of the model has keys and values");
    return 0;
}

// One class of them all: it needs what any of the layers needs.
static int merge(struct classes *c, struct err *err) {
    struct class *all = &c->of[0];
    for (int32_t i = 1; i < c->n; i++) {
        const struct class *one = &c->of[i];
        if (one->shape.kv_heads != all->shape.kv_heads ||
            one->shape.head_dim != all->shape.head_dim || one->shape.latent != all->shape.latent)
            return err_set(err, E_UNSUPPORTED,
                           "the device has no caches for layers of %d heads of %d beside layers of "
                           "%d heads of %d",
                           all->shape.kv_heads, all->shape.head_dim, one->shape.kv_heads,
                           one->shape.head_dim);
        all->n_layers += one->n_layers;
    }
    all->shape.window = 0;
    c->n = 1;
    return 0;
}

struct cut {
    int64_t bytes; // that a session of SIZED_FOR_TOKENS holds, in values
    int32_t n_groups;
};

// Blocks of `values` a position. False: some layer does not fit, or there are too many groups.
static bool cut_of(const struct classes *c, int64_t values, struct cut *cut) {
    *cut = (struct cut){0};
    for (int32_t i = 0; i < c->n; i++) {
        const struct class *class = &c->of[i];
        int64_t fit = values / class->values, window = class->shape.window;
        if (fit == 0) return false;
        int64_t n = (class->n_layers + fit - 1) / fit;
        int64_t tokens = window > 0 && window < SIZED_FOR_TOKENS ? window : SIZED_FOR_TOKENS;
        if (cut->n_groups + n > KV_GROUPS_MAX) return false;
        cut->n_groups += (int32_t)n;
        cut->bytes += n * values * tokens;
    }
    return true;
}

// Values of a position in a block: tries each number of layers of each class.
static int64_t choose(const struct classes *c) {
    int64_t least = INT64_MAX, best = 0;
    int32_t n_groups = INT32_MAX;
    struct cut cut;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < c->n; i++) {
            for (int32_t k = 1; k <= c->of[i].n_layers; k++) {
                if (!cut_of(c, k * c->of[i].values, &cut)) continue;
                if (pass == 0 && cut.bytes < least) least = cut.bytes;
                if (pass == 0 || cut.n_groups >= n_groups || cut.bytes > least + least / NEAR_PART)
                    continue;
                n_groups = cut.n_groups;
                best = k * c->of[i].values;
            }
        }
    }
    return best;
}

static int divide(struct kv_groups *g, struct classes *c, struct err *err) {
    int64_t values = choose(c);
    if (values == 0)
        return err_set(err, E_UNSUPPORTED,
                       "the caches of the model's layers differ too much for %d groups",
                       KV_GROUPS_MAX);
    for (int32_t i = 0; i < c->n; i++) {
        struct class *class = &c->of[i];
        int64_t fit = values / class->values;
        class->first_group = g->n;
        class->n_groups = (int32_t)((class->n_layers + fit - 1) / fit);
        for (int32_t k = 0; k < class->n_groups; k++) g->group[g->n++] = class->shape;
    }
    return 0;
}

// Deals each class's layers to its groups. all: (n)
static void deal(struct kv_groups *g, struct classes *c, const struct kv_layer *layers, int32_t n,
                 struct kv_place *all) {
    for (int32_t i = 0; i < n; i++) {
        all[i] = (struct kv_place){.group = -1};
        if (layers[i].kv_heads == 0) continue;
        if (layers[i].uses != i) {
            all[i] = all[layers[i].uses];
            continue;
        }
        struct class *class = c->n == 1 ? &c->of[0] : class_of(c, &layers[i]);
        all[i].group = class->first_group + class->n_dealt++ % class->n_groups;
        bool mine = i >= g->first_layer && i < g->first_layer + g->n_layers;
        all[i].index = mine ? g->group[all[i].group].n_layers++ : -1;
    }
}

int kv_groups_init(struct kv_groups *g, const struct kv_layer *layers, int32_t n, int32_t first,
                   int32_t n_own, bool one_group, struct err *err) {
    struct classes c = {0};
    int rc;
    *g = (struct kv_groups){.first_layer = first, .n_layers = n_own};
    TRY(check(layers, n, err));
    TRY(find_classes(&c, layers, n, err));
    if (one_group && c.n > 1) TRY(merge(&c, err));
    if (c.n == 1) c.of[0].shape.window = 0; // see groups.h
    TRY(divide(g, &c, err));
    struct kv_place *all = malloc((size_t)n * sizeof *all);
    g->places = malloc((size_t)(n_own > 0 ? n_own : 1) * sizeof *g->places);
    if (!all || !g->places) {
        rc = err_set(err, E_NOMEM, "no memory for the places of %d layers", n);
        goto fail;
    }
    deal(g, &c, layers, n, all);
    memcpy(g->places, all + first, (size_t)n_own * sizeof *all);
    for (int32_t i = 0; i < n_own; i++) {
        if (g->places[i].group < 0 || g->places[i].index >= 0) continue;
        rc = err_set(err, E_UNSUPPORTED,
                     "layer %d uses the keys and values of a layer of another pipeline stage",
                     first + i);
        goto fail;
    }
    free(all);
    return 0;
fail:
    free(all);
    kv_groups_release(g);
    return rc;
}

void kv_groups_release(struct kv_groups *g) {
    free(g->places);
    *g = (struct kv_groups){0};
}
