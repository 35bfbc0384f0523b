// The Gemmas. See families.h.
//
// All have an embedding times the root of the width; from Gemma 2 on, norms before and after each sub-layer, and
// windowed layers between full ones.
#include "base/json.h"
#include "engine/model/family_rows.h"
#include "engine/model/rope.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// transformers multiplies by the root rounded to the weights' type.
static float rounded_root(const struct model_config *c, int32_t width) {
    const float root = (float)sqrt(width);
    if (c->dtype == DTYPE_BF16) return bf16_to_f32(bf16_from_f32(root));
    return c->dtype == DTYPE_F16 ? f16_to_f32(f16_from_f32(root)) : root;
}

// The switches of all Gemmas; windowed: which layers have the window, which is in *window. fallback: the class's.
static int read_common(struct model_config *c, const cJSON *json, int64_t pattern, int32_t fallback,
                       bool *windowed, int32_t *window, struct err *err) {
    const cJSON *both_ways = cJSON_GetObjectItemCaseSensitive(json, "use_bidirectional_attention");
    // "vision": among the tokens of an image, which are not read here.
    const bool of_images =
        cJSON_IsString(both_ways) && strcmp(both_ways->valuestring, "vision") == 0;
    if (both_ways && !cJSON_IsNull(both_ways) && !cJSON_IsFalse(both_ways) && !of_images)
        return err_set(err, E_UNSUPPORTED, "'use_bidirectional_attention' is not supported");
    TRY(family_read_attention_bias(c, json, err));
    TRY(family_read_window(json, fallback, window, err));
    TRY(json_get_int(json, "_sliding_window_pattern", 1, MODEL_MAX_LAYERS, &pattern, err));
    TRY(json_get_int(json, "sliding_window_pattern", 1, MODEL_MAX_LAYERS, &pattern, err));
    TRY(family_read_pattern(json, c->n_layers, *window ? pattern : 0, windowed, err));
    for (int32_t i = 0; i < c->n_layers; i++)
        if (windowed[i] && !*window)
            return err_set(err, E_FORMAT, "'layer_types' asks for a window in layer %d", i);
    c->embed_scale = rounded_root(c, c->width);
    return 0;
}

static int read_query_scalar(struct model_config *c, const cJSON *json, struct err *err) {
    double scalar = 256;
    TRY(json_get_double(json, "query_pre_attn_scalar", 1e-3, 1e6, &scalar, err));
    c->kinds[0].attention.scale = (float)pow(scalar, -0.5);
    return 0;
}

// The first Gemma. Its published files say "gelu" where its class computes gelu_pytorch_tanh.
static int read_gemma(struct model_config *c, const cJSON *json, struct err *err) {
    const char *act = "gelu";
    TRY(json_get_string(json, "hidden_act", &act, err));
    if (strcmp(act, "gelu") != 0 && strcmp(act, "gelu_pytorch_tanh") != 0)
        return err_set(err, E_UNSUPPORTED, "'hidden_act' is '%.60s'; known is gelu_pytorch_tanh",
                       act);
    c->embed_scale = rounded_root(c, c->width);
    return family_read_attention_bias(c, json, err);
}

static int read_gemma2(struct model_config *c, const cJSON *json, struct err *err) {
    bool windowed[MODEL_MAX_LAYERS];
    int32_t window;
    TRY(read_query_scalar(c, json, err));
    TRY(read_common(c, json, 2, 4096, windowed, &window, err));
    TRY(family_read_cap(json, "attn_logit_softcapping", 50, &c->kinds[0].attention.soft_cap, err));
    TRY(family_read_cap(json, "final_logit_softcapping", 30, &c->logit_soft_cap, err));
    struct layer_config full = c->kinds[0], sliding = full;
    sliding.attention.window = window;
    return family_set_layers(c, windowed, &full, &sliding, err);
}

#define FULL_THETA 1000000 // the default of full layers

// Full layers turn by ropes[0], windowed ones by ropes[1].
static int read_two_ropes(struct model_config *c, const cJSON *json, int32_t full_dim,
                          double full_part, struct err *err) {
    struct rope_request r = {.head_dim = full_dim,
                             .part = full_part,
                             .theta = FULL_THETA,
                             .theta_key = "rope_theta",
                             .layers = "full_attention"};
    TRY(rope_read(c, &c->ropes[0], &r, json, NULL, err));
    r = (struct rope_request){.head_dim = c->kinds[0].attention.head_dim,
                              .theta = 10000,
                              .theta_key = "rope_local_base_freq",
                              .layers = "sliding_attention",
                              .unscaled = true};
    c->n_ropes = 2;
    return rope_read(c, &c->ropes[1], &r, json, NULL, err);
}

static int read_gemma3(struct model_config *c, const cJSON *json, struct err *err) {
    bool windowed[MODEL_MAX_LAYERS];
    int32_t window;
    TRY(read_query_scalar(c, json, err));
    TRY(read_common(c, json, 6, 4096, windowed, &window, err));
    TRY(family_read_cap(json, "attn_logit_softcapping", 0, &c->kinds[0].attention.soft_cap, err));
    TRY(family_read_cap(json, "final_logit_softcapping", 0, &c->logit_soft_cap, err));
    TRY(read_two_ropes(c, json, c->kinds[0].attention.head_dim, 0, err));
    struct layer_config full = c->kinds[0], sliding = full;
    sliding.attention.window = window;
    sliding.attention.rope = 2;
    return family_set_layers(c, windowed, &full, &sliding, err);
}

// --- Gemma 4 ---

// What of a layer's shape may differ from the model's: in files of transformers 5.17 an object for each layer,
// before that two keys for all full layers.
struct gemma4_shape {
    int32_t head_dim, n_kv_heads;
};

static int read_shape_keys(const cJSON *json, const char *head_dim, const char *kv_heads,
                           struct gemma4_shape *out, struct err *err) {
    int64_t d = out->head_dim, kv = out->n_kv_heads;
    TRY(json_get_int(json, head_dim, 1, MODEL_MAX_HEAD_DIM, &d, err));
    TRY(json_get_int(json, kv_heads, 1, MODEL_MAX_HEADS, &kv, err));
    *out = (struct gemma4_shape){(int32_t)d, (int32_t)kv};
    return 0;
}

// shapes: (n_layers)
static int read_layer_configs(const struct model_config *c, const cJSON *dict,
                              struct gemma4_shape *shapes, struct err *err) {
    const cJSON *layer, *item;
    cJSON_ArrayForEach(layer, dict) {
        char *end;
        const long i = strtol(layer->string, &end, 10);
        if (*end || end == layer->string || i < 0 || i >= c->n_layers || !cJSON_IsObject(layer))
            return err_set(err, E_FORMAT, "'per_layer_config' has '%.20s' for one of %d layers",
                           layer->string, c->n_layers);
        cJSON_ArrayForEach(item, layer) {
            if (strcmp(item->string, "head_dim") != 0 &&
                strcmp(item->string, "num_key_value_heads") != 0)
                return err_set(err, E_UNSUPPORTED, "'per_layer_config' has '%.40s' in layer %ld",
                               item->string, i);
        }
        TRY(read_shape_keys(layer, "head_dim", "num_key_value_heads", &shapes[i], err));
    }
    return 0;
}

// Full layers may have wider heads, and fewer of keys.
static int read_gemma4_shapes(const struct model_config *c, const cJSON *json, bool k_eq_v,
                              const bool *windowed, struct gemma4_shape *shapes, struct err *err) {
    const struct attention_config *a = &c->kinds[0].attention;
    const struct gemma4_shape all = {a->head_dim, a->n_kv_heads};
    const cJSON *dict = NULL;
    struct gemma4_shape full = all;
    TRY(read_shape_keys(json, "global_head_dim", "num_global_key_value_heads", &full, err));
    if (!k_eq_v) full.n_kv_heads = all.n_kv_heads;
    for (int32_t i = 0; i < c->n_layers; i++) shapes[i] = windowed[i] ? all : full;
    TRY(json_get_object(json, "per_layer_config", &dict, err));
    if (dict) TRY(read_layer_configs(c, dict, shapes, err));
    for (int32_t i = 0; i < c->n_layers; i++)
        if (a->n_heads % shapes[i].n_kv_heads != 0)
            return err_set(err, E_FORMAT, "%d heads do not divide by %d of keys in layer %d",
                           a->n_heads, shapes[i].n_kv_heads, i);
    return 0;
}

// Each kind of layers has one rotation, so that its heads must be of one size.
static int read_gemma4_ropes(struct model_config *c, const cJSON *json, const bool *windowed,
                             const struct gemma4_shape *shapes, struct err *err) {
    int32_t dim[2] = {0};
    for (int32_t i = 0; i < c->n_layers; i++) {
        int32_t *d = &dim[windowed[i]];
        if (*d && *d != shapes[i].head_dim)
            return err_set(err, E_UNSUPPORTED, "layer %d has heads of %d, others of its kind of %d",
                           i, shapes[i].head_dim, *d);
        *d = shapes[i].head_dim;
    }
    // Without the key the class would take another rotation than the plain one.
    if (!cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(json, "rope_parameters")))
        return err_set(err, E_FORMAT, "'rope_parameters' is missing");
    if (dim[1]) c->kinds[0].attention.head_dim = dim[1];
    return read_two_ropes(c, json, dim[0], 1, err);
}

static int read_gemma4_experts(struct model_config *c, const cJSON *json, struct err *err) {
    struct experts_config x = {
        .router = ROUTER_SOFTMAX_TOPK, .normalised = true, .beside = true, .expert_scale = true};
    bool on = false;
    TRY(json_get_bool(json, "enable_moe_block", &on, err));
    if (!on) return 0;
    const struct family_expert_keys keys = {"num_experts", "top_k_experts",
                                            "moe_intermediate_size"};
    TRY(family_read_experts(&x, json, &keys, err));
    c->kinds[0].feed.experts = x;
    return 0;
}

static int read_layer_inputs(struct model_config *c, const cJSON *json, struct err *err) {
    const bool none =
        cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(json, "hidden_size_per_layer_input"));
    int64_t width = none ? 0 : 256, vocab = 262144;
    TRY(json_get_int(json, "hidden_size_per_layer_input", 0, 1 << 14, &width, err));
    TRY(json_get_int(json, "vocab_size_per_layer_input", 1, MODEL_MAX_VOCAB, &vocab, err));
    if (width > 0 && vocab < c->vocab_size)
        return err_set(err, E_FORMAT, "'vocab_size_per_layer_input' is %d of %d tokens", (int)vocab,
                       c->vocab_size);
    if (width * c->n_layers > MODEL_MAX_WIDTH)
        return err_set(err, E_LIMIT, "'hidden_size_per_layer_input' is %d in %d layers", (int)width,
                       c->n_layers);
    c->per_layer_width = (int32_t)width;
    c->per_layer_vocab = width ? (int32_t)vocab : 0;
    c->per_layer_scale = width ? rounded_root(c, (int32_t)width) : 0;
    return 0;
}

// The layer whose keys and values a layer above the first `own` reads: the last of these of its kind.
static int shared_from(const bool *windowed, int32_t layer, int32_t own, int32_t *from,
                       struct err *err) {
    for (int32_t i = own; i-- > 0;) {
        if (windowed[i] != windowed[layer]) continue;
        *from = i + 1;
        return 0;
    }
    return err_set(err, E_FORMAT,
                   "'num_kv_shared_layers' leaves no layer whose keys and values layer %d has",
                   layer);
}

static int set_gemma4_layers(struct model_config *c, const cJSON *json, const bool *windowed,
                             int32_t window, const struct gemma4_shape *shapes, bool k_eq_v,
                             struct err *err) {
    const struct layer_config base = c->kinds[0];
    int64_t shared = 0;
    bool wide = false;
    TRY(json_get_int(json, "num_kv_shared_layers", 0, c->n_layers - 1, &shared, err));
    TRY(json_get_bool(json, "use_double_wide_mlp", &wide, err));
    const int32_t own = c->n_layers - (int32_t)shared;
    for (int32_t i = 0; i < c->n_layers; i++) {
        struct layer_config row = base;
        struct attention_config *a = &row.attention;
        a->head_dim = shapes[i].head_dim;
        a->n_kv_heads = shapes[i].n_kv_heads;
        a->window = windowed[i] ? window : 0;
        a->rope = windowed[i] ? 2 : 1;
        a->v_is_k = k_eq_v && !windowed[i];
        if (i >= own) TRY(shared_from(windowed, i, own, &a->kv_from, err));
        if (a->kv_from && (shapes[a->kv_from - 1].head_dim != a->head_dim ||
                           shapes[a->kv_from - 1].n_kv_heads != a->n_kv_heads))
            return err_set(err, E_FORMAT,
                           "layer %d has other heads than layer %d, whose keys it has", i,
                           a->kv_from - 1);
        if (i >= own && wide) row.feed.width *= 2;
        TRY(model_config_set_layer(c, i, &row, err));
    }
    return 0;
}

static int read_gemma4(struct model_config *c, const cJSON *json, struct err *err) {
    static const char *const unknown[] = {"num_experts_per_layer_input", NULL};
    bool windowed[MODEL_MAX_LAYERS], k_eq_v = false;
    struct gemma4_shape shapes[MODEL_MAX_LAYERS];
    int32_t window;
    TRY(family_refuse(json, unknown, err));
    TRY(json_get_bool(json, "attention_k_eq_v", &k_eq_v, err));
    TRY(read_common(c, json, 6, 512, windowed, &window, err));
    windowed[c->n_layers - 1] = false; // whatever the file says
    TRY(family_read_cap(json, "final_logit_softcapping", 0, &c->logit_soft_cap, err));
    c->kinds[0].attention.scale = 1;
    TRY(read_gemma4_shapes(c, json, k_eq_v, windowed, shapes, err));
    TRY(read_gemma4_ropes(c, json, windowed, shapes, err));
    TRY(read_layer_inputs(c, json, err));
    TRY(read_gemma4_experts(c, json, err));
    return set_gemma4_layers(c, json, windowed, window, shapes, k_eq_v, err);
}

// --- the tables ---

#define GEMMA_KEYS LLAMA_SHAPE_KEYS, .norm_eps = "rms_norm_eps", .activation = "hidden_activation"
static const struct family_keys gemma2_keys = {
    GEMMA_KEYS, .nested = NESTED("256000", "2304", "9216", "26", "8", "4", "8192")};
static const struct family_keys gemma3_keys = {
    GEMMA_KEYS, .reads_ropes = true, .theta = FULL_THETA,
    .nested = NESTED("262208", "2304", "9216", "26", "8", "4", "131072")};
static const struct family_keys gemma4_keys = {GEMMA_KEYS, .reads_ropes = true,
                                               .theta = FULL_THETA};

#define GEMMA_NORMS                                                                                \
    .attn_norm = "input_layernorm", .attn_out_norm = "post_attention_layernorm",                   \
    .ffn_norm = "pre_feedforward_layernorm", .ffn_out_norm = "post_feedforward_layernorm"
static const struct family_tensors first_gemma_tensors = {
    LLAMA_TENSORS,
    .attn_norm = "input_layernorm",
    .ffn_norm = "post_attention_layernorm",
};
static const struct family_tensors gemma_tensors = {LLAMA_TENSORS, GEMMA_NORMS};
static const struct family_tensors gemma4_tensors = {
    LLAMA_TENSORS,
    GEMMA_NORMS,
    .output_scalar = "layer_scalar",
    .layer_embed = "model.embed_tokens_per_layer",
    .layer_project = "model.per_layer_model_projection",
    .layer_project_norm = "model.per_layer_projection_norm",
    .layer_gate = "per_layer_input_gate",
    .layer_out = "per_layer_projection",
    .layer_out_norm = "post_per_layer_input_norm",
    .router = "router.proj",
    .experts_up = "experts.gate_up_proj",
    .experts_down = "experts.down_proj",
    .experts_bare = true,
    .dense_out_norm = "post_feedforward_layernorm_1",
    .experts_norm = "pre_feedforward_layernorm_2",
    .experts_out_norm = "post_feedforward_layernorm_2",
    .router_norm = "router.scale",
    .expert_scale = "router.per_expert_scale",
};

#define GEMMA_SWITCHES_OF(NORMS)                                                                   \
    LLAMA_SWITCHES_OF(NORMS), .tied_head = true, .kinds[0].feed.activation = ACT_GELU_TANH,        \
                              .kinds[0].attention.head_dim = 256
#define GEMMA_SWITCHES GEMMA_SWITCHES_OF(NORM_PRE | NORM_OUT)
static const struct model_config gemma_base = {GEMMA_SWITCHES_OF(NORM_PRE), .norm_plus_one = true};
static const struct model_config gemma2_base = {GEMMA_SWITCHES, .norm_plus_one = true};
static const struct model_config gemma3_base = {GEMMA_SWITCHES, .norm_plus_one = true,
                                                .kinds[0].attention.qk_norm = QK_NORM_HEADS};
static const struct model_config gemma4_base = {
    GEMMA_SWITCHES, .kinds[0].attention.qk_norm = QK_NORM_HEADS, .kinds[0].attention.v_norm = true,
    .kinds[0].output_scalar = true};

// clang-format off
static const struct family rows[] = {
    {"gemma", "GemmaForCausalLM", &gemma2_keys, &first_gemma_tensors, &gemma_base, true, read_gemma},
    {"gemma2", "Gemma2ForCausalLM", &gemma2_keys, &gemma_tensors, &gemma2_base, true, read_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", &gemma3_keys, &gemma_tensors, &gemma3_base, true, read_gemma3},
    {"gemma4_text", "Gemma4ForCausalLM", &gemma4_keys, &gemma4_tensors, &gemma4_base, true, read_gemma4},
};
// clang-format on
const struct family_list families_gemma = {rows, sizeof rows / sizeof *rows};
