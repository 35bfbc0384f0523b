// A device that computes in 16 bits and keeps no weights of few bits gets them rounded to its 16 bits, which is what it
// would make of F32; so that no matrix is staged in F32.
#include "tests/unit/model_loading.h"

static enum dtype act; // what the device computes in

static struct model *load(struct fake_backend *f, const char *file, enum dtype t,
                          const struct split *s) {
    char path[200];
    struct model *m = NULL;
    struct err err = {0};
    snprintf(path, sizeof path, "tests/fixtures/%s", file);
    *f = fake_backend();
    f->be.act_dtype = t;
    const struct model_load_options o = {.dir = path, .backend = &f->be, .split = s};
    if (model_load(&m, &o, &err) < 0) fail_msg("%s: %s", file, err.text);
    return m;
}

static float rounded(float v) {
    return act == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(v)) : f16_to_f32(f16_from_f32(v));
}

static void same(const struct weight *wide, const struct weight *halves) {
    assert_int_equal(wide->rows, halves->rows);
    assert_int_equal(wide->cols, halves->cols);
    assert_int_equal(wide->dtype, DTYPE_F32);
    assert_int_equal(halves->dtype, act);
    for (int64_t i = 0; i < (int64_t)wide->rows * wide->cols; i++) {
        const float x = ((const float *)wide->data)[i], y = ((const float *)halves->data)[i];
        if (y != rounded(x)) fail_msg("value %d", (int)i);
    }
}

static void check(const char *file, const struct split *s) {
    struct fake_backend f, g;
    struct model *wide = load(&f, file, DTYPE_F32, s), *halves = load(&g, file, act, s);
    same(&wide->embed, &halves->embed);
    if (!wide->head_is_embed) same(&wide->head, &halves->head);
    for (int i = 0; i < wide->n_layers; i++) {
        const struct layer_weights *x = &wide->layers[i], *y = &halves->layers[i];
        same(&x->qkv, &y->qkv); // q and k in pairs of rows
        same(&x->o, &y->o);     // of a rank: some columns
        same(&x->up, &y->up);
        same(&x->down, &y->down);
    }
    assert_int_equal(wide->weight_bytes, halves->weight_bytes); // of the fake, which stores F32
    model_free(wide), model_free(halves);
    assert_int_equal(f.n_live, 0);
    assert_int_equal(g.n_live, 0);
}

static void few_bits_are_rounded_to_16(void **state) {
    static const char *const files[] = {"quantised/llama_q4_0.gguf", "quantised/llama_q8_0.gguf",
                                        "quantised/qwen3_q6_k.gguf"};
    const struct split second = {.tp_rank = 1, .tp_size = 2, .pp_rank = 0, .pp_size = 1};
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_F16};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            act = types[k];
            check(files[i], &split_single);
            check(files[i], &second);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(few_bits_are_rounded_to_16)};
    return cmocka_run_group_tests_name("model_halves", tests, model_loading_setup,
                                       model_loading_teardown);
}
