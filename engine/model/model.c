// Loading: folder -> checkpoint -> this rank's weights on the backend. See model.h and README.md.
//
// The same code walks the model's tensors twice. The first walk finds and checks every tensor of the
// whole model and sums this rank's bytes, so that a checkpoint without its last layer is refused at
// once and not after ten minutes of reading. The second walk reads and packs.
#include "engine/model/model.h"
#include "base/log.h"
#include "engine/model/cache_groups.h"
#include "engine/model/fingerprint.h"
#include "engine/model/loader.h"
#include "engine/model/positions.h"
#include "engine/model/tied_head.h"
#include <stdio.h>
#include <stdlib.h>

// A norm's weight of n values; with norm_plus_one the stored values are w of 1 + w.
static int load_norm_weight(struct loader *l, float **out, int32_t layer, const char *stem,
                            const struct part *p, struct err *err) {
    struct part named = *p;
    named.stem = stem;
    l->plus = l->m->config.norm_plus_one ? 1 : 0;
    int rc = loader_vector(l, out, layer, &named, 1, "weight", err);
    l->plus = 0;
    return rc;
}

static int load_norm(struct loader *l, struct norm_weights *w, int32_t layer, const char *stem,
                     struct err *err) {
    const struct model_config *c = &l->m->config;
    struct part p = part_whole(stem, c->width, 0);
    TRY(load_norm_weight(l, w ? &w->weight : NULL, layer, stem, &p, err));
    if (!c->norm_bias) return 0;
    return loader_vector(l, w ? &w->bias : NULL, layer, &p, 1, "bias", err);
}

// --- the walk ---

// The norms of q and k, for one head or for all heads together, and v's, which has no weight.
static int load_qk_norms(struct loader *l, struct layer_weights *w, int32_t layer,
                         const struct part *qkv, struct err *err) {
    const struct attention_config *a = &model_layer(&l->m->config, layer)->attention;
    const struct part head = part_whole(NULL, a->head_dim, 0);
    const struct part *q = &head, *k = &head;
    struct part wide[2] = {qkv[0]};
    if (a->qk_norm == QK_NORM_WIDTH) {
        wide[1] = qkv[1];
        q = &wide[0], k = &wide[1];
    }
    if (a->qk_norm)
        TRY(load_norm_weight(l, w ? &w->q_norm : NULL, layer, l->names->q_norm, q, err));
    if (a->qk_norm && !a->kv_from)
        TRY(load_norm_weight(l, w ? &w->k_norm : NULL, layer, l->names->k_norm, k, err));
    return w && a->v_norm && !a->kv_from ? loader_ones(l, &w->v_norm, a->head_dim, err) : 0;
}

// The ranks' outputs are summed: one of them adds the bias.
static int load_o_bias(struct loader *l, struct layer_weights *w, int32_t layer,
                       const struct part *o, struct err *err) {
    if (!model_layer(&l->m->config, layer)->attention.o_bias) return 0;
    const bool mine = w && l->m->split.tp_rank == 0;
    return loader_vector(l, mine ? &w->o_bias : NULL, layer, o, 1, "bias", err);
}

static int load_attention(struct loader *l, struct layer_weights *w, int32_t layer,
                          struct err *err) {
    const struct model_config *c = &l->m->config;
    const struct layer_config *row = model_layer(c, layer);
    const struct attention_config *a = &row->attention;
    const struct family_tensors *t = l->names;
    struct part qkv[3];
    int n = parts_qkv(c, row, t, &l->m->split, qkv);
    const struct part o = part_of_layer(t, t->o, c->width, a->n_heads * a->head_dim,
                                        range_whole(c->width), qkv[0].rows);
    if (row->norms & (NORM_PRE | NORM_POST))
        TRY(load_norm(l, w ? &w->attn_norm : NULL, layer, t->attn_norm, err));
    if (row->norms & NORM_OUT)
        TRY(load_norm(l, w ? &w->attn_out_norm : NULL, layer, t->attn_out_norm, err));
    if (a->kv_rank) {
        TRY(loader_latent(l, w ? &w->latent : NULL, layer, err));
        TRY(loader_latent_out(l, w ? &w->o : NULL, layer, err));
        return load_o_bias(l, w, layer, &o, err);
    }
    TRY(loader_matrix(l, w ? &w->qkv : NULL, layer, qkv, n, err));
    if (a->qkv_bias) TRY(loader_vector(l, w ? &w->qkv_bias : NULL, layer, qkv, n, "bias", err));
    TRY(load_qk_norms(l, w, layer, qkv, err));
    struct part sinks = part_whole(t->sinks, a->n_heads, 0);
    sinks.rows = split_heads(&l->m->split, a->n_heads);
    if (a->sinks) TRY(loader_vector(l, w ? &w->sinks : NULL, layer, &sinks, 1, "", err));
    TRY(loader_matrix(l, w ? &w->o : NULL, layer, &o, 1, err));
    return load_o_bias(l, w, layer, &o, err);
}

static int load_xielu(struct loader *l, struct layer_weights *w, int32_t layer, struct err *err) {
    char p[TENSOR_NAME_MAX], n[TENSOR_NAME_MAX];
    const struct part alphas[] = {part_whole(p, 1, 0), part_whole(n, 1, 0)};
    snprintf(p, sizeof p, "%s.alpha_p", l->names->xielu);
    snprintf(n, sizeof n, "%s.alpha_n", l->names->xielu);
    return loader_vector(l, w ? &w->xielu : NULL, layer, alphas, 2, "", err);
}

static int load_feed(struct loader *l, struct layer_weights *w, int32_t layer, struct err *err) {
    const struct model_config *c = &l->m->config;
    const struct layer_config *row = model_layer(c, layer);
    const struct family_tensors *t = l->names;
    struct part up[2];
    int n = row->feed.width ? parts_up(c, row, t, &l->m->split, up) : 0;
    const struct part down =
        part_of_layer(t, t->down, c->width, row->feed.width, range_whole(c->width),
                      split_even(&l->m->split, row->feed.width));
    bool adds_bias = l->m->split.tp_rank == 0;
    if ((row->norms & (NORM_PRE | NORM_POST)) && !row->shared_norm)
        TRY(load_norm(l, w ? &w->ffn_norm : NULL, layer, t->ffn_norm, err));
    if (row->norms & NORM_OUT)
        TRY(load_norm(l, w ? &w->ffn_out_norm : NULL, layer, t->ffn_out_norm, err));
    if (row->feed.experts.n_experts) TRY(loader_experts(l, w ? &w->experts : NULL, layer, err));
    if (!row->feed.width) return 0;
    TRY(loader_matrix(l, w ? &w->up : NULL, layer, up, n, err));
    if (row->feed.bias) TRY(loader_vector(l, w ? &w->up_bias : NULL, layer, up, n, "bias", err));
    if (row->feed.xielu) TRY(load_xielu(l, w, layer, err));
    TRY(loader_matrix(l, w ? &w->down : NULL, layer, &down, 1, err));
    if (row->feed.bias)
        TRY(loader_vector(l, w && adds_bias ? &w->down_bias : NULL, layer, &down, 1, "bias", err));
    return 0;
}

// The layer's part of Gemma 4 E's embeddings, and the scalar on its output.
static int load_layer_end(struct loader *l, struct layer_weights *w, int32_t layer,
                          struct err *err) {
    const struct model_config *c = &l->m->config;
    const struct family_tensors *t = l->names;
    const struct part gate = part_whole(t->layer_gate, c->per_layer_width, c->width);
    const struct part out = part_whole(t->layer_out, c->width, c->per_layer_width);
    const struct part scalar = part_whole(t->output_scalar, 1, 0);
    if (model_layer(c, layer)->output_scalar)
        TRY(loader_vector(l, w ? &w->output_scalar : NULL, layer, &scalar, 1, "", err));
    if (!c->per_layer_width) return 0;
    TRY(loader_matrix(l, w ? &w->layer_gate : NULL, layer, &gate, 1, err));
    TRY(loader_matrix(l, w ? &w->layer_out : NULL, layer, &out, 1, err));
    return load_norm(l, w ? &w->layer_out_norm : NULL, layer, t->layer_out_norm, err);
}

static int load_layer_embeddings(struct loader *l, struct err *err) {
    struct model *m = l->m;
    const struct model_config *c = &m->config;
    const int32_t all = c->n_layers * c->per_layer_width;
    struct part embed = part_whole(l->names->layer_embed, c->per_layer_vocab, all);
    const struct part project = part_whole(l->names->layer_project, all, c->width);
    const struct part norm = part_whole(NULL, c->per_layer_width, 0);
    if (!c->per_layer_width) return 0;
    embed.looked_up = embed.embedding = true;
    TRY(loader_matrix(l, &m->layer_embed, -1, &embed, 1, err));
    TRY(loader_matrix(l, &m->layer_project, -1, &project, 1, err));
    return load_norm_weight(l, &m->layer_project_norm.weight, -1, l->names->layer_project_norm,
                            &norm, err);
}

// The projections between an embedding of another width and the stream: in on the first pipeline
// rank, out on the last.
static int load_projections(struct loader *l, bool first, bool last, struct err *err) {
    const struct model_config *c = &l->m->config;
    const struct part in = part_whole(l->names->embed_in, c->width, c->embed_width);
    const struct part out = part_whole(l->names->embed_out, c->embed_width, c->width);
    if (c->embed_width == c->width) return 0;
    TRY(loader_matrix(l, first ? &l->m->embed_in : NULL, -1, &in, 1, err));
    return loader_matrix(l, last ? &l->m->embed_out : NULL, -1, &out, 1, err);
}

// A learned table of positions; formulas' tables are made elsewhere.
static int load_positions(struct loader *l, bool first, struct err *err) {
    const struct model_config *c = &l->m->config;
    int32_t rows = c->max_positions + c->position_offset;
    const struct part table = part_whole(l->names->positions, rows, c->width);
    if (c->positions != POSITION_LEARNED) return 0;
    return loader_table(l, first ? &l->m->position_table : NULL, &table, err);
}

// Embedding on the first pipeline rank, final norm and head on the last. A tied head is the
// embedding itself where this rank has all of it, else a slice of its own from the same tensor.
static int load_ends(struct loader *l, struct err *err) {
    struct model *m = l->m;
    const struct model_config *c = &m->config;
    bool first = m->split.pp_rank == 0, last = m->split.pp_rank == m->split.pp_size - 1;
    struct range rows = split_even(&m->split, c->vocab_size);
    struct part embed = part_whole(l->names->embed, c->vocab_size, c->embed_width);
    struct part head = embed;
    embed.looked_up = !c->tied_head;
    embed.embedding = true;
    if (!c->tied_head) head.stem = l->names->head;
    head.rows = rows;
    m->head_is_embed = c->tied_head && first && last && rows.count == c->vocab_size;
    TRY(loader_matrix(l, first ? &m->embed : NULL, -1, &embed, 1, err));
    if (!m->head_is_embed) TRY(loader_matrix(l, last ? &m->head : NULL, -1, &head, 1, err));
    if (m->head_is_embed) m->head = m->embed;
    head.stem = l->names->head;
    if (c->head_bias) TRY(loader_vector(l, last ? &m->head_bias : NULL, -1, &head, 1, "bias", err));
    TRY(load_projections(l, first, last, err));
    TRY(load_layer_embeddings(l, err));
    TRY(load_positions(l, first, err));
    if (c->embed_norm)
        TRY(load_norm(l, first ? &m->embed_norm : NULL, -1, l->names->embed_norm, err));
    if (!c->final_norm) return 0;
    return load_norm(l, last ? &m->final_norm : NULL, -1, l->names->final_norm, err);
}

static int walk(struct loader *l, struct err *err) {
    struct model *m = l->m;
    TRY(load_ends(l, err));
    loader_unstage(l); // the vocabulary's matrices are the largest by far
    for (int32_t i = 0; i < m->config.n_layers; i++) {
        bool mine = i >= m->first_layer && i < m->first_layer + m->n_layers;
        struct layer_weights *w = mine ? &m->layers[i - m->first_layer] : NULL;
        if (!w && l->packing) continue;
        TRY(load_attention(l, w, i, err));
        TRY(load_feed(l, w, i, err));
        TRY(load_layer_end(l, w, i, err));
    }
    return 0;
}

// --- tables from formulas ---

static int make_alibi_slopes(struct model *m, struct err *err) {
    const int32_t n_heads = m->config.kinds[0].attention.n_heads;
    struct range mine = split_heads(&m->split, n_heads);
    float *slopes = malloc((size_t)n_heads * sizeof *slopes);
    if (!slopes) return err_set(err, E_NOMEM, "no memory for %d heads", n_heads);
    alibi_slopes(slopes, n_heads);
    int rc = loader_to_device(m, &m->alibi_slopes, slopes + mine.first, (size_t)mine.count, err);
    free(slopes);
    return rc;
}

static int make_sinusoids(struct model *m, struct err *err) {
    int32_t rows = m->config.max_positions + m->config.position_offset, width = m->config.width;
    size_t n = (size_t)rows * (size_t)width;
    float *table = malloc(n * sizeof *table);
    if (!table) return err_set(err, E_NOMEM, "no memory for a table of %d positions", rows);
    sinusoidal_table(table, rows, width);
    int rc = loader_to_device(m, &m->position_table, table, n, err);
    free(table);
    return rc;
}

static int make_positions(struct model *m, struct err *err) {
    const struct model_config *c = &m->config;
    for (int32_t i = 0; i < c->n_ropes; i++) {
        const struct rope *r = &c->ropes[i];
        const size_t n = (size_t)r->rot_dim / 2;
        TRY(loader_to_device(m, &m->inv_freq[i], r->inv_freq, n, err));
        if (r->short_len > 0)
            TRY(loader_to_device(m, &m->short_inv_freq[i], r->short_inv_freq, n, err));
    }
    if (c->positions == POSITION_ALIBI) return make_alibi_slopes(m, err);
    if (c->positions == POSITION_SINUSOIDAL && m->split.pp_rank == 0) return make_sinusoids(m, err);
    return 0;
}

// --- unused tensors ---

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

// Checkpoints contain buffers of the classes that wrote them (causal masks, the mask's value, rotary
// and sinusoidal tables), and tied ones a copy of the head. All are derived, so ignoring them is safe.
static bool is_derived(const struct model *m, const struct family_tensors *names,
                       const char *name) {
    static const char *const buffers[] = {
        ".attn.bias",
        ".attn.masked_bias",
        ".attention.bias",
        ".attention.masked_bias",
        "rotary_emb.inv_freq",
        "rotary_emb.cos_cached",
        "rotary_emb.sin_cached",
        ".attn.embed_positions",
        "embed_positions.weights",
    };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (ends_with(name, buffers[i])) return true;
    // Schemes for activations, which are not quantised here; the log entry model.fp8 says so.
    if (m->config.fp8 && ends_with(name, ".input_scale")) return true;
    return m->config.tied_head && strncmp(name, names->head, strlen(names->head)) == 0;
}

static void report_unused(const struct loader *l) {
    size_t n = 0;
    const char *first = NULL;
    char quoted[TENSOR_NAME_MAX];
    for (size_t i = 0; i < checkpoint_count(l->cp); i++) {
        const char *name = checkpoint_at(l->cp, i)->name;
        if (l->roles[i] != TENSOR_UNUSED || is_derived(l->m, l->names, name)) continue;
        if (n++ == 0) first = name;
    }
    if (n > 0)
        log_warn("model.unused_tensors", "count=%zu first=%s", n,
                 log_quote(quoted, sizeof quoted, first));
}

// --- public ---

// What several ranks cannot compute yet.
static int check_ranks(const struct model *m, const struct layer_config *row, struct err *err) {
    if (m->split.tp_size > 1 && row->attention.qk_norm == QK_NORM_WIDTH)
        return err_set(err, E_UNSUPPORTED,
                       "a norm over all heads of q and k needs all heads on one rank "
                       "(tensor_parallel 1)");
    const struct experts_config *x = &row->feed.experts;
    if (x->width % m->split.tp_size != 0 || x->shared_width % m->split.tp_size != 0)
        return err_set(err, E_INVAL,
                       "experts of %d and shared ones of %d do not divide by %d tensor-parallel "
                       "ranks",
                       x->width, x->shared_width, m->split.tp_size);
    if (m->split.pp_size > 1 && m->config.per_layer_width)
        return err_set(err, E_UNSUPPORTED,
                       "embeddings for each layer are not sent between pipeline stages "
                       "(pipeline_parallel 1)");
    if (m->split.pp_size > 1 && row->attention.kv_from)
        return err_set(err, E_UNSUPPORTED,
                       "layers that share keys and values must be on one pipeline stage "
                       "(pipeline_parallel 1)");
    return 0;
}

static int prepare(struct model *m, struct err *err) {
    const struct model_config *c = &m->config;
    const struct split *s = &m->split;
    for (int32_t i = 0; i < c->n_kinds; i++) {
        const struct layer_config *row = &c->kinds[i];
        const struct attention_config *a = &row->attention;
        TRY(split_check(s, c->n_layers, a->n_heads, a->n_kv_heads, row->feed.width, err));
        TRY(check_ranks(m, row, err));
        m->of_kind[i] = (struct rank_shape){
            split_heads(s, a->n_heads).count, split_kv_heads(s, a->n_kv_heads).count,
            split_even(s, row->feed.width).count, split_even(s, row->feed.experts.width).count,
            split_even(s, row->feed.experts.shared_width).count};
    }
    struct range layers = split_layers(s, c->n_layers);
    m->first_layer = layers.first;
    m->n_layers = layers.count;
    m->vocab_rows = split_even(s, c->vocab_size).count;
    m->layers = calloc((size_t)m->n_layers, sizeof *m->layers);
    if (!m->layers) return err_set(err, E_NOMEM, "no memory for %d layers", m->n_layers);
    return model_cache_groups(m, err);
}

// The ops beyond the first families' that a model needs, by the names under which a device that lacks one refuses it.
static int check_features(const struct model *m, struct err *err) {
    static const char *const names[] = {OP_FEATURE_NAMES};
    uint32_t lacks = model_config_features(&m->config) & ~m->backend->ops->features;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (lacks >> i & 1)
            return err_set(err, E_UNSUPPORTED, "the backend %s has no code for %s yet",
                           m->backend->ops->name, names[i]);
    return 0;
}

// One 8-bit format is never converted to the other.
static int check_format(const struct loader *l, struct err *err) {
    const struct model_config *c = &l->m->config;
    bool other = l->weights == WEIGHTS_INT8 ? c->fp8 : l->weights == WEIGHTS_FP8 && c->int8;
    if (!other) return 0;
    return err_set(err, E_UNSUPPORTED, "its matrices are stored in %s, which %s is not made from",
                   model_config_weight_dtype(c), c->fp8 ? "int8" : "fp8");
}

static int load(struct loader *l, const char *model_dir, struct err *err) {
    struct model *m = l->m;
    TRY(model_config_load(&m->config, model_dir, err));
    TRY(check_format(l, err));
    TRY(check_features(m, err));
    TRY(prepare(m, err));
    TRY(checkpoint_open(&l->cp, model_dir, err));
    TRY(tied_head_settle(&m->config, l->cp, err));
    l->names = family_tensors_of(&m->config);
    l->roles = calloc(checkpoint_count(l->cp) + 1, sizeof *l->roles);
    if (!l->roles) return err_set(err, E_NOMEM, "no memory to load %s", model_dir);
    TRY(walk(l, err));
    report_unused(l);
    if (l->weights == WEIGHTS_INT8) m->config.int8 = true;
    if (l->weights == WEIGHTS_FP8) m->config.fp8 = true;
    if (m->config.fp8)
        log_info("model.fp8", "scales=%s activations=\"not quantised\"",
                 m->config.fp8_block_k ? "blocks" : "outputs");
    l->packing = true;
    loader_step(l, 0);
    TRY(walk(l, err));
    TRY(make_positions(m, err));
    snprintf(m->weight_format, sizeof m->weight_format, "%s",
             model_weight_format(&m->config, l->cp));
    TRY(fingerprint_compute(m->fingerprint, &m->config, l->cp, err));
    return checkpoint_check_unchanged(l->cp, err);
}

const char *model_weight_format(const struct model_config *c, const struct checkpoint *cp) {
    const char *few = c->int8 || c->fp8 ? NULL : checkpoint_few_bits(cp);
    return few ? few : model_config_weight_dtype(c);
}

int model_tensor_roles(const struct model_config *c, struct checkpoint *cp, uint8_t *roles,
                       size_t *order, struct err *err) {
    struct model m = {.config = *c, .split = split_single};
    struct loader l = {
        .m = &m, .cp = cp, .names = family_tensors_of(c), .roles = roles, .order = order};
    memset(roles, TENSOR_UNUSED, checkpoint_count(cp));
    int rc = prepare(&m, err);
    if (rc == 0) rc = walk(&l, err);
    kv_groups_release(&m.cache_groups);
    free(m.layers);
    return rc;
}

int model_load(struct model **out, const struct model_load_options *o, struct err *err) {
    struct model *m = calloc(1, sizeof *m);
    if (!m) return err_set(err, E_NOMEM, "no memory to load %s", o->dir);
    m->backend = o->backend;
    m->split = *o->split;
    struct loader l = {
        .m = m, .weights = o->weights, .progress = o->progress, .ctx = o->progress_ctx};
    struct err why = {0};
    int rc = load(&l, o->dir, &why);
    loader_unstage(&l);
    free(l.roles);
    if (m->n_mapped > 0)
        m->files = l.cp;
    else
        checkpoint_close(l.cp);
    if (rc == 0) {
        *out = m;
        return 0;
    }
    model_free(m);
    if (rc == E_NOMEM && l.total > 0)
        return err_set(err, rc, "%s needs %lld MiB for its weights: %s", o->dir,
                       (long long)(l.total >> 20) + 1, why.text);
    // Errors of a file begin with its path; others get the folder's.
    if (strncmp(why.text, o->dir, strlen(o->dir)) == 0) return err_set(err, rc, "%s", why.text);
    return err_set(err, rc, "%s: %s", o->dir, why.text);
}

// Of the experts that a row does not go to.
static size_t idle_experts_bytes(const struct model *m, int32_t layer) {
    const struct experts_config *x = &model_row(m, layer)->feed.experts;
    const struct experts_weights *w = &m->layers[layer].experts;
    size_t bytes = 0;
    for (int32_t e = 0; e < x->n_experts; e++) bytes += w->up[e].bytes + w->down[e].bytes;
    return x->n_experts ? bytes / (size_t)x->n_experts * (size_t)(x->n_experts - x->n_chosen) : 0;
}

size_t model_bytes_read(const struct model *m) {
    const struct model_config *c = &m->config;
    size_t tables = m->head_is_embed ? 0 : m->embed.bytes;
    tables += m->layer_embed.bytes;
    for (int32_t i = 0; i < m->n_layers; i++) tables += idle_experts_bytes(m, i);
    if (m->position_table)
        tables += (size_t)(c->max_positions + c->position_offset) * (size_t)c->width *
                  sizeof *m->position_table;
    return m->weight_bytes - tables;
}

static void release_weight(struct model *m, struct weight *w) {
    if (w->data) m->backend->ops->weight_release(m->backend, w);
}

static void release_vector(struct model *m, float *v) {
    if (v) m->backend->ops->mem_free(m->backend, v);
}

static void release_norm(struct model *m, const struct norm_weights *w) {
    release_vector(m, w->weight);
    release_vector(m, w->bias);
}

static void release_experts(struct model *m, struct experts_weights *w, int32_t n) {
    float *const vectors[] = {w->router_bias, w->choice_bias, w->up_bias,
                              w->down_bias,   w->router_norm, w->expert_scale};
    const struct norm_weights *const norms[] = {&w->dense_out_norm, &w->norm, &w->out_norm};
    struct weight *const matrices[] = {&w->router, &w->shared_up, &w->shared_down,
                                       &w->shared_switch};
    for (int32_t e = 0; e < n; e++) {
        if (w->up) release_weight(m, &w->up[e]);
        if (w->down) release_weight(m, &w->down[e]);
    }
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) release_norm(m, norms[i]);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) release_vector(m, vectors[i]);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) release_weight(m, matrices[i]);
    free(w->up);
    free(w->down);
}

static void release_latent(struct model *m, struct latent_weights *w, int32_t n) {
    for (int32_t h = 0; h < n; h++) {
        if (w->k) release_weight(m, &w->k[h]);
        if (w->v) release_weight(m, &w->v[h]);
    }
    release_weight(m, &w->q_in);
    release_weight(m, &w->kv_in);
    release_weight(m, &w->q);
    release_vector(m, w->q_norm);
    release_vector(m, w->kv_norm);
    release_vector(m, w->q_bias);
    release_vector(m, w->kv_bias);
    free(w->k);
    free(w->v);
}

static void release_layer(struct model *m, struct layer_weights *w) {
    float *const vectors[] = {w->qkv_bias, w->q_norm,  w->k_norm,    w->v_norm, w->o_bias,
                              w->sinks,    w->up_bias, w->down_bias, w->xielu,  w->output_scalar};
    struct weight *const matrices[] = {&w->qkv,  &w->o,          &w->up,
                                       &w->down, &w->layer_gate, &w->layer_out};
    const struct norm_weights *const norms[] = {&w->attn_norm, &w->ffn_norm, &w->attn_out_norm,
                                                &w->ffn_out_norm, &w->layer_out_norm};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) release_norm(m, norms[i]);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) release_vector(m, vectors[i]);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) release_weight(m, matrices[i]);
}

void model_free(struct model *m) {
    if (!m) return;
    kv_groups_release(&m->cache_groups);
    for (int32_t i = 0; m->layers && i < m->n_layers; i++) {
        release_experts(m, &m->layers[i].experts, model_row(m, i)->feed.experts.n_experts);
        release_latent(m, &m->layers[i].latent, model_shape(m, i)->n_heads);
        release_layer(m, &m->layers[i]);
    }
    if (!m->head_is_embed) release_weight(m, &m->head);
    release_weight(m, &m->embed);
    release_weight(m, &m->embed_in);
    release_weight(m, &m->embed_out);
    release_norm(m, &m->embed_norm);
    release_norm(m, &m->final_norm);
    release_vector(m, m->position_table);
    release_vector(m, m->head_bias);
    release_vector(m, m->alibi_slopes);
    for (int32_t i = 0; i < MODEL_MAX_ROPES; i++) {
        release_vector(m, m->inv_freq[i]);
        release_vector(m, m->short_inv_freq[i]);
    }
    release_weight(m, &m->layer_embed);
    release_weight(m, &m->layer_project);
    release_norm(m, &m->layer_project_norm);
    checkpoint_close(m->files);
    free(m->layers);
    free(m);
}
