// config.json: both spellings, missing keys, and every bad value refused by name. The families'
// switches are in test_families.c.
#include "tests/unit/model_config_fixture.h"

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
    assert_int_equal(c.kinds[0].attention.n_kv_heads, 4);
    assert_int_equal(c.kinds[0].attention.head_dim, 16);
    assert_int_equal(c.dtype, DTYPE_F32);
    assert_int_equal(c.bos_id, -1);
    assert_int_equal(c.n_eos, 0);
    load_ok(&c, QWEN3(""));
    assert_int_equal(c.kinds[0].attention.head_dim, 128);
    load_ok(&c, QWEN3(",\"head_dim\":null"));
    assert_int_equal(c.kinds[0].attention.head_dim, 16);
    load_ok(&c, MISTRAL(""));
    assert_int_equal(c.kinds[0].attention.window, 4096);
    load_ok(&c, MISTRAL(",\"sliding_window\":null"));
    assert_int_equal(c.kinds[0].attention.window, 0);
    load_ok(&c, LLAMA(",\"bos_token_id\":-1,\"eos_token_id\":-1"));
    assert_int_equal(c.bos_id, -1);
    assert_int_equal(c.n_eos, 0);
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
    {"{\"model_type\":\"seamless\"}", E_UNSUPPORTED,
     "'seamless', which is unknown (`parley inspect"},
    {"{\"model_type\":\"lama\"}", E_UNSUPPORTED, "unknown; near are llama (`"},
    {"{\"model_type\":\"qwen3_vl\"}", E_UNSUPPORTED, "unknown; near are qwen3"},
    {"{\"model_type\":\"\"}", E_UNSUPPORTED, "'', which is unknown (`"},
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
    {LLAMA(",\"quantization_config\":{\"quant_method\":\"bitsandbytes\",\"bnb_4bit_quant_type\":"
           "\"fp3\"}"),
     E_UNSUPPORTED, "are the types nf4 and fp4"},
    {LLAMA(",\"quantization_config\":{\"quant_method\":\"nonesuch\",\"bits\":4}"), E_UNSUPPORTED,
     "asks for 'nonesuch'; known are"},
    {LLAMA(",\"quantization_config\":{\"quant_method\":\"parley_int8\",\"bits\":4}"), E_UNSUPPORTED,
     "parley_int8' with 4 bits"},
    {LLAMA(",\"quantization_config\":{\"quant_method\":7}"), E_FORMAT, "quant_method"},
    {LLAMA(",\"quantization_config\":[]"), E_FORMAT, "quantization_config"},
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
    {ROPE("{\"type\":\"sometimes\",\"factor\":2}"), E_UNSUPPORTED, "sometimes"},
    {ROPE("{\"rope_type\":\"longrope\"}"), E_FORMAT, "longrope"},
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
    {QWEN2(",\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\",7]"),
     E_UNSUPPORTED, "layer 3"},
    {QWEN2(",\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\",\"sliding_"
           "attention\"]"),
     E_FORMAT, "use_sliding_window"},
    {MISTRAL(",\"sliding_window\":0"), E_FORMAT, "sliding_window"},
    {MISTRAL(",\"sliding_window\":-3"), E_FORMAT, "sliding_window"},
    {"{\"model_type\":\"olmo3\"," SHAPE ",\"layer_types\":[\"sliding_attention\",\"sliding_"
     "attention\",\"chunked\",\"full_attention\"]}",
     E_UNSUPPORTED, "layer 2"},
    {"{\"model_type\":\"gemma2\"," SHAPE ",\"layer_types\":[\"sliding_attention\"]}", E_FORMAT,
     "1 layers of 4"},
    {"{\"model_type\":\"gemma2\"," SHAPE ",\"sliding_window\":0}", E_FORMAT, "sliding_window"},
    {"{\"model_type\":\"gemma3_text\"," SHAPE ",\"sliding_window\":-5}", E_FORMAT,
     "sliding_window"},
    {"{\"model_type\":\"gemma3_text\"," SHAPE
     ",\"sliding_window\":null,\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_"
     "attention\",\"full_attention\"]}",
     E_FORMAT, "layer 1"},
    {"{\"model_type\":\"gemma3_text\"," SHAPE ",\"use_bidirectional_attention\":true}",
     E_UNSUPPORTED, "use_bidirectional_attention"},
    {"{\"model_type\":\"gemma3_text\"," SHAPE
     ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e6}}}",
     E_FORMAT, "sliding_attention"},
    {GEMMA4(",\"num_kv_shared_layers\":4"), E_FORMAT, "num_kv_shared_layers"},
    {GEMMA4(",\"num_kv_shared_layers\":-1"), E_FORMAT, "num_kv_shared_layers"},
    {GEMMA4(",\"num_kv_shared_layers\":1"), E_FORMAT, "layer 3"},
    {GEMMA4(",\"per_layer_config\":{\"4\":{\"head_dim\":32}}"), E_FORMAT, "per_layer_config"},
    {GEMMA4(",\"per_layer_config\":{\"x\":{}}"), E_FORMAT, "per_layer_config"},
    {GEMMA4(",\"per_layer_config\":{\"1\":{\"intermediate_size\":9}}"), E_UNSUPPORTED,
     "intermediate_size"},
    {GEMMA4(",\"per_layer_config\":{\"1\":{\"head_dim\":32}}"), E_UNSUPPORTED, "layer 1"},
    {GEMMA4(",\"per_layer_config\":{\"3\":{\"num_key_value_heads\":3}}"), E_FORMAT, "layer 3"},
    {GEMMA4(",\"global_head_dim\":7"), E_UNSUPPORTED, "even width"},
    {GEMMA4(",\"global_head_dim\":100000"), E_FORMAT, "global_head_dim"},
    {GEMMA4(",\"hidden_size_per_layer_input\":16,\"vocab_size_per_layer_input\":9"), E_FORMAT,
     "vocab_size_per_layer_input"},
    {GEMMA4(",\"hidden_size_per_layer_input\":9e9"), E_FORMAT, "hidden_size_per_layer_input"},
    {GEMMA4(",\"enable_moe_block\":true"), E_FORMAT, "num_experts"},
    {GEMMA4(",\"enable_moe_block\":true,\"num_experts\":4,\"top_k_experts\":5,"
            "\"moe_intermediate_size\":8"),
     E_FORMAT, "'top_k_experts' is 5 of 4 experts"},
    {"{\"model_type\":\"gemma4_text\"," SHAPE "}", E_FORMAT, "rope_parameters"},
    {"{\"model_type\":\"gpt_oss\"," SHAPE ",\"num_local_experts\":4,\"swiglu_alpha\":1.5}",
     E_UNSUPPORTED, "'swiglu_alpha' is 1.5"},
    {LATENT(",\"kv_lora_rank\":0"), E_FORMAT, "kv_lora_rank"},
    {LATENT(",\"kv_lora_rank\":1000"), E_UNSUPPORTED, "latents of 1000 and 64"},
    {LATENT(",\"qk_rope_head_dim\":7"), E_UNSUPPORTED, "even width"},
    {LATENT(",\"q_lora_rank\":-1"), E_FORMAT, "q_lora_rank"},
    {LATENT(",\"n_group\":8,\"topk_group\":1"), E_FORMAT, "n_group"},
    {LATENT(",\"n_group\":4,\"topk_group\":1"), E_FORMAT, "'num_experts_per_tok' is 4 of 2"},
    {LATENT(",\"topk_group\":2"), E_FORMAT, "topk_group"},
    {LATENT(",\"moe_layer_freq\":2"), E_UNSUPPORTED, "moe_layer_freq"},
    {LATENT(",\"mlp_layer_types\":[\"dense\"]"), E_FORMAT, "1 layers of 4"},
    {LATENT(",\"mlp_layer_types\":[\"dense\",\"odd\"]"), E_UNSUPPORTED, "layer 1"},
    {"{\"model_type\":\"smollm3\"," SHAPE ",\"no_rope_layers\":[1,1,1,2]}", E_FORMAT, "layer 3"},
    {"{\"model_type\":\"smollm3\"," SHAPE ",\"no_rope_layers\":[1,1]}", E_FORMAT, "2 layers of 4"},
    {"{\"model_type\":\"exaone4\"," SHAPE ",\"sliding_window\":8,\"sliding_window_pattern\":0}",
     E_FORMAT, "'sliding_window_pattern' is 0"},
    {"{\"model_type\":\"exaone4\"," SHAPE ",\"sliding_window_pattern\":\"LGL\"}", E_UNSUPPORTED,
     "sliding_window_pattern"},
    {"{\"model_type\":\"llama\"," SHAPE
     ",\"rope_parameters\":{\"rope_type\":\"default\",\"llama_4_scaling_beta\":0.1}}",
     E_UNSUPPORTED, "llama_4_scaling_beta"},
    {"{\"model_type\":\"ministral3\"," SHAPE
     ",\"rope_parameters\":{\"rope_type\":\"default\",\"llama_4_scaling_beta\":0.1}}",
     E_FORMAT, "original_max_position_embeddings"},
    {"{\"model_type\":\"phi3\"," SHAPE
     ",\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1,2],\"short_factor\":[1,2]},"
     "\"original_max_position_embeddings\":64}",
     E_FORMAT, "long_factor"},
    {"{\"model_type\":\"phi3\"," SHAPE ",\"partial_rotary_factor\":0.44}", E_UNSUPPORTED,
     "even width"},
    {"{\"model_type\":\"granite\"," SHAPE ",\"residual_multiplier\":-1}", E_FORMAT,
     "residual_multiplier"},
    {"{\"model_type\":\"mistral3\",\"text_config\":7}", E_FORMAT, "text_config"},
    {"{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"other\"}}", E_UNSUPPORTED,
     "other"},
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

// A round opens three files and lists a folder: three quarters of its time pass in the kernel.
// fuzz_config changes the text alone, and has more rounds.
#ifdef __SANITIZE_ADDRESS__
#define ROUNDS 1500
#else
#define ROUNDS 300
#endif

// Random changes of a good file: read or refused with a sentence, and what is read is consistent.
static void change_and_read(const char *family) {
    char good[4000], text[4000], path[100];
    snprintf(path, sizeof path, "tests/fixtures/%s/config.json", family);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    size_t n = fread(good, 1, sizeof good - 1, in);
    fclose(in);
    uint64_t random = 99;
    int accepted = 0;
    for (int round = 0; round < ROUNDS; round++) {
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
        assert_true(c.n_layers > 0 && c.width > 0 && c.vocab_size > 0);
        assert_true(c.kinds[0].feed.width > 0 || c.kinds[0].feed.experts.width > 0);
        assert_true(c.kinds[0].attention.n_kv_heads > 0 &&
                    c.kinds[0].attention.n_heads % c.kinds[0].attention.n_kv_heads == 0);
        assert_true(c.max_positions > 0 && c.embed_width > 0);
        if (c.positions == POSITION_ROTARY)
            assert_true(c.ropes[0].rot_dim > 1 && c.ropes[0].rot_dim % 2 == 0 &&
                        c.ropes[0].rot_dim <= MODEL_MAX_ROT);
        assert_true(c.n_kinds >= 1 && c.n_eos <= MODEL_MAX_EOS);
        assert_true(model_config_n_params(&c) > 0);
        for (int i = 0; i < c.ropes[0].rot_dim / 2; i++)
            assert_true(isfinite(c.ropes[0].inv_freq[i]));
        assert_true(isfinite(c.ropes[0].scale) && c.norm_eps > 0);
    }
    assert_true(accepted > ROUNDS / 30);
}

static void changed_files_do_no_harm(void **state) {
    static const char *const families[] = {
        "models/qwen3",    "models/gpt2",        "models/gptj",      "models/gpt_neox",
        "models/bloom",    "models/opt",         "models/xglm",      "later/gemma3_scaled",
        "later/phi3",      "later/gemma4_e",     "later/gemma4_moe", "models/gpt_oss",
        "models/glm4_moe", "later/glm4_moe_lite"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) change_and_read(families[i]);
}

static void a_missing_file_is_named(void **state) {
    struct model_config c;
    struct err err;
    assert_int_equal(model_config_load(&c, tmp_path(&dir, "nowhere"), &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "nowhere: No such file"));
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

// As decapoda-research/llama-7b-hf: max_sequence_length, which transformers does not read, beside no length of its own.
static void a_missing_length_is_that_of_the_class(void **state) {
    struct model_config c;
    load_ok(&c, "{\"model_type\":\"llama\",\"vocab_size\":320,\"hidden_size\":64,"
                "\"intermediate_size\":160,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
                "\"max_sequence_length\":4096}");
    assert_int_equal(c.max_positions, 2048);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_demo_model),
        cmocka_unit_test(both_spellings_say_the_same),
        cmocka_unit_test(what_is_missing_means_what_transformers_means),
        cmocka_unit_test(refuses_bad_values),
        cmocka_unit_test(generation_config),
        cmocka_unit_test(changed_files_do_no_harm),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(counts_parameters),
        cmocka_unit_test(a_missing_length_is_that_of_the_class),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
