// kv_check() must find each kind of damage: every case breaks a healthy pool in one way.
#include "kvcache/check.h"
#include "tests/cmocka.h"
#include <string.h>

struct fixture {
    struct kv_pool pool;
    struct kv_ring a, b;
};

static int set_up(void **state) {
    static struct fixture f;
    memset(&f, 0, sizeof f);
    kv_pool_init(&f.pool, 16, NULL);
    kv_ring_init(&f.a, &f.pool, &(struct kv_ring_shape){32, 4, 8, 8, 1000, NULL}, NULL);
    kv_ring_init(&f.b, &f.pool, &(struct kv_ring_shape){32, 0, 8, 8, 1000, NULL}, NULL);
    for (int i = 0; i < 9; i++) {
        if (kv_ring_extend(&f.a, 7, NULL, NULL) < 0) return -1;
        kv_ring_commit(&f.a, 7);
    }
    if (kv_ring_extend(&f.b, 3, NULL, NULL) < 0) return -1;
    kv_ring_commit(&f.b, 3);
    *state = &f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    // The rings are damaged on purpose: give back the memory, not the blocks.
    for (int i = 0; i < 2; i++) {
        struct kv_ring *r = i ? &f->b : &f->a;
        for (int s = 0; s < r->n_slots; s++) r->blocks[s] = -1;
        r->n_held = 0;
        kv_ring_release(r);
    }
    kv_pool_release(&f->pool);
    return 0;
}

static int verdict(struct fixture *f) {
    const struct kv_ring *rings[] = {&f->a, &f->b};
    struct err err = {0};
    int rc = kv_check(&f->pool, rings, 2, &err);
    assert_int_equal(err.code, rc);
    return rc;
}

static int32_t *held_slot(struct kv_ring *r) {
    for (int s = r->maps[0].n_sink_blocks; s < r->n_slots; s++) {
        if (r->blocks[s] >= 0) return &r->blocks[s];
    }
    fail();
    return NULL;
}

static void test_healthy(void **state) {
    assert_int_equal(verdict(*state), 0);
}

static void test_leak(void **state) {
    struct fixture *f = *state;
    kv_pool_take(&f->pool);
    assert_int_equal(verdict(f), E_INTERNAL);
}

static void test_wrong_count(void **state) {
    struct fixture *f = *state;
    kv_pool_ref(&f->pool, *held_slot(&f->a));
    assert_int_equal(verdict(f), E_INTERNAL);
}

static void test_block_in_two_rings_without_a_count(void **state) {
    struct fixture *f = *state;
    int32_t *slot = held_slot(&f->b);
    kv_pool_unref(&f->pool, *slot);
    *slot = *held_slot(&f->a);
    assert_int_equal(verdict(f), E_INTERNAL);
}

static void test_block_twice_in_one_ring(void **state) {
    struct fixture *f = *state;
    int32_t block = *held_slot(&f->a);
    for (int s = 0; s < f->a.n_slots; s++) {
        if (f->a.blocks[s] < 0 || f->a.blocks[s] == block) continue;
        kv_pool_unref(&f->pool, f->a.blocks[s]);
        f->a.blocks[s] = block;
        kv_pool_ref(&f->pool, block);
        break;
    }
    assert_int_equal(verdict(f), E_INTERNAL);
}

static void test_hole_in_the_window(void **state) {
    struct fixture *f = *state;
    int32_t *slot = held_slot(&f->a);
    kv_pool_unref(&f->pool, *slot);
    *slot = -1;
    f->a.n_held--;
    assert_int_equal(verdict(f), E_INTERNAL);
}

static void test_block_kept_too_long(void **state) {
    struct fixture *f = *state;
    for (int s = 0; s < f->b.maps[0].n_ring_blocks; s++) {
        if (f->b.blocks[s] >= 0) continue;
        f->b.blocks[s] = kv_pool_take(&f->pool);
        f->b.n_held++;
        break;
    }
    assert_int_equal(verdict(f), E_INTERNAL);
}

static void test_held_miscounted(void **state) {
    struct fixture *f = *state;
    f->a.n_held++;
    assert_int_equal(verdict(f), E_INTERNAL);
}

static void test_free_list_names_a_block_twice(void **state) {
    struct fixture *f = *state;
    for (int32_t i = 0; i < 2; i++) f->pool.free_list[i] = kv_pool_free_block(&f->pool, 1);
    f->pool.n_new = 0;
    assert_int_equal(verdict(f), E_INTERNAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_healthy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leak, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_block_in_two_rings_without_a_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_block_twice_in_one_ring, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hole_in_the_window, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_block_kept_too_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_held_miscounted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_free_list_names_a_block_twice, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
