// Weights that are quantised at load, as int8 and as e4m3: the numbers and scales are those of each whole row, for any
// rank's part; what is looked up stays as it is.
#include "kernels/fp8.h"
#include "kernels/int8.h"
#include "tests/unit/model_loading.h"

static const char *const folders[] = {"llama", "gpt2", "gptj",  "gpt_neox", "bloom",
                                      "opt",   "xglm", "qwen2", "qwen3",    "mistral"};
static const enum weight_format formats[] = {WEIGHTS_INT8, WEIGHTS_FP8};
#define N_FORMATS (sizeof formats / sizeof *formats)

static const char *fixture(const char *name) {
    static char path[200];
    snprintf(path, sizeof path, "tests/fixtures/models/%s", name);
    return path;
}

// got (rows, cols) is the format's form of rows [row, ..), columns [col, ..) of whole.
static void same_quantized(enum weight_format format, const struct weight *got,
                           const struct weight *whole, int32_t row, int32_t col) {
    const bool int8 = format == WEIGHTS_INT8;
    assert_int_equal(got->dtype, int8 ? DTYPE_I8 : DTYPE_F8_E4M3);
    assert_true(row + got->rows <= whole->rows && col + got->cols <= whole->cols);
    struct tensor_view v = {whole->data, DTYPE_F32, whole->rows, whole->cols,
                            whole->cols, 1,         NULL,        0};
    uint8_t *q = malloc((size_t)whole->cols);
    float *work = malloc((size_t)whole->cols * sizeof *work), scale;
    for (int32_t r = 0; r < got->rows; r++) {
        int rc = int8 ? int8_quantize_row(&v, row + r, (int8_t *)q, 1, work, &scale)
                      : fp8_quantize_row(&v, row + r, q, 1, work, &scale);
        assert_int_equal(rc, 0);
        for (int32_t c = 0; c < got->cols; c++) {
            float number = int8 ? (float)(int8_t)q[col + c] : e4m3_to_f32(q[col + c]);
            if (((const float *)got->data)[r * got->cols + c] != scale * number)
                fail_msg("row %d, column %d", (int)r, (int)c);
        }
    }
    free(q);
    free(work);
}

static void same_values(const struct weight *a, const struct weight *b) {
    assert_true(a->rows == b->rows && a->cols == b->cols && a->dtype == b->dtype);
    assert_memory_equal(a->data, b->data, a->bytes);
}

static void check_family(const char *name) {
    struct fake_backend f, g[N_FORMATS];
    struct model *m[N_FORMATS];
    struct model *plain = load_model(&f, fixture(name), &split_single, WEIGHTS_OWN);
    assert_true(!plain->config.int8 && !plain->config.fp8);
    for (size_t i = 0; i < N_FORMATS; i++) {
        m[i] = load_model(&g[i], fixture(name), &split_single, formats[i]);
        assert_int_equal(m[i]->config.int8, formats[i] == WEIGHTS_INT8);
        assert_int_equal(m[i]->config.fp8, formats[i] == WEIGHTS_FP8);
        assert_string_equal(model_config_weight_dtype(&m[i]->config), i ? "fp8" : "int8");
        assert_string_not_equal(m[i]->fingerprint, plain->fingerprint);
        for (int32_t l = 0; l < m[i]->n_layers; l++) {
            const struct layer_weights *got = &m[i]->layers[l], *whole = &plain->layers[l];
            same_quantized(formats[i], &got->qkv, &whole->qkv, 0, 0);
            same_quantized(formats[i], &got->o, &whole->o, 0, 0);
            same_quantized(formats[i], &got->up, &whole->up, 0, 0);
            same_quantized(formats[i], &got->down, &whole->down, 0, 0);
        }
        same_quantized(formats[i], &m[i]->head, &plain->head, 0, 0);
        if (!m[i]->config.tied_head) same_values(&m[i]->embed, &plain->embed);
    }
    assert_string_not_equal(m[0]->fingerprint, m[1]->fingerprint);
    for (size_t i = 0; i < N_FORMATS; i++) {
        model_free(m[i]);
        assert_int_equal(g[i].n_live, 0);
    }
    model_free(plain);
    assert_int_equal(f.n_live, 0);
}

static void matrices_are_quantized_test(void **state) {
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) check_family(folders[i]);
}

static void check_rank(const char *name, enum weight_format format, int rank) {
    struct fake_backend f, g;
    struct split s = {.tp_rank = rank, .tp_size = 2, .pp_rank = 0, .pp_size = 1};
    struct model *plain = load_model(&f, fixture(name), &split_single, WEIGHTS_OWN);
    struct model *m = load_model(&g, fixture(name), &s, format);
    for (int32_t l = 0; l < m->n_layers; l++) {
        const struct layer_weights *got = &m->layers[l], *whole = &plain->layers[l];
        assert_true(got->o.cols < whole->o.cols);
        same_quantized(format, &got->o, &whole->o, 0, rank * got->o.cols);
        same_quantized(format, &got->down, &whole->down, 0, rank * got->down.cols);
        if (!m->config.kinds[0].feed.gated)
            same_quantized(format, &got->up, &whole->up, rank * got->up.rows, 0);
    }
    model_free(m);
    model_free(plain);
}

// A rank's part of a matrix that is split by columns has the scales of whole rows.
static void ranks_have_whole_scales_test(void **state) {
    static const char *const two_ranks[] = {"llama", "gpt2", "bloom"};
    for (size_t i = 0; i < sizeof two_ranks / sizeof *two_ranks; i++)
        for (size_t format = 0; format < N_FORMATS; format++)
            for (int rank = 0; rank < 2; rank++) check_rank(two_ranks[i], formats[format], rank);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_are_quantized_test),
        cmocka_unit_test(ranks_have_whole_scales_test),
    };
    return cmocka_run_group_tests_name("model_quantized", tests, model_loading_setup,
                                       model_loading_teardown);
}
