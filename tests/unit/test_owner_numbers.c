// One number for each owner, and never one for two.
#include "sessions/store/owner_numbers.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void test_numbers(void **state) {
    struct owner_numbers n = {0};
    assert_int_equal(owner_number(&n, "local"), 1);
    assert_int_equal(owner_number(&n, ""), 2);
    assert_int_equal(owner_number(&n, "Local"), 3);
    char name[16];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 100; i++) {
            snprintf(name, sizeof name, "owner-%d", i);
            assert_int_equal(owner_number(&n, name), 4 + i);
        }
    }
    assert_int_equal(owner_number(&n, "local"), 1);
    owner_numbers_release(&n);
    assert_int_equal(owner_number(&n, "another"), 1);
    owner_numbers_release(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
