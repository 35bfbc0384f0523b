// Loading: folder -> checkpoint -> this rank's weights on the backend. See model.h and README.md.
//
// The model's tensors are walked twice by the same code. The first walk finds and checks every
// tensor of the whole model and adds up this rank's bytes, so that a checkpoint without its last
// layer is refused at once and not after ten minutes of reading; the second reads and packs.
#include "engine/model/model.h"
#include "base/log.h"
#include "engine/model/checkpoint.h"
#include "engine/model/families.h"
#include "engine/model/fingerprint.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MAX_PARTS 3 // of a stacked matrix: q, k, v
#define STAGING_ALIGNMENT 64

struct loader {
    struct model *m;
    const struct family_tensors *names;
    struct checkpoint *cp;
    bool packing; // second walk
    bool *used;   // (tensors of the checkpoint)
    char *staging;
    size_t staging_bytes;
    int64_t done, total;
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *ctx;
};

// A tensor as the model has it, and the slice of it that is this rank's.
struct part {
    const char *stem;
    int32_t n_rows, n_cols; // n_cols 0: a vector of n_rows
    struct range rows, cols;
};

static struct range whole(int32_t n) {
    return (struct range){0, n};
}

static struct range heads_rows(struct range heads, int32_t head_dim) {
    return (struct range){heads.first * head_dim, heads.count * head_dim};
}

// --- finding and checking ---

static int check_shape(const struct tensor *t, const struct part *p, struct err *err) {
    int n_dims = p->n_cols ? 2 : 1;
    if (t->n_dims == n_dims && t->shape[0] == p->n_rows &&
        (n_dims == 1 || t->shape[1] == p->n_cols))
        return 0;
    char has[128] = "";
    for (int d = 0, at = 0; d < t->n_dims && at < 100; d++)
        at += snprintf(has + at, sizeof has - (size_t)at, "%s%lld", d ? ", " : "",
                       (long long)t->shape[d]);
    if (n_dims == 1)
        return err_set(err, E_FORMAT, "the tensor '%s' has the shape (%s), not (%d)", t->name, has,
                       p->n_rows);
    return err_set(err, E_FORMAT, "the tensor '%s' has the shape (%s), not (%d, %d)", t->name, has,
                   p->n_rows, p->n_cols);
}

static int find_part(struct loader *l, int32_t layer, const struct part *p, const char *suffix,
                     const struct tensor **out, struct err *err) {
    char name[TENSOR_NAME_MAX];
    const struct tensor *t =
        checkpoint_find(l->cp, family_tensor_name(name, l->names, layer, p->stem, suffix));
    if (!t) return err_set(err, E_NOTFOUND, "the tensor '%s' is missing", name);
    TRY(check_shape(t, p, err));
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return err_set(err, E_UNSUPPORTED,
                       "the tensor '%s' is stored as %s; known are f32, f16, bf16", t->name,
                       dtype_name(t->dtype));
    l->used[checkpoint_index(l->cp, t)] = true;
    *out = t;
    return 0;
}

static size_t slice_bytes(const struct tensor *t, const struct part *p) {
    return (size_t)p->rows.count * (size_t)(p->n_cols ? p->cols.count : 1) * dtype_size(t->dtype);
}

// --- reading ---

// Grows the staging area; it keeps no content. By mmap, so that giving it back gives memory back.
static int stage(struct loader *l, size_t bytes, struct err *err) {
    if (bytes <= l->staging_bytes) return 0;
    if (l->staging) munmap(l->staging, l->staging_bytes);
    l->staging_bytes = 0;
    l->staging = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (l->staging == MAP_FAILED) {
        l->staging = NULL;
        return err_set(err, E_NOMEM, "no memory for %zu bytes of staging", bytes);
    }
    l->staging_bytes = bytes;
    return 0;
}

static void unstage(struct loader *l) {
    if (l->staging) munmap(l->staging, l->staging_bytes);
    l->staging = NULL;
    l->staging_bytes = 0;
}

static void step(struct loader *l, size_t bytes) {
    l->done += (int64_t)bytes;
    if (l->progress) l->progress(l->ctx, l->done, l->total);
}

// A slice of rows is read alone; of a slice of columns the whole rows are read and the view strides
// over them.
static size_t staged_bytes(const struct tensor *t, const struct part *p) {
    size_t row = (size_t)(p->n_cols ? p->n_cols : 1) * dtype_size(t->dtype);
    return (size_t)p->rows.count * row;
}

static size_t staged_room(const struct tensor *t, const struct part *p) {
    return (staged_bytes(t, p) + STAGING_ALIGNMENT - 1) / STAGING_ALIGNMENT * STAGING_ALIGNMENT;
}

static int read_part(struct loader *l, const struct tensor *t, const struct part *p, void *to,
                     struct err *err) {
    size_t row = (size_t)(p->n_cols ? p->n_cols : 1) * dtype_size(t->dtype);
    return checkpoint_read(l->cp, t, (size_t)p->rows.first * row, to, staged_bytes(t, p), err);
}

// --- matrices ---

static int pack_matrix(struct loader *l, struct weight *w, const struct part *parts, int n,
                       const struct tensor *const *tensors, struct err *err) {
    struct tensor_view views[MAX_PARTS];
    struct backend *be = l->m->backend;
    size_t room = 0, at = 0, bytes = 0;
    for (int i = 0; i < n; i++) room += staged_room(tensors[i], &parts[i]);
    TRY(stage(l, room, err));
    for (int i = 0; i < n; i++) {
        const struct part *p = &parts[i];
        TRY(read_part(l, tensors[i], p, l->staging + at, err));
        views[i] = (struct tensor_view){
            .data = l->staging + at + (size_t)p->cols.first * dtype_size(tensors[i]->dtype),
            .dtype = tensors[i]->dtype,
            .rows = p->rows.count,
            .cols = p->cols.count,
            .row_stride = p->n_cols,
            .col_stride = 1,
        };
        at += staged_room(tensors[i], p);
        bytes += slice_bytes(tensors[i], p);
    }
    struct weight packed = {0};
    TRY(be->ops->weight_init(be, &packed, views, n, err));
    *w = packed;
    l->m->weight_bytes += w->bytes;
    step(l, bytes);
    return 0;
}

// n parts, one above the other. w NULL: another rank's, to be checked only.
static int load_matrix(struct loader *l, struct weight *w, int32_t layer, const struct part *parts,
                       int n, struct err *err) {
    const struct tensor *tensors[MAX_PARTS];
    for (int i = 0; i < n; i++) {
        TRY(find_part(l, layer, &parts[i], "weight", &tensors[i], err));
        if (tensors[i]->dtype != tensors[0]->dtype)
            return err_set(err, E_UNSUPPORTED,
                           "the tensors '%s' (%s) and '%s' (%s) must be of one dtype",
                           tensors[0]->name, dtype_name(tensors[0]->dtype), tensors[i]->name,
                           dtype_name(tensors[i]->dtype));
        if (w && !l->packing) l->total += (int64_t)slice_bytes(tensors[i], &parts[i]);
    }
    return w && l->packing ? pack_matrix(l, w, parts, n, tensors, err) : 0;
}

// --- vectors: norms and biases, f32 on the device ---

static void to_f32(float *out, const void *in, enum dtype dtype, size_t n) {
    const uint16_t *half = in;
    if (dtype == DTYPE_F32) memcpy(out, in, n * sizeof *out);
    if (dtype == DTYPE_BF16)
        for (size_t i = 0; i < n; i++) out[i] = bf16_to_f32(half[i]);
    if (dtype == DTYPE_F16)
        for (size_t i = 0; i < n; i++) out[i] = f16_to_f32(half[i]);
}

static int to_device(struct model *m, float **out, const float *values, size_t n, struct err *err) {
    void *p = NULL;
    TRY(m->backend->ops->mem_alloc(m->backend, n * sizeof *values, &p, err));
    int rc = m->backend->ops->mem_write(m->backend, p, values, n * sizeof *values);
    if (rc < 0) {
        m->backend->ops->mem_free(m->backend, p);
        return err_set(err, rc, "the backend %s cannot take %zu bytes", m->backend->ops->name,
                       n * sizeof *values);
    }
    *out = p;
    m->weight_bytes += n * sizeof *values;
    return 0;
}

static int pack_vector(struct loader *l, float **out, const struct part *parts, int n,
                       const struct tensor *const *tensors, struct err *err) {
    size_t count = 0, at = 0, room = 0, bytes = 0;
    for (int i = 0; i < n; i++) {
        count += (size_t)parts[i].rows.count;
        bytes += slice_bytes(tensors[i], &parts[i]);
        if (staged_room(tensors[i], &parts[i]) > room) room = staged_room(tensors[i], &parts[i]);
    }
    TRY(stage(l, room, err));
    float *values = malloc(count * sizeof *values);
    if (!values) return err_set(err, E_NOMEM, "no memory for a vector of %zu", count);
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = read_part(l, tensors[i], &parts[i], l->staging, err);
        if (rc < 0) break;
        to_f32(values + at, l->staging, tensors[i]->dtype, (size_t)parts[i].rows.count);
        at += (size_t)parts[i].rows.count;
    }
    if (rc == 0) rc = to_device(l->m, out, values, count, err);
    free(values);
    if (rc == 0) step(l, bytes);
    return rc;
}

// The same for vectors: n parts, one behind the other; of a matrix's biases the parts are the
// matrix's.
static int load_vector(struct loader *l, float **out, int32_t layer, const struct part *parts,
                       int n, const char *suffix, struct err *err) {
    const struct tensor *tensors[MAX_PARTS];
    struct part vectors[MAX_PARTS];
    for (int i = 0; i < n; i++) {
        vectors[i] = parts[i];
        vectors[i].n_cols = 0;
        TRY(find_part(l, layer, &vectors[i], suffix, &tensors[i], err));
        if (out && !l->packing) l->total += (int64_t)slice_bytes(tensors[i], &vectors[i]);
    }
    return out && l->packing ? pack_vector(l, out, vectors, n, tensors, err) : 0;
}

static int load_norm(struct loader *l, float **out, int32_t layer, const char *stem, int32_t width,
                     struct err *err) {
    struct part p = {stem, width, 0, whole(width), {0, 0}};
    return load_vector(l, out, layer, &p, 1, "weight", err);
}

// --- the walk ---

static int load_attention(struct loader *l, struct layer_weights *w, int32_t layer,
                          struct err *err) {
    const struct model_config *c = &l->m->config;
    const struct family_tensors *t = l->names;
    int32_t d = c->head_dim, q = c->n_heads * d, kv = c->n_kv_heads * d;
    struct range q_rows = heads_rows(split_heads(&l->m->split, c->n_heads), d);
    struct range kv_rows = heads_rows(split_kv_heads(&l->m->split, c->n_kv_heads), d);
    const struct part qkv[] = {{t->q, q, c->width, q_rows, whole(c->width)},
                               {t->k, kv, c->width, kv_rows, whole(c->width)},
                               {t->v, kv, c->width, kv_rows, whole(c->width)}};
    const struct part o = {t->o, c->width, q, whole(c->width), q_rows};
    bool adds_bias = l->m->split.tp_rank == 0; // the ranks' outputs are summed: one of them adds it
    TRY(load_norm(l, w ? &w->attn_norm.weight : NULL, layer, t->attn_norm, c->width, err));
    TRY(load_matrix(l, w ? &w->qkv : NULL, layer, qkv, 3, err));
    if (c->qkv_bias) TRY(load_vector(l, w ? &w->qkv_bias : NULL, layer, qkv, 3, "bias", err));
    if (c->qk_norm) TRY(load_norm(l, w ? &w->q_norm : NULL, layer, t->q_norm, d, err));
    if (c->qk_norm) TRY(load_norm(l, w ? &w->k_norm : NULL, layer, t->k_norm, d, err));
    TRY(load_matrix(l, w ? &w->o : NULL, layer, &o, 1, err));
    if (c->o_bias)
        TRY(load_vector(l, w && adds_bias ? &w->o_bias : NULL, layer, &o, 1, "bias", err));
    return 0;
}

static int load_ffn(struct loader *l, struct layer_weights *w, int32_t layer, struct err *err) {
    const struct model_config *c = &l->m->config;
    const struct family_tensors *t = l->names;
    struct range mine = split_even(&l->m->split, c->ffn_width);
    const struct part up[] = {{t->gate, c->ffn_width, c->width, mine, whole(c->width)},
                              {t->up, c->ffn_width, c->width, mine, whole(c->width)}};
    const struct part down = {t->down, c->width, c->ffn_width, whole(c->width), mine};
    bool adds_bias = l->m->split.tp_rank == 0;
    TRY(load_norm(l, w ? &w->ffn_norm.weight : NULL, layer, t->ffn_norm, c->width, err));
    TRY(load_matrix(l, w ? &w->up : NULL, layer, up, 2, err));
    if (c->ffn_bias) TRY(load_vector(l, w ? &w->up_bias : NULL, layer, up, 2, "bias", err));
    TRY(load_matrix(l, w ? &w->down : NULL, layer, &down, 1, err));
    if (c->ffn_bias)
        TRY(load_vector(l, w && adds_bias ? &w->down_bias : NULL, layer, &down, 1, "bias", err));
    return 0;
}

// Embedding on the first pipeline rank, final norm and head on the last. A tied head is the
// embedding itself where this rank has all of it, else a slice of its own from the same tensor.
static int load_ends(struct loader *l, struct err *err) {
    struct model *m = l->m;
    const struct model_config *c = &m->config;
    bool first = m->split.pp_rank == 0, last = m->split.pp_rank == m->split.pp_size - 1;
    struct range rows = split_even(&m->split, c->vocab_size);
    const struct part embed = {l->names->embed, c->vocab_size, c->embed_width, whole(c->vocab_size),
                               whole(c->embed_width)};
    struct part head = embed;
    if (!c->tied_head) head.stem = l->names->head;
    head.rows = rows;
    m->head_is_embed = c->tied_head && first && last && rows.count == c->vocab_size;
    TRY(load_matrix(l, first ? &m->embed : NULL, -1, &embed, 1, err));
    if (!m->head_is_embed) TRY(load_matrix(l, last ? &m->head : NULL, -1, &head, 1, err));
    if (m->head_is_embed) m->head = m->embed;
    return load_norm(l, last ? &m->final_norm.weight : NULL, -1, l->names->final_norm, c->width,
                     err);
}

static int walk(struct loader *l, struct err *err) {
    struct model *m = l->m;
    TRY(load_ends(l, err));
    unstage(l); // the vocabulary's matrices are the largest by far
    for (int32_t i = 0; i < m->config.n_layers; i++) {
        bool mine = i >= m->first_layer && i < m->first_layer + m->n_layers;
        struct layer_weights *w = mine ? &m->layers[i - m->first_layer] : NULL;
        if (!w && l->packing) continue;
        TRY(load_attention(l, w, i, err));
        TRY(load_ffn(l, w, i, err));
    }
    return 0;
}

// Old checkpoints carry rotary tables, and tied ones a copy of the head: both are derived, not
// lost.
static bool is_derived(const struct model *m, const struct family_tensors *names,
                       const char *name) {
    size_t head = strlen(names->head);
    return strstr(name, "rotary_emb.inv_freq") ||
           (m->config.tied_head && strncmp(name, names->head, head) == 0);
}

static void report_unused(const struct loader *l) {
    size_t n = 0;
    const char *first = NULL;
    char quoted[TENSOR_NAME_MAX];
    for (size_t i = 0; i < checkpoint_count(l->cp); i++) {
        const char *name = checkpoint_at(l->cp, i)->name;
        if (l->used[i] || is_derived(l->m, l->names, name)) continue;
        if (n++ == 0) first = name;
    }
    if (n > 0)
        log_warn("model.unused_tensors", "count=%zu first=%s", n,
                 log_quote(quoted, sizeof quoted, first));
}

// --- public ---

static int prepare(struct model *m, struct err *err) {
    const struct model_config *c = &m->config;
    const struct split *s = &m->split;
    TRY(split_check(s, c->n_layers, c->n_heads, c->n_kv_heads, c->ffn_width, err));
    struct range layers = split_layers(s, c->n_layers);
    m->first_layer = layers.first;
    m->n_layers = layers.count;
    m->n_heads = split_heads(s, c->n_heads).count;
    m->n_kv_heads = split_kv_heads(s, c->n_kv_heads).count;
    m->ffn_width = split_even(s, c->ffn_width).count;
    m->vocab_rows = split_even(s, c->vocab_size).count;
    m->layers = calloc((size_t)m->n_layers, sizeof *m->layers);
    return m->layers ? 0 : err_set(err, E_NOMEM, "no memory for %d layers", m->n_layers);
}

static int load(struct loader *l, const char *model_dir, struct err *err) {
    struct model *m = l->m;
    TRY(model_config_load(&m->config, model_dir, err));
    TRY(prepare(m, err));
    TRY(checkpoint_open(&l->cp, model_dir, err));
    l->names = family_find(m->config.family)->tensors;
    l->used = calloc(checkpoint_count(l->cp) + 1, sizeof *l->used);
    if (!l->used) return err_set(err, E_NOMEM, "no memory to load %s", model_dir);
    TRY(walk(l, err));
    report_unused(l);
    l->packing = true;
    step(l, 0);
    TRY(walk(l, err));
    if (m->config.positions == POSITION_ROTARY)
        TRY(to_device(m, &m->inv_freq, m->config.inv_freq, (size_t)m->config.rot_dim / 2, err));
    TRY(fingerprint_compute(m->fingerprint, &m->config, l->cp, err));
    return checkpoint_check_unchanged(l->cp, err);
}

int model_load(struct model **out, const char *model_dir, struct backend *be,
               const struct split *split, void (*progress)(void *ctx, int64_t done, int64_t total),
               void *ctx, struct err *err) {
    struct model *m = calloc(1, sizeof *m);
    if (!m) return err_set(err, E_NOMEM, "no memory to load %s", model_dir);
    m->backend = be;
    m->split = *split;
    struct loader l = {.m = m, .progress = progress, .ctx = ctx};
    struct err why = {0};
    int rc = load(&l, model_dir, &why);
    unstage(&l);
    free(l.used);
    checkpoint_close(l.cp);
    if (rc == 0) {
        *out = m;
        return 0;
    }
    model_free(m);
    if (rc == E_NOMEM && l.total > 0)
        return err_set(err, rc, "%s needs %lld MiB for its weights: %s", model_dir,
                       (long long)(l.total >> 20) + 1, why.text);
    // Faults of a file begin with its path; the rest gets the folder's.
    if (strncmp(why.text, model_dir, strlen(model_dir)) == 0)
        return err_set(err, rc, "%s", why.text);
    return err_set(err, rc, "%s: %s", model_dir, why.text);
}

static void release_weight(struct model *m, struct weight *w) {
    if (w->data) m->backend->ops->weight_release(m->backend, w);
}

static void release_vector(struct model *m, float *v) {
    if (v) m->backend->ops->mem_free(m->backend, v);
}

static void release_layer(struct model *m, struct layer_weights *w) {
    float *const vectors[] = {
        w->attn_norm.weight, w->ffn_norm.weight, w->qkv_bias, w->q_norm,
        w->k_norm,           w->o_bias,          w->up_bias,  w->down_bias,
    };
    struct weight *const matrices[] = {&w->qkv, &w->o, &w->up, &w->down};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) release_vector(m, vectors[i]);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) release_weight(m, matrices[i]);
}

void model_free(struct model *m) {
    if (!m) return;
    for (int32_t i = 0; m->layers && i < m->n_layers; i++) release_layer(m, &m->layers[i]);
    if (!m->head_is_embed) release_weight(m, &m->head);
    release_weight(m, &m->embed);
    release_vector(m, m->final_norm.weight);
    release_vector(m, m->inv_freq);
    free(m->layers);
    free(m);
}
