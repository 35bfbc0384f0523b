// See calibrate.h. The backend's `linear` is replaced by one that also adds up its inputs' products; the ops that would
// bypass it are left out, so forward composes all of a step from it.
#include "engine/convert/calibrate.h"
#include "base/log.h"
#include "engine/model/families.h"
#include "engine/run/forward.h"
#include "engine/text/token_list.h"
#include "engine/text/tokenizer.h"
#include "kernels/int4.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 512, BLOCK_TOKENS = 16, STEMS_MAX = 4 };
enum { EXPERT_ROWS = 16 }; // an expert with fewer is rounded as without a text

struct inputs { // of one matrix of the model, which may be several tensors
    const struct weight *of;
    const char *stems[STEMS_MAX]; // of the tensors; NULL: fewer
    int32_t layer, cols;
    float *factors; // (cols, INT4_BLOCK) of each block of columns (width, width)
    // `of` is the first of n_experts downs, which have weights instead. 0: a matrix, or all gates and ups of a layer.
    int32_t n_experts;
    float *weights; // (n_experts, cols) the sums of their inputs' squares
    int32_t *rows;  // (n_experts) of the text that they saw
};

struct calibration {
    struct backend *backend; // with `ops` in place of its own until the run ends
    const struct backend_ops *own;
    struct backend_ops ops;
    struct model *model;
    struct inputs *list; // (n) in the model's order
    size_t n, next;      // next: where the search for a matrix begins
    const struct family_tensors *names;
    char expert_stems[3][TENSOR_NAME_MAX]; // gate, up and down, without the expert's number
};

static struct calibration *running; // ops have no place for a context

// --- collecting ---

static int64_t block_width(int64_t cols, int64_t first) {
    return cols - first < INT4_BLOCK ? cols - first : INT4_BLOCK;
}

// Adds x x^T of n rows of x (n, cols) to the upper half of each block.
static void add_products(struct inputs *in, const float *x, int32_t n) {
    const int64_t cols = in->cols;
    for (int64_t first = 0; first < cols; first += INT4_BLOCK) {
        const int64_t width = block_width(cols, first);
        float *block = in->factors + first * INT4_BLOCK;
        for (int64_t i = 0; i < width; i++)
            for (int32_t t = 0; t < n; t++) {
                const float *row = x + t * cols + first, at = row[i];
                for (int64_t k = i; k < width; k++) block[i * width + k] += at * row[k];
            }
    }
}

// Matrices are used in the order of the list, so the search seldom takes a second look.
static struct inputs *find_inputs(struct calibration *c, const struct weight *w) {
    for (size_t i = 0; i < c->n; i++) {
        struct inputs *in = &c->list[(c->next + i) % c->n];
        if (in->of != w) continue;
        c->next = (size_t)(in - c->list) + 1;
        return in;
    }
    return NULL;
}

static int tapped_linear(struct backend *be, enum linear_mode mode, void *y, const void *x,
                         int32_t n, const struct weight *w, const float *bias) {
    struct inputs *in = find_inputs(running, w);
    if (in) add_products(in, x, n);
    return running->own->linear(be, mode, y, x, n, w, bias);
}

// activated (n, down's columns): what an expert's down gets for its rows x (n, up's columns).
static int run_up(struct backend *be, const struct experts_args *a, int32_t expert, const float *x,
                  int32_t n, float *up, float *activated) {
    const struct weight *w = &a->up[expert];
    const float *bias = a->up_bias ? a->up_bias + (int64_t)expert * w->rows : NULL;
    TRY(running->own->linear(be, LINEAR_STORE, up, x, n, w, bias));
    return running->own->activate(be, a->activate.act, a->activate.gated, activated, up, n,
                                  a->down[expert].cols);
}

static int32_t take_rows(float *to, const float *x, int32_t n, int32_t cols, const int32_t *ids,
                         int32_t n_chosen, int32_t expert) {
    int32_t taken = 0;
    for (int32_t i = 0; i < n * n_chosen; i++)
        if (ids[i] == expert)
            memcpy(to + (int64_t)taken++ * cols, x + (int64_t)(i / n_chosen) * cols,
                   (size_t)cols * sizeof *x);
    return taken;
}

static int add_downs(struct backend *be, struct inputs *in, const float *x, int32_t n,
                     const int32_t *ids, const struct experts_args *a) {
    const int32_t from = a->up[0].cols, wide = a->up[0].rows, cols = in->cols;
    float *rows = malloc((size_t)n * (size_t)(from + wide + cols) * sizeof *rows);
    int rc = rows ? 0 : E_NOMEM;
    for (int32_t e = 0; e < in->n_experts && rc == 0; e++) {
        const int32_t taken = take_rows(rows, x, n, from, ids, a->n_chosen, e);
        float *up = rows + (int64_t)n * from, *activated = up + (int64_t)n * wide;
        float *sums = in->weights + (int64_t)e * cols;
        if (taken == 0) continue;
        rc = run_up(be, a, e, rows, taken, up, activated);
        for (int64_t i = 0; i < (int64_t)taken * cols && rc == 0; i++)
            sums[i % cols] += activated[i] * activated[i];
        in->rows[e] += taken;
    }
    free(rows);
    return rc;
}

static int tapped_experts(struct backend *be, enum linear_mode mode, void *y, const void *x,
                          int32_t n, const int32_t *ids, const float *weights,
                          const struct experts_args *args, void *work) {
    struct inputs *in = find_inputs(running, args->up);
    if (in) add_products(in, x, n);
    in = find_inputs(running, args->down);
    if (in) TRY(add_downs(be, in, x, n, ids, args));
    return running->own->experts(be, mode, y, x, n, ids, weights, args, work);
}

static void tap(struct calibration *c) {
    c->own = c->backend->ops;
    c->ops = *c->own;
    c->ops.linear = tapped_linear;
    c->ops.experts = tapped_experts;
    c->ops.norm_linear = NULL;
    c->ops.linear_activate = NULL;
    c->ops.feed_forward = NULL;
    c->backend->ops = &c->ops;
    running = c;
}

static void untap(struct calibration *c) {
    if (c->own) c->backend->ops = c->own;
    c->own = NULL;
    running = NULL;
}

// --- the list of matrices ---

static int add_inputs(struct calibration *c, const struct weight *w, int32_t layer, const char *a,
                      const char *b, const char *d, const char *e, struct err *err) {
    if (!w->data || w->cols % INT4_GROUP != 0) return 0;
    struct inputs *in = &c->list[c->n];
    *in = (struct inputs){.of = w, .stems = {a, b, d, e}, .layer = layer, .cols = w->cols};
    in->factors = calloc((size_t)w->cols * INT4_BLOCK, sizeof *in->factors);
    if (!in->factors)
        return err_set(err, E_NOMEM, "no memory for the products of %d columns", w->cols);
    c->n++;
    return 0;
}

static int add_expert_inputs(struct calibration *c, int32_t layer, struct err *err) {
    const struct experts_weights *w = &c->model->layers[layer].experts;
    const struct experts_config *x = &model_row(c->model, layer)->feed.experts;
    if (!w->up) return 0;
    TRY(add_inputs(c, w->up, layer, c->expert_stems[0], c->expert_stems[1], NULL, NULL, err));
    if (w->down->cols % INT4_GROUP != 0 || x->limit != 0) return 0;
    const size_t n = (size_t)x->n_experts;
    struct inputs *in = &c->list[c->n++];
    *in = (struct inputs){.of = w->down,
                          .stems = {c->expert_stems[2]},
                          .layer = layer,
                          .cols = w->down->cols,
                          .n_experts = x->n_experts};
    in->weights = calloc(n * (size_t)in->cols, sizeof *in->weights);
    in->rows = calloc(n, sizeof *in->rows);
    if (in->weights && in->rows) return 0;
    return err_set(err, E_NOMEM, "no memory for the inputs of %zu experts", n);
}

static int list_inputs(struct calibration *c, struct err *err) {
    enum { EACH = 11 };
    const struct model *m = c->model;
    const struct family_tensors *t = c->names;
    c->list = calloc((size_t)m->n_layers * EACH, sizeof *c->list);
    if (!c->list) return err_set(err, E_NOMEM, "no memory for the list of matrices");
    const char *const experts[] = {t->expert_gate, t->expert_up, t->expert_down};
    for (int i = 0; i < 3; i++)
        if (t->experts && experts[i])
            snprintf(c->expert_stems[i], sizeof c->expert_stems[i], "%s.%s", t->experts,
                     experts[i]);
    for (int32_t i = 0; i < m->n_layers; i++) {
        const struct layer_weights *w = &m->layers[i];
        TRY(add_inputs(c, &w->qkv, i, t->q, t->k, t->v, t->qkv, err));
        TRY(add_inputs(c, &w->latent.q_in, i, t->q_a, t->q, t->kv_a, NULL, err));
        TRY(add_inputs(c, &w->latent.kv_in, i, t->kv_a, NULL, NULL, NULL, err));
        TRY(add_inputs(c, &w->latent.q, i, t->q_b, NULL, NULL, NULL, err));
        TRY(add_inputs(c, &w->o, i, t->o, NULL, NULL, NULL, err));
        TRY(add_inputs(c, &w->up, i, t->gate, t->up, t->gate_up, NULL, err));
        TRY(add_inputs(c, &w->down, i, t->down, NULL, NULL, NULL, err));
        TRY(add_inputs(c, &w->experts.shared_up, i, t->shared_gate, t->shared_up, NULL, NULL, err));
        TRY(add_inputs(c, &w->experts.shared_down, i, t->shared_down, NULL, NULL, NULL, err));
        TRY(add_expert_inputs(c, i, err));
    }
    return 0;
}

// The number of the expert whose tensor this is, which `out` has the name of without it; -1: it is no expert's.
static int32_t take_expert(const struct calibration *c, const char *tensor,
                           char out[TENSOR_NAME_MAX]) {
    const char *experts = c->names->experts, *at = experts ? strstr(tensor, experts) : NULL;
    char *end;
    snprintf(out, TENSOR_NAME_MAX, "%s", tensor);
    if (!at || at[strlen(experts)] != '.') return -1;
    const char *number = at + strlen(experts) + 1;
    const long e = strtol(number, &end, 10);
    if (end == number || *end != '.' || e < 0 || e >= ROUTE_MAX_EXPERTS) return -1;
    snprintf(out, TENSOR_NAME_MAX, "%.*s%s", (int)(number - 1 - tensor), tensor, end);
    return (int32_t)e;
}

static const struct inputs *find_stem(const struct calibration *c, const char *tensor) {
    char name[TENSOR_NAME_MAX];
    for (size_t i = 0; i < c->n; i++) {
        const struct inputs *in = &c->list[i];
        for (int k = 0; k < STEMS_MAX; k++) {
            if (!in->stems[k] || !in->stems[k][0]) continue;
            family_tensor_name(name, c->names, in->layer, in->stems[k], "weight");
            const size_t n = strlen(name), all = strlen(tensor);
            // A folder's names may have the prefix of a whole model, or lack it.
            if ((n <= all && strcmp(tensor + all - n, name) == 0) ||
                (all < n && name[n - all - 1] == '.' && strcmp(name + n - all, tensor) == 0))
                return in;
        }
    }
    return NULL;
}

struct int4_inputs calibration_find(void *ctx, const char *tensor, int64_t cols) {
    char name[TENSOR_NAME_MAX];
    const int32_t expert = take_expert(ctx, tensor, name);
    const struct inputs *in = find_stem(ctx, name);
    struct int4_inputs found = {NULL, NULL};
    if (!in || in->cols != cols || expert >= (in->n_experts ? in->n_experts : ROUTE_MAX_EXPERTS) ||
        (expert < 0 && in->n_experts > 0))
        return found;
    if (in->n_experts == 0)
        found.factors = in->factors;
    else if (in->rows[expert] >= EXPERT_ROWS)
        found.weights = in->weights + expert * cols;
    return found;
}

// --- running the text ---

static int run_chunk(struct forward *f, const int32_t *ids, int32_t n, const struct kv_map *maps) {
    int32_t positions[CHUNK], last = n - 1;
    for (int32_t i = 0; i < n; i++) positions[i] = i;
    const struct batch_seq seq = {.n_rows = n, .memory_len = n, .maps = maps};
    const struct batch b = {.n_rows = n,
                            .n_seqs = 1,
                            .n_logits = 1,
                            .ids = ids,
                            .positions = positions,
                            .logit_rows = &last,
                            .seqs = &seq};
    const int rc = forward_run(f, &b), done = forward_done(f);
    return rc < 0 ? rc : done;
}

static int run_ids(const struct calibrate_options *o, struct forward *f,
                   const struct token_list *ids, struct err *err) {
    const int32_t most =
        f->model->config.max_positions < CHUNK ? f->model->config.max_positions : CHUNK;
    int32_t blocks[CHUNK / BLOCK_TOKENS];
    struct kv_map maps[KV_GROUPS_MAX];
    for (int32_t i = 0; i < CHUNK / BLOCK_TOKENS; i++) blocks[i] = i;
    for (int32_t i = 0; i < KV_GROUPS_MAX; i++)
        maps[i] = (struct kv_map){
            .blocks = blocks, .n_ring_blocks = CHUNK / BLOCK_TOKENS, .block_tokens = BLOCK_TOKENS};
    const size_t all = ids->len < CALIBRATE_MAX_TOKENS ? ids->len : CALIBRATE_MAX_TOKENS;
    for (size_t at = 0; at < all; at += (size_t)most) {
        const size_t left = all - at;
        const int32_t n = left < (size_t)most ? (int32_t)left : most;
        const int rc = run_chunk(f, ids->ids + at, n, maps);
        if (rc < 0) return err_set(err, rc, "the model could not be run on the calibration text");
        if (o->progress) o->progress(o->progress_ctx, (int64_t)at + n, (int64_t)all);
        if (o->stop && *o->stop) return err_set(err, E_CANCELLED, "interrupted");
    }
    return 0;
}

static int run_forward(struct calibration *c, const struct calibrate_options *o,
                       const struct token_list *ids, struct err *err) {
    struct cache_stores kv;
    struct forward f = {0};
    int rc;
    cache_stores_shape(&kv, c->model, DTYPE_F32, BLOCK_TOKENS, CHUNK / BLOCK_TOKENS);
    TRY(cache_stores_init(&kv, c->backend, err));
    tap(c);
    const struct forward_options fo = {
        .model = c->model, .comm = comm_none(), .kv = &kv, .max_rows = CHUNK, .max_logits = 1};
    TRY_GOTO(out, forward_init(&f, &fo, err));
    rc = run_ids(o, &f, ids, err);
out:
    forward_release(&f);
    untap(c);
    cache_stores_release(&kv, c->backend);
    return rc;
}

// Some of the mean is added to each, since a text shows only some of the inputs that will come. Returns how many
// experts saw too few rows.
static int settle_experts(struct inputs *in, struct err *err) {
    int few = 0;
    for (int32_t e = 0; e < in->n_experts; e++) {
        float *w = in->weights + (int64_t)e * in->cols, mean = 0;
        few += in->rows[e] < EXPERT_ROWS;
        for (int32_t k = 0; k < in->cols; k++) mean += w[k] / (float)in->cols;
        if (!isfinite(mean))
            return err_set(err, E_INVAL,
                           "expert %d of layer %d gives values on the calibration text that are "
                           "infinite or no numbers",
                           e, in->layer);
        for (int32_t k = 0; k < in->cols; k++) w[k] += 0.1f * mean;
    }
    return few;
}

static int settle(struct calibration *c, struct err *err) {
    int few = 0, all = 0;
    for (size_t i = 0; i < c->n; i++) {
        struct inputs *in = &c->list[i];
        const int rc = settle_experts(in, err);
        if (rc < 0) return rc;
        few += rc;
        all += in->n_experts;
        for (int64_t first = 0; first < in->cols && in->factors; first += INT4_BLOCK)
            TRY(int4_factors(in->factors + first * INT4_BLOCK, block_width(in->cols, first), err));
    }
    if (few > 0)
        log_warn("calibrate.few_rows",
                 "experts=%d of=%d note=\"they saw fewer than %d tokens of the text: their down "
                 "matrices are rounded as without it\"",
                 few, all, EXPERT_ROWS);
    return 0;
}

static void close_model(struct calibration *c) {
    model_free(c->model);
    if (c->backend) c->backend->ops->close(c->backend);
    c->model = NULL;
    c->backend = NULL;
}

static int run_model(struct calibration *c, const struct calibrate_options *o,
                     const struct token_list *ids, struct err *err) {
    TRY(backend_cpu_open(&c->backend, 0, NULL, err));
    const struct model_load_options mo = {
        .dir = o->model_dir, .backend = c->backend, .split = &split_single};
    TRY(model_load(&c->model, &mo, err));
    c->names = family_tensors_of(&c->model->config);
    TRY(list_inputs(c, err));
    TRY(run_forward(c, o, ids, err));
    close_model(c);
    return settle(c, err);
}

static int read_ids(const struct calibrate_options *o, struct token_list *ids, struct err *err) {
    struct tokenizer *t = NULL;
    TRY(tokenizer_open(&t, o->model_dir, err));
    int rc = tokenizer_encode(t, o->text, o->text_len, NULL, ids, err);
    tokenizer_close(t);
    if (rc == 0 && ids->len == 0) rc = err_set(err, E_INVAL, "the calibration text has no token");
    return rc;
}

int calibrate_run(struct calibration **out, const struct calibrate_options *o, struct err *err) {
    struct calibration *c = calloc(1, sizeof *c);
    struct token_list ids;
    *out = NULL;
    if (!c) return err_set(err, E_NOMEM, "no memory to calibrate");
    token_list_init(&ids);
    int rc = read_ids(o, &ids, err);
    if (rc == 0) rc = run_model(c, o, &ids, err);
    token_list_release(&ids);
    if (rc < 0)
        calibration_free(c);
    else
        *out = c;
    return rc;
}

void calibration_free(struct calibration *c) {
    if (!c) return;
    for (size_t i = 0; i < c->n; i++) {
        free(c->list[i].factors);
        free(c->list[i].weights);
        free(c->list[i].rows);
    }
    free(c->list);
    close_model(c);
    free(c);
}
