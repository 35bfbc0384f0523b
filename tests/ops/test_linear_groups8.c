// linear with weights of few bits where compute_dtype is bf16, so that x has 8 bits (linear_groups8.inc): all formats
// against double precision on the numbers that the codes stand for; that a row's bits do not depend on the batch; and
// rows of infinities and NaN. On all processors with VNNI's instruction in C; where they are, with AVX512-VNNI's loops.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

enum { X_COLUMNS = 32, X_LARGEST = 127, X_UNITS = 128 };
#include "tests/ops/groups_world.h"

static vmask v_dot8(vmask sum, vmask a, vmask b) {
    for (int i = 0; i < 4; i++) sum += (a >> (8 * i) & 255) * ((b << (24 - 8 * i)) >> 24);
    return sum;
}
#define INT8_VNNI 1
#define GROUPS_X8 1
#define GROUPS_AS_AVX512
#include "kernels/cpu/linear_finish.inc"
#include "kernels/cpu/linear_groups.inc"

static void check_all(struct backend *be, bool fuses) {
    for (int i = 0; i < N_FORMATS; i++) {
        check_format(be, i, 1, fuses);
        check_format(be, i, 2, fuses);
    }
    be->ops->close(be);
}

static void test_loops_in_c(void **state) {
    struct backend *be;
    assert_int_equal(backend_cpu_open(&be, 2, "portable", NULL), 0);
    cpu_of(be)->table.groups8_split = groups_split;
    cpu_of(be)->table.groups8_item = groups_item;
    check_all(be, false);
}

static void test_loops_of_the_processor(void **state) {
    struct backend *be;
    if (backend_cpu_open_for(&be, DTYPE_BF16, 2, "avx512", NULL) < 0) {
        print_message("no AVX-512 here: not run\n");
        skip();
    }
    check_all(be, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loops_in_c),
                                       cmocka_unit_test(test_loops_of_the_processor)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
