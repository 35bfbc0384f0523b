// config.json of every family to its switches, in the spellings of their authors.
#include "tests/unit/model_config_fixture.h"

// A family's fixture, which has three layers of four heads like all of them.
static struct model_config fixture_config(const char *family, int32_t n_kv_heads,
                                          int32_t head_dim) {
    char path[100];
    struct model_config c;
    struct err err;
    snprintf(path, sizeof path, "tests/fixtures/models/%s", family);
    if (model_config_load(&c, path, &err) != 0) fail_msg("%s", err.text);
    assert_string_equal(c.family, family);
    assert_int_equal(c.n_layers, 3);
    assert_int_equal(c.width, 64);
    assert_int_equal(c.embed_width, 64);
    assert_int_equal(c.kinds[0].attention.n_heads, 4);
    assert_int_equal(c.kinds[0].attention.n_kv_heads, n_kv_heads);
    assert_int_equal(c.kinds[0].attention.head_dim, head_dim);
    return c;
}

static int32_t window_of(const struct model_config *c, int32_t layer) {
    return model_layer(c, layer)->attention.window;
}

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
        struct model_config c = fixture_config(expect[i].family, expect[i].kv, expect[i].head_dim);
        assert_int_equal(c.dtype, DTYPE_BF16);
        assert_int_equal(c.ropes[0].rot_dim, expect[i].head_dim);
        assert_int_equal(c.kinds[0].feed.width, 160);
        assert_int_equal(c.vocab_size, 320);
        assert_int_equal(c.max_positions, 512);
        assert_int_equal(c.tied_head, expect[i].tied);
        assert_int_equal(c.kinds[0].attention.qkv_bias, expect[i].bias);
        assert_int_equal(c.kinds[0].attention.qk_norm, expect[i].qk_norm);
        assert_false(c.kinds[0].attention.o_bias || c.kinds[0].feed.bias || c.head_bias ||
                     c.kinds[0].parallel || c.embed_norm);
        assert_true(c.kinds[0].feed.gated && c.final_norm);
        assert_int_equal(c.norm, NORM_RMS);
        assert_int_equal(c.positions, POSITION_ROTARY);
        assert_int_equal(c.ropes[0].style, ROPE_HALF);
        assert_int_equal(c.kinds[0].feed.activation, ACT_SILU);
        assert_true(c.norm_eps == 1e-6f && c.ropes[0].scale == 1 && c.embed_scale == 1);
        assert_true(c.kinds[0].attention.scale == (float)pow(expect[i].head_dim, -0.5));
        assert_int_equal(window_of(&c, 3), 0);
        assert_int_equal(c.bos_id, 0);
        assert_int_equal(c.n_eos, 1);
        assert_int_equal(c.eos_ids[0], 1);
        assert_true(c.temperature < 0 && c.top_p < 0 && c.top_k < 0 && c.repetition_penalty < 0);
    }
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
        struct model_config c = fixture_config(expect[i].family, 4, 16);
        assert_int_equal(c.kinds[0].feed.width, expect[i].ffn);
        assert_int_equal(c.max_positions, expect[i].max_positions);
        assert_int_equal(c.position_offset, expect[i].position_offset);
        assert_int_equal(c.ropes[0].rot_dim, expect[i].rot_dim);
        assert_int_equal(c.dtype, expect[i].dtype);
        assert_int_equal(c.positions, expect[i].positions);
        assert_int_equal(c.kinds[0].feed.activation, expect[i].activation);
        assert_int_equal(c.tied_head, expect[i].tied);
        assert_int_equal(c.kinds[0].attention.qkv_bias, expect[i].qkv_bias);
        assert_int_equal(c.kinds[0].attention.o_bias, expect[i].qkv_bias);
        assert_int_equal(c.head_bias, expect[i].head_bias);
        assert_int_equal(c.kinds[0].parallel, expect[i].parallel);
        assert_int_equal(c.kinds[0].shared_norm, expect[i].shared);
        assert_int_equal(c.embed_norm, expect[i].embed_norm);
        assert_true(c.embed_scale == expect[i].embed_scale && c.norm_eps == 1e-5f);
        assert_true(c.norm_bias && c.kinds[0].feed.bias && c.final_norm);
        assert_false(c.kinds[0].feed.gated || c.kinds[0].attention.qk_norm ||
                     c.kinds[0].normed_residual || c.kinds[0].attention.scale_by_layer);
        assert_int_equal(c.norm, NORM_LAYER);
        assert_int_equal(c.kinds[0].norms, NORM_PRE);
        assert_int_equal(c.ropes[0].style, c.kinds[0].shared_norm ? ROPE_INTERLEAVED : ROPE_HALF);
        assert_true(c.kinds[0].attention.scale == 0.25f);
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
    assert_int_equal(c.kinds[0].attention.n_heads, 16);
    assert_int_equal(c.kinds[0].feed.width, 4096);
    assert_int_equal(c.max_positions, 4096);
    assert_int_equal(model_config_n_params(&c), 559214592);
    load_ok(&c, "{\"model_type\":\"gpt_neox\",\"hidden_size\":6144,\"num_hidden_layers\":44,"
                "\"num_attention_heads\":64,\"intermediate_size\":24576,\"vocab_size\":50432,"
                "\"max_position_embeddings\":2048,\"rotary_pct\":0.25,\"rotary_emb_base\":10000,"
                "\"hidden_act\":\"gelu_fast\",\"layer_norm_eps\":1e-05,"
                "\"tie_word_embeddings\":false}");
    assert_int_equal(c.ropes[0].rot_dim, 24);
    assert_int_equal(c.kinds[0].feed.activation, ACT_GELU_TANH);
    assert_int_equal(model_config_n_params(&c), 20554567680);
    load_ok(&c, "{\"model_type\":\"gptj\",\"n_embd\":4096,\"n_layer\":28,\"n_head\":16,"
                "\"n_positions\":2048,\"n_inner\":null,\"rotary_dim\":64,\"vocab_size\":50400,"
                "\"rotary\":true,\"tie_word_embeddings\":false}");
    assert_int_equal(c.kinds[0].feed.width, 16384);
    assert_int_equal(model_config_n_params(&c), 6050882784);
    load_ok(&c, "{\"model_type\":\"opt\",\"hidden_size\":1024,\"num_hidden_layers\":24,"
                "\"num_attention_heads\":16,\"ffn_dim\":4096,\"max_position_embeddings\":2048,"
                "\"vocab_size\":50272,\"word_embed_proj_dim\":512,\"do_layer_norm_before\":false}");
    assert_int_equal(c.embed_width, 512);
    assert_int_equal(c.kinds[0].norms, NORM_POST);
    assert_false(c.final_norm);
    assert_int_equal(model_config_n_params(&c), 331196416);
}

// What transformers leaves out of a text_config: the keys with the values of their class. gemma-3-4b-it, llava-1.5-7b
// and pixtral-12b as published.
static void reads_text_of_few_keys(void **state) {
    struct model_config c;
    struct err err;
    load_ok(&c,
            "{\"model_type\":\"gemma3\",\"eos_token_id\":[1,106],\"torch_dtype\":\"bfloat16\","
            "\"vision_config\":{},\"text_config\":{\"hidden_size\":2560,"
            "\"intermediate_size\":10240,\"model_type\":\"gemma3_text\","
            "\"num_hidden_layers\":34,\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},"
            "\"sliding_window\":1024}}");
    assert_int_equal(c.vocab_size, 262208);
    assert_int_equal(c.max_positions, 131072);
    assert_int_equal(c.kinds[0].attention.n_heads, 8);
    assert_int_equal(c.kinds[0].attention.n_kv_heads, 4);
    assert_int_equal(c.kinds[0].attention.head_dim, 256);
    assert_int_equal(window_of(&c, 4), 1024);
    assert_int_equal(window_of(&c, 5), 0);
    assert_true(c.ropes[0].inv_freq[0] == 0.125f && c.ropes[1].inv_freq[0] == 1 && c.tied_head);
    assert_int_equal(model_config_n_params(&c), 3880263168);
    load_ok(&c, "{\"model_type\":\"llava\",\"text_config\":{\"max_position_embeddings\":4096,"
                "\"model_type\":\"llama\",\"rms_norm_eps\":1e-05,\"vocab_size\":32064}}");
    assert_int_equal(model_config_n_params(&c), 6738939904);
    load_ok(&c, "{\"model_type\":\"llava\",\"text_config\":{\"hidden_size\":5120,\"head_dim\":128,"
                "\"max_position_embeddings\":1024000,\"model_type\":\"mistral\","
                "\"num_hidden_layers\":40,\"rope_theta\":1e9,\"sliding_window\":null,"
                "\"vocab_size\":131072}}");
    assert_int_equal(c.kinds[0].attention.n_heads, 32);
    assert_int_equal(c.kinds[0].attention.n_kv_heads, 8);
    assert_int_equal(c.kinds[0].feed.width, 14336);
    // A model of text alone has all keys.
    assert_int_equal(load(&c, "{\"model_type\":\"gemma3_text\",\"hidden_size\":64}", &err),
                     E_FORMAT);
}

// Gemma 4's larger models as published: tokens of images attend to later ones, those of text do not.
static void attention_both_ways_in_images(void **state) {
    struct model_config c, causal;
    load_ok(&causal, GEMMA4(""));
    load_ok(&c, GEMMA4(",\"use_bidirectional_attention\":\"vision\""));
    assert_memory_equal(&c, &causal, sizeof c);
    struct err err;
    assert_int_equal(load(&c, GEMMA4(",\"use_bidirectional_attention\":\"all\""), &err),
                     E_UNSUPPORTED);
}

// Qwen2.5-VL and Qwen3-VL as published: their text is a Qwen2 and a Qwen3.
static void texts_of_qwens_that_see(void **state) {
    static const char *const pairs[][2] = {
        {"{\"model_type\":\"qwen2_5_vl\"," SHAPE
         ",\"use_sliding_window\":false,\"sliding_window\":32,"
         "\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[2,3,3]},\"vision_config\":{}}",
         QWEN2("")},
        {"{\"model_type\":\"qwen2_5_vl\",\"text_config\":{\"model_type\":\"qwen2_5_vl_text\"," SHAPE
         "}}",
         QWEN2("")},
        {"{\"model_type\":\"qwen3_vl\",\"text_config\":{\"model_type\":\"qwen3_vl_text\"," SHAPE
         ",\"rope_scaling\":{\"mrope_interleaved\":true,\"mrope_section\":[24,20,20],"
         "\"rope_type\":\"default\"}}}",
         QWEN3("")},
        {"{\"model_type\":\"qwen3_vl_moe\",\"text_config\":{\"model_type\":\"qwen3_vl_moe_"
         "text\"," SHAPE
         ",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":48}}",
         "{\"model_type\":\"qwen3_moe\"," SHAPE
         ",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":48,"
         "\"norm_topk_prob\":true}"}, // whose class sums up to 1 without the key
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct model_config sees, text;
        load_ok(&sees, pairs[i][0]);
        load_ok(&text, pairs[i][1]);
        memcpy(sees.family, text.family, sizeof sees.family);
        assert_memory_equal(&sees, &text, sizeof sees);
    }
}

// granite-4.0-micro as published, and its parts that are not known.
static void granites_without_mamba(void **state) {
    struct model_config c;
    struct err err;
#define HYBRID(more)                                                                               \
    "{\"model_type\":\"granitemoehybrid\",\"vocab_size\":320,\"hidden_size\":64,"                  \
    "\"intermediate_size\":48,\"shared_intermediate_size\":160,\"num_hidden_layers\":2,"           \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":512,"         \
    "\"num_experts_per_tok\":0,\"mamba_n_heads\":8," more "}"
    load_ok(&c, HYBRID("\"layer_types\":[\"attention\",\"attention\"],\"num_local_experts\":0,"
                       "\"position_embedding_type\":\"rope\",\"attention_multiplier\":0.5,"
                       "\"embedding_multiplier\":12,\"logits_scaling\":10"));
    assert_int_equal(c.kinds[0].feed.width, 160);
    assert_int_equal(c.kinds[0].attention.rope, 1);
    assert_true(c.kinds[0].attention.scale == 0.5f && c.embed_scale == 12);
    load_ok(&c, HYBRID("\"layer_types\":[\"full_attention\",\"full_attention\"],"
                       "\"num_local_experts\":0,\"position_embedding_type\":\"nope\""));
    assert_int_equal(c.kinds[0].attention.rope, 0);
    static const struct {
        const char *text, *word;
    } refused[] = {
        {HYBRID("\"layer_types\":[\"attention\",\"mamba\"],\"num_local_experts\":0"),
         "'mamba' in layer 1"},
        {HYBRID("\"num_local_experts\":0"), "'layer_types'"},
        {HYBRID("\"layer_types\":[\"attention\"],\"num_local_experts\":0"), "1 layers of 2"},
        {HYBRID("\"layer_types\":[\"attention\",\"attention\"],\"num_local_experts\":8"),
         "num_local_experts"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_true(load(&c, refused[i].text, &err) < 0);
        assert_non_null(strstr(err.text, refused[i].word));
    }
}

static void switches_of_the_earlier_families(void **state) {
    struct model_config c;
    load_ok(&c, GPT2(",\"n_inner\":100,\"activation_function\":\"tanh\","
                     "\"scale_attn_weights\":false,\"tie_word_embeddings\":false"));
    assert_int_equal(c.kinds[0].feed.width, 100);
    assert_int_equal(c.kinds[0].attention.head_dim, 12);
    assert_int_equal(c.kinds[0].feed.activation, ACT_TANH);
    assert_true(c.kinds[0].attention.scale == 1 && !c.tied_head);
    assert_true(model_config_attention_scale(&c, 1) == 1);
    load_ok(&c, GPT2(",\"scale_attn_by_inverse_layer_idx\":true,\"num_attention_heads\":5"));
    assert_true(model_config_attention_scale(&c, 0) == c.kinds[0].attention.scale);
    assert_true(model_config_attention_scale(&c, 1) == c.kinds[0].attention.scale / 2);
    load_ok(&c, GPTJ(",\"rotary_dim\":8,\"rope_theta\":5,\"tie_word_embeddings\":true"));
    assert_int_equal(c.ropes[0].rot_dim, 8); // its class knows no other theta
    assert_true(c.tied_head && c.head_bias && c.ropes[0].inv_freq[1] == 0.1f);
    load_ok(&c, NEOX(",\"use_parallel_residual\":false,\"attention_bias\":false,\"rotary_pct\":1.0,"
                     "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}"));
    assert_false(c.kinds[0].parallel || c.kinds[0].attention.qkv_bias ||
                 c.kinds[0].attention.o_bias);
    assert_true(c.kinds[0].feed.bias && c.ropes[0].inv_freq[0] == 0.5f);
    assert_int_equal(c.ropes[0].rot_dim, 16);
    struct model_config d;
    load_ok(&c, NEOX(",\"rotary_pct\":0.5,\"rotary_emb_base\":500,\"rope_theta\":500,"
                     "\"partial_rotary_factor\":0.5"));
    load_ok(&d, NEOX(",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500.0,"
                     "\"partial_rotary_factor\":0.5}"));
    assert_memory_equal(&c, &d, sizeof c);
    assert_int_equal(c.ropes[0].rot_dim, 8);
    load_ok(&c, BLOOM(",\"apply_residual_connection_post_layernorm\":true"));
    assert_true(c.kinds[0].normed_residual);
    assert_int_equal(c.kinds[0].attention.head_dim, 5);
    load_ok(&c, OPT(",\"enable_bias\":false,\"_remove_final_layer_norm\":true"));
    assert_false(c.kinds[0].attention.qkv_bias || c.kinds[0].attention.o_bias ||
                 c.kinds[0].feed.bias || c.final_norm);
    assert_true(c.norm_bias);
    load_ok(&c, XGLM(",\"scale_embedding\":false,\"pad_token_id\":null"));
    assert_true(c.embed_scale == 1);
}

static void switches_of_each_family(void **state) {
    struct model_config c;
    load_ok(&c,
            LLAMA(",\"attention_bias\":true,\"mlp_bias\":true,\"hidden_act\":\"gelu_pytorch_tanh\","
                  "\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-5"));
    assert_true(c.kinds[0].attention.qkv_bias && c.kinds[0].attention.o_bias &&
                c.kinds[0].feed.bias && c.tied_head);
    assert_int_equal(c.kinds[0].feed.activation, ACT_GELU_TANH);
    assert_true(c.norm_eps == 1e-5f);
    load_ok(&c, QWEN3(",\"attention_bias\":true"));
    assert_true(c.kinds[0].attention.qkv_bias && c.kinds[0].attention.o_bias &&
                !c.kinds[0].feed.bias);
    load_ok(&c, QWEN2(",\"attention_bias\":false")); // its class has biases whatever the key says
    assert_true(c.kinds[0].attention.qkv_bias && !c.kinds[0].attention.o_bias);
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
        assert_int_equal(c.kinds[0].feed.activation, names[i].activation);
    }
}

static void sliding_windows(void **state) {
    struct model_config c;
    load_ok(&c, QWEN2(",\"sliding_window\":100,\"max_window_layers\":2"));
    assert_int_equal(window_of(&c, 3), 0); // not asked for
    load_ok(&c,
            QWEN2(",\"sliding_window\":100,\"max_window_layers\":2,\"use_sliding_window\":true"));
    assert_int_equal(window_of(&c, 1), 0);
    assert_int_equal(window_of(&c, 2), 100);
    assert_int_equal(window_of(&c, 3), 100);
    // 28 layers of 4: none
    load_ok(&c, QWEN2(",\"sliding_window\":100,\"use_sliding_window\":true"));
    assert_int_equal(window_of(&c, 3), 0);
    load_ok(&c, QWEN3(",\"sliding_window\":100,\"use_sliding_window\":true,\"max_window_layers\":0,"
                      "\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\","
                      "\"sliding_attention\"]"));
    assert_int_equal(window_of(&c, 3), 100); // layer_types decides
    assert_int_equal(window_of(&c, 2), 0);
    assert_int_equal(c.n_kinds, 2);
    load_ok(
        &c,
        QWEN2(",\"sliding_window\":100,\"use_sliding_window\":true,\"layer_types\":["
              "\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]"));
    assert_int_equal(window_of(&c, 0), 100);
    assert_int_equal(window_of(&c, 1), 0);
    load_ok(
        &c,
        MISTRAL(
            ",\"sliding_window\":9,\"layer_types\":[\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\"]"));
    assert_int_equal(window_of(&c, 0), 9);
    // Layers without positions have it, unless layer_types says otherwise.
    load_ok(&c, "{\"model_type\":\"smollm3\"," SHAPE
                ",\"use_sliding_window\":true,\"sliding_window\":7}");
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(window_of(&c, i), i == 3 ? 7 : 0);
        assert_int_equal(model_layer(&c, i)->attention.rope, i == 3 ? 0 : 1);
    }
    load_ok(&c, "{\"model_type\":\"smollm3\"," SHAPE
                ",\"use_sliding_window\":true,\"sliding_window\":7,\"layer_types\":["
                "\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]}");
    assert_int_equal(window_of(&c, 0), 7);
    assert_int_equal(window_of(&c, 3), 0);
    load_ok(&c, "{\"model_type\":\"smollm3\"," SHAPE
                ",\"use_sliding_window\":true,\"sliding_window\":null}");
    assert_int_equal(window_of(&c, 3), 0);
    // As transformers saves a model without windows.
    load_ok(&c, "{\"model_type\":\"exaone4\"," SHAPE
                ",\"sliding_window\":null,\"sliding_window_pattern\":0}");
    assert_int_equal(window_of(&c, 0), 0);
    assert_int_equal(model_layer(&c, 3)->attention.rope, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_fixtures),
        cmocka_unit_test(reads_the_earlier_fixtures),
        cmocka_unit_test(reads_published_spellings),
        cmocka_unit_test(reads_text_of_few_keys),
        cmocka_unit_test(attention_both_ways_in_images),
        cmocka_unit_test(texts_of_qwens_that_see),
        cmocka_unit_test(granites_without_mamba),
        cmocka_unit_test(switches_of_the_earlier_families),
        cmocka_unit_test(switches_of_each_family),
        cmocka_unit_test(activations_by_name),
        cmocka_unit_test(sliding_windows),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
