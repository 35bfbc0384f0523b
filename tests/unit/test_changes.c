// The list of changed sessions that a watcher has yet to get.
#include "base/err.h"
#include "tests/cmocka.h"
#include "ws/parley/changes.h"
#include <stdlib.h>
#include <string.h>

static void took(struct changes *c, int64_t key, const char *removed) {
    struct change got;
    assert_true(changes_take(c, &got));
    assert_int_equal(got.key, key);
    if (removed)
        assert_string_equal(got.removed, removed);
    else
        assert_null(got.removed);
    free(got.removed);
}

static void a_session_is_told_once(void **state) {
    struct changes c = {0};
    for (int i = 0; i < 1000; i++)
        for (int64_t key = 3; key > 0; key--) assert_int_equal(changes_add(&c, key, NULL), 0);
    assert_int_equal(changes_add(&c, 2, "two"), 0);
    assert_int_equal(changes_add(&c, 2, "two"), 0);
    took(&c, 1, NULL);
    took(&c, 2, "two");
    took(&c, 3, NULL);
    assert_true(c.n == 0 && c.bytes == 0);
    changes_release(&c);
}

static void one_that_changes_all_the_time_holds_up_no_other(void **state) {
    struct changes c = {0};
    for (int64_t key = 1; key <= 4; key++) changes_add(&c, key, NULL);
    for (int64_t key = 1; key <= 4; key++) {
        took(&c, key, NULL);
        changes_add(&c, 1, NULL);
    }
    took(&c, 1, NULL);
    changes_release(&c);
}

static void it_is_bounded(void **state) {
    struct changes c = {0};
    int64_t key = 0;
    while (changes_add(&c, ++key, NULL) == 0) assert_true(c.bytes <= CHANGES_MAX_BYTES);
    assert_true(key > 10000);
    assert_int_equal(changes_add(&c, key, NULL), E_LIMIT);
    assert_int_equal(changes_add(&c, 1, NULL), 0); // it is there
    took(&c, 1, NULL);
    assert_int_equal(changes_add(&c, key, NULL), 0);
    changes_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_is_told_once),
        cmocka_unit_test(one_that_changes_all_the_time_holds_up_no_other),
        cmocka_unit_test(it_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
