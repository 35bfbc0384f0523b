// The token bucket.
#include "base/rate.h"
#include "tests/cmocka.h"

static void a_burst_then_the_long_run(void **state) {
    const struct rate_limit l = {.per_second = 10, .burst = 5};
    struct rate r;
    rate_init(&r, &l, 1000);
    for (int i = 0; i < 5; i++) assert_true(rate_take(&r, &l, 1, 1000));
    assert_false(rate_take(&r, &l, 1, 1000));
    assert_in_range(rate_promise_ms(&r, &l, 1), 100, 101);
    assert_false(rate_take(&r, &l, 1, 90000));
    assert_true(rate_take(&r, &l, 1, 101000));
    assert_false(rate_take(&r, &l, 1, 101000));
    for (int i = 0; i < 5; i++) assert_true(rate_take(&r, &l, 1, 99000000)); // and never more
    assert_false(rate_take(&r, &l, 1, 99000000));
}

static void work_dearer_than_the_burst_takes_all_of_it(void **state) {
    const struct rate_limit l = {.per_second = 1, .burst = 4};
    struct rate r;
    rate_init(&r, &l, 0);
    assert_true(rate_take(&r, &l, 100, 0));
    assert_false(rate_take(&r, &l, 100, 3000000));
    assert_true(rate_take(&r, &l, 100, 4000000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_then_the_long_run),
        cmocka_unit_test(work_dearer_than_the_burst_takes_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
