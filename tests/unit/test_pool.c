// The block pool: a taken block has one holder, a block without a holder can be taken again, and an
// empty pool says so.
#include "kvcache/pool.h"
#include "tests/cmocka.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void test_takes_every_block_once(void **state) {
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 5, NULL), 0);
    bool seen[5] = {false};
    for (int i = 0; i < 5; i++) {
        int32_t b = kv_pool_take(&p);
        assert_in_range(b, 0, 4);
        assert_false(seen[b]);
        seen[b] = true;
        assert_int_equal(p.refs[b], 1);
    }
    assert_int_equal(p.n_free, 0);
    assert_int_equal(kv_pool_take(&p), -1);
    kv_pool_release(&p);
}

static void test_shared_block_is_free_after_its_last_holder(void **state) {
    struct kv_pool p;
    assert_int_equal(kv_pool_init(&p, 2, NULL), 0);
    int32_t b = kv_pool_take(&p);
    kv_pool_ref(&p, b);
    kv_pool_unref(&p, b);
    assert_int_equal(p.n_free, 1);
    kv_pool_unref(&p, b);
    assert_int_equal(p.n_free, 2);
    assert_int_equal(kv_pool_take(&p), b); // the warm one first
    kv_pool_release(&p);
}

// Only free blocks that have not been used for a while give memory back, and each of them once.
static void test_gives_back_what_has_rested(void **state) {
    struct kv_pool p;
    const int32_t *blocks;
    int32_t taken[6];
    assert_int_equal(kv_pool_init(&p, 10, NULL), 0);
    kv_pool_watch(&p);
    // Blocks never used have no memory to give back
    assert_int_equal(kv_pool_give_back(&p, 0, 10, &blocks), 0);
    for (int i = 0; i < 6; i++) taken[i] = kv_pool_take(&p);
    for (int i = 0; i < 6; i++) kv_pool_unref(&p, taken[i]);
    assert_int_equal(kv_pool_give_back(&p, 0, 10, &blocks), 0); // used since the watch began
    kv_pool_watch(&p);
    kv_pool_unref(&p, kv_pool_take(&p)); // the warm one again
    assert_int_equal(kv_pool_give_back(&p, 2, 3, &blocks), 3);
    for (int i = 0; i < 3; i++) assert_int_equal(blocks[i], taken[i]); // freed first
    assert_int_equal(kv_pool_give_back(&p, 2, 3, &blocks), 1);
    assert_int_equal(blocks[0], taken[3]);
    assert_int_equal(kv_pool_give_back(&p, 2, 3, &blocks), 0);
    assert_int_equal(kv_pool_give_back(&p, 0, 3, &blocks), 1); // the last one was used
    for (int i = 0; i < 10; i++) kv_pool_take(&p);
    assert_int_equal(kv_pool_give_back(&p, 0, 10, &blocks), 0);
    kv_pool_release(&p);
}

// Bytes of whole pages of this array that are in memory.
static size_t resident(const void *array, size_t bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)array + page - 1) & ~(page - 1);
    const size_t n = ((uintptr_t)array + bytes - begin) / page;
    unsigned char *is_in = malloc(n);
    size_t sum = 0;
    assert_int_equal(mincore((void *)begin, n * page, is_in), 0);
    for (size_t i = 0; i < n; i++) sum += is_in[i] & 1 ? page : 0;
    free(is_in);
    return sum;
}

// A file may claim a context of 2^31 - 1: the blocks that are never used cost no memory. The kernel may give 2 MiB
// where one byte is written.
static void test_unused_blocks_cost_no_memory(void **state) {
    enum { N = 1 << 22, USED = 3000, HUGE_PAGES = 2 * (2 << 20) };
    struct kv_pool p;
    int32_t taken[USED];
    assert_int_equal(kv_pool_init(&p, N, NULL), 0);
    for (int32_t i = 0; i < USED; i++) {
        taken[i] = kv_pool_take(&p);
        assert_int_equal(taken[i], i);
        kv_names_put(&p.names, i, kv_name_begin(&p.names, (uint64_t)i, 64, 4));
    }
    for (int32_t i = 0; i < USED; i++) kv_pool_unref(&p, taken[i]);
    assert_int_equal(p.n_free, N);
    assert_int_equal(kv_pool_free_block(&p, N - 1), USED - 1);
    assert_int_equal(kv_pool_free_block(&p, 0), N - 1);
    assert_in_range(resident(p.free_list, N * sizeof *p.free_list), 1, HUGE_PAGES);
    assert_in_range(resident(p.refs, N * sizeof *p.refs), 1, HUGE_PAGES);
    assert_in_range(resident(p.counted, N * sizeof *p.counted), 0, HUGE_PAGES);
    assert_in_range(resident(p.tags, N * sizeof *p.tags), 1, HUGE_PAGES);
    assert_in_range(resident(p.names.next, N * sizeof *p.names.next), 1, HUGE_PAGES);
    assert_in_range(resident(p.names.names, N * sizeof *p.names.names), 1, HUGE_PAGES);
    kv_pool_release(&p);
}

static void test_refuses_an_empty_pool(void **state) {
    struct kv_pool p;
    struct err err = {0};
    assert_int_equal(kv_pool_init(&p, 0, &err), E_INVAL);
    assert_true(err.text[0] != '\0');
    kv_pool_release(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_every_block_once),
        cmocka_unit_test(test_shared_block_is_free_after_its_last_holder),
        cmocka_unit_test(test_gives_back_what_has_rested),
        cmocka_unit_test(test_unused_blocks_cost_no_memory),
        cmocka_unit_test(test_refuses_an_empty_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
