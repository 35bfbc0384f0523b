// See gguf_shape.h. Keys: ggml's docs/gguf.md, and those that llama.cpp asks for.
#include "engine/convert/gguf_shape.h"
#include "base/json.h"
#include "engine/model/families.h"
#include "engine/model/rope.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define KEY_MAX 160

struct putting {
    struct gguf_shape *s;
    struct gguf_writer *w;
    struct err *err;
    char key[KEY_MAX];
    cJSON *ropes; // what the class takes for rotary parameters that config.json does not mention
};

static const char *key_of(struct putting *p, const char *name) {
    snprintf(p->key, sizeof p->key, "%s.%s", p->s->arch->name, name);
    return p->key;
}

static void put_u32(struct putting *p, const char *name, int64_t v) {
    gguf_put_u32(p->w, key_of(p, name), (uint32_t)v);
}

static void put_f32(struct putting *p, const char *name, double v) {
    gguf_put_f32(p->w, key_of(p, name), (float)v);
}

static double number(const cJSON *json, const char *key, double otherwise) {
    const cJSON *value = json_member(json, key);
    return cJSON_IsNumber(value) ? value->valuedouble : otherwise;
}

// --- sizes ---

static int32_t feed_width(const struct gguf_shape *s) {
    for (int32_t i = 0; i < s->c->n_kinds; i++)
        if (s->c->kinds[i].feed.width > 0) return s->c->kinds[i].feed.width;
    const double width = number(s->config, "intermediate_size", 0);
    return width > 0 && width <= MODEL_MAX_FFN ? (int32_t)width : s->c->kinds[0].feed.experts.width;
}

// Latent attention: keys and values of a head as its matrix "attn_kv_b" makes them, and how experts are chosen.
static void put_latent(struct putting *p, const struct attention_config *a) {
    enum { SOFTMAX = 1, SIGMOID }; // llama.cpp's numbers
    put_u32(p, "attention.head_count_kv", a->n_heads);
    put_u32(p, "attention.key_length", a->nope_dim + a->rope_dim);
    put_u32(p, "attention.value_length", a->v_head_dim);
    put_u32(p, "rope.dimension_count", a->rope_dim);
    put_u32(p, "expert_gating_func", p->s->arch->sigmoid ? SIGMOID : SOFTMAX);
}

static void put_heads(struct putting *p, const struct attention_config *a) {
    const struct model_config *c = p->s->c;
    put_u32(p, "attention.head_count_kv", a->n_kv_heads);
    put_u32(p, "attention.key_length", a->head_dim);
    put_u32(p, "attention.value_length", a->v_head_dim > 0 ? a->v_head_dim : a->head_dim);
    put_u32(p, "rope.dimension_count", c->n_ropes > 0 ? c->ropes[0].rot_dim : a->head_dim);
}

// Shapes by layer (Gemma 4): full layers have the plain keys, windowed ones those with "_swa".
static void put_layer_shapes(struct putting *p) {
    const struct model_config *c = p->s->c;
    const struct attention_config *full = &c->kinds[0].attention, *windowed = full;
    const uint64_t n = (uint64_t)c->n_layers;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const struct attention_config *a = &model_layer(c, i)->attention;
        *(a->window > 0 ? &windowed : &full) = a;
    }
    put_u32(p, "attention.key_length", full->head_dim);
    put_u32(p, "attention.value_length", full->head_dim);
    put_u32(p, "rope.dimension_count", full->head_dim);
    put_u32(p, "attention.key_length_swa", windowed->head_dim);
    put_u32(p, "attention.value_length_swa", windowed->head_dim);
    put_u32(p, "rope.dimension_count_swa", windowed->head_dim);
    put_u32(p, "attention.sliding_window", windowed->window);
    gguf_put_array(p->w, key_of(p, "attention.sliding_window_pattern"), GGUF_BOOL, n);
    for (int32_t i = 0; i < c->n_layers; i++)
        gguf_add_bool(p->w, model_layer(c, i)->attention.window > 0);
    gguf_put_array(p->w, key_of(p, "attention.head_count_kv"), GGUF_I32, n);
    for (int32_t i = 0; i < c->n_layers; i++)
        gguf_add_i32(p->w, model_layer(c, i)->attention.n_kv_heads);
    gguf_put_array(p->w, key_of(p, "feed_forward_length"), GGUF_I32, n);
    for (int32_t i = 0; i < c->n_layers; i++) gguf_add_i32(p->w, model_layer(c, i)->feed.width);
}

static void put_sizes(struct putting *p) {
    const struct model_config *c = p->s->c;
    const struct attention_config *a = &c->kinds[0].attention;
    put_u32(p, "block_count", c->n_layers);
    put_u32(p, "context_length", c->max_positions);
    put_u32(p, "embedding_length", c->width);
    if (!p->s->arch->layer_shapes) put_u32(p, "feed_forward_length", feed_width(p->s));
    put_u32(p, "attention.head_count", a->n_heads);
    put_u32(p, "vocab_size", c->vocab_size);
    put_f32(p,
            c->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                : "attention.layer_norm_epsilon",
            (double)c->norm_eps);
    if (p->s->arch->layer_shapes)
        put_layer_shapes(p);
    else if (p->s->arch->latent)
        put_latent(p, a);
    else
        put_heads(p, a);
}

// What config.json may leave out, or say otherwise. Negative: no such key.
static double of_experts(const struct gguf_shape *s, const char *key) {
    const struct model_config *c = s->c;
    const struct experts_config *x = NULL;
    int32_t leading = 0;
    while (leading < c->n_layers && model_layer(c, leading)->feed.experts.n_experts == 0) leading++;
    if (leading < c->n_layers) x = &model_layer(c, leading)->feed.experts;
    if (!x) return -1;
    if (strcmp(key, "leading_dense_block_count") == 0) return leading;
    if (strcmp(key, "expert_group_count") == 0) return x->n_groups;
    if (strcmp(key, "expert_group_used_count") == 0) return x->n_chosen_groups;
    if (strcmp(key, "expert_weights_norm") == 0) return x->normalised;
    if (strcmp(key, "expert_weights_scale") == 0) return x->factor > 0 ? (double)x->factor : 1;
    return -1;
}

// Keys of the architecture, under the types that llama.cpp gives them.
static int put_keys(struct putting *p) {
    static const char *const floats[] = {"attn_logit_softcapping", "final_logit_softcapping",
                                         "attention.scale",        "embedding_scale",
                                         "residual_scale",         "logit_scale",
                                         "expert_weights_scale"};
    for (const struct gguf_key *k = p->s->arch->keys; k && k->gguf; k++) {
        const cJSON *value = json_member(p->s->config, k->hf);
        bool is_float = false;
        if (!value && strcmp(k->gguf, "expert_count") == 0) // spelled in two ways
            value = json_member(p->s->config, "num_local_experts");
        for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
            is_float = is_float || strcmp(floats[i], k->gguf) == 0;
        const double of = of_experts(p->s, k->gguf);
        if (of >= 0 && strcmp(k->gguf, "expert_weights_norm") == 0)
            gguf_put_bool(p->w, key_of(p, k->gguf), of > 0);
        else if (of >= 0 && is_float)
            put_f32(p, k->gguf, of);
        else if (of >= 0)
            put_u32(p, k->gguf, (int64_t)of);
        if (of >= 0 || !value || cJSON_IsNull(value)) continue;
        if (cJSON_IsBool(value))
            gguf_put_bool(p->w, key_of(p, k->gguf), cJSON_IsTrue(value));
        else if (!cJSON_IsNumber(value))
            return err_set(p->err, E_UNSUPPORTED, "'%s' of config.json is no number", k->hf);
        else if (is_float)
            put_f32(p, k->gguf, value->valuedouble);
        else
            put_u32(p, k->gguf, (int64_t)value->valuedouble);
    }
    return 0;
}

// --- windows ---

// Only architectures whose layers llama.cpp computes with a window: elsewhere it would be ignored.
static int put_window(struct putting *p) {
    static const char *const windowed[] = {"gemma2", "gemma3",  "olmo2",
                                           "phi3",   "gpt-oss", "cohere2"};
    int32_t window = 0;
    for (int32_t i = 0; i < p->s->c->n_kinds; i++) {
        const int32_t w = p->s->c->kinds[i].attention.window;
        window = w > window ? w : window;
    }
    if (window == 0 || p->s->arch->layer_shapes) return 0; // nothing to say, or said
    // Of EXAONE 4 llama.cpp computes the windows of the model of 64 layers alone.
    if (strcmp(p->s->arch->name, "exaone4") == 0 && p->s->c->n_layers == 64) {
        put_u32(p, "attention.sliding_window", window);
        return 0;
    }
    for (size_t i = 0; i < sizeof windowed / sizeof *windowed; i++) {
        if (strcmp(windowed[i], p->s->arch->name) != 0) continue;
        put_u32(p, "attention.sliding_window", window);
        return 0;
    }
    return err_set(p->err, E_UNSUPPORTED,
                   "the model's layers have a window of %d tokens, which GGUF's architecture '%s' "
                   "cannot say",
                   window, p->s->arch->name);
}

// --- positions ---

static const struct family_keys *class_of(const struct gguf_shape *s) {
    const char *type = json_string(s->config, "model_type");
    const struct family *f = type ? family_find(type) : NULL;
    return f ? f->keys : NULL;
}

// The object of rotary parameters of the full layers, and the base frequency, which may be outside of it.
static const cJSON *rotary_of(const struct putting *p, double *theta) {
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    const struct gguf_shape *s = p->s;
    const struct family_keys *keys = class_of(s);
    *theta = number(s->config, "rope_theta", keys && keys->theta != 0 ? keys->theta : 10000);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const cJSON *json = json_member(s->config, names[i]);
        const cJSON *full = json_member(json, "full_attention");
        if (!cJSON_IsObject(json)) continue;
        if (cJSON_IsObject(full)) json = full;
        *theta = number(json, "rope_theta", *theta);
        return json;
    }
    return p->ropes;
}

// The other frequency of models with two rotations.
static double local_theta(const struct gguf_shape *s, double theta) {
    const cJSON *sliding =
        json_member(json_member(s->config, "rope_parameters"), "sliding_attention");
    const double otherwise = s->arch->local_theta > 0 ? s->arch->local_theta : theta;
    return number(sliding, "rope_theta", number(s->config, "rope_local_base_freq", otherwise));
}

// Of the architectures with two rotations llama.cpp reads the second frequency for Gemma's alone.
static int put_local_theta(struct putting *p, double theta) {
    const double local = local_theta(p->s, theta);
    if (p->s->arch->local_theta > 0)
        put_f32(p, "rope.freq_base_swa", local);
    else if (local != theta)
        return err_set(p->err, E_UNSUPPORTED,
                       "windowed layers turn by rope_theta %g and full ones by %g, which GGUF's "
                       "architecture '%s' cannot say",
                       local, theta, p->s->arch->name);
    return 0;
}

static struct gguf_factors *new_factors(struct gguf_shape *s, const char *name, int32_t n) {
    struct gguf_factors *f = &s->factors[s->n_factors++];
    f->name = name;
    f->n = n;
    return f;
}

// llama3: how much slower each pair turns than without scaling.
static void add_llama3(struct gguf_shape *s, double theta) {
    const struct rope *r = &s->c->ropes[0];
    struct gguf_factors *f = new_factors(s, "rope_freqs.weight", r->rot_dim / 2);
    for (int32_t i = 0; i < f->n; i++) {
        const double plain = pow(theta, -2.0 * i / r->rot_dim);
        f->values[i] = (float)(plain / (double)r->inv_freq[i]);
        // A factor of rounding alone.
        if (fabsf(f->values[i] - 1) < 1e-5f) f->values[i] = 1;
    }
}

// proportional: pairs that stand still are divided by what leaves nothing of their frequency.
static void add_proportional(struct gguf_shape *s) {
    const struct rope *r = &s->c->ropes[0];
    struct gguf_factors *f = new_factors(s, "rope_freqs.weight", r->rot_dim / 2);
    for (int32_t i = 0; i < f->n; i++) f->values[i] = r->inv_freq[i] > 0 ? 1 : 1e30f;
}

static int add_list(struct putting *p, const cJSON *rotary, const char *key, const char *name) {
    const cJSON *list = json_member(rotary, key), *item;
    const int n = cJSON_GetArraySize(list);
    if (n < 1 || n > MODEL_MAX_ROT / 2)
        return err_set(p->err, E_UNSUPPORTED, "'%s' of config.json is no list of factors", key);
    struct gguf_factors *f = new_factors(p->s, name, n);
    int i = 0;
    cJSON_ArrayForEach(item, list) f->values[i++] = (float)item->valuedouble;
    return 0;
}

static int put_longrope(struct putting *p, const cJSON *rotary) {
    put_u32(p, "rope.scaling.original_context_length",
            (int64_t)number(rotary, "original_max_position_embeddings",
                            number(p->s->config, "original_max_position_embeddings", 0)));
    put_f32(p, "rope.scaling.attn_factor", (double)p->s->c->ropes[0].scale);
    TRY(add_list(p, rotary, "short_factor", "rope_factors_short.weight"));
    return add_list(p, rotary, "long_factor", "rope_factors_long.weight");
}

// The factor of cos and sin is yarn's own in every reader: another one has no key that all understand alike.
static int put_yarn(struct putting *p, const cJSON *rotary) {
    const double factor = number(rotary, "factor", 1), own = 0.1 * log(factor) + 1;
    const double mscale = number(rotary, "mscale_all_dim", 0);
    const bool by_key =
        p->s->arch->mscale > 0 && mscale > 0 && mscale == number(rotary, "mscale", 0);
    if (by_key) put_f32(p, "rope.scaling.yarn_log_multiplier", mscale / p->s->arch->mscale);
    if (!by_key && fabs((double)p->s->c->ropes[0].scale - own) > 1e-5 * own &&
        fabs((double)p->s->c->ropes[p->s->c->n_ropes - 1].scale - own) > 1e-5 * own)
        return err_set(p->err, E_UNSUPPORTED,
                       "the rotation's attention factor is %g, not yarn's own %g, which GGUF files "
                       "cannot say",
                       (double)p->s->c->ropes[0].scale, own);
    put_f32(p, "rope.scaling.factor", number(rotary, "factor", 1));
    put_u32(p, "rope.scaling.original_context_length",
            (int64_t)number(
                rotary, "original_max_position_embeddings",
                number(p->s->config, "original_max_position_embeddings", p->s->c->max_positions)));
    put_f32(p, "rope.scaling.yarn_beta_fast", number(rotary, "beta_fast", 32));
    put_f32(p, "rope.scaling.yarn_beta_slow", number(rotary, "beta_slow", 1));
    return 0;
}

static int put_positions(struct putting *p) {
    double theta;
    const cJSON *rotary = rotary_of(p, &theta);
    const char *type = json_string(rotary, "rope_type");
    if (!type) type = json_string(rotary, "type");
    if (!type) type = "default";
    if (strcmp(type, "dynamic") == 0 &&
        number(rotary, "alpha", 0) > 0) { // Hunyuan's: a scale of theta
        const double rot_dim = p->s->c->ropes[0].rot_dim;
        theta *= pow(number(rotary, "alpha", 1), rot_dim / (rot_dim - 2));
        type = "default";
    }
    put_f32(p, "rope.freq_base", theta);
    if (p->s->arch->two_ropes) TRY(put_local_theta(p, theta));
    if (strcmp(type, "default") == 0) return 0;
    if (strcmp(type, "llama3") == 0) {
        add_llama3(p->s, theta);
        return 0;
    }
    if (strcmp(type, "proportional") == 0 && p->s->arch->layer_shapes) {
        add_proportional(p->s);
        return 0;
    }
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) return put_longrope(p, rotary);
    const bool yarn = strcmp(type, "yarn") == 0;
    if (!yarn && strcmp(type, "linear") != 0)
        return err_set(p->err, E_UNSUPPORTED,
                       "the rotation's scaling '%.40s' is not written into GGUF files", type);
    gguf_put_string(p->w, key_of(p, "rope.scaling.type"), type);
    if (yarn) return put_yarn(p, rotary);
    put_f32(p, "rope.scaling.factor", number(rotary, "factor", 1));
    return 0;
}

int gguf_shape_put(struct gguf_shape *s, struct gguf_writer *w, struct err *err) {
    struct putting p = {.s = s, .w = w, .err = err};
    const struct family_keys *keys = class_of(s);
    s->n_factors = 0;
    put_sizes(&p);
    TRY(put_keys(&p));
    TRY(put_window(&p));
    TRY(rope_default(keys ? keys->ropes : NULL, s->config, &p.ropes, err));
    const int rc = put_positions(&p);
    cJSON_Delete(p.ropes);
    return rc;
}

// --- what was read back ---

static bool same_frequencies(const float *a, const float *b, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (fabsf(a[i] - b[i]) > 1e-6f * fabsf(a[i])) return false;
    return true;
}

static bool same_ropes(const struct model_config *a, const struct model_config *b) {
    if (a->n_ropes != b->n_ropes) return false;
    for (int32_t i = 0; i < a->n_ropes; i++) {
        const struct rope *x = &a->ropes[i], *y = &b->ropes[i];
        const int32_t n = x->rot_dim / 2;
        if (x->style != y->style || x->rot_dim != y->rot_dim || x->short_len != y->short_len ||
            fabsf(x->scale - y->scale) > 1e-6f * x->scale)
            return false;
        if (!same_frequencies(x->inv_freq, y->inv_freq, n) ||
            (x->short_len > 0 && !same_frequencies(x->short_inv_freq, y->short_inv_freq, n)))
            return false;
    }
    return true;
}

static bool same_layers(const struct model_config *a, const struct model_config *b) {
    if (a->n_layers != b->n_layers || a->n_kinds != b->n_kinds) return false;
    return memcmp(a->kind_of, b->kind_of, (size_t)a->n_layers) == 0 &&
           memcmp(a->kinds, b->kinds, (size_t)a->n_kinds * sizeof *a->kinds) == 0;
}

static bool has_end(const struct model_config *c, int32_t id) {
    for (int32_t i = 0; i < c->n_eos; i++)
        if (c->eos_ids[i] == id) return true;
    return false;
}

static bool same_ends(const struct model_config *a, const struct model_config *b) {
    for (int32_t i = 0; i < a->n_eos; i++)
        if (!has_end(b, a->eos_ids[i])) return false;
    for (int32_t i = 0; i < b->n_eos; i++)
        if (!has_end(a, b->eos_ids[i])) return false;
    return true;
}

int gguf_shape_compare(const struct model_config *a, const struct model_config *b,
                       struct err *err) {
    const struct {
        bool same;
        const char *what;
    } parts[] = {
        {a->width == b->width && a->vocab_size == b->vocab_size &&
             a->embed_width == b->embed_width && a->max_positions == b->max_positions,
         "its sizes"},
        {same_layers(a, b), "its layers"},
        {a->positions == b->positions && same_ropes(a, b), "its positions"},
        {a->norm == b->norm && a->norm_eps == b->norm_eps && a->norm_plus_one == b->norm_plus_one &&
             a->norm_bias == b->norm_bias && a->final_norm == b->final_norm &&
             a->embed_norm == b->embed_norm,
         "its norms"},
        {a->embed_scale == b->embed_scale && a->logit_scale == b->logit_scale &&
             a->logit_soft_cap == b->logit_soft_cap && a->head_bias == b->head_bias &&
             a->tied_head == b->tied_head && a->per_layer_width == b->per_layer_width,
         "its embedding or head"},
        {same_ends(a, b), "the tokens that end an answer"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!parts[i].same)
            return err_set(err, E_UNSUPPORTED,
                           "GGUF's metadata cannot say all of this model: %s would be others",
                           parts[i].what);
    return 0;
}
