// Connections counted by address.
#include "base/err.h"
#include "ws/ip_table.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>

static struct sockaddr_storage address(const char *text) {
    struct sockaddr_storage s = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&s;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&s;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
        s.ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
        s.ss_family = AF_INET6;
    return s;
}

static int add(struct ip_table *t, const char *text, struct ip_entry **e) {
    struct sockaddr_storage s = address(text);
    return ip_table_add(t, (struct sockaddr *)&s, 2, e);
}

static void addresses_are_counted_apart(void **state) {
    struct ip_table t = {0};
    struct ip_entry *a, *b, *c, *d, *none;
    assert_int_equal(add(&t, "10.0.0.1", &a), 0);
    assert_int_equal(add(&t, "::ffff:10.0.0.1", &b), 0); // the same, over IPv6
    assert_int_equal(add(&t, "10.0.0.1", &none), E_LIMIT);
    assert_int_equal(add(&t, "10.0.0.2", &c), 0);
    ip_table_remove(&t, a);
    assert_int_equal(add(&t, "10.0.0.1", &d), 0);
    ip_table_remove(&t, b);
    ip_table_remove(&t, c);
    ip_table_remove(&t, d);
    ip_table_remove(&t, NULL);
    assert_null(t.entries);
}

static void one_household_is_one_address(void **state) {
    struct ip_table t = {0};
    struct ip_entry *a, *b, *c, *none;
    assert_int_equal(add(&t, "2001:db8:1:2::1", &a), 0);
    assert_int_equal(add(&t, "2001:db8:1:2:ffff::9", &b), 0);
    assert_int_equal(add(&t, "2001:db8:1:2::3", &none), E_LIMIT);
    assert_int_equal(add(&t, "2001:db8:1:3::1", &c), 0);
    ip_table_remove(&t, a);
    ip_table_remove(&t, b);
    ip_table_remove(&t, c);
    assert_null(t.entries);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_counted_apart),
        cmocka_unit_test(one_household_is_one_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
