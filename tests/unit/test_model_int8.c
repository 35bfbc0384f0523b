// Matrices that are stored as int8 are used unchanged; anything else is refused by name.
#include "engine/model/safetensors.h"
#include "tests/unit/model_loading.h"
#include <math.h>

struct tweak {
    const char *skip, *wrong_scale, *as_i8, *quantization;
    float value; // of the first scale
};

static const char llama_config[] =
    "{\"model_type\":\"llama\",\"vocab_size\":10,\"hidden_size\":8,\"intermediate_size\":12,"
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"max_position_embeddings\":64%s}";

static const struct tensor tiny[] = {
    {.name = "lm_head.weight", .n_dims = 2, .shape = {10, 8}},
    {.name = "model.embed_tokens.weight", .n_dims = 2, .shape = {10, 8}},
    {.name = "model.norm.weight", .n_dims = 1, .shape = {8}},
    {.name = "model.layers.0.input_layernorm.weight", .n_dims = 1, .shape = {8}},
    {.name = "model.layers.0.post_attention_layernorm.weight", .n_dims = 1, .shape = {8}},
    {.name = "model.layers.0.mlp.down_proj.weight", .n_dims = 2, .shape = {8, 12}},
    {.name = "model.layers.0.mlp.gate_proj.weight", .n_dims = 2, .shape = {12, 8}},
    {.name = "model.layers.0.mlp.up_proj.weight", .n_dims = 2, .shape = {12, 8}},
    {.name = "model.layers.0.self_attn.q_proj.weight", .n_dims = 2, .shape = {8, 8}},
    {.name = "model.layers.0.self_attn.k_proj.weight", .n_dims = 2, .shape = {8, 8}},
    {.name = "model.layers.0.self_attn.v_proj.weight", .n_dims = 2, .shape = {8, 8}},
    {.name = "model.layers.0.self_attn.o_proj.weight", .n_dims = 2, .shape = {8, 8}},
};
#define N_TINY (sizeof tiny / sizeof *tiny)

static bool is(const char *name, const char *wanted) {
    return wanted && strcmp(name, wanted) == 0;
}

// Matrices but the embedding as I8, element i being i % 255 - 127; scales 1, 2, 3 ...
static void write_int8(const struct tweak *k) {
    struct tensor list[2 * N_TINY];
    char names[N_TINY][100], config[1000];
    size_t n = 0;
    struct safetensors_writer *w = NULL;
    struct err err = {0};
    for (size_t t = 0; t < N_TINY; t++) {
        bool matrix = (tiny[t].n_dims == 2 && t != 1) || is(tiny[t].name, k->as_i8);
        list[n] = tiny[t];
        list[n].dtype = matrix ? DTYPE_I8 : DTYPE_F32;
        n++;
        snprintf(names[t], sizeof names[t], "%s_scale", tiny[t].name);
        if (!matrix || is(names[t], k->skip)) continue;
        list[n] = (struct tensor){.name = names[t],
                                  .dtype = DTYPE_F32,
                                  .n_dims = 1,
                                  .shape = {tiny[t].shape[0] + is(names[t], k->wrong_scale)}};
        n++;
    }
    assert_int_equal(safetensors_create(&w, tmp_path(&dir, "model.safetensors"), list, n, &err), 0);
    for (size_t t = 0; t < n; t++) {
        int64_t count = list[t].shape[0] * (list[t].n_dims == 2 ? list[t].shape[1] : 1);
        for (int64_t i = 0; i < count; i++) {
            int8_t q = (int8_t)(i % 255 - 127);
            float v = strstr(list[t].name, "_scale") && i == 0 ? k->value : (float)(i + 1);
            bool byte = list[t].dtype == DTYPE_I8;
            assert_int_equal(safetensors_write(w, byte ? (void *)&q : &v, byte ? 1 : 4, &err), 0);
        }
    }
    assert_int_equal(safetensors_finish(w, &err), 0);
    snprintf(config, sizeof config, llama_config, k->quantization);
    tmp_text(&dir, "config.json", config);
}

#define INT8_KEY ",\"quantization_config\":{\"quant_method\":\"parley_int8\",\"bits\":8}"

static void stored_integers_are_taken_test(void **state) {
    struct fake_backend f;
    write_int8(&(struct tweak){.quantization = INT8_KEY, .value = 1});
    for (int asked = 0; asked < 2; asked++) {
        struct model *m =
            load_model(&f, dir.path, &split_single, asked ? WEIGHTS_INT8 : WEIGHTS_OWN);
        assert_true(m->config.int8);
        const struct weight *down = &m->layers[0].down, *qkv = &m->layers[0].qkv;
        assert_int_equal(down->dtype, DTYPE_I8);
        for (int32_t r = 0; r < 8; r++)
            for (int32_t c = 0; c < 12; c++)
                assert_true(((float *)down->data)[r * 12 + c] ==
                            (float)(r + 1) * (float)(r * 12 + c - 127));
        // k's first row: its own scale and integers
        assert_true(((float *)qkv->data)[8 * 8 + 3] == 3 - 127);
        assert_int_equal(m->embed.dtype, DTYPE_F32);
        model_free(m);
        assert_int_equal(f.n_live, 0);
    }
}

static void wrong_folders_are_refused_test(void **state) {
    static const struct {
        struct tweak k;
        int code;
        const char *says;
    } cases[] = {
        {{.quantization = "", .value = 1}, E_UNSUPPORTED, "stored as i8"},
        {{.quantization = INT8_KEY, .value = 1, .skip = "model.layers.0.mlp.up_proj.weight_scale"},
         E_NOTFOUND,
         "up_proj.weight_scale"},
        {{.quantization = INT8_KEY, .value = 1, .wrong_scale = "lm_head.weight_scale"},
         E_FORMAT,
         "lm_head.weight_scale"},
        {{.quantization = INT8_KEY, .value = 1, .as_i8 = "model.norm.weight"},
         E_UNSUPPORTED,
         "model.norm.weight"},
        {{.quantization = INT8_KEY, .value = NAN}, E_FORMAT, "weight_scale"},
        {{.quantization = INT8_KEY, .value = INFINITY}, E_FORMAT, "weight_scale"},
        {{.quantization = INT8_KEY, .value = -1}, E_FORMAT, "weight_scale"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_backend f = fake_backend();
        struct model *m = NULL;
        struct err err = {0};
        write_int8(&cases[i].k);
        assert_int_equal(model_load(&m,
                                    &(struct model_load_options){
                                        .dir = dir.path, .backend = &f.be, .split = &split_single},
                                    &err),
                         cases[i].code);
        if (!strstr(err.text, cases[i].says)) fail_msg("%s", err.text);
        assert_int_equal(f.n_live, 0);
    }
}

// A value that no scale can express: the error names the tensor.
static void infinite_weights_are_refused_test(void **state) {
    struct fake_backend f = fake_backend();
    struct model *m = NULL;
    struct err err = {0};
    struct safetensors_writer *w = NULL;
    char config[1000];
    struct tensor list[N_TINY];
    for (size_t t = 0; t < N_TINY; t++) {
        list[t] = tiny[t];
        list[t].dtype = DTYPE_F32;
    }
    assert_int_equal(
        safetensors_create(&w, tmp_path(&dir, "model.safetensors"), list, N_TINY, &err), 0);
    for (size_t t = 0; t < N_TINY; t++)
        for (int64_t i = 0; i < list[t].shape[0] * (list[t].n_dims == 2 ? list[t].shape[1] : 1);
             i++) {
            float v = strstr(list[t].name, "up_proj") && i == 50 ? INFINITY : 1;
            assert_int_equal(safetensors_write(w, &v, 4, &err), 0);
        }
    assert_int_equal(safetensors_finish(w, &err), 0);
    snprintf(config, sizeof config, llama_config, "");
    tmp_text(&dir, "config.json", config);
    assert_int_equal(model_load(&m,
                                &(struct model_load_options){.dir = dir.path,
                                                             .backend = &f.be,
                                                             .split = &split_single,
                                                             .weights = WEIGHTS_INT8},
                                &err),
                     E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "up_proj.weight"));
    assert_int_equal(f.n_live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_integers_are_taken_test),
        cmocka_unit_test(wrong_folders_are_refused_test),
        cmocka_unit_test(infinite_weights_are_refused_test),
    };
    return cmocka_run_group_tests_name("model_int8", tests, model_loading_setup,
                                       model_loading_teardown);
}
