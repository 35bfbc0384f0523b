// Arrays grow by doubling, keep what they have, and refuse what no memory can hold.
#include "base/array.h"
#include "base/err.h"
#include "tests/cmocka.h"
#include <stdlib.h>

static void it_doubles_and_keeps(void **state) {
    int64_t *values = NULL;
    size_t cap = 0, moves = 0;
    for (size_t n = 0; n < 1000; n++) {
        size_t before = cap;
        assert_int_equal(ARRAY_RESERVE(values, cap, n + 1), 0);
        assert_true(cap >= n + 1);
        moves += cap != before;
        values[n] = (int64_t)n;
    }
    assert_int_equal(cap, 1024);
    assert_int_equal(moves, 8); // 8, 16, ... 1024
    for (size_t n = 0; n < 1000; n++) assert_int_equal(values[n], n);
    assert_int_equal(ARRAY_RESERVE(values, cap, 5000), 0); // several doublings at once
    assert_int_equal(cap, 8192);
    assert_int_equal(values[999], 999);
    free(values);
}

static void exactly_as_many(void **state) {
    char *bytes = NULL;
    assert_int_equal(ARRAY_RESIZE(bytes, 3), 0);
    bytes[2] = 'x';
    assert_int_equal(ARRAY_RESIZE(bytes, 5), 0);
    assert_int_equal(bytes[2], 'x');
    assert_int_equal(ARRAY_RESIZE(bytes, 0), 0); // still allocated
    assert_non_null(bytes);
    free(bytes);
}

static void too_much_changes_nothing(void **state) {
    int64_t *values = NULL;
    size_t cap = 0;
    assert_int_equal(ARRAY_RESERVE(values, cap, 4), 0);
    int64_t *before = values;
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2 + 2, SIZE_MAX / 8};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ARRAY_RESERVE(values, cap, sizes[i]), E_NOMEM);
        assert_int_equal(ARRAY_RESIZE(values, sizes[i]), E_NOMEM);
    }
    assert_ptr_equal(values, before);
    assert_int_equal(cap, ARRAY_FIRST);
    free(values);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_doubles_and_keeps),
        cmocka_unit_test(exactly_as_many),
        cmocka_unit_test(too_much_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
