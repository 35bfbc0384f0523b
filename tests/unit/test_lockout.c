// Lock-outs of addresses that send wrong tokens.
#include "tests/cmocka.h"
#include "ws/net/lockout.h"
#include <string.h>

#define SECOND INT64_C(1000000)

static struct ip_key address(uint32_t n) {
    struct ip_key k = {{4}};
    memcpy(k.bytes + 1, &n, sizeof n);
    return k;
}

static void it_grows_with_wrong_tokens_and_has_a_bound(void **state) {
    struct lockout l = {0};
    struct ip_key a = address(1), b = address(2);
    int64_t now = 5 * SECOND;
    for (int i = 0; i < LOCKOUT_FREE; i++) lockout_wrong(&l, &a, now);
    assert_int_equal(lockout_wait_us(&l, &a, now), 0);
    for (int64_t s = 1; s < 500; s *= 2) {
        int64_t wait = s < 60 ? s * SECOND : 60 * SECOND;
        lockout_wrong(&l, &a, now);
        assert_int_equal(lockout_wait_us(&l, &a, now), wait);
        assert_int_equal(lockout_wait_us(&l, &b, now), 0); // another address is not touched
        assert_true(lockout_wait_us(&l, &a, now + wait - 1) > 0);
        now += wait;
        assert_int_equal(lockout_wait_us(&l, &a, now), 0); // the time was true
    }
    lockout_release(&l);
}

static void it_is_forgotten(void **state) {
    struct lockout l = {0};
    struct ip_key a = address(1);
    for (int i = 0; i < 50; i++) lockout_wrong(&l, &a, 0);
    lockout_wrong(&l, &a, 600 * SECOND); // as the first one
    assert_int_equal(lockout_wait_us(&l, &a, 600 * SECOND), 0);
    lockout_release(&l);
}

static void the_table_has_a_bound(void **state) {
    struct lockout l = {0};
    struct ip_key first = address(0), last = address(LOCKOUT_ADDRESSES);
    for (uint32_t n = 0; n <= LOCKOUT_ADDRESSES; n++)
        for (int i = 0; i <= LOCKOUT_FREE; i++) {
            struct ip_key a = address(n);
            lockout_wrong(&l, &a, 0);
        }
    assert_int_equal(lockout_wait_us(&l, &first, 0), 0); // made room for the last
    assert_int_equal(lockout_wait_us(&l, &last, 0), SECOND);
    lockout_release(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_grows_with_wrong_tokens_and_has_a_bound),
        cmocka_unit_test(it_is_forgotten),
        cmocka_unit_test(the_table_has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
