// Ranks' parts cover everything once, and query heads find their key/value heads on their own rank.
#include "engine/dist/split.h"
#include "tests/cmocka.h"
#include <string.h>

static struct split tp(int32_t rank, int32_t size) {
    return (struct split){rank, size, 0, 1};
}

static void one_rank_owns_everything(void **state) {
    const struct split *s = &split_single;
    assert_int_equal(split_check(s, 3, 5, 1, 7, NULL), 0);
    assert_int_equal(split_layers(s, 3).count, 3);
    assert_int_equal(split_heads(s, 5).count, 5);
    assert_int_equal(split_kv_heads(s, 1).count, 1);
    assert_int_equal(split_even(s, 7).count, 7);
}

static void parts_follow_each_other(void **state) {
    for (int32_t size = 1; size <= 9; size++)
        for (int32_t n = 0; n < 40; n++) {
            int32_t next = 0, smallest = n, largest = 0;
            for (int32_t rank = 0; rank < size; rank++) {
                struct split s = tp(rank, size);
                struct split p = {0, 1, rank, size};
                struct range r = split_even(&s, n), l = split_layers(&p, n);
                assert_int_equal(r.first, next);
                assert_memory_equal(&r, &l, sizeof r);
                next += r.count;
                if (r.count < smallest) smallest = r.count;
                if (r.count > largest) largest = r.count;
            }
            assert_int_equal(next, n);
            assert_true(largest - smallest <= 1);
        }
}

static void query_heads_meet_their_kv_heads(void **state) {
    static const int32_t shapes[][2] = {{32, 8}, {8, 8}, {16, 2}, {28, 4}, {64, 1}, {6, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int32_t size = 1; size <= 64; size++) {
            int32_t heads = shapes[i][0], kv = shapes[i][1], seen = 0;
            struct split s = tp(0, size);
            if (split_check(&s, 1, heads, kv, size, NULL) < 0) continue;
            for (int32_t rank = 0; rank < size; rank++) {
                s = tp(rank, size);
                struct range q = split_heads(&s, heads), k = split_kv_heads(&s, kv);
                assert_true(k.count >= 1);
                // Within a rank the mapping is again "group of heads / kv head".
                assert_int_equal(q.count % k.count, 0);
                for (int32_t h = 0; h < q.count; h++)
                    assert_int_equal((q.first + h) / (heads / kv),
                                     k.first + h / (q.count / k.count));
                seen += q.count;
            }
            assert_int_equal(seen, heads);
        }
}

static void refuses_what_does_not_divide(void **state) {
    struct err err;
    struct split s = tp(0, 3);
    assert_int_equal(split_check(&s, 4, 32, 8, 96, &err), E_INVAL);
    assert_non_null(strstr(err.text, "32 heads"));
    s = tp(0, 6);
    assert_int_equal(split_check(&s, 4, 12, 4, 96, &err), E_INVAL);
    assert_non_null(strstr(err.text, "key/value"));
    s = tp(0, 4);
    assert_int_equal(split_check(&s, 4, 32, 8, 98, &err), E_INVAL);
    assert_non_null(strstr(err.text, "98"));
    s = (struct split){0, 1, 0, 5};
    assert_int_equal(split_check(&s, 4, 32, 8, 96, &err), E_INVAL);
    assert_non_null(strstr(err.text, "layers"));
    static const struct split bad[] = {
        {0, 0, 0, 1}, {2, 2, 0, 1}, {-1, 2, 0, 1}, {0, 1, 1, 1}, {0, 1, 0, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(split_check(&bad[i], 4, 32, 8, 96, &err), E_INVAL);
    s = tp(7, 16); // more ranks than key/value heads: shared
    assert_int_equal(split_check(&s, 4, 32, 8, 96, &err), 0);
    assert_int_equal(split_kv_heads(&s, 8).first, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_owns_everything),
        cmocka_unit_test(parts_follow_each_other),
        cmocka_unit_test(query_heads_meet_their_kv_heads),
        cmocka_unit_test(refuses_what_does_not_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
