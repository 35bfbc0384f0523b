// linear with weights of few bits (kernels/groups.h) in all formats, against double precision on the numbers that the
// codes stand for; that a row's bits depend neither on the batch nor on the set, among those with fused
// multiply-adds and among those without; rows of infinities and NaN; and what a source refuses. VNNI's loops, in
// AVX-512's shape, also run with the instruction in C.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"
#include "tests/ops/group_rows.h"
#include "tests/ops/ops_fixture.h"

static vmask v_dot8(vmask sum, vmask a, vmask b) {
    for (int i = 0; i < 4; i++) sum += (a >> (8 * i) & 255) * ((b << (24 - 8 * i)) >> 24);
    return sum;
}
#define INT8_VNNI 1
#define GROUPS_AS_AVX512
#include "kernels/cpu/linear_finish.inc"
#include "kernels/cpu/linear_groups.inc"
#include "kernels/cpu/linear_int8.inc"

enum { COLS = 328, ROWS = 83 }; // neither whole tiles nor whole panels

static const struct group_format formats[] = {
    {4, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 8, NULL},
    {4, 32, GROUP_SCALE_F16, GROUP_MIN_F16, 0, NULL},
    {4, 64, GROUP_SCALE_BF16, GROUP_ZERO_U8, 1, NULL},
    {4, 256, GROUP_SCALE_F32, GROUP_ZERO_SAME, 8, NULL},
    {4, 16, GROUP_SCALE_F32, GROUP_ZERO_SAME, 16, group_book_e2m1},
    {4, 32, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL},
    {4, 128, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 128, group_book_iq4},
    {8, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 128, NULL},
    {8, 16, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 32, NULL},
    {6, 16, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 32, NULL},
    {5, 32, GROUP_SCALE_F16, GROUP_MIN_F16, 0, NULL},
    {3, 16, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 4, NULL},
    {2, 16, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL},
};

enum { MOST = 40, N_FORMATS = sizeof formats / sizeof *formats };

static const struct set {
    const char *name;
    bool fuses, digits;
} sets[] = {{"portable", false, false},
            {"portable", false, true},
            {"avx2", true, false},
            {"avx512", true, false}};
// Results of the first set without and the first with fused multiply-adds.
static float results[2][N_FORMATS][2][MOST * ROWS];
static bool have_results[2];

// linear rounds an x to a multiple of 1 / 32,639 of the largest of its 256 columns. Even rows are random; odd ones
// have numbers that it takes without rounding.
static void make_x(float *x) {
    op_seed(35); // the same for all sets
    for (int i = 0; i < MOST * COLS; i++) {
        const int k = i % COLS;
        x[i] = op_random();
        if (i / COLS % 2) x[i] = k % GROUP_TILE_K ? rintf(x[i] * 9000) / 32768 : 32639.0f / 32768;
    }
}

static double rounding_of(const float *x, int k) {
    const int first = k / GROUP_TILE_K * GROUP_TILE_K;
    float most = 0;
    for (int i = first; i < first + GROUP_TILE_K && i < COLS; i++) most = fmaxf(most, fabsf(x[i]));
    return most / 65278.0 * 1.0001;
}

static void check_format(struct backend *be, int format, int n_parts, bool fuses) {
    float *result = results[fuses][format][n_parts - 1];
    static float x[MOST * COLS], all[MOST * ROWS], one[MOST * ROWS], wide[COLS];
    const struct group_format *f = &formats[format];
    static uint8_t codes[512];
    float scales[64] = {0};
    uint16_t zeros[64] = {0}, supers[2], min_supers[2];
    struct group_row row = {codes, scales, supers, zeros, min_supers};
    const struct group_rows rows = {*f, COLS, 0};
    const struct group_source source = {*f, group_rows_fill, &rows};
    struct tensor_view v[2] = {{.data = &source, .dtype = DTYPE_U8, .rows = ROWS, .cols = COLS},
                               {.data = &source, .dtype = DTYPE_U8, .rows = ROWS, .cols = COLS}};
    struct weight w;
    struct err err = {0};
    if (n_parts == 2) v[0].rows = 32, v[1].rows = ROWS - 32;
    if (be->ops->weight_init(be, &w, v, n_parts, &err) < 0) fail_msg("%s", err.text);
    assert_true(w.bytes * 8 < (size_t)(96 * 512) * (size_t)(f->bits + 4));
    make_x(x);
    double rounding[MOST][COLS];
    for (int r = 0; r < MOST; r++)
        for (int k = 0; k < COLS; k++)
            rounding[r][k] = r % 2 ? 0 : rounding_of(x + (ptrdiff_t)r * COLS, k);
    be->ops->linear(be, LINEAR_STORE, all, x, MOST, &w, NULL);
    for (int o = 0; o < ROWS; o++) {
        group_rows_fill(&rows, n_parts == 2 && o >= 32 ? o - 32 : o, &row, NULL);
        weight_row(&w, o, wide);
        double value[COLS];
        for (int k = 0; k < COLS; k++) {
            double want = value[k] = group_row_value(f, &row, k);
            op_near(wide[k], want, 1.2e-7 * (fabs(want) + 0.5), "weight", o * COLS + k);
        }
        for (int r = 0; r < MOST; r++) {
            double sum = 0, size = 0, off = 0;
            for (int k = 0; k < COLS; k++) {
                double term = x[r * COLS + k] * value[k];
                sum += term;
                size += fabs(term) + 0.01;
                off += rounding[r][k] * fabs(value[k]);
            }
            op_near(all[r * ROWS + o], sum, 6e-7 * (size + 1) + off, "y", r * ROWS + o);
        }
    }
    if (!have_results[fuses]) memcpy(result, all, sizeof all);
    assert_memory_equal(all, result, sizeof all);
    static const int32_t counts[] = {1, 2, 3, 4, 5, 8, 16, 17, 33};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        be->ops->linear(be, LINEAR_STORE, one, x, counts[c], &w, NULL);
        assert_memory_equal(one, all, (size_t)(counts[c] * ROWS) * sizeof *one);
    }
    // Two bad values in three rows; the row between them is as before.
    x[3] = NAN;
    x[2 * COLS + COLS - 1] = -INFINITY;
    be->ops->linear(be, LINEAR_STORE, one, x, 3, &w, NULL);
    for (int o = 0; o < ROWS; o++) assert_true(!isfinite(one[o]) && !isfinite(one[2 * ROWS + o]));
    assert_memory_equal(one + ROWS, all + ROWS, ROWS * sizeof *one);
    be->ops->weight_release(be, &w);
}

static void test_formats(void **state) {
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        struct backend *be;
        if (backend_cpu_open(&be, 2, sets[s].name, NULL) < 0) continue; // not of this processor
        if (sets[s].digits) {
            cpu_of(be)->table.groups_split = groups_split;
            cpu_of(be)->table.groups_item = groups_item;
            cpu_of(be)->table.int8_split = int8_split;
            cpu_of(be)->table.int8_item = int8_item;
        }
        for (int i = 0; i < N_FORMATS; i++) {
            check_format(be, i, 1, sets[s].fuses);
            check_format(be, i, 2, sets[s].fuses);
        }
        have_results[sets[s].fuses] = true;
        be->ops->close(be);
    }
}

static void test_refusals(void **state) {
    struct backend *be;
    struct weight w;
    struct err err = {0};
    assert_int_equal(backend_cpu_open(&be, 2, NULL, &err), 0);
    struct group_rows bad = {formats[0], COLS, 0}, good = {formats[1], COLS, 0};
    struct group_source a = {formats[0], group_rows_refuse, &bad},
                        b = {formats[1], group_rows_fill, &good};
    struct tensor_view v[2] = {{.data = &a, .dtype = DTYPE_U8, .rows = ROWS, .cols = COLS},
                               {.data = &b, .dtype = DTYPE_U8, .rows = ROWS, .cols = COLS}};
    assert_int_equal(be->ops->weight_init(be, &w, v, 1, &err), E_FORMAT);
    assert_string_equal(err.text, "row 40 holds a scale of nan");
    assert_int_equal(be->ops->weight_init(be, &w, v, 2, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "begins at row 83, within a panel of 16"));
    a.format.group = 24;
    assert_int_equal(be->ops->weight_init(be, &w, v, 1, &err), E_INVAL);
    be->ops->close(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
