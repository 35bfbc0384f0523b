// Cache groups: how layers of different caches are divided, and what a session of such a model holds.
#include "kvcache/groups.h"
#include "kvcache/ring.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 80 };
static struct kv_layer layers[MOST];

// n layers; every `full`-th sees everything, the others have the window.
static void gemma(int32_t n, int32_t full, int32_t window) {
    for (int32_t i = 0; i < n; i++)
        layers[i] = (struct kv_layer){
            .kv_heads = 8, .head_dim = 256, .window = (i + 1) % full == 0 ? 0 : window, .uses = i};
}

static void test_alike_layers_are_one_group(void **state) {
    struct kv_groups g;
    for (int32_t window = 0; window <= 4096; window += 4096) {
        gemma(32, 33, window);
        assert_int_equal(kv_groups_init(&g, layers, 32, 8, 16, false, NULL), 0);
        assert_int_equal(g.n, 1);
        assert_int_equal(g.group[0].n_layers, 16);
        assert_int_equal(g.group[0].window, 0); // the ring keeps memory_len tokens
        for (int32_t i = 0; i < 16; i++) {
            assert_int_equal(g.places[i].group, 0);
            assert_int_equal(g.places[i].index, i);
        }
        kv_groups_release(&g);
    }
}

// Every rank has the same groups, and together they have each layer once.
static void test_ranks_divide_alike(void **state) {
    struct kv_groups whole, part;
    gemma(48, 6, 1024);
    assert_int_equal(kv_groups_init(&whole, layers, 48, 0, 48, false, NULL), 0);
    assert_int_equal(whole.n, 6);
    for (int32_t g = 0; g < 6; g++) assert_int_equal(whole.group[g].n_layers, 8);
    int32_t n_layers[6] = {0};
    for (int32_t first = 0; first < 48; first += 16) {
        assert_int_equal(kv_groups_init(&part, layers, 48, first, 16, false, NULL), 0);
        assert_int_equal(part.n, 6);
        for (int32_t g = 0; g < 6; g++) {
            n_layers[g] += part.group[g].n_layers;
            assert_in_range(part.group[g].n_layers, 2, 3);
            assert_int_equal(part.group[g].window, whole.group[g].window);
        }
        for (int32_t i = 0; i < 16; i++) {
            assert_int_equal(part.places[i].group, whole.places[first + i].group);
            assert_in_range(part.places[i].index, 0, part.group[part.places[i].group].n_layers - 1);
            assert_int_equal(whole.group[part.places[i].group].window, layers[first + i].window);
            for (int32_t k = 0; k < i; k++)
                assert_true(memcmp(&part.places[i], &part.places[k], sizeof *part.places) != 0);
        }
        kv_groups_release(&part);
    }
    for (int32_t g = 0; g < 6; g++) assert_int_equal(n_layers[g], 8);
    kv_groups_release(&whole);
}

// The blocks of a session at 131,072 tokens, of those that one ring for all layers would hold.
static double share_of_one_ring(int32_t n, int32_t full, int32_t window, int32_t sink_len) {
    struct kv_groups g;
    const int64_t tokens = 131072;
    gemma(n, full, window);
    assert_int_equal(kv_groups_init(&g, layers, n, 0, n, false, NULL), 0);
    struct kv_ring_shape s = {.memory_len = (int32_t)tokens,
                              .sink_len = sink_len,
                              .chunk_tokens = 512,
                              .block_tokens = 32,
                              .session_len = tokens,
                              .groups = &g};
    struct kv_pool pool;
    struct kv_ring r;
    struct err err;
    int32_t most = kv_ring_max_blocks(&s), most_held = 0;
    assert_int_equal(kv_pool_init(&pool, most, &err), 0);
    assert_int_equal(kv_ring_init(&r, &pool, &s, &err), 0);
    while (r.n_tokens < tokens) {
        assert_int_equal(kv_ring_extend(&r, 512, NULL, NULL), 0);
        if (r.n_held > most_held) most_held = r.n_held;
        kv_ring_commit(&r, 512);
    }
    // The most layers that a block has: one ring's block would have n of them.
    int32_t in_block = 0;
    for (int32_t k = 0; k < g.n; k++)
        if (g.group[k].n_layers > in_block) in_block = g.group[k].n_layers;
    double one_ring = (double)tokens / s.block_tokens * n, share = most_held * in_block / one_ring;
    print_message("%d layers, 1 of %d full, window %d: %d groups, %.3f of one ring\n", n, full,
                  window, g.n, share);
    assert_true(most_held <= most);
    kv_ring_release(&r);
    kv_pool_release(&pool);
    kv_groups_release(&g);
    return share;
}

static void test_windows_save_memory(void **state) {
    assert_true(share_of_one_ring(48, 6, 1024, 4) <= 0.22); // Gemma 3 12B
    assert_true(share_of_one_ring(62, 6, 1024, 4) <= 0.22); // 27B
    assert_true(share_of_one_ring(34, 6, 1024, 4) <= 0.22); // 4B
    assert_true(share_of_one_ring(26, 6, 512, 0) <= 0.22);  // 1B
    assert_true(share_of_one_ring(24, 2, 128, 4) <= 0.52);  // gpt-oss-20b
    assert_true(share_of_one_ring(32, 4, 4096, 4) <= 0.30); // OLMo 3
}

// Layers of two shapes (Gemma 4), layers that use another's keys and values, layers without any.
static void test_shapes_and_users(void **state) {
    struct kv_groups g;
    struct err err = {0};
    gemma(30, 6, 1024);
    for (int32_t i = 5; i < 30; i += 6) layers[i].kv_heads = 2, layers[i].head_dim = 512;
    layers[7].kv_heads = 0;
    layers[25].uses = 24;
    layers[29].uses = 23;
    assert_int_equal(kv_groups_init(&g, layers, 30, 0, 30, false, &err), 0);
    assert_int_equal(g.places[7].group, -1);
    assert_int_equal(g.places[25].group, g.places[24].group);
    assert_int_equal(g.places[25].index, g.places[24].index);
    assert_int_equal(g.places[29].group, g.places[23].group);
    int64_t most = 0, least = INT64_MAX;
    int32_t n = 0;
    for (int32_t i = 0; i < g.n; i++) {
        int64_t values = (int64_t)g.group[i].n_layers * g.group[i].kv_heads * g.group[i].head_dim;
        most = values > most ? values : most;
        least = values < least ? values : least;
        n += g.group[i].n_layers;
    }
    assert_int_equal(n, 27);
    assert_true(least * 2 >= most); // blocks are well used
    kv_groups_release(&g);
    assert_int_equal(kv_groups_init(&g, layers, 30, 0, 30, true, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "2 heads of 512"));
    // A stage without the layer that it uses.
    assert_int_equal(kv_groups_init(&g, layers, 30, 25, 5, false, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "layer 25"));
}

static void test_a_device_with_one_list(void **state) {
    struct kv_groups g;
    gemma(48, 6, 1024);
    assert_int_equal(kv_groups_init(&g, layers, 48, 0, 48, true, NULL), 0);
    assert_int_equal(g.n, 1);
    assert_int_equal(g.group[0].window, 0);
    assert_int_equal(g.group[0].n_layers, 48);
    for (int32_t i = 0; i < 48; i++) assert_int_equal(g.places[i].index, i);
    kv_groups_release(&g);
}

static void test_hostile_sizes(void **state) {
    struct kv_groups g;
    struct err err = {0};
    static const struct kv_layer bad[] = {{-1, 64, 0, 3, false},
                                          {1, 0, 0, 3, false},
                                          {1, 64, -1, 3, false},
                                          {1, 64, 0, 4, false},
                                          {1, 64, 0, -1, false},
                                          {1, 64, 0, 2, false},
                                          {INT32_MAX, INT32_MAX, 0, 3, false}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gemma(4, 2, 16);
        layers[2].kv_heads = 0;
        layers[3] = bad[i];
        assert_int_equal(kv_groups_init(&g, layers, 4, 0, 4, false, &err), E_INVAL);
        assert_non_null(strstr(err.text, "layer 3"));
        assert_null(g.places);
    }
    assert_int_equal(kv_groups_init(&g, layers, 0, 0, 0, false, &err), E_INVAL);
    assert_int_equal(kv_groups_init(&g, layers, INT32_MAX, 0, 4, false, &err), E_INVAL);
    for (int32_t i = 0; i < MOST; i++) layers[i] = (struct kv_layer){1, 64, i + 1, i, false};
    assert_int_equal(kv_groups_init(&g, layers, MOST, 0, MOST, false, &err), E_UNSUPPORTED);
    for (int32_t i = 0; i < MOST; i++) layers[i].kv_heads = 0;
    assert_int_equal(kv_groups_init(&g, layers, MOST, 0, MOST, false, &err), E_UNSUPPORTED);
}

// An equal prefix is shared only where every group still has it.
static void test_a_prefix_of_all_groups(void **state) {
    struct kv_groups g;
    struct kv_pool pool;
    struct kv_ring a, b;
    static int32_t ids[200];
    gemma(12, 6, 24);
    assert_int_equal(kv_groups_init(&g, layers, 12, 0, 12, false, NULL), 0);
    assert_int_equal(kv_pool_init(&pool, 400, NULL), 0);
    const struct kv_ring_shape s = {200, 4, 16, 8, 200, &g};
    assert_int_equal(kv_ring_init(&a, &pool, &s, NULL), 0);
    a.tag = kv_group_tag(7);
    struct hash128 begin = kv_name_begin(&pool.names, a.tag, 200, 4), name = begin;
    for (int64_t p = 0; p < 160; p += 8) {
        assert_int_equal(kv_ring_extend(&a, 8, NULL, NULL), 0);
        kv_ring_commit(&a, 8);
        name = kv_name_next(&pool.names, name, ids + p, 8);
        kv_ring_name(&a, p, name);
    }
    assert_int_equal(kv_ring_init(&b, &pool, &s, NULL), 0);
    b.tag = a.tag;
    assert_int_equal(kv_ring_adopt(&b, begin, ids, 100), 0); // its window is gone in five groups
    assert_int_equal(kv_ring_adopt(&b, begin, ids, 170), 160);
    assert_int_equal(b.n_held, a.n_held);
    assert_int_equal(pool.n_blocks - pool.n_free, a.n_held);
    assert_int_equal(kv_ring_truncate(&b, 100), KV_GONE);
    kv_ring_release(&b);
    kv_ring_release(&a);
    kv_pool_release(&pool);
    kv_groups_release(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alike_layers_are_one_group),
        cmocka_unit_test(test_ranks_divide_alike),
        cmocka_unit_test(test_windows_save_memory),
        cmocka_unit_test(test_shapes_and_users),
        cmocka_unit_test(test_a_device_with_one_list),
        cmocka_unit_test(test_hostile_sizes),
        cmocka_unit_test(test_a_prefix_of_all_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
