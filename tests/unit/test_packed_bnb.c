// bitsandbytes' 4 bits: values as bitsandbytes 0.49.2 gives them, reads that begin anywhere, parts that do not fit.
// Whole models: e2e/few_bits.test.mjs.
#include "engine/model/packed_bnb.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const float nf4[16] = {-1.0f,     -0.696193f, -0.525073f, -0.394917f, -0.284441f, -0.184773f,
                              -0.09105f, 0.0f,       0.07958f,   0.16093f,   0.246112f,  0.337915f,
                              0.44071f,  0.562617f,  0.722957f,  1.0f};
static const char plain[] =
    "{\"quant_type\":\"nf4\",\"blocksize\":64,\"dtype\":\"bfloat16\",\"shape\":[2,8]}";

static int read_data(const void *ctx, const struct tensor *t, size_t offset, void *out, size_t n,
                     struct err *err) {
    (void)ctx, (void)err;
    assert_true(offset + n <= t->bytes);
    memcpy(out, (const char *)t->data + offset, n);
    return 0;
}
static const struct packed_reader reader = {read_data, NULL};

// The parts of a matrix, on which a test turns.
struct parts {
    struct tensor codes, state, map, absmax, nested_absmax, nested_map;
};
static struct tensor list(const char *name, const void *data, enum dtype dtype, size_t bytes) {
    return (struct tensor){.name = name,
                           .data = data,
                           .bytes = bytes,
                           .dtype = dtype,
                           .n_dims = 1,
                           .shape = {(int64_t)(bytes / dtype_size(dtype))}};
}
static struct parts parts_of(const char *state, const void *codes, size_t n_codes,
                             const float *absmax, size_t n_blocks) {
    return (struct parts){
        .codes = list("a.weight", codes, DTYPE_U8, n_codes),
        .state = list("a.weight.quant_state.bitsandbytes__nf4", state, DTYPE_U8, strlen(state)),
        .map = list("a.weight.quant_map", nf4, DTYPE_F32, sizeof nf4),
        .absmax = list("a.weight.absmax", absmax, DTYPE_F32, n_blocks * sizeof *absmax)};
}

static int open_parts(struct bnb_matrix **m, struct tensor *shown, const struct parts *p,
                      struct err *err) {
    const struct bnb_parts parts = {&p->codes,
                                    &p->state,
                                    p->map.data ? &p->map : NULL,
                                    p->absmax.data ? &p->absmax : NULL,
                                    p->nested_absmax.data ? &p->nested_absmax : NULL,
                                    p->nested_map.data ? &p->nested_map : NULL};
    *shown = (struct tensor){.name = "a.weight"};
    return bnb_matrix_open(m, &parts, shown, reader, err);
}

// --- values ---

static void values_are_those_of_bitsandbytes(void **state) {
    static const uint8_t of_a_file[] = {110, 90, 88, 44, 228, 163, 9, 25},
                         of_a_part[] = {108, 209, 242, 94, 128};
    static const float scales[] = {0.03125f, 0.08454f};
    static const char ten[] =
        "{\"quant_type\":\"nf4\",\"blocksize\":64,\"dtype\":\"bfloat16\",\"shape\":[2,5]}";
    static const struct {
        const char *state;
        const uint8_t *codes;
        size_t n;
        const float *scale;
        float want[16];
    } cases[] = {
        {plain,
         of_a_file,
         8,
         &scales[0],
         {-0.002838f, 0.022583f, -0.005768f, 0.00769f, -0.005768f, 0.002487f, -0.016357f, 0.013794f,
          0.022583f, -0.008911f, 0.00769f, -0.012329f, -0.03125f, 0.005035f, -0.021729f,
          0.005035f}},
        {ten,
         of_a_part,
         5,
         &scales[1],
         {-0.007697f, 0.037257f, 0.047563f, -0.058856f, 0.08454f, -0.044389f, -0.015621f, 0.061118f,
          0.006728f, -0.08454f}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct parts p =
            parts_of(cases[i].state, cases[i].codes, cases[i].n, cases[i].scale, 1);
        struct bnb_matrix *m;
        struct tensor shown;
        struct err err = {0};
        uint16_t got[16];
        assert_int_equal(open_parts(&m, &shown, &p, &err), 0);
        assert_int_equal(shown.dtype, DTYPE_BF16);
        assert_int_equal(shown.n_dims, 2);
        assert_int_equal(shown.shape[0], 2);
        assert_int_equal(shown.bytes, cases[i].n * 2 * sizeof *got);
        assert_int_equal(bnb_matrix_read(m, 0, got, shown.bytes, &err), 0);
        for (size_t k = 0; k < cases[i].n * 2; k++)
            if (fabsf(bf16_from_f32(cases[i].want[k]) == got[k]
                          ? 0
                          : bf16_to_f32(got[k]) - cases[i].want[k]) > 2e-4f)
                fail_msg("case %zu, value %zu: %g", i, k, (double)bf16_to_f32(got[k]));
        bnb_matrix_close(m);
    }
}

// Blocks of 6 values over rows of 5, scales in 8 bits by threes, and an odd number of values.
enum { ROWS = 3, COLS = 5, BLOCKS = 3 };
static const char nested_state[] =
    "{\"quant_type\":\"nf4\",\"blocksize\":6,\"dtype\":\"float32\",\"shape\":[3,5],"
    "\"nested_blocksize\":2,\"nested_dtype\":\"float32\",\"nested_offset\":0.5}";

static void scales_may_be_nested_and_reads_begin_anywhere(void **state) {
    static const uint8_t codes[8] = {0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0},
                         absmax[BLOCKS] = {3, 250, 7};
    static float map[256], nested_absmax[2] = {0.5f, 2};
    struct parts p = parts_of(nested_state, codes, sizeof codes, map, 0);
    struct bnb_matrix *m;
    struct tensor shown;
    struct err err = {0};
    float whole[ROWS * COLS];
    char piece[sizeof whole];
    (void)state;
    for (int i = 0; i < 256; i++) map[i] = (float)i / 64;
    p.absmax = list("a.weight.absmax", absmax, DTYPE_U8, sizeof absmax);
    p.nested_absmax =
        list("a.weight.nested_absmax", nested_absmax, DTYPE_F32, sizeof nested_absmax);
    p.nested_map = list("a.weight.nested_quant_map", map, DTYPE_F32, sizeof map);
    assert_int_equal(open_parts(&m, &shown, &p, &err), 0);
    assert_int_equal(bnb_matrix_read(m, 0, whole, sizeof whole, &err), 0);
    for (int i = 0; i < ROWS * COLS; i++) {
        const float scale = map[absmax[i / 6]] * nested_absmax[i / 6 / 2] + 0.5f;
        assert_true(whole[i] == nf4[codes[i / 2] >> (i % 2 ? 0 : 4) & 15] * scale);
    }
    for (size_t from = 0; from < sizeof whole; from++)
        for (size_t n = 1; from + n <= sizeof whole; n++) {
            assert_int_equal(bnb_matrix_read(m, from, piece, n, &err), 0);
            assert_memory_equal(piece, (char *)whole + from, n);
        }
    bnb_matrix_close(m);
}

// --- what is refused ---

static void refuses(struct parts p, const char *says) {
    struct bnb_matrix *m;
    struct tensor shown;
    struct err err = {0};
    int rc = open_parts(&m, &shown, &p, &err);
    if (rc >= 0 || !strstr(err.text, says)) fail_msg("%d '%s', not '%s'", rc, err.text, says);
    bnb_matrix_close(m);
}

static void parts_that_do_not_fit_are_refused(void **state) {
    static const uint8_t codes[8];
    static const float one[16] = {1}, no_number[16] = {NAN};
    static const struct {
        const char *state, *says;
    } states[] = {
        {"", "no JSON object"},
        {"[]", "no JSON object"},
        {"{}", "no shape of two sizes"},
        {"{\"shape\":[16]}", "no shape of two sizes"},
        {"{\"shape\":[2,\"8\"]}", "impossible shape"},
        {"{\"shape\":[0,8]}", "impossible shape"},
        {"{\"shape\":[-2,-8]}", "impossible shape"},
        {"{\"shape\":[2,8]}", "the dtype ''; known are"},
        {"{\"shape\":[2,8],\"dtype\":\"int8\"}", "the dtype 'int8'"},
        {"{\"shape\":[2,8],\"dtype\":\"float16\"}", "no size of blocks"},
        {"{\"shape\":[2,8],\"dtype\":\"float16\",\"blocksize\":0}", "no size of blocks"},
        {"{\"shape\":[2,8],\"dtype\":\"float16\",\"blocksize\":2.5}", "no size of blocks"},
        {"{\"shape\":[2,8],\"dtype\":\"float16\",\"blocksize\":4}", "absmax has another shape"},
        {"{\"shape\":[2,9],\"dtype\":\"float16\",\"blocksize\":64}", "do not fill the shape"},
        {"{\"shape\":[2147483647,2147483647],\"dtype\":\"float16\",\"blocksize\":64}",
         "do not fill the shape"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        refuses(parts_of(states[i].state, codes, 8, one, 1), states[i].says);
    struct parts p = parts_of(plain, codes, 8, one, 1);
    p.map = list("a.weight.quant_map", no_number, DTYPE_F32, sizeof no_number);
    refuses(p, "'a.weight.quant_map' holds a number that is infinite or none");
    p.map = list("a.weight.quant_map", one, DTYPE_F32, 15 * sizeof *one);
    refuses(p, "quant_map is not of 16");
    p = parts_of(plain, codes, 8, one, 1);
    p.absmax.data = NULL;
    refuses(p, "absmax has another shape or type");
    p = parts_of(nested_state, codes, 8, one, 1);
    p.absmax = list("a.weight.absmax", codes, DTYPE_U8, 3);
    refuses(p, "nested_quant_map is not of 256");
}

static void a_scale_that_is_no_number_is_named(void **state) {
    static const uint8_t codes[8];
    static const float no_number = INFINITY;
    const struct parts p = parts_of(plain, codes, 8, &no_number, 1);
    struct bnb_matrix *m;
    struct tensor shown;
    struct err err = {0};
    char out[32];
    (void)state;
    assert_int_equal(open_parts(&m, &shown, &p, &err), 0);
    assert_int_equal(bnb_matrix_read(m, 0, out, sizeof out, &err), E_FORMAT);
    assert_non_null(strstr(err.text, "'a.weight.absmax' holds a scale"));
    bnb_matrix_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_bitsandbytes),
        cmocka_unit_test(scales_may_be_nested_and_reads_begin_anywhere),
        cmocka_unit_test(parts_that_do_not_fit_are_refused),
        cmocka_unit_test(a_scale_that_is_no_number_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
