// Gemma 2, 3 and 4. See families.h.
//
// All have norms before and after each sub-layer, an embedding times the root of the width, and windowed layers
// between full ones.
#include "base/json.h"
#include "engine/model/family_rows.h"
#include "engine/model/rope.h"
#include <math.h>

// transformers multiplies by the root rounded to the weights' type.
static float rounded_root(const struct model_config *c, int32_t width) {
    const float root = (float)sqrt(width);
    if (c->dtype == DTYPE_BF16) return bf16_to_f32(bf16_from_f32(root));
    return c->dtype == DTYPE_F16 ? f16_to_f32(f16_from_f32(root)) : root;
}

// A cap that the class has by default and null switches off.
static int read_cap(const cJSON *json, const char *key, double fallback, float *cap,
                    struct err *err) {
    double v = cJSON_GetObjectItemCaseSensitive(json, key) ? 0 : fallback;
    TRY(json_get_double(json, key, 1e-3, 1e6, &v, err));
    *cap = (float)v;
    return 0;
}

// The switches of all Gemmas; windowed: which layers have the window, which is in *window.
static int read_common(struct model_config *c, const cJSON *json, int64_t pattern, bool *windowed,
                       int32_t *window, struct err *err) {
    static const char *const unknown[] = {"use_bidirectional_attention", NULL};
    const cJSON *both_ways = cJSON_GetObjectItemCaseSensitive(json, unknown[0]);
    if (both_ways && !cJSON_IsNull(both_ways) && !cJSON_IsFalse(both_ways))
        return err_set(err, E_UNSUPPORTED, "'%s' is not supported", unknown[0]);
    TRY(family_read_attention_bias(c, json, err));
    TRY(family_read_window(json, 4096, window, err));
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

static int read_gemma2(struct model_config *c, const cJSON *json, struct err *err) {
    bool windowed[MODEL_MAX_LAYERS];
    int32_t window;
    TRY(read_query_scalar(c, json, err));
    TRY(read_common(c, json, 2, windowed, &window, err));
    TRY(read_cap(json, "attn_logit_softcapping", 50, &c->kinds[0].attention.soft_cap, err));
    TRY(read_cap(json, "final_logit_softcapping", 30, &c->logit_soft_cap, err));
    struct layer_config full = c->kinds[0], sliding = full;
    sliding.attention.window = window;
    return family_set_layers(c, windowed, &full, &sliding, err);
}

// Full layers turn by ropes[0], windowed ones by ropes[1].
static int read_two_ropes(struct model_config *c, const cJSON *json, int32_t full_dim,
                          double full_part, struct err *err) {
    struct rope_request r = {.head_dim = full_dim,
                             .part = full_part,
                             .theta = 1000000,
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
    TRY(read_common(c, json, 6, windowed, &window, err));
    TRY(read_cap(json, "attn_logit_softcapping", 0, &c->kinds[0].attention.soft_cap, err));
    TRY(read_cap(json, "final_logit_softcapping", 0, &c->logit_soft_cap, err));
    TRY(read_two_ropes(c, json, c->kinds[0].attention.head_dim, 0, err));
    struct layer_config full = c->kinds[0], sliding = full;
    sliding.attention.window = window;
    sliding.attention.rope = 2;
    return family_set_layers(c, windowed, &full, &sliding, err);
}

#define GEMMA_KEYS LLAMA_SHAPE_KEYS, .norm_eps = "rms_norm_eps", .activation = "hidden_activation"
static const struct family_keys gemma_keys = {GEMMA_KEYS};
static const struct family_keys gemma3_keys = {GEMMA_KEYS, .reads_ropes = true};

#define GEMMA_NORMS                                                                                \
    .attn_norm = "input_layernorm", .attn_out_norm = "post_attention_layernorm",                   \
    .ffn_norm = "pre_feedforward_layernorm", .ffn_out_norm = "post_feedforward_layernorm"
static const struct family_tensors gemma_tensors = {LLAMA_TENSORS, GEMMA_NORMS};

#define GEMMA_SWITCHES                                                                             \
    LLAMA_SWITCHES_OF(NORM_PRE | NORM_OUT), .tied_head = true,                                     \
                                            .kinds[0].feed.activation = ACT_GELU_TANH,             \
                                            .kinds[0].attention.head_dim = 256
static const struct model_config gemma2_base = {GEMMA_SWITCHES, .norm_plus_one = true};
static const struct model_config gemma3_base = {GEMMA_SWITCHES, .norm_plus_one = true,
                                                .kinds[0].attention.qk_norm = QK_NORM_HEADS};

// clang-format off
static const struct family rows[] = {
    {"gemma2", "Gemma2ForCausalLM", &gemma_keys, &gemma_tensors, &gemma2_base, true, read_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", &gemma3_keys, &gemma_tensors, &gemma3_base, true, read_gemma3},
};
// clang-format on
const struct family_list families_gemma = {rows, sizeof rows / sizeof *rows};
