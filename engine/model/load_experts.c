// Loads a layer's experts, from one tensor for each of an expert's matrices or from one for all experts. See loader.h.
#include "base/log.h"
#include "engine/model/loader.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct names { // an expert's stems
    char stem[3][TENSOR_NAME_MAX];
};

// A slice of a matrix of the layer as it is stored, (rows, cols) whole.
static struct part matrix_part(const char *stem, int32_t n_rows, int32_t n_cols, struct range rows,
                               struct range cols) {
    return (struct part){
        .stem = stem, .n_rows = n_rows, .n_cols = n_cols, .rows = rows, .cols = cols};
}

static bool has_stack(const struct loader *l, int32_t layer, const char *suffix) {
    char name[TENSOR_NAME_MAX];
    family_tensor_name(name, l->names, layer, l->names->experts_up, suffix);
    return checkpoint_find(l->cp, name) != NULL;
}

// How a file has a layer's experts: one by one, all in one tensor as the family stores it, or so from blocks of
// few bits (packed_tensors.h), which are never stored the other way round.
enum form { ONE_BY_ONE, STACKED, BLOCKS };

static enum form form_of(const struct loader *l, int32_t layer) {
    const struct family_tensors *t = l->names;
    if (!t->experts_up) return ONE_BY_ONE;
    if (t->experts_turned && has_stack(l, layer, "weight")) return BLOCKS;
    if (!t->experts) return STACKED;
    return has_stack(l, layer, t->experts_bare ? "" : "weight") ? STACKED : ONE_BY_ONE;
}

// Whether the tensors of all experts are stored the other way round.
static bool is_turned(const struct loader *l, int32_t layer) {
    char name[TENSOR_NAME_MAX];
    if (!l->names->experts_halves) return l->names->experts_turned;
    const struct tensor *t =
        checkpoint_find(l->cp, family_tensor_name(name, l->names, layer, l->names->experts_up, ""));
    return t && t->n_dims == 3 && t->shape[1] == l->m->config.width;
}

// Expert e's part of the tensors of all: its gate, its up, its down.
static void stacked_parts(const struct loader *l, int32_t layer, const struct feed_config *f,
                          int32_t e, bool blocks, struct part parts[3]) {
    const struct family_tensors *t = l->names;
    const bool turned = is_turned(l, layer) && !blocks;
    const int32_t width = f->experts.width, hidden = l->m->config.width;
    const struct range mine = split_even(&l->m->split, width);
    const int32_t ups = f->gated ? 2 : 1;
    for (int32_t i = 0; i < 3; i++) {
        const bool down = i == 2;
        parts[i] = matrix_part(down ? t->experts_down : t->experts_up, down ? hidden : ups * width,
                               down ? width : hidden, down ? range_whole(hidden) : mine,
                               down ? mine : range_whole(hidden));
        parts[i].transposed = turned;
        parts[i].stack = f->experts.n_experts;
        parts[i].at = e;
        parts[i].expert = true;
        parts[i].bare = t->experts_bare && !blocks;
        if (down) continue;
        parts[i].first = t->experts_turned ? i % ups : i % ups * width;
        parts[i].group = t->experts_turned ? 1 : width;
        parts[i].stride = t->experts_turned ? ups : 0;
    }
}

static void single_parts(const struct loader *l, const struct feed_config *f, int32_t e,
                         struct names *names, struct part parts[3]) {
    const struct family_tensors *t = l->names;
    const char *const stems[] = {t->expert_gate, t->expert_up, t->expert_down};
    const int32_t width = f->experts.width, hidden = l->m->config.width;
    const struct range mine = split_even(&l->m->split, width);
    for (int i = 0; i < 3; i++) {
        snprintf(names->stem[i], TENSOR_NAME_MAX, "%s.%d.%s", t->experts, e,
                 stems[i] ? stems[i] : "");
        parts[i] = i < 2 ? matrix_part(names->stem[i], width, hidden, mine, range_whole(hidden))
                         : matrix_part(names->stem[i], hidden, width, range_whole(hidden), mine);
        parts[i].expert = true;
    }
}

static bool same_numbers(const struct weight *a, const struct weight *b) {
    return a->dtype == b->dtype && a->block_k == b->block_k &&
           (a->dtype != DTYPE_U8 || a->layout == b->layout);
}

static int load_once(struct loader *l, struct experts_weights *w, int32_t layer, enum form form,
                     struct err *err) {
    const struct feed_config *f = &model_layer(&l->m->config, layer)->feed;
    struct part parts[3];
    struct names names;
    for (int32_t e = 0; e < f->experts.n_experts; e++) {
        if (form != ONE_BY_ONE)
            stacked_parts(l, layer, f, e, form == BLOCKS, parts);
        else
            single_parts(l, f, e, &names, parts);
        const struct part *up = f->gated ? parts : parts + 1;
        TRY(loader_matrix(l, w ? &w->up[e] : NULL, layer, up, f->gated ? 2 : 1, err));
        TRY(loader_matrix(l, w ? &w->down[e] : NULL, layer, &parts[2], 1, err));
    }
    return 0;
}

// The first expert whose numbers are not those of expert 0; 0: none.
static int32_t first_other(const struct experts_weights *w, int32_t n) {
    for (int32_t e = 1; e < n; e++)
        if (!same_numbers(&w->up[e], &w->up[0]) || !same_numbers(&w->down[e], &w->down[0]))
            return e;
    return 0;
}

static void release_each(struct loader *l, struct experts_weights *w, int32_t n) {
    struct backend *be = l->m->backend;
    for (int32_t e = 0; e < n; e++) {
        l->m->weight_bytes -= w->up[e].bytes + w->down[e].bytes;
        be->ops->weight_release(be, &w->up[e]);
        be->ops->weight_release(be, &w->down[e]);
        w->up[e] = w->down[e] = (struct weight){0};
    }
}

// Experts of one layer may have different formats in a folder. A backend whose loops cannot change from expert to
// expert gets all of the layer in F32.
static int load_each(struct loader *l, struct experts_weights *w, int32_t layer, enum form form,
                     struct err *err) {
    const int32_t n = model_layer(&l->m->config, layer)->feed.experts.n_experts;
    const int64_t done = l->done;
    TRY(load_once(l, w, layer, form, err));
    if (!w || !l->packing || l->m->backend->ops->features & OP_EXPERTS_MIXED) return 0;
    const int32_t other = first_other(w, n);
    if (!other) return 0;
    log_info("model.widened",
             "layer=%d to=f32 because=its experts %d and 0 are stored in different formats, which "
             "the device does not mix",
             layer, other);
    release_each(l, w, n);
    l->done = done;
    l->widen = true;
    int rc = load_once(l, w, layer, form, err);
    l->widen = false;
    return rc;
}

// Of each expert's alternating biases of gate and up, this rank's: those of the gate first.
static float *sort_bias(const float *all, int32_t n_experts, int32_t n, struct range mine) {
    float *sorted = malloc((size_t)n_experts * 2 * (size_t)mine.count * sizeof *sorted),
          *to = sorted;
    for (int32_t e = 0; sorted && e < n_experts; e++)
        for (int32_t half = 0; half < 2; half++)
            for (int32_t i = mine.first; i < mine.first + mine.count; i++)
                *to++ = all[(int64_t)e * 2 * n + 2 * i + half];
    return sorted;
}

// The biases of gate and up of all experts, alternating: from one tensor, or from one for each ("NAME_bias", as
// files have it that store matrices one by one). malloc'd; NULL while the loader only counts.
static int read_up_bias(struct loader *l, float **out, int32_t layer, enum form form,
                        struct err *err) {
    const struct experts_config *x = &model_layer(&l->m->config, layer)->feed.experts;
    const struct family_tensors *t = l->names;
    char name[TENSOR_NAME_MAX], up[TENSOR_NAME_MAX];
    float *halves[2] = {NULL, NULL};
    snprintf(name, sizeof name, "%s_bias", t->experts_up);
    struct part p = part_whole(name, x->n_experts, 2 * x->width);
    if (form != ONE_BY_ONE) return loader_floats(l, out, layer, &p, "", err);
    snprintf(name, sizeof name, "%s.%s_bias", t->experts, t->expert_gate);
    snprintf(up, sizeof up, "%s.%s_bias", t->experts, t->expert_up);
    p = part_whole(name, x->n_experts, x->width);
    const struct part q = part_whole(up, x->n_experts, x->width);
    const size_t n = (size_t)x->n_experts * (size_t)x->width;
    *out = NULL;
    int rc = loader_floats(l, &halves[0], layer, &p, "", err);
    if (rc == 0) rc = loader_floats(l, &halves[1], layer, &q, "", err);
    if (rc == 0 && halves[0] && halves[1]) {
        *out = malloc(n * 2 * sizeof **out);
        for (size_t i = 0; *out && i < n * 2; i++) (*out)[i] = halves[i % 2][i / 2];
        if (!*out)
            rc = err_set(err, E_NOMEM, "no memory for the biases of %d experts", x->n_experts);
    }
    free(halves[0]);
    free(halves[1]);
    return rc;
}

static int load_up_bias(struct loader *l, float **out, int32_t layer, enum form form,
                        struct err *err) {
    const struct experts_config *x = &model_layer(&l->m->config, layer)->feed.experts;
    const struct range mine = split_even(&l->m->split, x->width);
    float *all;
    TRY(read_up_bias(l, &all, layer, form, err));
    float *sorted = all && out ? sort_bias(all, x->n_experts, x->width, mine) : NULL;
    int rc = 0;
    if (sorted)
        rc =
            loader_to_device(l->m, out, sorted, (size_t)x->n_experts * 2 * (size_t)mine.count, err);
    else if (all && out)
        rc = err_set(err, E_NOMEM, "no memory for the biases of %d experts", x->n_experts);
    free(all);
    free(sorted);
    return rc;
}

static int load_down_bias(struct loader *l, float **out, int32_t layer, struct err *err) {
    const struct experts_config *x = &model_layer(&l->m->config, layer)->feed.experts;
    char name[TENSOR_NAME_MAX];
    float *all;
    snprintf(name, sizeof name, "%s_bias", l->names->experts_down);
    const struct part p = part_whole(name, x->n_experts, l->m->config.width);
    TRY(loader_floats(l, &all, layer, &p, "", err));
    int rc = all && out
                 ? loader_to_device(l->m, out, all, (size_t)x->n_experts * (size_t)p.n_cols, err)
                 : 0;
    free(all);
    return rc;
}

static int load_router(struct loader *l, struct experts_weights *w, int32_t layer,
                       struct err *err) {
    const struct model_config *c = &l->m->config;
    const struct experts_config *x = &model_layer(c, layer)->feed.experts;
    struct part router = part_whole(l->names->router, x->n_experts, c->width);
    const struct part choice = part_whole(l->names->choice_bias, x->n_experts, 0);
    router.looked_up = true; // 8 bits would choose other experts
    TRY(loader_matrix(l, w ? &w->router : NULL, layer, &router, 1, err));
    if (x->router_bias)
        TRY(loader_vector(l, w ? &w->router_bias : NULL, layer, &router, 1, "bias", err));
    if (!x->choice_bias) return 0;
    return loader_vector(l, w ? &w->choice_bias : NULL, layer, &choice, 1, "", err);
}

static int load_norm(struct loader *l, struct norm_weights *w, int32_t layer, const char *stem,
                     struct err *err) {
    const struct part p = part_whole(stem, l->m->config.width, 0);
    return loader_vector(l, w ? &w->weight : NULL, layer, &p, 1, "weight", err);
}

// What stands around the experts where they are beside a dense feed-forward. transformers multiplies the router's
// input by the scale and by the width's root, one after the other.
static int load_beside(struct loader *l, struct experts_weights *w, int32_t layer,
                       struct err *err) {
    const struct model_config *c = &l->m->config;
    const struct experts_config *x = &model_layer(c, layer)->feed.experts;
    const struct family_tensors *t = l->names;
    const struct part router = part_whole(t->router_norm, c->width, 0);
    const struct part scale = part_whole(t->expert_scale, x->n_experts, 0);
    if (x->expert_scale)
        TRY(loader_vector(l, w ? &w->expert_scale : NULL, layer, &scale, 1, "", err));
    if (!x->beside) return 0;
    TRY(load_norm(l, w ? &w->dense_out_norm : NULL, layer, t->dense_out_norm, err));
    TRY(load_norm(l, w ? &w->norm : NULL, layer, t->experts_norm, err));
    TRY(load_norm(l, w ? &w->out_norm : NULL, layer, t->experts_out_norm, err));
    l->times = (float)(1 / sqrt(c->width));
    int rc = loader_vector(l, w ? &w->router_norm : NULL, layer, &router, 1, "", err);
    l->times = 0;
    return rc;
}

static int load_shared(struct loader *l, struct experts_weights *w, int32_t layer,
                       struct err *err) {
    const struct model_config *c = &l->m->config;
    const struct feed_config *f = &model_layer(c, layer)->feed;
    const struct family_tensors *t = l->names;
    const int32_t width = f->experts.shared_width;
    const struct range mine = split_even(&l->m->split, width), all = range_whole(c->width);
    const struct part up[2] = {matrix_part(t->shared_gate, width, c->width, mine, all),
                               matrix_part(t->shared_up, width, c->width, mine, all)};
    const struct part down = matrix_part(t->shared_down, c->width, width, all, mine);
    struct part gate = part_whole(t->shared_switch, 1, c->width);
    if (!width) return 0;
    TRY(loader_matrix(l, w ? &w->shared_up : NULL, layer, f->gated ? up : up + 1, f->gated ? 2 : 1,
                      err));
    TRY(loader_matrix(l, w ? &w->shared_down : NULL, layer, &down, 1, err));
    gate.looked_up = true;
    if (!f->experts.shared_gate) return 0;
    return loader_matrix(l, w ? &w->shared_switch : NULL, layer, &gate, 1, err);
}

// A shared feed-forward that is like an expert stands behind the others (experts_args.shared).
static void join_shared(struct experts_weights *w, int32_t n_experts) {
    w->shared_joins = w->shared_up.data && !w->shared_switch.data && !w->up_bias && !w->down_bias &&
                      w->shared_up.rows == w->up->rows && same_numbers(&w->shared_up, w->up) &&
                      same_numbers(&w->shared_down, w->down);
    if (!w->shared_joins) return;
    w->up[n_experts] = w->shared_up;
    w->down[n_experts] = w->shared_down;
}

int loader_experts(struct loader *l, struct experts_weights *w, int32_t layer, struct err *err) {
    const struct feed_config *f = &model_layer(&l->m->config, layer)->feed;
    const size_t n = (size_t)f->experts.n_experts;
    if (w && l->packing) {
        w->up = calloc(n + 1, sizeof *w->up); // the shared one may join
        w->down = calloc(n + 1, sizeof *w->down);
        if (!w->up || !w->down) return err_set(err, E_NOMEM, "no memory for %zu experts", n);
    }
    TRY(load_router(l, w, layer, err));
    TRY(load_beside(l, w, layer, err));
    const enum form form = form_of(l, layer);
    TRY(load_each(l, w, layer, form, err));
    bool adds_bias = l->m->split.tp_rank == 0; // the ranks' outputs are summed
    if (f->experts.bias) TRY(load_up_bias(l, w ? &w->up_bias : NULL, layer, form, err));
    if (f->experts.bias) TRY(load_down_bias(l, w && adds_bias ? &w->down_bias : NULL, layer, err));
    TRY(load_shared(l, w, layer, err));
    if (w && l->packing) join_shared(w, f->experts.n_experts);
    return 0;
}
