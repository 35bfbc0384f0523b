// What a sequence keeps from one turn to the next: the common prefix only, and nothing if the
// window changed.
#include "engine/cache/sequence.h"
#include "kvcache/check.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

static struct kv_pool pool;
static struct sequence *s;
static const struct sequence_shape shape = {.ring = {.memory_len = 32,
                                                     .sink_len = 4,
                                                     .chunk_tokens = 16,
                                                     .block_tokens = 8,
                                                     .session_len = 1000}};

static int set_up(void **state) {
    if (kv_pool_init(&pool, 64, NULL) < 0) return -1;
    s = sequence_new(5);
    return s ? 0 : -1;
}

static int tear_down(void **state) {
    sequence_free(s);
    int rc = pool.n_free == pool.n_blocks ? 0 : -1;
    kv_pool_release(&pool);
    return rc;
}

static int64_t match(const struct sequence_shape *sh, const int32_t *ids, int64_t n) {
    int64_t kept = -1, shared = -1;
    assert_int_equal(sequence_match(s, &pool, sh, ids, n, &kept, &shared, NULL), 0);
    const struct kv_ring *rings[] = {&s->ring};
    assert_int_equal(kv_check(&pool, rings, 1, NULL), 0);
    assert_int_equal(s->ring.n_tokens, kept);
    return kept;
}

// A turn over ids: what is not cached is computed, then the log is handed over with its last token
// pending.
static void run_turn(const int32_t *ids, int64_t n) {
    for (int64_t left = n - match(&shape, ids, n); left > 0;) {
        int32_t chunk = left < 16 ? (int32_t)left : 16;
        assert_int_equal(kv_ring_extend(&s->ring, chunk, NULL, NULL), 0);
        kv_ring_commit(&s->ring, chunk);
        left -= chunk;
    }
    int32_t *log = malloc((size_t)n * sizeof *log);
    memcpy(log, ids, (size_t)n * sizeof *log);
    sequence_take_log(s, log);
}

static void count_up(int32_t *ids, int n) {
    for (int i = 0; i < n; i++) ids[i] = i;
}

static void test_first_turn_keeps_nothing(void **state) {
    int32_t ids[4] = {1, 2, 3, 4};
    assert_int_equal(match(&shape, ids, 4), 0);
}

static void test_next_turn_computes_only_what_is_new(void **state) {
    int32_t ids[20];
    count_up(ids, 20);
    run_turn(ids, 12);
    assert_int_equal(match(&shape, ids, 20), 12);
}

static void test_same_log_again_recomputes_its_last_token(void **state) {
    int32_t ids[12];
    count_up(ids, 12);
    run_turn(ids, 12);
    assert_int_equal(match(&shape, ids, 12), 11);
}

static void test_edited_log_is_cut_where_it_differs(void **state) {
    int32_t ids[30];
    count_up(ids, 30);
    run_turn(ids, 25);
    ids[9] = 77;
    assert_int_equal(match(&shape, ids, 30), 9);
}

static void test_cut_behind_the_window_starts_over(void **state) {
    int32_t ids[200];
    count_up(ids, 200);
    run_turn(ids, 150);
    assert_int_equal(match(&shape, ids, 60), 0);
    assert_int_equal(s->ring.n_held, 0);
}

static void test_another_window_starts_over(void **state) {
    int32_t ids[20];
    count_up(ids, 20);
    run_turn(ids, 15);
    struct sequence_shape wider = shape;
    wider.ring.memory_len = 64;
    assert_int_equal(match(&wider, ids, 20), 0);
    assert_int_equal(s->ring.memory_len, 64);
}

static void test_drop_gives_everything_back(void **state) {
    int32_t ids[20];
    count_up(ids, 20);
    run_turn(ids, 20);
    assert_true(pool.n_free < pool.n_blocks);
    sequence_drop(s);
    assert_int_equal(pool.n_free, pool.n_blocks);
    assert_int_equal(match(&shape, ids, 20), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_first_turn_keeps_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_next_turn_computes_only_what_is_new, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_same_log_again_recomputes_its_last_token, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_edited_log_is_cut_where_it_differs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cut_behind_the_window_starts_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_window_starts_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_drop_gives_everything_back, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
