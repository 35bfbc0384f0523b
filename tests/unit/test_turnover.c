// What those are told who find the server full.
#include "engine/turnover.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// cmocka.h needs the three above.
#include <cmocka.h>

static void nothing_is_known_at_first(void **state) {
    struct turnover t = {0};
    assert_int_equal(turnover_promise(&t, 1000000), TURNOVER_UNKNOWN_US);
    assert_int_equal(turnover_promise(&t, 1000000), 2 * TURNOVER_UNKNOWN_US);
    turnover_ended(&t, 2000000, true); // one end says nothing about the next
    assert_int_equal(turnover_promise(&t, 2000000), 2 * TURNOVER_UNKNOWN_US);
}

static void each_is_told_another_place(void **state) {
    struct turnover t = {0};
    int64_t now = 0;
    for (int i = 0; i < 20; i++) turnover_ended(&t, now += 300000, true);
    for (int i = 1; i <= 10; i++) assert_int_equal(turnover_promise(&t, now), i * 300000);
    for (int i = 0; i < 4; i++) turnover_ended(&t, now += 300000, true); // the first four have come
    assert_int_equal(turnover_promise(&t, now), 7 * 300000);
    for (int i = 0; i < 50; i++) turnover_ended(&t, now += 300000, true);
    assert_int_equal(turnover_promise(&t, now), 300000);
}

static void it_follows_what_turns_take(void **state) {
    struct turnover t = {0};
    int64_t now = 0;
    for (int i = 0; i < 30; i++) turnover_ended(&t, now += 100000, true);
    for (int i = 0; i < 30; i++) turnover_ended(&t, now += 2000000, true);
    int64_t told = turnover_promise(&t, now);
    assert_in_range(told, 1900000, 2000000);
    turnover_ended(&t, now += 2000000, true);
    // Overdue: nobody is told less than has passed already.
    assert_in_range(turnover_promise(&t, now + 9000000), 9000000, 9000000);
}

// Pauses in which there was room are nobody's waiting time.
static void an_empty_place_measures_nothing(void **state) {
    struct turnover t = {0};
    int64_t now = 0;
    for (int i = 0; i < 20; i++) turnover_ended(&t, now += 100000, true);
    turnover_ended(&t, now += 100000, false);
    turnover_ended(&t, now += 3600000000, true);
    int64_t told = turnover_promise(&t, now);
    assert_in_range(told, 99000, 101000);
}

static void it_is_bounded(void **state) {
    struct turnover t = {0};
    int64_t now = 0;
    for (int i = 0; i < 20; i++) turnover_ended(&t, now += 10, true);
    assert_int_equal(turnover_promise(&t, now), TURNOVER_LEAST_US);
    for (int i = 0; i < 20; i++) turnover_ended(&t, now += 50000000, true);
    (void)turnover_promise(&t, now);
    assert_int_equal(turnover_promise(&t, now), TURNOVER_MOST_US);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_at_first),
        cmocka_unit_test(each_is_told_another_place),
        cmocka_unit_test(it_follows_what_turns_take),
        cmocka_unit_test(an_empty_place_measures_nothing),
        cmocka_unit_test(it_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
