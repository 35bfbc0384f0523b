// The time to retry when the server is full.
#include "engine/turnover.h"
#include "tests/cmocka.h"

enum { PLACES = 8 };
static struct turnover t;
static int64_t now;

static int setup(void **state) {
    t = (struct turnover){0};
    now = 1000000;
    return 0;
}

// Full for so long, n times; then full again.
static void full_for(int64_t us, int n) {
    for (int i = 0; i < n; i++) {
        turnover_filled(&t, now);
        turnover_ended(&t, now += us);
        now += 7; // until the next one comes
    }
    turnover_filled(&t, now);
}
static int64_t promise(void) {
    return turnover_promise(&t, now, PLACES);
}

static void nothing_is_known_at_first(void **state) {
    turnover_filled(&t, now);
    assert_int_equal(promise(), TURNOVER_UNKNOWN_US);
    assert_int_equal(promise(), 2 * TURNOVER_UNKNOWN_US);
}

static void each_is_told_another_time(void **state) {
    full_for(300000, 30);
    for (int i = 1; i <= PLACES; i++) assert_int_equal(promise(), i * 300000);
    now += 600000; // the first two have come
    turnover_filled(&t, now);
    assert_int_equal(promise(), 7 * 300000);
    now += 100 * 300000;
    turnover_filled(&t, now);
    assert_int_equal(promise(), 300000);
}

// A client that asks again and again makes no other client wait longer than all places take.
static void asking_often_costs_nobody_much(void **state) {
    full_for(300000, 30);
    for (int i = 0; i < 1000; i++) assert_true(promise() <= PLACES * 300000);
}

static void it_follows_what_turns_take(void **state) {
    full_for(100000, 30);
    full_for(2000000, 30);
    assert_in_range(promise(), 1900000, 2000000);
    now += 9000000; // overdue: no promise is shorter than the time that has passed
    assert_int_equal(promise(), 9000000);
}

// Hours with free places do not count as waiting time.
static void a_free_place_measures_nothing(void **state) {
    full_for(100000, 30);
    turnover_ended(&t, now += 100000);
    turnover_ended(&t, now += 3600000000);
    turnover_filled(&t, now);
    turnover_ended(&t, now - 5); // reported recently
    full_for(100000, 60);
    turnover_ended(&t, now += 100000);
    now += 3600000000;
    turnover_filled(&t, now);
    assert_in_range(promise(), 99000, 101000);
}

static void it_is_bounded(void **state) {
    full_for(10, 20);
    assert_int_equal(promise(), TURNOVER_LEAST_US);
    full_for(50000000, 40);
    (void)promise();
    assert_int_equal(promise(), TURNOVER_MOST_US);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_is_known_at_first, setup),
        cmocka_unit_test_setup(each_is_told_another_time, setup),
        cmocka_unit_test_setup(asking_often_costs_nobody_much, setup),
        cmocka_unit_test_setup(it_follows_what_turns_take, setup),
        cmocka_unit_test_setup(a_free_place_measures_nothing, setup),
        cmocka_unit_test_setup(it_is_bounded, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
