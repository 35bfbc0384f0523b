// linear with weights of few bits (kernels/groups.h) in all formats, against double precision on the numbers that the
// codes stand for; that a row's bits depend neither on the batch nor on the set, among those with fused
// multiply-adds and among those without; rows of infinities and NaN; and what a source refuses. VNNI's loops, in
// AVX-512's shape, also run with the instruction in C.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

enum { X_COLUMNS = 256, X_LARGEST = 32639, X_UNITS = 32768 };
#include "tests/ops/groups_world.h"

static vmask v_dot8(vmask sum, vmask a, vmask b) {
    for (int i = 0; i < 4; i++) sum += (a >> (8 * i) & 255) * ((b << (24 - 8 * i)) >> 24);
    return sum;
}
#define INT8_VNNI 1
#define GROUPS_AS_AVX512
#include "kernels/cpu/linear_finish.inc"
#include "kernels/cpu/linear_groups.inc"
#include "kernels/cpu/linear_int8.inc"

static const struct set {
    const char *name;
    bool fuses, digits;
} sets[] = {{"portable", false, false},
            {"portable", false, true},
            {"avx2", true, false},
            {"avx512", true, false}};
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
