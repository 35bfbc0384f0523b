// Matrices that are stored as e4m3, with scales in each of the ways of published folders, are used unchanged; anything
// else is refused by name.
#include "engine/model/safetensors.h"
#include "tests/unit/model_loading.h"
#include <math.h>

enum { WIDTH = 136, FFN = 512, VOCAB = 10 }; // two blocks and four
static const char llama_config[] =
    "{\"model_type\":\"llama\",\"vocab_size\":10,\"hidden_size\":136,\"intermediate_size\":512,"
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"max_position_embeddings\":64%s}";

#define LAYER "model.layers.0."
static const struct tensor tiny[] = {
    {.name = "lm_head.weight", .n_dims = 2, .shape = {VOCAB, WIDTH}},
    {.name = "model.embed_tokens.weight", .n_dims = 2, .shape = {VOCAB, WIDTH}},
    {.name = "model.norm.weight", .n_dims = 1, .shape = {WIDTH}},
    {.name = LAYER "input_layernorm.weight", .n_dims = 1, .shape = {WIDTH}},
    {.name = LAYER "post_attention_layernorm.weight", .n_dims = 1, .shape = {WIDTH}},
    {.name = LAYER "mlp.down_proj.weight", .n_dims = 2, .shape = {WIDTH, FFN}},
    {.name = LAYER "mlp.gate_proj.weight", .n_dims = 2, .shape = {FFN, WIDTH}},
    {.name = LAYER "mlp.up_proj.weight", .n_dims = 2, .shape = {FFN, WIDTH}},
    {.name = LAYER "self_attn.q_proj.weight", .n_dims = 2, .shape = {WIDTH, WIDTH}},
    {.name = LAYER "self_attn.k_proj.weight", .n_dims = 2, .shape = {WIDTH, WIDTH}},
    {.name = LAYER "self_attn.v_proj.weight", .n_dims = 2, .shape = {WIDTH, WIDTH}},
    {.name = LAYER "self_attn.o_proj.weight", .n_dims = 2, .shape = {WIDTH, WIDTH}},
};
#define N_TINY (sizeof tiny / sizeof *tiny)

enum style { BLOCKS, COLUMN, ROWS, SCALAR, ONE }; // the scales' shape
#define CT(weights)                                                                                \
    ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":"                \
    "\"float-quantized\",\"quantization_status\":\"compressed\",\"ignore\":[\"lm_head\"],"         \
    "\"kv_cache_scheme\":{\"num_bits\":8,\"type\":\"float\"},\"config_groups\":{\"group_0\":{"     \
    "\"targets\":[\"Linear\"],\"input_activations\":{\"num_bits\":8,\"type\":\"float\","           \
    "\"strategy\":\"token\","                                                                      \
    "\"dynamic\":true},\"weights\":{" weights "}}}}"
#define CT_WEIGHTS(strategy)                                                                       \
    CT("\"num_bits\":8,\"type\":\"float\",\"symmetric\":true,\"dynamic\":false,\"strategy\":"      \
       "\"" strategy "\",\"group_size\":null")
#define CT_BLOCK                                                                                   \
    CT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\",\"block_structure\":[128,128]")
#define FP8(more)                                                                                  \
    ",\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":"   \
    "\"dynamic\",\"modules_to_not_convert\":[\"lm_head\"]" more "}"
#define FBGEMM                                                                                     \
    ",\"quantization_config\":{\"quant_method\":\"fbgemm_fp8\",\"activation_scale_ub\":1200.0,"    \
    "\"modules_to_not_convert\":[\"lm_head\"]}"
#define FP8_BLOCKS FP8(",\"weight_block_size\":[128,128]")

struct tweak {
    const char *quantization;
    enum style style;
    enum dtype scale_dtype;
    const char *suffix;                              // of scales
    const char *skip, *wrong_shape, *as_f8, *as_own; // tensors' names; as_own: left in F32
    const char *nan_weight;
    float first_scale; // 0: as the others
    bool input_scales;
};

static bool is(const char *name, const char *wanted) {
    return wanted && strcmp(name, wanted) == 0;
}
static bool is_matrix(const struct tensor *t, const struct tweak *k) {
    bool matrix = t->n_dims == 2 && !strstr(t->name, "embed") && !strstr(t->name, "lm_head");
    return (matrix && !is(t->name, k->as_own)) || is(t->name, k->as_f8);
}
static uint8_t code(int64_t i) {
    return (uint8_t)((i * 11) % 127 | (i % 3 == 0 ? 0x80 : 0));
}
static float scale_value(int64_t i) { // exact in bf16
    return 0.125f * (float)(i % 100 + 1);
}

static int64_t count_of(const struct tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= t->shape[d];
    return n;
}

static struct tensor scales_of(const struct tensor *t, const struct tweak *k, const char *name) {
    int64_t rows = t->shape[0] + is(name, k->wrong_shape), cols = t->shape[1];
    struct tensor s = {.name = name, .dtype = k->scale_dtype};
    s.n_dims = k->style == BLOCKS || k->style == COLUMN ? 2 : k->style == SCALAR ? 0 : 1;
    s.shape[0] = k->style == BLOCKS ? (rows + 127 + is(name, k->wrong_shape) * 128) / 128
                 : k->style == ONE  ? 1
                                    : rows;
    s.shape[1] = k->style == BLOCKS ? (cols + 127) / 128 : 1;
    return s;
}

static size_t put_value(unsigned char *to, enum dtype t, float v) {
    uint16_t half = t == DTYPE_BF16 ? bf16_from_f32(v) : f16_from_f32(v);
    memcpy(to, t == DTYPE_F32 ? (const void *)&v : &half, dtype_size(t));
    return dtype_size(t);
}

static void write_model(const struct tweak *k) {
    static char names[2 * N_TINY][100];
    struct tensor list[3 * N_TINY];
    char config[2000];
    size_t n = 0;
    struct safetensors_writer *w = NULL;
    struct err err = {0};
    for (size_t t = 0; t < N_TINY; t++) {
        list[n] = tiny[t];
        list[n].dtype = is_matrix(&tiny[t], k) ? DTYPE_F8_E4M3 : DTYPE_F32;
        if (list[n++].dtype == DTYPE_F32) continue;
        size_t stem = strlen(tiny[t].name) - strlen("weight");
        snprintf(names[2 * t], sizeof names[0], "%.*s%s", (int)stem, tiny[t].name, k->suffix);
        snprintf(names[2 * t + 1], sizeof names[0], "%.*sinput_scale", (int)stem, tiny[t].name);
        if (!is(names[2 * t], k->skip)) list[n++] = scales_of(&tiny[t], k, names[2 * t]);
        if (k->input_scales)
            list[n++] = (struct tensor){.name = names[2 * t + 1], .dtype = DTYPE_F32};
    }
    assert_int_equal(safetensors_create(&w, tmp_path(&dir, "model.safetensors"), list, n, &err), 0);
    for (size_t t = 0; t < n; t++) {
        static unsigned char bytes[WIDTH * FFN * sizeof(float)]; // of the largest tensor
        size_t len = 0;
        for (int64_t i = 0; i < count_of(&list[t]); i++) {
            uint8_t q = is(list[t].name, k->nan_weight) && i == 77 ? 0xff : code(i);
            bool scale = strstr(list[t].name, "_scale") != NULL;
            float v = scale && i == 0 && k->first_scale != 0 ? k->first_scale : scale_value(i);
            if (list[t].dtype == DTYPE_F8_E4M3)
                bytes[len++] = q;
            else
                len += put_value(bytes + len, list[t].dtype, v);
        }
        assert_int_equal(safetensors_write(w, bytes, len, &err), 0);
    }
    assert_int_equal(safetensors_finish(w, &err), 0);
    assert_true((size_t)snprintf(config, sizeof config, llama_config, k->quantization) <
                sizeof config);
    tmp_text(&dir, "config.json", config);
}

// Element (r, c) of a stored matrix of so many columns.
static float stored(enum style style, int64_t cols, int64_t r, int64_t c) {
    int64_t blocks = (cols + 127) / 128;
    int64_t i = style == BLOCKS                    ? r / 128 * blocks + c / 128
                : style == COLUMN || style == ROWS ? r
                                                   : 0;
    return scale_value(i) * e4m3_to_f32(code(r * cols + c));
}

// Rows [row, ...) of a weight are rows [first, ...) of a stored matrix, columns from `col` on.
static void same_stored(const struct weight *w, int32_t row, int32_t n, enum style style,
                        int64_t cols, int32_t first, int32_t col) {
    assert_int_equal(w->dtype, DTYPE_F8_E4M3);
    for (int32_t r = 0; r < n; r++)
        for (int32_t c = 0; c < w->cols; c++)
            if (((const float *)w->data)[(row + r) * w->cols + c] !=
                stored(style, cols, first + r, col + c))
                fail_msg("row %d, column %d", (int)r, (int)c);
}

#define OF(q, shape, t, name) .quantization = q, .style = shape, .scale_dtype = t, .suffix = name
static const struct tweak published[] = {
    {OF(FP8_BLOCKS, BLOCKS, DTYPE_BF16, "weight_scale_inv")}, // Qwen3
    {OF(FP8_BLOCKS, BLOCKS, DTYPE_F32, "weight_scale_inv")},  // DeepSeek
    {OF(FP8(""), SCALAR, DTYPE_F32, "weight_scale"), .input_scales = true},
    {OF(FP8(""), ONE, DTYPE_F32, "weight_scale")},
    {OF(CT_WEIGHTS("channel"), COLUMN, DTYPE_BF16, "weight_scale")},
    {OF(CT_WEIGHTS("channel"), COLUMN, DTYPE_F16, "weight_scale")},
    {OF(CT_WEIGHTS("channel"), ROWS, DTYPE_F32, "weight_scale")},
    {OF(CT_WEIGHTS("tensor"), ONE, DTYPE_BF16, "weight_scale")},
    {OF(CT_BLOCK, BLOCKS, DTYPE_F32, "weight_scale")},
    {OF(FBGEMM, COLUMN, DTYPE_F32, "weight_scale")}, // Llama 3.1 405B
};
enum { N_PUBLISHED = sizeof published / sizeof *published };

static void stored_numbers_are_taken_test(void **state) {
    for (int i = 0; i < N_PUBLISHED; i++)
        for (int asked = 0; asked < 2; asked++) {
            const struct tweak *k = &published[i];
            struct fake_backend f;
            write_model(k);
            struct model *m =
                load_model(&f, dir.path, &split_single, asked ? WEIGHTS_FP8 : WEIGHTS_OWN);
            const struct layer_weights *l = &m->layers[0];
            assert_true(m->config.fp8);
            same_stored(&l->down, 0, WIDTH, k->style, FFN, 0, 0);
            same_stored(&l->o, 0, WIDTH, k->style, WIDTH, 0, 0);
            for (int p = 0; p < 3; p++)
                same_stored(&l->qkv, p * WIDTH, WIDTH, k->style, WIDTH, 0, 0);
            for (int p = 0; p < 2; p++) same_stored(&l->up, p * FFN, FFN, k->style, WIDTH, 0, 0);
            // What the folder did not quantise stays unquantised, unless the option asks for it.
            assert_int_equal(m->head.dtype, asked ? DTYPE_F8_E4M3 : DTYPE_F32);
            assert_int_equal(m->embed.dtype, DTYPE_F32);
            model_free(m);
            assert_int_equal(f.n_live, 0);
        }
}

// Queries and values in 8 bits beside keys in F32: all three become F32, each with its own values.
static void mixed_stacks_become_f32_test(void **state) {
    for (int i = 0; i < N_PUBLISHED; i++)
        for (int rank = 0; rank < 2; rank++) {
            struct tweak k = published[i];
            struct fake_backend f = fake_backend();
            struct split s = {.tp_rank = rank, .tp_size = 2, .pp_rank = 0, .pp_size = 1};
            const int32_t rows = rank ? WIDTH / 2 : WIDTH, first = rank ? WIDTH / 2 : 0;
            struct model *m = NULL;
            struct err err = {0};
            k.as_own = LAYER "self_attn.k_proj.weight";
            if (rank && k.style == BLOCKS) continue; // o's columns begin within a block
            write_model(&k);
            const struct model_load_options o = {
                .dir = dir.path, .backend = &f.be, .split = rank ? &s : &split_single};
            if (model_load(&m, &o, &err) < 0) fail_msg("%s", err.text);
            const struct weight *w = &m->layers[0].qkv;
            const float *v = w->data;
            assert_int_equal(w->dtype, DTYPE_F32);
            for (int32_t part = 0; part < 3; part++)
                for (int64_t r = first; r < first + rows; r++)
                    for (int64_t c = 0; c < WIDTH; c++, v++)
                        if (*v !=
                            (part == 1 ? scale_value(r * WIDTH + c) : stored(k.style, WIDTH, r, c)))
                            fail_msg("folder %d, part %d, row %d", i, part, (int)r);
            same_stored(&m->layers[0].o, 0, WIDTH, k.style, WIDTH, 0, first);
            model_free(m);
            assert_int_equal(f.n_live, 0);
        }
}

static void ranks_take_their_blocks_test(void **state) {
    for (int i = 0; i < N_PUBLISHED; i++)
        for (int rank = 0; rank < 2; rank++) {
            const struct tweak *k = &published[i];
            struct fake_backend f = fake_backend();
            struct split s = {.tp_rank = rank, .tp_size = 2, .pp_rank = 0, .pp_size = 1};
            struct model *m = NULL;
            struct err err = {0};
            write_model(k);
            int rc = model_load(
                &m, &(struct model_load_options){.dir = dir.path, .backend = &f.be, .split = &s},
                &err);
            if (k->style == BLOCKS && rank == 1) { // o's columns from 68 on
                assert_int_equal(rc, E_UNSUPPORTED);
                assert_non_null(strstr(err.text, "begin within one"));
                continue;
            }
            assert_int_equal(rc, 0);
            const struct layer_weights *l = &m->layers[0];
            same_stored(&l->down, 0, WIDTH, k->style, FFN, 0, rank * FFN / 2);
            same_stored(&l->qkv, WIDTH / 2, WIDTH / 2, k->style, WIDTH, rank * WIDTH / 2, 0);
            same_stored(&l->up, 0, FFN / 2, k->style, WIDTH, rank * FFN / 2, 0);
            model_free(m);
        }
}

#define DOWN LAYER "mlp.down_proj."
static void wrong_folders_are_refused_test(void **state) {
#define AS(n)                                                                                      \
    .quantization = published[n].quantization, .style = published[n].style,                        \
    .scale_dtype = published[n].scale_dtype, .suffix = published[n].suffix
    const struct {
        struct tweak k;
        int code;
        const char *says;
    } cases[] = {
        {{OF("", BLOCKS, DTYPE_F32, "weight_scale_inv")}, E_UNSUPPORTED, "stored as f8_e4m3"},
        {{AS(0), .skip = DOWN "weight_scale_inv"}, E_NOTFOUND, DOWN "weight_scale_inv"},
        {{AS(4), .skip = DOWN "weight_scale"}, E_NOTFOUND, DOWN "weight_scale"},
        {{AS(0), .wrong_shape = DOWN "weight_scale_inv"}, E_FORMAT, "(3, 4), not (2, 4)"},
        {{AS(4), .wrong_shape = DOWN "weight_scale"}, E_FORMAT, "(137, 1), not (136)"},
        {{AS(6), .wrong_shape = DOWN "weight_scale"}, E_FORMAT, "(137), not (136)"},
        // blocks where one for each output was promised, and the other way round
        {{OF(CT_WEIGHTS("channel"), BLOCKS, DTYPE_F32, "weight_scale")}, E_FORMAT, "weight_scale"},
        {{OF(FP8_BLOCKS, COLUMN, DTYPE_F32, "weight_scale_inv")}, E_FORMAT, "weight_scale_inv"},
        {{OF(FP8(""), BLOCKS, DTYPE_F32, "weight_scale_inv")}, E_NOTFOUND, "weight_scale'"},
        {{AS(0), .first_scale = NAN}, E_FORMAT, "weight_scale_inv"},
        {{AS(2), .first_scale = NAN}, E_FORMAT, "weight_scale"},
        {{AS(4), .first_scale = INFINITY}, E_FORMAT, "weight_scale"},
        {{AS(6), .first_scale = -1}, E_FORMAT, "weight_scale' holds a scale of -1"},
        {{AS(6), .first_scale = 3e38f}, E_FORMAT, "weight_scale"},
        {{AS(0), .nan_weight = DOWN "weight"}, E_FORMAT, DOWN "weight' contains a NaN"},
        {{AS(6), .nan_weight = LAYER "self_attn.v_proj.weight"}, E_FORMAT, "v_proj"},
        {{AS(0), .as_f8 = "model.norm.weight"}, E_UNSUPPORTED, "model.norm.weight"},
    };
#undef AS
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_backend f = fake_backend();
        struct model *m = NULL;
        struct err err = {0};
        write_model(&cases[i].k);
        int rc = model_load(
            &m,
            &(struct model_load_options){.dir = dir.path, .backend = &f.be, .split = &split_single},
            &err);
        if (rc != cases[i].code || !strstr(err.text, cases[i].says))
            fail_msg("case %zu: %d, %s", i, rc, err.text);
        assert_int_equal(f.n_live, 0);
    }
}

// Weights stored in one 8-bit format are not converted to the other.
static void other_8_bits_are_refused_test(void **state) {
    struct fake_backend f = fake_backend();
    struct model *m = NULL;
    struct err err = {0};
    write_model(&published[0]);
    assert_int_equal(model_load(&m,
                                &(struct model_load_options){.dir = dir.path,
                                                             .backend = &f.be,
                                                             .split = &split_single,
                                                             .weights = WEIGHTS_INT8},
                                &err),
                     E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "stored in fp8, which int8"));
}

static void methods_are_refused_by_name_test(void **state) {
    static const struct {
        const char *quantization;
        const char *says;
    } cases[] = {
        {FP8(",\"weight_block_size\":[64,64]"), "weight_block_size"},
        {FP8(",\"weight_block_size\":[128]"), "weight_block_size"},
        {FP8(",\"weight_block_size\":[128,128,1]"), "weight_block_size"},
        {FP8(",\"scale_fmt\":\"e5\""), "'scale_fmt' e5"},
        {",\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}", "'fmt' e5m2"},
        {",\"quantization_config\":{\"quant_method\":\"torchao\"}", "torchao"},
        {CT("\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":128"),
         "num_bits"},
        {CT("\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\""), "'type' int"},
        {CT("\"num_bits\":8,\"strategy\":\"channel\""), "'type' int"},
        {CT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"group\""), "'strategy' group"},
        {CT("\"num_bits\":8,\"type\":\"float\""), "'strategy' missing"},
        {CT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\""), "block_structure"},
        {CT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\",\"symmetric\":false"),
         "'symmetric' false"},
        {CT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\",\"dynamic\":true"),
         "'dynamic' true"},
        {CT("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\",\"actorder\":\"group\""),
         "actorder"},
        {",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":"
         "\"marlin-24\"}",
         "marlin-24"},
        {",\"quantization_config\":{\"quant_method\":\"compressed-tensors\"}", "config_groups"},
        {",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":"
         "{\"a\":{\"weights\":{}},\"b\":{}}}",
         "several groups"},
        {",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":"
         "{\"a\":{}}}",
         "'weights' missing"},
        {",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"sparsity_config\":"
         "{\"format\":\"sparse-24-bitmask\"}}",
         "sparse-24-bitmask"},
        {",\"quantization_config\":{\"quant_method\":\"compressed-tensors\","
         "\"quantization_status\":\"initialized\"}",
         "initialized"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config c;
        struct err err = {0};
        char config[2000];
        snprintf(config, sizeof config, llama_config, cases[i].quantization);
        tmp_text(&dir, "config.json", config);
        int rc = model_config_load_file(&c, tmp_path(&dir, "config.json"), &err);
        if (rc != E_UNSUPPORTED || !strstr(err.text, cases[i].says))
            fail_msg("case %zu: %d, %s", i, rc, err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_numbers_are_taken_test),
        cmocka_unit_test(mixed_stacks_become_f32_test),
        cmocka_unit_test(ranks_take_their_blocks_test),
        cmocka_unit_test(wrong_folders_are_refused_test),
        cmocka_unit_test(other_8_bits_are_refused_test),
        cmocka_unit_test(methods_are_refused_by_name_test),
    };
    return cmocka_run_group_tests_name("model_fp8", tests, model_loading_setup,
                                       model_loading_teardown);
}
