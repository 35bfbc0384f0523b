// Followers by number: numbers that are never reused, and pushes that leave time for others.
#include "tests/cmocka.h"
#include "ws/follower.h"
#include <string.h>
#include <unistd.h>

enum { N = 9 };

static struct followers all;
static struct follower some[N];
static uint64_t pushed[4 * N];
static int n_pushed;
static useconds_t push_takes_us;

static void push(struct follower *f) {
    pushed[n_pushed++] = f->client;
    if (push_takes_us) usleep(push_takes_us);
}

static const struct follower_ops ops = {.push = push};

static int setup(void **state) {
    all = (struct followers){0};
    n_pushed = 0;
    push_takes_us = 0;
    for (int i = 0; i < N; i++) {
        some[i] = (struct follower){.ops = &ops};
        assert_int_equal(followers_add(&all, &some[i]), 0);
    }
    return 0;
}

static int teardown(void **state) {
    followers_release(&all);
    return 0;
}

static void push_all_later(void) {
    for (int i = 0; i < N; i++) assert_true(follower_push_later(&all, &some[i]));
}

static void each_once_in_order(void **state) {
    assert_false(followers_push(&all));
    push_all_later();
    push_all_later(); // still once
    while (all.n_fresh) assert_true(followers_push(&all));
    assert_int_equal(n_pushed, N);
    for (int i = 0; i < N; i++) assert_int_equal(pushed[i], some[i].client);
    assert_false(followers_push(&all));
}

// Each push takes longer than a call may take: every call pushes one, the others wait for the next
// call.
static void long_pushes_one_at_a_time(void **state) {
    push_takes_us = 1500;
    push_all_later();
    assert_true(followers_push(&all));
    assert_int_equal(n_pushed, 1);
    assert_true(follower_push_later(&all, &some[0])); // again, behind those that wait
    followers_remove(&all, &some[N - 1]);             // it goes without a push
    for (int i = 1; i < N - 1; i++) {
        assert_true(followers_push(&all));
        assert_int_equal(n_pushed, i + 1);
        assert_int_equal(pushed[i], some[i].client);
    }
    push_takes_us = 0;
    while (all.n_fresh) followers_push(&all);
    assert_int_equal(n_pushed, N);
    assert_int_equal(pushed[N - 1], some[0].client);
}

static void a_number_is_never_reused(void **state) {
    uint64_t last = some[N - 1].client;
    for (int i = 0; i < 100; i++) {
        followers_remove(&all, &some[3]);
        assert_int_equal(followers_add(&all, &some[3]), 0);
        assert_true(some[3].client > last);
        last = some[3].client;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_once_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(long_pushes_one_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_number_is_never_reused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
