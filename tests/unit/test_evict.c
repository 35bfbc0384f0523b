// The idle clock: order, restart, stop.
#include "sessions/state/evict.h"
#include "tests/cmocka.h"
#include <stdlib.h>

static void the_longest_idle_goes_first(void **state) {
    struct evict_list l;
    struct evict_node a = {0}, b = {0}, c = {0};
    evict_list_init(&l, 100);
    assert_true(evict_next_us(&l) == INT64_MAX);
    evict_start(&l, &a, 0);
    evict_start(&l, &b, 10);
    evict_start(&l, &c, 20);
    assert_null(evict_due(&l, 99));
    assert_ptr_equal(evict_due(&l, 100), &a);
    evict_start(&l, &a, 50); // used again
    assert_null(evict_due(&l, 105));
    assert_ptr_equal(evict_due(&l, 110), &b);
    evict_stop(&l, &b);
    evict_stop(&l, &b); // a second stop changes nothing
    assert_ptr_equal(evict_due(&l, 1000), &c);
    evict_stop(&l, &c);
    assert_int_equal(evict_next_us(&l), 150);
    evict_stop(&l, &a);
    assert_int_equal(l.n, 0);
    assert_null(l.first);
    assert_null(l.last);
}

static void a_timeout_of_for_ever_never_comes(void **state) {
    struct evict_list l;
    struct evict_node a = {0};
    evict_list_init(&l, INT64_MAX);
    evict_start(&l, &a, 1000);
    assert_true(evict_next_us(&l) == INT64_MAX);
    assert_null(evict_due(&l, INT64_MAX - 1));
}

static void random_operations_keep_the_order(void **state) {
    enum { N = 20 };
    struct evict_node nodes[N] = {0};
    struct evict_list l;
    evict_list_init(&l, 7);
    srandom(1);
    for (int64_t now = 1; now < 5000; now++) {
        struct evict_node *n = &nodes[random() % N];
        if (random() % 3)
            evict_start(&l, n, now);
        else
            evict_stop(&l, n);
        int listed = 0;
        int64_t oldest = INT64_MAX, last = 0;
        for (int i = 0; i < N; i++) {
            listed += nodes[i].listed;
            if (nodes[i].listed && nodes[i].since_us < oldest) oldest = nodes[i].since_us;
        }
        assert_int_equal(listed, l.n);
        for (struct evict_node *p = l.first; p; p = p->next, listed--) {
            assert_true(p->since_us >= last);
            last = p->since_us;
        }
        assert_int_equal(listed, 0);
        if (l.first) assert_int_equal(evict_next_us(&l), oldest + 7);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_longest_idle_goes_first),
                                       cmocka_unit_test(a_timeout_of_for_ever_never_comes),
                                       cmocka_unit_test(random_operations_keep_the_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
