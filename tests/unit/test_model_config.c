// config.json to switches: both spellings, each family's rules, and every bad value refused by
// name.
#include "engine/model/model_config.h"
#include "tests/unit/tmp_dir.h"
#include <math.h>

static struct tmp_dir dir;

static int setup(void **state) {
    tmp_dir_open(&dir);
    return 0;
}
static int teardown(void **state) {
    tmp_dir_close(&dir);
    return 0;
}

// A small model of a family; `more` adds keys or, coming last in the file, is refused where it
// repeats one.
#define SHAPE                                                                                      \
    "\"vocab_size\":320,\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":4,"     \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":512"

static int load(struct model_config *c, const char *text, struct err *err) {
    memset(err, 0, sizeof *err);
    tmp_text(&dir, "config.json", text);
    return model_config_load(c, dir.path, err);
}

static void load_ok(struct model_config *c, const char *text) {
    struct err err;
    int rc = load(c, text, &err);
    if (rc != 0) fail_msg("%s\n%s", text, err.text);
}

#define LLAMA(more) "{\"model_type\":\"llama\"," SHAPE more "}"
#define MISTRAL(more) "{\"model_type\":\"mistral\"," SHAPE more "}"
#define QWEN2(more) "{\"model_type\":\"qwen2\"," SHAPE more "}"
#define QWEN3(more) "{\"model_type\":\"qwen3\"," SHAPE more "}"

static void reads_the_fixtures(void **state) {
    static const struct {
        const char *family;
        int32_t kv, head_dim;
        bool tied, bias, qk_norm;
    } expect[] = {{"llama", 2, 16, false, false, false},
                  {"mistral", 1, 16, false, false, false},
                  {"qwen2", 2, 16, true, true, false},
                  {"qwen3", 2, 32, true, false, true}};
    for (int i = 0; i < 4; i++) {
        char path[100];
        struct model_config c;
        struct err err;
        snprintf(path, sizeof path, "tests/fixtures/models/%s", expect[i].family);
        assert_int_equal(model_config_load(&c, path, &err), 0);
        assert_string_equal(c.family, expect[i].family);
        assert_int_equal(c.dtype, DTYPE_BF16);
        assert_int_equal(c.n_layers, 3);
        assert_int_equal(c.width, 64);
        assert_int_equal(c.embed_width, 64);
        assert_int_equal(c.n_heads, 4);
        assert_int_equal(c.n_kv_heads, expect[i].kv);
        assert_int_equal(c.head_dim, expect[i].head_dim);
        assert_int_equal(c.rot_dim, expect[i].head_dim);
        assert_int_equal(c.ffn_width, 160);
        assert_int_equal(c.vocab_size, 320);
        assert_int_equal(c.max_positions, 512);
        assert_int_equal(c.tied_head, expect[i].tied);
        assert_int_equal(c.qkv_bias, expect[i].bias);
        assert_int_equal(c.qk_norm, expect[i].qk_norm);
        assert_false(c.o_bias || c.ffn_bias || c.head_bias || c.parallel_residual || c.embed_norm);
        assert_true(c.gated && c.final_norm);
        assert_int_equal(c.norm, NORM_RMS);
        assert_int_equal(c.positions, POSITION_ROTARY);
        assert_int_equal(c.rope_style, ROPE_HALF);
        assert_int_equal(c.activation, ACT_SILU);
        assert_true(c.norm_eps == 1e-6f && c.rope_scale == 1 && c.embed_scale == 1);
        assert_true(c.attention_scale == (float)pow(expect[i].head_dim, -0.5));
        assert_int_equal(c.sliding_window, 0);
        assert_int_equal(c.bos_id, 0);
        assert_int_equal(c.n_eos, 1);
        assert_int_equal(c.eos_ids[0], 1);
        assert_true(c.temperature < 0 && c.top_p < 0 && c.top_k < 0 && c.repetition_penalty < 0);
    }
}

static void reads_the_demo_model(void **state) {
    struct model_config c;
    struct err err;
    assert_int_equal(model_config_load(&c, "configs/demo-model", &err), 0);
    assert_int_equal(c.n_eos, 2); // generation_config.json has the last word
    assert_int_equal(c.eos_ids[0], 2);
    assert_int_equal(c.eos_ids[1], 0);
    assert_true(c.temperature == 0.7f && c.top_p == 0.9f);
    assert_int_equal(c.top_k, -1);
    assert_int_equal(model_config_n_params(&c), 14162304); // the index's total_parameters
}

// The families before Llama: what their fixtures' config.json make of the switches.
static void reads_the_earlier_fixtures(void **state) {
    static const struct {
        const char *family;
        int32_t ffn, max_positions, position_offset, rot_dim;
        enum dtype dtype;
        enum position_kind positions;
        enum activation activation;
        bool tied, qkv_bias, head_bias, parallel, shared, embed_norm;
        float embed_scale;
        int32_t eos;
    } expect[] = {
        {"gpt2", 256, 256, 0, 0, DTYPE_F32, POSITION_LEARNED, ACT_GELU_TANH, true, true, false,
         false, false, false, 1, 1},
        {"gptj", 256, 256, 0, 8, DTYPE_F16, POSITION_ROTARY, ACT_GELU_TANH, false, false, true,
         true, true, false, 1, 1},
        {"gpt_neox", 256, 256, 0, 4, DTYPE_F16, POSITION_ROTARY, ACT_GELU, false, true, false, true,
         false, false, 1, 1},
        {"bloom", 256, 2048, 0, 0, DTYPE_F32, POSITION_ALIBI, ACT_GELU_TANH, true, true, false,
         false, false, true, 1, 1},
        {"opt", 128, 256, 2, 0, DTYPE_F32, POSITION_LEARNED, ACT_RELU, true, true, false, false,
         false, false, 1, 2},
        {"xglm", 128, 256, 2, 0, DTYPE_F32, POSITION_SINUSOIDAL, ACT_GELU, true, true, false, false,
         false, false, 8, 2},
    };
    for (size_t i = 0; i < sizeof expect / sizeof *expect; i++) {
        char path[100];
        struct model_config c;
        struct err err;
        snprintf(path, sizeof path, "tests/fixtures/models/%s", expect[i].family);
        if (model_config_load(&c, path, &err) != 0) fail_msg("%s", err.text);
        assert_string_equal(c.family, expect[i].family);
        assert_int_equal(c.n_layers, 3);
        assert_int_equal(c.width, 64);
        assert_int_equal(c.embed_width, 64);
        assert_int_equal(c.n_heads, 4);
        assert_int_equal(c.n_kv_heads, 4);
        assert_int_equal(c.head_dim, 16);
        assert_int_equal(c.ffn_width, expect[i].ffn);
        assert_int_equal(c.max_positions, expect[i].max_positions);
        assert_int_equal(c.position_offset, expect[i].position_offset);
        assert_int_equal(c.rot_dim, expect[i].rot_dim);
        assert_int_equal(c.dtype, expect[i].dtype);
        assert_int_equal(c.positions, expect[i].positions);
        assert_int_equal(c.activation, expect[i].activation);
        assert_int_equal(c.tied_head, expect[i].tied);
        assert_int_equal(c.qkv_bias, expect[i].qkv_bias);
        assert_int_equal(c.o_bias, expect[i].qkv_bias);
        assert_int_equal(c.head_bias, expect[i].head_bias);
        assert_int_equal(c.parallel_residual, expect[i].parallel);
        assert_int_equal(c.shared_norm, expect[i].shared);
        assert_int_equal(c.embed_norm, expect[i].embed_norm);
        assert_true(c.embed_scale == expect[i].embed_scale && c.norm_eps == 1e-5f);
        assert_true(c.norm_bias && c.ffn_bias && c.final_norm);
        assert_false(c.gated || c.qk_norm || c.normed_residual || c.scale_by_layer);
        assert_int_equal(c.norm, NORM_LAYER);
        assert_int_equal(c.norm_placement, NORM_PRE);
        assert_int_equal(c.rope_style, c.shared_norm ? ROPE_INTERLEAVED : ROPE_HALF);
        assert_true(c.attention_scale == 0.25f);
        assert_int_equal(c.eos_ids[0], expect[i].eos);
    }
}

// config.json as published by the models' authors, in the spellings of their time.
static void reads_published_spellings(void **state) {
    struct model_config c;
    load_ok(&c, "{\"model_type\":\"bloom\",\"n_embed\":1024,\"n_inner\":null,\"n_layer\":24,"
                "\"num_attention_heads\":16,\"offset_alibi\":100,\"seq_length\":4096,"
                "\"vocab_size\":250880,\"torch_dtype\":\"float16\",\"eos_token_id\":2}");
    assert_int_equal(c.width, 1024);
    assert_int_equal(c.n_heads, 16);
    assert_int_equal(c.ffn_width, 4096);
    assert_int_equal(c.max_positions, 4096);
    assert_int_equal(model_config_n_params(&c), 559214592);
    load_ok(&c, "{\"model_type\":\"gpt_neox\",\"hidden_size\":6144,\"num_hidden_layers\":44,"
                "\"num_attention_heads\":64,\"intermediate_size\":24576,\"vocab_size\":50432,"
                "\"max_position_embeddings\":2048,\"rotary_pct\":0.25,\"rotary_emb_base\":10000,"
                "\"hidden_act\":\"gelu_fast\",\"layer_norm_eps\":1e-05,"
                "\"tie_word_embeddings\":false}");
    assert_int_equal(c.rot_dim, 24);
    assert_int_equal(c.activation, ACT_GELU_TANH);
    assert_int_equal(model_config_n_params(&c), 20554567680);
    load_ok(&c, "{\"model_type\":\"gptj\",\"n_embd\":4096,\"n_layer\":28,\"n_head\":16,"
                "\"n_positions\":2048,\"n_inner\":null,\"rotary_dim\":64,\"vocab_size\":50400,"
                "\"rotary\":true,\"tie_word_embeddings\":false}");
    assert_int_equal(c.ffn_width, 16384);
    assert_int_equal(model_config_n_params(&c), 6050882784);
    load_ok(&c, "{\"model_type\":\"opt\",\"hidden_size\":1024,\"num_hidden_layers\":24,"
                "\"num_attention_heads\":16,\"ffn_dim\":4096,\"max_position_embeddings\":2048,"
                "\"vocab_size\":50272,\"word_embed_proj_dim\":512,\"do_layer_norm_before\":false}");
    assert_int_equal(c.embed_width, 512);
    assert_int_equal(c.norm_placement, NORM_POST);
    assert_false(c.final_norm);
    assert_int_equal(model_config_n_params(&c), 331196416);
}

#define GPT2(more)                                                                                 \
    "{\"model_type\":\"gpt2\",\"vocab_size\":320,\"n_embd\":60,\"n_layer\":2,\"n_head\":5,"        \
    "\"n_positions\":64" more "}"
#define GPTJ(more)                                                                                 \
    "{\"model_type\":\"gptj\",\"vocab_size\":320,\"n_embd\":64,\"n_layer\":2,\"n_head\":4,"        \
    "\"n_positions\":64" more "}"
#define NEOX(more)                                                                                 \
    "{\"model_type\":\"gpt_neox\",\"vocab_size\":320,\"hidden_size\":64,\"num_hidden_layers\":2,"  \
    "\"num_attention_heads\":4,\"intermediate_size\":96,\"max_position_embeddings\":64" more "}"
#define BLOOM(more)                                                                                \
    "{\"model_type\":\"bloom\",\"vocab_size\":320,\"hidden_size\":60,\"n_layer\":2,\"n_head\":"    \
    "12" more "}"
#define OPT(more)                                                                                  \
    "{\"model_type\":\"opt\",\"vocab_size\":320,\"hidden_size\":64,\"num_hidden_layers\":2,"       \
    "\"num_attention_heads\":4,\"ffn_dim\":96,\"max_position_embeddings\":64" more "}"
#define XGLM(more)                                                                                 \
    "{\"model_type\":\"xglm\",\"vocab_size\":320,\"d_model\":64,\"num_layers\":2,"                 \
    "\"attention_heads\":4,\"ffn_dim\":96,\"max_position_embeddings\":64" more "}"

static void switches_of_the_earlier_families(void **state) {
    struct model_config c;
    load_ok(&c, GPT2(",\"n_inner\":100,\"activation_function\":\"tanh\","
                     "\"scale_attn_weights\":false,\"tie_word_embeddings\":false"));
    assert_int_equal(c.ffn_width, 100);
    assert_int_equal(c.head_dim, 12);
    assert_int_equal(c.activation, ACT_TANH);
    assert_true(c.attention_scale == 1 && !c.tied_head);
    assert_true(model_config_attention_scale(&c, 1) == 1);
    load_ok(&c, GPT2(",\"scale_attn_by_inverse_layer_idx\":true,\"num_attention_heads\":5"));
    assert_true(model_config_attention_scale(&c, 0) == c.attention_scale);
    assert_true(model_config_attention_scale(&c, 1) == c.attention_scale / 2);
    load_ok(&c, GPTJ(",\"rotary_dim\":8,\"rope_theta\":5,\"tie_word_embeddings\":true"));
    assert_int_equal(c.rot_dim, 8); // its class knows no other theta
    assert_true(c.tied_head && c.head_bias && c.inv_freq[1] == 0.1f);
    load_ok(&c, NEOX(",\"use_parallel_residual\":false,\"attention_bias\":false,\"rotary_pct\":1.0,"
                     "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}"));
    assert_false(c.parallel_residual || c.qkv_bias || c.o_bias);
    assert_true(c.ffn_bias && c.inv_freq[0] == 0.5f);
    assert_int_equal(c.rot_dim, 16);
    struct model_config d;
    load_ok(&c, NEOX(",\"rotary_pct\":0.5,\"rotary_emb_base\":500,\"rope_theta\":500,"
                     "\"partial_rotary_factor\":0.5"));
    load_ok(&d, NEOX(",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500.0,"
                     "\"partial_rotary_factor\":0.5}"));
    assert_memory_equal(&c, &d, sizeof c);
    assert_int_equal(c.rot_dim, 8);
    load_ok(&c, BLOOM(",\"apply_residual_connection_post_layernorm\":true"));
    assert_true(c.normed_residual);
    assert_int_equal(c.head_dim, 5);
    load_ok(&c, OPT(",\"enable_bias\":false,\"_remove_final_layer_norm\":true"));
    assert_false(c.qkv_bias || c.o_bias || c.ffn_bias || c.final_norm);
    assert_true(c.norm_bias);
    load_ok(&c, XGLM(",\"scale_embedding\":false,\"pad_token_id\":null"));
    assert_true(c.embed_scale == 1);
}

static void both_spellings_say_the_same(void **state) {
    struct model_config a, b;
    load_ok(&a, LLAMA(",\"torch_dtype\":\"float16\",\"rope_theta\":500000.0,\"head_dim\":null,"
                      "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0},\"eos_token_id\":7"));
    load_ok(
        &b,
        LLAMA(",\"dtype\":\"float16\",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2.0,"
              "\"rope_theta\":500000.0},\"eos_token_id\":[7,7]"));
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(a.dtype, DTYPE_F16);
    load_ok(&b, LLAMA(",\"torch_dtype\":\"float16\",\"rope_theta\":500000.0,\"eos_token_id\":7,"
                      "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2.0},"
                      "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2.0}"));
    assert_memory_equal(&a, &b, sizeof a);
}

static void what_is_missing_means_what_transformers_means(void **state) {
    struct model_config c;
    load_ok(&c,
            "{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":64,\"intermediate_size\":8,"
            "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"max_position_embeddings\":9}");
    assert_int_equal(c.n_kv_heads, 4);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.dtype, DTYPE_F32);
    assert_int_equal(c.bos_id, -1);
    assert_int_equal(c.n_eos, 0);
    load_ok(&c, QWEN3(""));
    assert_int_equal(c.head_dim, 128);
    load_ok(&c, QWEN3(",\"head_dim\":null"));
    assert_int_equal(c.head_dim, 16);
    load_ok(&c, MISTRAL(""));
    assert_int_equal(c.sliding_window, 4096);
    load_ok(&c, MISTRAL(",\"sliding_window\":null"));
    assert_int_equal(c.sliding_window, 0);
    load_ok(&c, LLAMA(",\"bos_token_id\":-1,\"eos_token_id\":-1"));
    assert_int_equal(c.bos_id, -1);
    assert_int_equal(c.n_eos, 0);
}

static void switches_of_each_family(void **state) {
    struct model_config c;
    load_ok(&c,
            LLAMA(",\"attention_bias\":true,\"mlp_bias\":true,\"hidden_act\":\"gelu_pytorch_tanh\","
                  "\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-5"));
    assert_true(c.qkv_bias && c.o_bias && c.ffn_bias && c.tied_head);
    assert_int_equal(c.activation, ACT_GELU_TANH);
    assert_true(c.norm_eps == 1e-5f);
    load_ok(&c, QWEN3(",\"attention_bias\":true"));
    assert_true(c.qkv_bias && c.o_bias && !c.ffn_bias);
    load_ok(&c, QWEN2(",\"attention_bias\":false")); // its class has biases whatever the key says
    assert_true(c.qkv_bias && !c.o_bias);
}

static void activations_by_name(void **state) {
    static const struct {
        const char *name;
        enum activation activation;
    } names[] = {{"silu", ACT_SILU},
                 {"swish", ACT_SILU},
                 {"gelu", ACT_GELU},
                 {"gelu_new", ACT_GELU_TANH},
                 {"gelu_fast", ACT_GELU_TANH},
                 {"gelu_pytorch_tanh", ACT_GELU_TANH},
                 {"quick_gelu", ACT_QUICK_GELU},
                 {"relu", ACT_RELU},
                 {"relu2", ACT_RELU2},
                 {"relu6", ACT_RELU6},
                 {"leaky_relu", ACT_LEAKY_RELU},
                 {"sigmoid", ACT_SIGMOID},
                 {"tanh", ACT_TANH},
                 {"mish", ACT_MISH},
                 {"linear", ACT_LINEAR}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model_config c;
        char text[600];
        snprintf(text, sizeof text, LLAMA(",\"hidden_act\":\"%s\""), names[i].name);
        load_ok(&c, text);
        assert_int_equal(c.activation, names[i].activation);
    }
}

static void sliding_windows(void **state) {
    struct model_config c;
    load_ok(&c, QWEN2(",\"sliding_window\":100,\"max_window_layers\":2"));
    assert_int_equal(c.sliding_window, 0); // not asked for
    load_ok(&c,
            QWEN2(",\"sliding_window\":100,\"max_window_layers\":2,\"use_sliding_window\":true"));
    assert_int_equal(model_config_window(&c, 1), 0);
    assert_int_equal(model_config_window(&c, 2), 100);
    assert_int_equal(model_config_window(&c, 3), 100);
    load_ok(&c,
            QWEN2(",\"sliding_window\":100,\"use_sliding_window\":true")); // 28 layers of 4: none
    assert_int_equal(c.sliding_window, 0);
    load_ok(&c, QWEN3(",\"sliding_window\":100,\"use_sliding_window\":true,\"max_window_layers\":0,"
                      "\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\","
                      "\"sliding_attention\"]"));
    assert_int_equal(c.first_windowed_layer, 3); // layer_types has the last word
    assert_int_equal(model_config_window(&c, 2), 0);
    load_ok(
        &c,
        MISTRAL(
            ",\"sliding_window\":9,\"layer_types\":[\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\"]"));
    assert_int_equal(model_config_window(&c, 0), 9);
}

static void near(float got, double expected) {
    if (!(fabs(got - expected) <= 3e-7 * fabs(expected))) fail_msg("%.9g, not %.9g", got, expected);
}

// Expected values: the published formulas in double precision.
static void rotary_frequencies(void **state) {
    struct model_config c;
    load_ok(&c, LLAMA(""));
    static const double plain[][2] = {
        {0, 1}, {1, 0.316227766}, {5, 0.00316227766}, {7, 0.000316227766}};
    for (int i = 0; i < 4; i++) near(c.inv_freq[(int)plain[i][0]], plain[i][1]);
    assert_true(c.inv_freq[8] == 0);

    load_ok(
        &c,
        LLAMA(",\"head_dim\":64,\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\","
              "\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
              "\"original_max_position_embeddings\":8192}"));
    static const double llama3[][2] = {{0, 1.0},
                                       {10, 0.0165604401},
                                       {13, 0.00483942135},
                                       {14, 0.00321144599},
                                       {15, 0.00129054793},
                                       {16, 0.000429556797},
                                       {17, 9.7082878e-05},
                                       {18, 1.94616382e-05},
                                       {31, 9.41830673e-08}};
    // Within the transition the smoothing factor cancels, so F32 keeps fewer digits there.
    for (int i = 0; i < 9; i++)
        assert_true(fabs(c.inv_freq[(int)llama3[i][0]] - llama3[i][1]) < 2e-6 * llama3[i][1]);
    assert_true(c.rope_scale == 1);

    load_ok(&c, LLAMA(",\"head_dim\":128,\"rope_parameters\":{\"rope_theta\":1000000.0,\"rope_"
                      "type\":\"yarn\","
                      "\"factor\":4.0,\"original_max_position_embeddings\":32768}"));
    static const double yarn[][2] = {{0, 1.0},
                                     {20, 0.0133352143},
                                     {30, 0.00106436098},
                                     {35, 0.000246258407},
                                     {40, 4.44569853e-05},
                                     {50, 5.13381257e-06},
                                     {63, 3.1023444e-07}};
    for (int i = 0; i < 7; i++)
        assert_true(fabs(c.inv_freq[(int)yarn[i][0]] - yarn[i][1]) < 2e-6 * yarn[i][1]);
    near(c.rope_scale, 1.138629436111989);

    load_ok(&c,
            LLAMA(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"attention_factor\":0.5}"));
    assert_true(c.rope_scale == 0.5f);
    load_ok(&c,
            LLAMA(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":0.707,"
                  "\"mscale_all_dim\":1.0,\"truncate\":false,\"beta_fast\":16,\"beta_slow\":2}"));
    near(c.rope_scale, (0.1 * 0.707 * log(40) + 1) / (0.1 * log(40) + 1));
    static const double exact[] = {1,       0.316227766,    0.0683637127, 0.00454810827,
                                   0.00025, 7.90569415e-05, 2.5e-05,      7.90569415e-06};
    for (int i = 0; i < 8; i++) assert_true(fabs(c.inv_freq[i] - exact[i]) < 2e-6 * exact[i]);
}

// A part of each head: the scalings count in that part's width.
static void rotary_frequencies_of_a_part(void **state) {
    struct model_config c;
    load_ok(&c, NEOX(",\"rotary_pct\":0.5,\"rotary_emb_base\":500,"
                     "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}"));
    static const double yarn[] = {1, 0.132171408, 0.0111803399, 0.00236435402};
    for (int i = 0; i < 4; i++) assert_true(fabs(c.inv_freq[i] - yarn[i]) < 2e-6 * yarn[i]);
    assert_true(c.inv_freq[4] == 0);
    near(c.rope_scale, 1.138629436111989);
}

#define ROPE(dict) LLAMA(",\"rope_scaling\":" dict)
static const struct {
    const char *text;
    int code;
    const char *names;
} bad[] = {
    {"", E_FORMAT, "JSON"},
    {"[]", E_FORMAT, "object"},
    {"{}", E_FORMAT, "model_type"},
    {"{\"model_type\":\"mamba\"}", E_UNSUPPORTED, "llama, mistral, qwen2, qwen3"},
    {"{\"model_type\":7}", E_FORMAT, "model_type"},
    {"{\"model_type\":\"llama\"}", E_FORMAT, "vocab_size"},
    {"{\"model_type\":\"llama\",\"vocab_size\":0}", E_FORMAT, "vocab_size"},
    {"{\"model_type\":\"llama\",\"vocab_size\":-5}", E_FORMAT, "vocab_size"},
    {"{\"model_type\":\"llama\",\"vocab_size\":1e308}", E_FORMAT, "vocab_size"},
    {"{\"model_type\":\"llama\",\"vocab_size\":1e999}", E_FORMAT, "JSON"},
    {"{\"model_type\":\"llama\",\"vocab_size\":NaN}", E_FORMAT, "JSON"},
    {"{\"model_type\":\"llama\",\"vocab_size\":\"8\"}", E_FORMAT, "vocab_size"},
    {"{\"model_type\":\"llama\",\"vocab_size\":8.5}", E_FORMAT, "vocab_size"},
    {LLAMA(",\"vocab_size\":8"), E_FORMAT, "twice"},
    {LLAMA(",\"head_dim\":0"), E_FORMAT, "head_dim"},
    {LLAMA(",\"head_dim\":15"), E_UNSUPPORTED, "even width"},
    {LLAMA(",\"head_dim\":1000"), E_UNSUPPORTED, "even width"},
    {LLAMA(",\"rms_norm_eps\":1e308"), E_FORMAT, "rms_norm_eps"},
    {LLAMA(",\"rms_norm_eps\":-1"), E_FORMAT, "rms_norm_eps"},
    {LLAMA(",\"hidden_act\":\"laplace\""), E_UNSUPPORTED, "laplace"},
    {LLAMA(",\"hidden_act\":1"), E_FORMAT, "hidden_act"},
    {LLAMA(",\"dtype\":\"float64\""), E_UNSUPPORTED, "float64"},
    {LLAMA(",\"quantization_config\":{\"bits\":4}"), E_UNSUPPORTED, "quantization_config"},
    {LLAMA(",\"is_encoder_decoder\":true"), E_UNSUPPORTED, "is_encoder_decoder"},
    {LLAMA(",\"tie_word_embeddings\":\"yes\""), E_FORMAT, "tie_word_embeddings"},
    {LLAMA(",\"eos_token_id\":320"), E_FORMAT, "eos_token_id"},
    {LLAMA(",\"eos_token_id\":[1,\"2\"]"), E_FORMAT, "eos_token_id"},
    {LLAMA(",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]"), E_LIMIT, "eos_token_id"},
    {LLAMA(",\"bos_token_id\":1e308"), E_FORMAT, "bos_token_id"},
    {LLAMA(",\"rope_theta\":0"), E_FORMAT, "rope_theta"},
    {LLAMA(",\"rope_theta\":1e308"), E_FORMAT, "rope_theta"},
    {LLAMA(",\"partial_rotary_factor\":0.5"), E_UNSUPPORTED, "partial_rotary_factor"},
    {ROPE("[1]"), E_FORMAT, "rope_scaling"},
    {ROPE("{\"type\":\"dynamic\",\"factor\":2}"), E_UNSUPPORTED, "dynamic"},
    {ROPE("{\"rope_type\":\"longrope\"}"), E_UNSUPPORTED, "longrope"},
    {ROPE("{\"type\":\"linear\"}"), E_FORMAT, "factor"},
    {ROPE("{\"type\":\"linear\",\"factor\":-2}"), E_FORMAT, "factor"},
    {ROPE("{\"type\":\"linear\",\"factor\":2,\"short_factor\":[1]}"), E_UNSUPPORTED,
     "short_factor"},
    {ROPE("{\"type\":\"llama3\",\"factor\":8}"), E_FORMAT, "original_max_position_embeddings"},
    {ROPE("{\"type\":\"llama3\",\"factor\":8,\"original_max_position_embeddings\":8,\"low_freq_"
          "factor\":4,"
          "\"high_freq_factor\":4}"),
     E_FORMAT, "high_freq_factor"},
    {ROPE("{\"type\":\"yarn\",\"factor\":4,\"rope_theta\":1}"), E_FORMAT, "rope_theta"},
    {LLAMA(
         ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"rope_parameters\":{\"rope_type\":"
         "\"linear\",\"factor\":3}"),
     E_FORMAT, "disagree"},
    {LLAMA(",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4}}"), E_UNSUPPORTED,
     "full_attention"},
    {GPT2(",\"n_head\":5"), E_FORMAT, "twice"},
    {GPT2(",\"num_attention_heads\":4"), E_FORMAT, "'num_attention_heads' and 'n_head' disagree"},
    {GPT2(",\"n_inner\":0"), E_FORMAT, "n_inner"},
    {GPT2(",\"n_inner\":1e12"), E_FORMAT, "n_inner"},
    {GPT2(",\"scale_attn_weights\":1"), E_FORMAT, "scale_attn_weights"},
    {GPT2(",\"add_cross_attention\":true"), E_UNSUPPORTED, "add_cross_attention"},
    {GPT2(",\"activation_function\":\"laplace\""), E_UNSUPPORTED, "laplace"},
    {"{\"model_type\":\"gpt2\",\"vocab_size\":320,\"n_embd\":64,\"n_layer\":2,\"n_head\":5,"
     "\"n_positions\":64}",
     E_FORMAT, "'n_embd' 64 does not divide by 'n_head' 5"},
    {"{\"model_type\":\"gpt2\",\"vocab_size\":320,\"n_embd\":64,\"n_layer\":2,\"n_head\":4}",
     E_FORMAT, "n_positions"},
    {GPTJ(""), E_FORMAT, "rotary_dim"}, // its class's 64 is more than this head
    {GPTJ(",\"rotary_dim\":null"), E_UNSUPPORTED, "rotary_dim"},
    {GPTJ(",\"rotary_dim\":7"), E_UNSUPPORTED, "even width"},
    {GPTJ(",\"rotary_dim\":18"), E_FORMAT, "rotary_dim"},
    {GPTJ(",\"rotary_dim\":-8"), E_FORMAT, "rotary_dim"},
    {NEOX(",\"rotary_pct\":0"), E_UNSUPPORTED, "even width"},
    {NEOX(",\"rotary_pct\":1.5"), E_FORMAT, "partial_rotary_factor"},
    {NEOX(",\"rotary_pct\":0.2"), E_UNSUPPORTED, "even width"}, // 3 of 16
    {NEOX(",\"rotary_pct\":0.5,\"partial_rotary_factor\":0.25"), E_FORMAT, "disagree"},
    {NEOX(",\"rotary_emb_base\":0"), E_FORMAT, "rope_theta"},
    {NEOX(",\"use_parallel_residual\":\"no\""), E_FORMAT, "use_parallel_residual"},
    {BLOOM(",\"n_embed\":64"), E_FORMAT, "'n_embed' and 'hidden_size' disagree"},
    {BLOOM(",\"seq_length\":0"), E_FORMAT, "seq_length"},
    {BLOOM(",\"layer_norm_epsilon\":\"small\""), E_FORMAT, "layer_norm_epsilon"},
    {OPT(",\"layer_norm_elementwise_affine\":false"), E_UNSUPPORTED, "elementwise_affine"},
    {OPT(",\"word_embed_proj_dim\":0"), E_FORMAT, "word_embed_proj_dim"},
    {OPT(",\"word_embed_proj_dim\":1e9"), E_FORMAT, "word_embed_proj_dim"},
    {OPT(",\"do_layer_norm_before\":null,\"enable_bias\":[]"), E_FORMAT, "enable_bias"},
    {"{\"model_type\":\"opt\",\"vocab_size\":320,\"hidden_size\":64,\"num_hidden_layers\":2,"
     "\"num_attention_heads\":4,\"ffn_dim\":96,\"max_position_embeddings\":2147483647}",
     E_LIMIT, "positions"},
    {XGLM(",\"pad_token_id\":2"), E_UNSUPPORTED, "pad_token_id"},
    {XGLM(",\"pad_token_id\":\"1\""), E_FORMAT, "pad_token_id"},
    {"{\"model_type\":\"xglm\",\"vocab_size\":320,\"d_model\":64,\"num_layers\":2,"
     "\"attention_heads\":4,\"ffn_dim\":96,\"max_position_embeddings\":100000000}",
     E_LIMIT, "100000002 positions"},
    {"{\"model_type\":\"xglm\",\"vocab_size\":320,\"d_model\":3,\"num_layers\":2,"
     "\"attention_heads\":1,\"ffn_dim\":96,\"max_position_embeddings\":10}",
     E_UNSUPPORTED, "width 3"},
    {LLAMA(",\"layer_types\":[\"full_attention\"]"), E_FORMAT, "1 layers of 4"},
    {LLAMA(",\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\",\"linear_"
           "attention\"]"),
     E_UNSUPPORTED, "linear_attention"},
    {LLAMA(",\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\",\"sliding_"
           "attention\"]"),
     E_UNSUPPORTED, "contradicts"},
    {QWEN2(",\"use_sliding_window\":true,\"layer_types\":[\"sliding_attention\",\"full_attention\","
           "\"full_attention\",\"full_attention\"]"),
     E_UNSUPPORTED, "layer 1"},
    {QWEN2(",\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\",\"sliding_"
           "attention\"]"),
     E_FORMAT, "use_sliding_window"},
    {MISTRAL(",\"sliding_window\":0"), E_FORMAT, "sliding_window"},
    {MISTRAL(",\"sliding_window\":-3"), E_FORMAT, "sliding_window"},
    {"{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":64,\"intermediate_size\":8,"
     "\"num_hidden_layers\":1,\"num_attention_heads\":6,\"max_position_embeddings\":9}",
     E_FORMAT, "divide"},
    {"{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":64,\"intermediate_size\":8,"
     "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":3,"
     "\"max_position_embeddings\":9}",
     E_FORMAT, "num_key_value_heads"},
    {"{\"model_type\":\"qwen2\",\"vocab_size\":8,\"hidden_size\":64,\"intermediate_size\":8,"
     "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"max_position_embeddings\":9}",
     E_FORMAT, "num_key_value_heads"},
    {"{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":1048576,\"intermediate_size\":8,"
     "\"num_hidden_layers\":1,\"num_attention_heads\":65536,\"head_dim\":512,\"max_position_"
     "embeddings\":9}",
     E_LIMIT, "rows"},
    {"{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":2147483647}", E_FORMAT,
     "num_hidden_layers"},
};

static void refuses_bad_values(void **state) {
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_config c;
        struct err err;
        int rc = load(&c, bad[i].text, &err);
        if (rc != bad[i].code || err.code != rc || !strstr(err.text, bad[i].names) ||
            !strstr(err.text, "config.json"))
            fail_msg("%s: code %d, text '%s'", bad[i].text, rc, err.text);
    }
}

static void generation_config(void **state) {
    static const struct {
        const char *text;
        int code;
        const char *names;
    } cases[] = {{"{\"temperature\":\"hot\"}", E_FORMAT, "temperature"},
                 {"{\"temperature\":-1}", E_FORMAT, "temperature"},
                 {"{\"top_p\":1.5}", E_FORMAT, "top_p"},
                 {"{\"top_k\":-2}", E_FORMAT, "top_k"},
                 {"{\"repetition_penalty\":0}", E_FORMAT, "repetition_penalty"},
                 {"{\"eos_token_id\":[400]}", E_FORMAT, "eos_token_id"},
                 {"nonsense", E_FORMAT, "JSON"}};
    struct model_config c;
    struct err err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tmp_text(&dir, "generation_config.json", cases[i].text);
        int rc = load(&c, LLAMA(""), &err);
        if (rc != cases[i].code || !strstr(err.text, cases[i].names) ||
            !strstr(err.text, "generation_config.json"))
            fail_msg("%s: code %d, text '%s'", cases[i].text, rc, err.text);
    }
    tmp_text(&dir, "generation_config.json",
             "{\"temperature\":0.6,\"top_k\":20,\"top_p\":0.95,"
             "\"repetition_penalty\":1.1,\"eos_token_id\":[3,4]}");
    load_ok(&c, LLAMA(",\"eos_token_id\":9"));
    assert_true(c.temperature == 0.6f && c.top_p == 0.95f && c.repetition_penalty == 1.1f);
    assert_int_equal(c.top_k, 20);
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos_ids[1], 4);
    assert_int_equal(unlink(tmp_path(&dir, "generation_config.json")), 0);
}

// Random changes of a good file: read or refused with a sentence, and what is read is consistent.
static void change_and_read(const char *family) {
    char good[2000], text[2000], path[100];
    snprintf(path, sizeof path, "tests/fixtures/models/%s/config.json", family);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    size_t n = fread(good, 1, sizeof good - 1, in);
    fclose(in);
    uint64_t random = 99;
    int accepted = 0;
    for (int round = 0; round < 1500; round++) {
        memcpy(text, good, n);
        text[n] = '\0';
        for (int change = 0; change <= round % 3; change++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            text[(random >> 33) % n] = "0123456789eE-.,:\"{}[]ntf"[(random >> 20) % 24];
        }
        struct model_config c;
        struct err err;
        int rc = load(&c, text, &err);
        if (rc < 0) {
            assert_true(err.code == rc && err.text[0]);
            continue;
        }
        accepted++;
        assert_true(c.n_layers > 0 && c.width > 0 && c.vocab_size > 0 && c.ffn_width > 0);
        assert_true(c.n_kv_heads > 0 && c.n_heads % c.n_kv_heads == 0);
        assert_true(c.max_positions > 0 && c.embed_width > 0);
        if (c.positions == POSITION_ROTARY)
            assert_true(c.rot_dim > 1 && c.rot_dim <= c.head_dim && c.rot_dim % 2 == 0 &&
                        c.rot_dim <= MODEL_MAX_ROT);
        assert_true(c.first_windowed_layer >= 0 && c.n_eos <= MODEL_MAX_EOS);
        assert_true(model_config_n_params(&c) > 0);
        for (int i = 0; i < c.rot_dim / 2; i++) assert_true(isfinite(c.inv_freq[i]));
        assert_true(isfinite(c.rope_scale) && c.norm_eps > 0);
    }
    assert_true(accepted > 50);
}

static void changed_files_do_no_harm(void **state) {
    static const char *const families[] = {"qwen3", "gpt2", "gptj", "gpt_neox",
                                           "bloom", "opt",  "xglm"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) change_and_read(families[i]);
}

static void a_missing_file_is_named(void **state) {
    struct model_config c;
    struct err err;
    assert_int_equal(model_config_load(&c, tmp_path(&dir, "nowhere"), &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "nowhere/config.json"));
}

// The shape of Llama 3.2 1B has 1,235,814,400 parameters; Qwen3 0.6B 596,049,920.
static void counts_parameters(void **state) {
    struct model_config c;
    load_ok(&c, "{\"model_type\":\"llama\",\"vocab_size\":128256,\"hidden_size\":2048,"
                "\"intermediate_size\":8192,"
                "\"num_hidden_layers\":16,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
                "\"max_position_embeddings\":131072,\"tie_word_embeddings\":true}");
    assert_int_equal(model_config_n_params(&c), 1235814400);
    load_ok(&c, "{\"model_type\":\"qwen3\",\"vocab_size\":151936,\"hidden_size\":1024,"
                "\"intermediate_size\":3072,"
                "\"num_hidden_layers\":28,\"num_attention_heads\":16,\"num_key_value_heads\":8,"
                "\"max_position_embeddings\":40960,\"tie_word_embeddings\":true}");
    assert_int_equal(model_config_n_params(&c), 596049920);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_fixtures),
        cmocka_unit_test(reads_the_demo_model),
        cmocka_unit_test(reads_the_earlier_fixtures),
        cmocka_unit_test(reads_published_spellings),
        cmocka_unit_test(switches_of_the_earlier_families),
        cmocka_unit_test(both_spellings_say_the_same),
        cmocka_unit_test(what_is_missing_means_what_transformers_means),
        cmocka_unit_test(switches_of_each_family),
        cmocka_unit_test(activations_by_name),
        cmocka_unit_test(sliding_windows),
        cmocka_unit_test(rotary_frequencies),
        cmocka_unit_test(rotary_frequencies_of_a_part),
        cmocka_unit_test(refuses_bad_values),
        cmocka_unit_test(generation_config),
        cmocka_unit_test(changed_files_do_no_harm),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(counts_parameters),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
