// Names of blocks: they are found while the block is held, and differ in everything that a block's
// contents depend on.
#include "kvcache/name.h"
#include "tests/cmocka.h"

static bool same(struct hash128 a, struct hash128 b) {
    return a.lo == b.lo && a.hi == b.hi;
}

static void test_put_find_drop(void **state) {
    enum { N = 100 };
    struct kv_names k;
    struct hash128 names[N];
    assert_int_equal(kv_names_init(&k, N, NULL), 0);
    for (int32_t i = 0; i < N; i++) {
        names[i] = kv_name_begin(&k, (uint64_t)i, 64, 4);
        assert_int_equal(kv_names_find(&k, names[i]), -1);
        kv_names_put(&k, i, names[i]);
    }
    for (int32_t i = 0; i < N; i += 3) kv_names_drop(&k, i);
    kv_names_drop(&k, 0); // again: nothing
    for (int32_t i = 0; i < N; i++) {
        assert_int_equal(kv_names_find(&k, names[i]), i % 3 == 0 ? -1 : i);
        assert_int_equal(kv_names_has(&k, i), i % 3 != 0);
    }
    kv_names_release(&k);
}

// All names in one place of the table: a list like any other.
static void test_one_list(void **state) {
    struct kv_names k;
    assert_int_equal(kv_names_init(&k, 8, NULL), 0);
    for (int32_t i = 0; i < 8; i++) kv_names_put(&k, i, (struct hash128){16, (uint64_t)i});
    static const int32_t order[] = {3, 0, 7, 4, 5, 1, 6, 2};
    for (int n = 0; n < 8; n++) {
        kv_names_drop(&k, order[n]);
        for (int m = 0; m < 8; m++) {
            int32_t at = kv_names_find(&k, (struct hash128){16, (uint64_t)order[m]});
            assert_int_equal(at, m <= n ? -1 : order[m]);
        }
    }
    kv_names_release(&k);
}

static void test_what_makes_a_name(void **state) {
    struct kv_names k, other;
    int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    assert_int_equal(kv_names_init(&k, 4, NULL), 0);
    assert_int_equal(kv_names_init(&other, 4, NULL), 0);
    struct hash128 a = kv_name_begin(&k, 2, 64, 4), two = kv_name_next(&k, a, ids, 8);
    assert_true(same(kv_name_next(&k, kv_name_begin(&k, 2, 64, 4), ids, 8), two));
    assert_false(same(kv_name_begin(&k, 4, 64, 4), a)); // another group
    assert_false(same(kv_name_begin(&k, 2, 65, 4), a));
    assert_false(same(kv_name_begin(&k, 2, 64, 5), a));
    assert_false(same(kv_name_begin(&other, 2, 64, 4), a)); // another instance
    assert_false(same(kv_name_next(&k, two, ids, 8), two)); // further on
    assert_false(same(kv_name_next(&k, kv_name_begin(&k, 4, 64, 4), ids, 8), two));
    ids[7]++;
    assert_false(same(kv_name_next(&k, a, ids, 8), two));
    kv_names_release(&k);
    kv_names_release(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_find_drop),
        cmocka_unit_test(test_one_list),
        cmocka_unit_test(test_what_makes_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
