// Experts of all forms. Those of one layer that a folder stores in different formats: a backend that mixes them gets them as they are, any
// other gets all of the layer in F32.
#include "engine/model/safetensors.h"
#include "tests/unit/model_loading.h"

enum { WIDTH = 8, FFN = 6, N_EXPERTS = 3, N_LAYERS = 2, OTHER = 1 }; // expert OTHER of layer 1
static const char config[] =
    "{\"model_type\":\"%s\",\"vocab_size\":10,\"hidden_size\":8,\"intermediate_size\":16,"
    "\"moe_intermediate_size\":6,\"num_experts\":3,\"num_experts_per_tok\":2,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":4,"
    "\"max_position_embeddings\":64}";

struct list {
    struct tensor t[100];
    char names[100][100];
    size_t n;
};

enum form { ONE_BY_ONE, TURNED, STACKED }; // TURNED: as Qwen3-VL's experts are published

static void add(struct list *l, const char *name, enum dtype dtype, int64_t rows, int64_t cols) {
    snprintf(l->names[l->n], sizeof l->names[0], "%s", name);
    l->t[l->n] = (struct tensor){
        .name = l->names[l->n], .dtype = dtype, .n_dims = cols ? 2 : 1, .shape = {rows, cols}};
    l->n++;
}

// All experts in one tensor.
static void add_stack(struct list *l, int layer, const char *stem, bool turned, int64_t rows,
                      int64_t cols) {
    char name[100];
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s", layer, stem);
    add(l, name, DTYPE_BF16, N_EXPERTS, turned ? cols : rows);
    l->t[l->n - 1].n_dims = 3;
    l->t[l->n - 1].shape[2] = turned ? rows : cols;
}

static void add_layer(struct list *l, int layer, enum form form) {
    static const struct {
        const char *stem;
        int64_t rows, cols;
    } parts[] = {{"input_layernorm", WIDTH, 0},      {"post_attention_layernorm", WIDTH, 0},
                 {"self_attn.q_proj", WIDTH, WIDTH}, {"self_attn.k_proj", WIDTH, WIDTH},
                 {"self_attn.v_proj", WIDTH, WIDTH}, {"self_attn.o_proj", WIDTH, WIDTH},
                 {"self_attn.q_norm", 4, 0},         {"self_attn.k_norm", 4, 0},
                 {"mlp.gate", N_EXPERTS, WIDTH}},
      experts[] = {{"gate_proj", FFN, WIDTH}, {"up_proj", FFN, WIDTH}, {"down_proj", WIDTH, FFN}};
    char name[100];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, parts[i].stem);
        add(l, name, DTYPE_BF16, parts[i].rows, parts[i].cols);
    }
    if (form != ONE_BY_ONE) {
        add_stack(l, layer, "gate_up_proj", form == TURNED, 2 * FFN, WIDTH);
        add_stack(l, layer, "down_proj", form == TURNED, WIDTH, FFN);
    }
    for (int e = 0; form == ONE_BY_ONE && e < N_EXPERTS; e++)
        for (size_t i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.weight", layer, e,
                     experts[i].stem);
            add(l, name, layer == 1 && e == OTHER ? DTYPE_F16 : DTYPE_BF16, experts[i].rows,
                experts[i].cols);
        }
}

// Exact in both formats of 16 bits.
static float value(size_t tensor, int64_t i) {
    return (float)((int64_t)(tensor * 7) % 13 + i % 100) / 8;
}

static void write_model(struct list *l, enum form form) {
    struct safetensors_writer *w = NULL;
    struct err err = {0};
    char text[1000];
    l->n = 0;
    add(l, "model.embed_tokens.weight", DTYPE_BF16, 10, WIDTH);
    add(l, "lm_head.weight", DTYPE_BF16, 10, WIDTH);
    add(l, "model.norm.weight", DTYPE_BF16, WIDTH, 0);
    for (int i = 0; i < N_LAYERS; i++) add_layer(l, i, form);
    assert_int_equal(safetensors_create(&w, tmp_path(&dir, "model.safetensors"), l->t, l->n, &err),
                     0);
    for (size_t t = 0; t < l->n; t++) {
        uint16_t half[512];
        int64_t n = 1;
        for (int d = 0; d < l->t[t].n_dims; d++) n *= l->t[t].shape[d];
        assert_true(n <= 512);
        for (int64_t i = 0; i < n; i++)
            half[i] =
                l->t[t].dtype == DTYPE_F16 ? f16_from_f32(value(t, i)) : bf16_from_f32(value(t, i));
        assert_int_equal(safetensors_write(w, half, (size_t)n * sizeof *half, &err), 0);
    }
    assert_int_equal(safetensors_finish(w, &err), 0);
    snprintf(text, sizeof text, config, form == ONE_BY_ONE ? "qwen3_moe" : "qwen3_vl_moe_text");
    tmp_text(&dir, "config.json", text);
}

static size_t index_of(const struct list *l, int layer, int e, const char *stem) {
    char name[100];
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.weight", layer, e, stem);
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->names[i], name) == 0) return i;
    fail_msg("no %s", name);
    return 0;
}

static void same_values(const struct weight *w, int32_t row, int32_t rows, size_t tensor) {
    for (int64_t i = 0; i < (int64_t)rows * w->cols; i++)
        assert_float_equal(((const float *)w->data)[row * w->cols + i], value(tensor, i), 0);
}

static void check(uint32_t features, enum dtype of_first, enum dtype of_other) {
    struct backend_ops ops = fake_ops;
    struct fake_backend f = fake_backend();
    static struct list l;
    struct model *m = NULL;
    struct err err = {0};
    ops.features = OP_EXPERTS | features;
    f.be.ops = &ops;
    write_model(&l, ONE_BY_ONE);
    const struct model_load_options o = {.dir = dir.path, .backend = &f.be, .split = &split_single};
    if (model_load(&m, &o, &err) < 0) fail_msg("%s", err.text);
    for (int layer = 0; layer < N_LAYERS; layer++)
        for (int e = 0; e < N_EXPERTS; e++) {
            const struct experts_weights *x = &m->layers[layer].experts;
            const enum dtype t = layer == 0 ? DTYPE_BF16 : e == OTHER ? of_other : of_first;
            assert_int_equal(x->up[e].dtype, t);
            assert_int_equal(x->down[e].dtype, t);
            same_values(&x->up[e], 0, FFN, index_of(&l, layer, e, "gate_proj"));
            same_values(&x->up[e], FFN, FFN, index_of(&l, layer, e, "up_proj"));
            same_values(&x->down[e], 0, WIDTH, index_of(&l, layer, e, "down_proj"));
        }
    assert_int_equal(m->layers[1].qkv.dtype, DTYPE_BF16); // what follows the layer is not widened
    model_free(m);
    assert_int_equal(f.n_live, 0);
}

// Row `row`, column `col` of expert e's gate and up, or of its down, in a stack.
static float stacked(const struct list *l, int layer, const char *stem, enum form form, int e,
                     int64_t rows, int64_t cols, int64_t row, int64_t col) {
    char name[100];
    size_t t = 0;
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s", layer, stem);
    while (strcmp(l->names[t], name) != 0) assert_true(++t < l->n);
    const int64_t at = form == TURNED ? col * rows + row : row * cols + col;
    return value(t, e * rows * cols + at);
}

static void experts_in_one_tensor_test(void **state) {
    struct backend_ops ops = fake_ops;
    ops.features = OP_EXPERTS;
    for (enum form form = TURNED; form <= STACKED; form++) {
        struct fake_backend f = fake_backend();
        static struct list l;
        struct model *m = NULL;
        struct err err = {0};
        f.be.ops = &ops;
        write_model(&l, form);
        const struct model_load_options o = {
            .dir = dir.path, .backend = &f.be, .split = &split_single};
        if (model_load(&m, &o, &err) < 0) fail_msg("%s", err.text);
        assert_true(model_row(m, 0)->feed.experts.normalised);
        for (int e = 0; e < N_EXPERTS; e++) {
            const float *up = m->layers[1].experts.up[e].data,
                        *down = m->layers[1].experts.down[e].data;
            for (int64_t r = 0; r < 2 * FFN; r++)
                for (int64_t c = 0; c < WIDTH; c++, up++)
                    assert_float_equal(
                        *up, stacked(&l, 1, "gate_up_proj", form, e, 2 * FFN, WIDTH, r, c), 0);
            for (int64_t r = 0; r < WIDTH; r++)
                for (int64_t c = 0; c < FFN; c++, down++)
                    assert_float_equal(*down,
                                       stacked(&l, 1, "down_proj", form, e, WIDTH, FFN, r, c), 0);
        }
        model_free(m);
        assert_int_equal(f.n_live, 0);
    }
}

static void mixed_experts_stay_as_they_are_test(void **state) {
    check(OP_EXPERTS_MIXED, DTYPE_BF16, DTYPE_F16);
}
static void mixed_experts_become_f32_test(void **state) {
    check(0, DTYPE_F32, DTYPE_F32);
}

// Each allocation of a load that widens fails in turn.
static void failures_leave_nothing_test(void **state) {
    static struct list l;
    struct backend_ops ops = fake_ops;
    ops.features = OP_EXPERTS;
    write_model(&l, ONE_BY_ONE);
    for (int at = 1, rc = -1; rc < 0; at++) {
        struct fake_backend f = fake_backend();
        struct model *m = NULL;
        struct err err = {0};
        f.be.ops = &ops;
        f.fail_at = at;
        const struct model_load_options o = {
            .dir = dir.path, .backend = &f.be, .split = &split_single};
        rc = model_load(&m, &o, &err);
        model_free(m);
        assert_int_equal(f.n_live, 0);
        assert_true(at < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_in_one_tensor_test),
        cmocka_unit_test(mixed_experts_stay_as_they_are_test),
        cmocka_unit_test(mixed_experts_become_f32_test),
        cmocka_unit_test(failures_leave_nothing_test),
    };
    return cmocka_run_group_tests_name("model_experts", tests, model_loading_setup,
                                       model_loading_teardown);
}
