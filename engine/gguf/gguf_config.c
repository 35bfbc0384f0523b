// Metadata of a GGUF file as config.json has it. See gguf_config.h.
#include "engine/gguf/gguf_config.h"
#include "base/json.h"
#include "engine/gguf/gguf_arch.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 160
#define ROPE_FREQS "rope_freqs.weight"
#define ROPE_SHORT "rope_factors_short.weight"
#define ROPE_LONG "rope_factors_long.weight"
#define ROPE_FREQS_MAX 4096

struct making {
    const struct gguf *g;
    const struct gguf_arch *arch;
    const cJSON *metadata;
    cJSON *into;
    struct err *err;
};

static int no_memory(const struct making *m) {
    return err_set(m->err, E_NOMEM, "no memory for the model's switches");
}

static const cJSON *value_of(const struct making *m, const char *key) {
    char name[KEY_MAX];
    snprintf(name, sizeof name, "%s.%s", m->arch->name, key);
    return json_member(m->metadata, name);
}

static int add(const struct making *m, cJSON *into, const char *key, cJSON *item) {
    if (item && cJSON_AddItemToObject(into, key, item)) return 0;
    cJSON_Delete(item);
    return no_memory(m);
}

// A number, or an array of equal numbers, one for each layer.
static int add_number(const struct making *m, const struct gguf_key *key) {
    const cJSON *value = value_of(m, key->gguf), *first = value, *item;
    if (!value) return 0;
    if (cJSON_IsArray(value)) {
        first = value->child;
        cJSON_ArrayForEach(item, value) {
            if (!cJSON_IsNumber(item) || item->valuedouble != first->valuedouble)
                return err_set(m->err, E_UNSUPPORTED, "'%s.%s' differs between layers",
                               m->arch->name, key->gguf);
        }
    }
    cJSON_DeleteItemFromObjectCaseSensitive(m->into, key->hf); // the architecture's default
    if (cJSON_IsBool(first)) return add(m, m->into, key->hf, cJSON_CreateBool(cJSON_IsTrue(first)));
    if (!cJSON_IsNumber(first))
        return err_set(m->err, E_FORMAT, "'%s.%s' is no number", m->arch->name, key->gguf);
    return add(m, m->into, key->hf, cJSON_CreateNumber(first->valuedouble));
}

static bool differs_by_layer(const struct making *m, const char *key) {
    return m->arch->layer_shapes &&
           (strcmp(key, "attention.head_count_kv") == 0 ||
            strcmp(key, "attention.key_length") == 0 || strcmp(key, "feed_forward_length") == 0);
}

static int add_numbers(const struct making *m, const struct gguf_key *keys) {
    for (; keys && keys->gguf; keys++)
        if (!differs_by_layer(m, keys->gguf)) TRY(add_number(m, keys));
    return 0;
}

// --- positions ---

static double number(const struct making *m, const char *key, double otherwise) {
    const cJSON *value = value_of(m, key);
    return cJSON_IsNumber(value) ? value->valuedouble : otherwise;
}

// Factors that divide the frequencies of the dimensions, one number for each pair.
static int add_factors(const struct making *m, cJSON *scaling, const char *key, const char *name) {
    const struct gguf_tensor *t = gguf_find(m->g, name);
    float values[ROPE_FREQS_MAX];
    if (!t || t->n_dims != 1 || t->shape[0] > ROPE_FREQS_MAX || strcmp(t->type->name, "F32") != 0)
        return err_set(m->err, E_FORMAT, "the tensor '%s' is no row of F32", name);
    TRY(gguf_read(m->g, t, 0, values, (size_t)t->bytes, m->err));
    return add(m, scaling, key, cJSON_CreateFloatArray(values, (int)t->shape[0]));
}

// rope_freqs: factors for all lengths, which is what longrope's are if both of them are the same.
static int add_rope_freqs(const struct making *m, cJSON *scaling) {
    TRY(add(m, scaling, "rope_type", cJSON_CreateString("longrope")));
    TRY(add_factors(m, scaling, "short_factor", ROPE_FREQS));
    TRY(add_factors(m, scaling, "long_factor", ROPE_FREQS));
    TRY(add(m, scaling, "attention_factor", cJSON_CreateNumber(1)));
    return add(m, scaling, "original_max_position_embeddings",
               cJSON_CreateNumber(number(m, "context_length", 1)));
}

static const struct gguf_key original_length = {"rope.scaling.original_context_length",
                                                "original_max_position_embeddings"};

static int add_longrope(const struct making *m, cJSON *scaling) {
    static const struct gguf_key factor = {"rope.scaling.attn_factor", "attention_factor"};
    struct making inner = *m;
    inner.into = scaling;
    TRY(add(m, scaling, "rope_type", cJSON_CreateString("longrope")));
    TRY(add_factors(m, scaling, "short_factor", ROPE_SHORT));
    TRY(add_factors(m, scaling, "long_factor", ROPE_LONG));
    TRY(add_number(&inner, &factor));
    return add_number(&inner, &original_length);
}

static int add_rope_scaling(const struct making *m, cJSON *scaling) {
    static const struct gguf_key yarn[] = {
        {"rope.scaling.yarn_beta_fast", "beta_fast"},
        {"rope.scaling.yarn_beta_slow", "beta_slow"},
        {"rope.scaling.yarn_attn_factor", "attention_factor"},
        {NULL, NULL},
    };
    const cJSON *type = value_of(m, "rope.scaling.type");
    // Older files have a factor alone, some by another name: a linear scaling.
    const double factor = number(m, "rope.scaling.factor", number(m, "rope.scale_linear", 1));
    const char *unnamed = factor > 0 && factor != 1 ? "linear" : "none";
    const char *name = type && cJSON_IsString(type) ? type->valuestring : unnamed;
    const bool none = strcmp(name, "none") == 0, is_yarn = strcmp(name, "yarn") == 0;
    if (!none && !is_yarn && strcmp(name, "linear") != 0)
        return err_set(m->err, E_UNSUPPORTED,
                       "'%s.rope.scaling.type' is '%.40s'; known are linear and yarn",
                       m->arch->name, name);
    TRY(add(m, scaling, "rope_type", cJSON_CreateString(none ? "default" : name)));
    if (none) return 0;
    TRY(add(m, scaling, "factor", cJSON_CreateNumber(factor)));
    if (!is_yarn) return 0;
    struct making inner = *m;
    inner.into = scaling;
    // mscale_all_dim, which such models have as mscale too: a number of few digits, in F32 as a multiple.
    const double multiplier = number(m, "rope.scaling.yarn_log_multiplier", 0);
    const double mscale = round(m->arch->mscale * multiplier * 1e6) / 1e6;
    const double beta = number(m, "attention.temperature_scale", 0);
    if (mscale > 0) {
        TRY(add(m, scaling, "mscale", cJSON_CreateNumber(mscale)));
        TRY(add(m, scaling, "mscale_all_dim", cJSON_CreateNumber(mscale)));
    }
    if (beta > 0) TRY(add(m, scaling, "llama_4_scaling_beta", cJSON_CreateNumber(beta)));
    if (m->arch->unrounded_yarn) TRY(add(m, scaling, "truncate", cJSON_CreateFalse()));
    TRY(add_number(&inner, &original_length));
    return add_numbers(&inner, yarn);
}

// The rotated part of a head, if it is not the whole.
static int add_rotated_part(const struct making *m) {
    double width = number(m, "embedding_length", 0), heads = number(m, "attention.head_count", 0);
    double dim = number(m, "attention.key_length", heads > 0 ? width / heads : 0);
    double rotated = number(m, "rope.dimension_count", dim);
    if (!(dim > 0) || rotated == dim) return 0;
    if (!value_of(m, "attention.key_length"))
        TRY(add(m, m->into, "head_dim", cJSON_CreateNumber(dim)));
    return add(m, m->into, "partial_rotary_factor", cJSON_CreateNumber(rotated / dim));
}

// Full layers of Gemma 4 turn the pairs whose factor is 1; the others' factor is so large that they stand still.
static int add_turning_part(const struct making *m, cJSON *full) {
    const struct gguf_tensor *t = gguf_find(m->g, ROPE_FREQS);
    float values[ROPE_FREQS_MAX];
    int64_t n = 0;
    if (!t) return add_rope_scaling(m, full);
    if (t->n_dims != 1 || t->shape[0] > ROPE_FREQS_MAX || strcmp(t->type->name, "F32") != 0)
        return err_set(m->err, E_FORMAT, "the tensor '" ROPE_FREQS "' is no row of F32");
    TRY(gguf_read(m->g, t, 0, values, (size_t)t->bytes, m->err));
    while (n < t->shape[0] && values[n] == 1) n++;
    for (int64_t i = n; i < t->shape[0]; i++)
        if (!(values[i] > 1e20f))
            return err_set(m->err, E_UNSUPPORTED, "'" ROPE_FREQS "' has the factor %g",
                           (double)values[i]);
    TRY(add(m, full, "rope_type", cJSON_CreateString("proportional")));
    return add(m, full, "partial_rotary_factor",
               cJSON_CreateNumber((double)n / (double)t->shape[0]));
}

// The rotations of full and of windowed layers.
static int add_two_ropes(const struct making *m, cJSON *scaling) {
    const double theta = number(m, "rope.freq_base", 10000);
    const double local = m->arch->local_theta > 0 ? m->arch->local_theta : theta;
    cJSON *sliding = cJSON_AddObjectToObject(scaling, "sliding_attention");
    cJSON *full = cJSON_AddObjectToObject(scaling, "full_attention");
    if (!sliding || !full) return no_memory(m);
    TRY(add(m, sliding, "rope_type", cJSON_CreateString("default")));
    TRY(add(m, sliding, "rope_theta", cJSON_CreateNumber(number(m, "rope.freq_base_swa", local))));
    TRY(add(m, full, "rope_theta", cJSON_CreateNumber(theta)));
    return m->arch->layer_shapes ? add_turning_part(m, full) : add_rope_scaling(m, full);
}

static int add_positions(const struct making *m) {
    cJSON *scaling = cJSON_CreateObject();
    if (!m->arch->latent) TRY(add_rotated_part(m));
    // Without the key it is 10000 for every architecture, not the default of the class.
    if (!value_of(m, "rope.freq_base"))
        TRY(add(m, m->into, "rope_theta", cJSON_CreateNumber(10000)));
    TRY(add(m, m->into, m->arch->two_ropes ? "rope_parameters" : "rope_scaling", scaling));
    if (m->arch->two_ropes) return add_two_ropes(m, scaling);
    if (gguf_find(m->g, ROPE_FREQS)) return add_rope_freqs(m, scaling);
    return gguf_find(m->g, ROPE_LONG) ? add_longrope(m, scaling) : add_rope_scaling(m, scaling);
}

// --- windows and queries ---

// A pattern: a truth value for each layer, or the number of which each last layer is full.
static int add_window(const struct making *m) {
    const cJSON *pattern = value_of(m, "attention.sliding_window_pattern"), *item;
    const double window = number(m, "attention.sliding_window", 0);
    if (!(window > 0)) return 0;
    cJSON_DeleteItemFromObjectCaseSensitive(m->into,
                                            "sliding_window"); // the architecture's default
    TRY(add(m, m->into, "sliding_window", cJSON_CreateNumber(window)));
    if (cJSON_IsNumber(pattern))
        return add(m, m->into, "sliding_window_pattern", cJSON_CreateNumber(pattern->valuedouble));
    if (!cJSON_IsArray(pattern)) return 0;
    cJSON *types = cJSON_CreateArray();
    TRY(add(m, m->into, "layer_types", types));
    cJSON_ArrayForEach(item, pattern) {
        const bool windowed =
            cJSON_IsTrue(item) || (cJSON_IsNumber(item) && item->valuedouble != 0);
        cJSON *type = cJSON_CreateString(windowed ? "sliding_attention" : "full_attention");
        if (!type || !cJSON_AddItemToArray(types, type)) return no_memory(m);
    }
    return 0;
}

static int add_query_scale(const struct making *m) {
    const double heads = number(m, "attention.head_count", 0);
    const double each = heads > 0 ? number(m, "embedding_length", 0) / heads : 0;
    const bool wide = number(m, "block_count", 0) == m->arch->wide_query_layers;
    if (!m->arch->scaled_queries) return 0;
    return add(m, m->into, "query_pre_attn_scalar",
               cJSON_CreateNumber(wide ? each : number(m, "attention.key_length", each)));
}

// --- what the tensors say ---

// By the first layer's largest matrix. Vectors and routers are F32 in every file.
static const char *torch_dtype(const struct gguf *g) {
    const struct gguf_tensor *t = gguf_find(g, "blk.0.ffn_down.weight");
    if (!t) t = gguf_find(g, "blk.0.ffn_down_exps.weight");
    if (t && strcmp(t->type->name, "F16") == 0) return "float16";
    if (t && strcmp(t->type->name, "BF16") == 0) return "bfloat16";
    return "float32";
}

static int add_tensors(const struct making *m) {
    static const struct gguf_key present[] = {
        {"blk.0.attn_output.bias", "attention_out_bias"},
        {"blk.0.ffn_down.bias", "mlp_bias"},
        {"blk.0.attn_q_norm.weight", "use_qk_norm"},
    };
    const struct gguf_tensor *embed = gguf_find(m->g, "token_embd.weight");
    if (!embed || embed->n_dims != 2)
        return err_set(m->err, E_NOTFOUND, "the tensor 'token_embd.weight' is missing");
    TRY(add(m, m->into, "vocab_size", cJSON_CreateNumber((double)embed->shape[0])));
    TRY(add(m, m->into, "tie_word_embeddings",
            cJSON_CreateBool(!gguf_find(m->g, "output.weight"))));
    TRY(add(m, m->into, "torch_dtype", cJSON_CreateString(torch_dtype(m->g))));
    const bool biased =
        gguf_find(m->g, "blk.0.attn_q.bias") || gguf_find(m->g, "blk.0.attn_qkv.bias");
    TRY(add(m, m->into, "attention_bias", cJSON_CreateBool(biased)));
    for (size_t i = 0; i < sizeof present / sizeof *present; i++)
        TRY(add(m, m->into, present[i].hf,
                cJSON_CreateBool(gguf_find(m->g, present[i].gguf) != NULL)));
    return 0;
}

// --- tokens ---

// The tokens that end an answer: of the text, of a turn, of a message.
static int add_ends(const struct making *m) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    cJSON *list = cJSON_CreateArray();
    TRY(add(m, m->into, "eos_token_id", list));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const cJSON *id = json_member(m->metadata, keys[i]);
        if (!id) continue;
        cJSON *item = cJSON_Duplicate(id, false);
        if (!item || !cJSON_AddItemToArray(list, item)) return no_memory(m);
    }
    const cJSON *bos = json_member(m->metadata, "tokenizer.ggml.bos_token_id");
    return bos ? add(m, m->into, "bos_token_id", cJSON_Duplicate(bos, false)) : 0;
}

// --- shapes by layer ---

// A number, or an array's number for a layer; 0: there is none.
static double of_layer(const struct making *m, const char *key, int layer) {
    const cJSON *value = value_of(m, key);
    if (cJSON_IsArray(value)) value = cJSON_GetArrayItem(value, layer);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static bool has_values(const struct making *m, int layer) {
    char name[48];
    snprintf(name, sizeof name, "blk.%d.attn_v.weight", layer);
    return gguf_find(m->g, name) != NULL;
}

// The first layer of a kind, by attention.sliding_window_pattern; -1: there is none.
static int layer_of_kind(const struct making *m, bool windowed) {
    const cJSON *pattern = value_of(m, "attention.sliding_window_pattern"), *item;
    int i = 0;
    cJSON_ArrayForEach(item, pattern) {
        if (cJSON_IsTrue(item) == windowed) return i;
        i++;
    }
    return -1;
}

static int add_layer_shapes(const struct making *m) {
    const int full = layer_of_kind(m, false),
              any = layer_of_kind(m, true) < 0 ? 0 : layer_of_kind(m, true);
    const int last = gguf_n_layers(m->g, m->arch) - 1;
    const double wide = number(m, "attention.key_length", 0);
    const double width = of_layer(m, "feed_forward_length", 0);
    const struct gguf_tensor *inputs = gguf_find(m->g, "per_layer_token_embd.weight");
    if (!m->arch->layer_shapes) return 0;
    TRY(add(m, m->into, "head_dim",
            cJSON_CreateNumber(number(m, "attention.key_length_swa", wide))));
    TRY(add(m, m->into, "global_head_dim", cJSON_CreateNumber(wide)));
    TRY(add(m, m->into, "num_key_value_heads",
            cJSON_CreateNumber(of_layer(m, "attention.head_count_kv", any))));
    if (full >= 0)
        TRY(add(m, m->into, "num_global_key_value_heads",
                cJSON_CreateNumber(of_layer(m, "attention.head_count_kv", full))));
    TRY(add(m, m->into, "attention_k_eq_v", cJSON_CreateBool(full >= 0 && !has_values(m, full))));
    TRY(add(m, m->into, "intermediate_size", cJSON_CreateNumber(width)));
    TRY(add(m, m->into, "use_double_wide_mlp",
            cJSON_CreateBool(of_layer(m, "feed_forward_length", last) == 2 * width)));
    TRY(add(m, m->into, "enable_moe_block", cJSON_CreateBool(number(m, "expert_count", 0) > 0)));
    return inputs ? add(m, m->into, "vocab_size_per_layer_input",
                        cJSON_CreateNumber((double)inputs->shape[0]))
                  : 0;
}

// The sizes of a head's parts, and how experts are chosen.
static int add_latent(const struct making *m) {
    const double rope = number(m, "rope.dimension_count", 64);
    const double keys = number(m, "attention.key_length_mla", number(m, "attention.key_length", 0));
    const double values =
        number(m, "attention.value_length_mla", number(m, "attention.value_length", 0));
    const bool groups = number(m, "expert_group_count", 0) > 1;
    if (!m->arch->latent) return 0;
    TRY(add(m, m->into, "qk_rope_head_dim", cJSON_CreateNumber(rope)));
    TRY(add(m, m->into, "qk_nope_head_dim", cJSON_CreateNumber(keys - rope)));
    TRY(add(m, m->into, "v_head_dim", cJSON_CreateNumber(values)));
    TRY(add(m, m->into, "topk_method",
            cJSON_CreateString(groups ? "group_limited_greedy" : "greedy")));
    return value_of(m, "attention.q_lora_rank")
               ? 0
               : add(m, m->into, "q_lora_rank", cJSON_CreateNull());
}

// The architecture decides how experts are chosen, so a file that names another way is refused.
static int check_gating(const struct making *m) {
    enum { NONE, SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN }; // llama.cpp's numbers
    const double of = number(m, "expert_gating_func", NONE);
    const bool is_gpt_oss = strcmp(m->arch->name, "gpt-oss") == 0;
    if (of == NONE || of == (m->arch->sigmoid ? SIGMOID : SOFTMAX)) return 0;
    if (is_gpt_oss && of == SOFTMAX_OF_CHOSEN) return 0;
    return err_set(m->err, E_UNSUPPORTED, "'%s.expert_gating_func' is %g; known is %d here",
                   m->arch->name, of, m->arch->sigmoid ? SIGMOID : SOFTMAX);
}

// Attention to later tokens is not known.
static int check_causal(const struct making *m) {
    if (!cJSON_IsFalse(value_of(m, "attention.causal"))) return 0;
    return err_set(m->err, E_UNSUPPORTED,
                   "'%s.attention.causal' is false: tokens that attend to later ones are not known",
                   m->arch->name);
}

// What the architecture has without saying so.
static int add_switches(const struct making *m) {
    cJSON *all = m->arch->switches ? cJSON_Parse(m->arch->switches) : NULL, *item;
    if (m->arch->switches && !all) return no_memory(m);
    int rc = 0;
    while (rc == 0 && (item = cJSON_DetachItemFromArray(all, 0)) != NULL)
        rc = add(m, m->into, item->string, item);
    cJSON_Delete(all);
    return rc;
}

int gguf_config_make(const struct gguf *g, cJSON *into, struct err *err) {
    static const struct gguf_key pooling[] = {{"pooling_type", GGUF_POOLING}, {NULL, NULL}};
    struct making m = {.g = g, .metadata = gguf_metadata(g), .into = into, .err = err};
    TRY(gguf_arch_of(g, &m.arch, err));
    TRY(add(&m, into, "model_type", cJSON_CreateString(m.arch->model_type)));
    TRY(add(&m, into, "num_hidden_layers", cJSON_CreateNumber(gguf_n_layers(g, m.arch))));
    TRY(check_causal(&m));
    TRY(check_gating(&m));
    TRY(add_switches(&m));
    TRY(add_numbers(&m, gguf_common_keys));
    TRY(add_numbers(&m, m.arch->keys));
    TRY(add_numbers(&m, pooling));
    TRY(add_layer_shapes(&m));
    TRY(add_latent(&m));
    TRY(add_window(&m));
    TRY(add_query_scale(&m));
    TRY(add_positions(&m));
    TRY(add_tensors(&m));
    return add_ends(&m);
}
