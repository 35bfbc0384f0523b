// Connections counted by address.
#include "base/err.h"
#include "tests/cmocka.h"
#include "tests/unit/alloc_faults.h"
#include "ws/net/ip_table.h"
#include <arpa/inet.h>
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

static void loopback_is_known_in_each_form(void **state) {
    static const struct {
        const char *text;
        bool is;
    } addresses[] = {{"127.0.0.1", true},
                     {"127.200.3.4", true},
                     {"::1", true},
                     {"::ffff:127.0.0.1", true},
                     {"10.0.0.1", false},
                     {"126.0.0.1", false},
                     {"::2", false},
                     {"::", false},
                     {"::ffff:10.0.0.1", false},
                     {"7f00::1", false}};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        struct sockaddr_storage s = address(addresses[i].text);
        assert_int_equal(ip_is_loopback((struct sockaddr *)&s), addresses[i].is);
    }
}

static void without_memory_a_connection_is_refused(void **state) {
    struct ip_table t = {0};
    struct ip_entry *e = NULL, *again;
    bool reached = true;
    for (int n = 0; reached; n++) { // the entry, the table, its buckets
        faults_arm(n, 1, false);
        int rc = add(&t, "10.0.0.1", &e);
        reached = faults_disarm() > 0;
        assert_int_equal(rc, reached ? E_NOMEM : 0);
        if (reached) assert_null(t.entries);
    }
    assert_int_equal(add(&t, "10.0.0.1", &again), 0);
    assert_ptr_equal(e, again);
    ip_table_remove(&t, e);
    ip_table_remove(&t, again);
    assert_null(t.entries);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_counted_apart),
        cmocka_unit_test(one_household_is_one_address),
        cmocka_unit_test(loopback_is_known_in_each_form),
        cmocka_unit_test(without_memory_a_connection_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
