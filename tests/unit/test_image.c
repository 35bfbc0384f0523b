// Copies of a ring's blocks, against arrays of numbers: random turns on rings that wrap, cuts,
// copies in batches that stop half-way; whatever the ring held, a ring restored from a whole image
// holds, position by position.
#include "kvcache/check.h"
#include "kvcache/image.h"
#include "tests/cmocka.h"
#include "tests/random_walk.h"
#include "tests/unit/random_groups.h"
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 800, MAX_BLOCK = 16 };

static const struct kv_groups one = {.n = 1};
static int64_t device[BLOCKS][MAX_BLOCK], host[BLOCKS][MAX_BLOCK]; // what stands in each place

static int64_t *place(const struct kv_ring *r, int32_t g, int64_t p) {
    int32_t b = r->maps[g].blocks[kv_map_slot(&r->maps[g], p)];
    assert_in_range(b, 0, BLOCKS - 1);
    return &device[b][p % r->block_tokens];
}

// The token at p in the log's n-th version: other logs, other keys.
static int64_t value(int64_t version, int64_t p) {
    return (version * 100000 + p) * KV_GROUPS_MAX;
}

struct world {
    struct kv_pool pool, hosts;
    struct kv_ring ring;
    struct kv_image image;
    int64_t log[4096]; // the version in which each position was written
    int64_t version;
};

// Whether the ring has what its next token sees.
static void look(const struct world *w, const struct kv_ring *r) {
    for (int32_t g = 0; g < groups.n; g++)
        for (int64_t p = 0; p < r->n_tokens; p++)
            if (group_sees(r, g, r->n_tokens, p))
                assert_int_equal(*place(r, g, p), value(w->log[p], p) + g);
}

static void check(const struct world *w) {
    const struct kv_ring *rings[] = {&w->ring};
    struct err err = {0};
    if (kv_check(&w->pool, rings, w->ring.blocks ? 1 : 0, &err) < 0) fail_msg("%s", err.text);
    int32_t held = 0;
    for (int32_t i = 0; i < w->image.n_slots; i++) held += w->image.copies[i].host >= 0;
    assert_int_equal(held, w->image.n_held);
    assert_int_equal(held, w->hosts.n_blocks - w->hosts.n_free);
}

static void write_tokens(struct world *w, int32_t n) {
    assert_int_equal(kv_ring_extend(&w->ring, n, NULL, NULL), 0);
    for (int64_t p = w->ring.n_tokens; p < w->ring.n_tokens + n; p++) {
        w->log[p] = w->version;
        for (int32_t g = 0; g < groups.n; g++) *place(&w->ring, g, p) = value(w->version, p) + g;
    }
    kv_ring_commit(&w->ring, n);
}

// Up to `most` copies; true once the image is whole.
static bool copy_some(struct world *w, int most) {
    int32_t slot;
    for (int i = 0; i < most; i++) {
        int rc = kv_image_next(&w->image, &w->ring, &slot);
        assert_in_range(rc, 0, 1);
        if (rc == 0) {
            assert_int_equal(kv_image_missing(&w->image, &w->ring), 0);
            assert_int_equal(w->image.n_held, w->ring.n_held);
            return true;
        }
        int32_t from = w->ring.blocks[slot], to = w->image.copies[slot].host;
        memcpy(host[to], device[from], sizeof host[to]);
        kv_image_copied(&w->image, &w->ring, slot);
    }
    return false;
}

// The ring is emptied and restored; meanwhile other data was written to its blocks.
static void park_and_restore(struct world *w) {
    struct err err;
    struct kv_ring was = w->ring;
    int64_t n = w->ring.n_tokens;
    int32_t chunk = 8;
    kv_ring_release(&w->ring);
    memset(device, 0xee, sizeof device);
    assert_int_equal(kv_ring_init(&w->ring, &w->pool,
                                  &(struct kv_ring_shape){.memory_len = was.memory_len,
                                                          .sink_len = was.sink_len,
                                                          .chunk_tokens = chunk,
                                                          .block_tokens = was.block_tokens,
                                                          .session_len = 4000,
                                                          .groups = &groups},
                                  &err),
                     0);
    assert_int_equal(kv_ring_restore(&w->ring, n), 0);
    assert_int_equal(kv_image_missing(&w->image, &w->ring), 0);
    for (int32_t i = 0; i < w->image.n_slots; i++) {
        if (w->ring.blocks[i] >= 0)
            memcpy(device[w->ring.blocks[i]], host[w->image.copies[i].host], sizeof device[0]);
    }
    assert_int_equal(w->ring.n_held, was.n_held);
    look(w, &w->ring);
}

// A fork of the image at any place. Where it claims to serve the fork, a ring restored from it
// holds the log so far; if the image is whole and the place is its end, it must. Returns whether it
// serves.
static bool fork_and_restore(struct world *w) {
    struct kv_image fork;
    struct kv_ring ring;
    struct err err;
    int32_t used = w->hosts.n_blocks - w->hosts.n_free, block = w->ring.block_tokens;
    int64_t n = below(2) ? w->ring.n_tokens : 1 + below((uint32_t)w->ring.n_tokens);
    bool whole = n == w->ring.n_tokens && kv_image_missing(&w->image, &w->ring) == 0;
    assert_int_equal(kv_image_fork(&fork, &w->image, n, block), 0);
    assert_int_equal(w->hosts.n_blocks - w->hosts.n_free, used);
    assert_int_equal(kv_ring_init(&ring, &w->pool,
                                  &(struct kv_ring_shape){.memory_len = w->ring.memory_len,
                                                          .sink_len = w->ring.sink_len,
                                                          .chunk_tokens = 8,
                                                          .block_tokens = block,
                                                          .session_len = 4000,
                                                          .groups = &groups},
                                  &err),
                     0);
    bool serves = kv_image_serves(&fork, &ring, n);
    assert_int_equal(serves, kv_image_serves(&w->image, &ring, n));
    assert_true(serves || !whole);
    if (serves && kv_ring_restore(&ring, n) == 0) {
        assert_int_equal(kv_image_missing(&fork, &ring), 0);
        for (int32_t i = 0; i < fork.n_slots; i++) {
            if (ring.blocks[i] >= 0)
                memcpy(device[ring.blocks[i]], host[fork.copies[i].host], sizeof device[0]);
        }
        look(w, &ring);
    }
    kv_ring_release(&ring);
    kv_image_release(&fork);
    return serves;
}

static void walk(int32_t memory_len, int32_t sink_len, int32_t block, const struct kv_groups *of) {
    static struct world w;
    struct err err;
    w = (struct world){.version = 1};
    groups = *of;
    assert_int_equal(kv_pool_init(&w.pool, BLOCKS, &err), 0);
    assert_int_equal(kv_pool_init(&w.hosts, BLOCKS, &err), 0);
    assert_int_equal(kv_ring_init(&w.ring, &w.pool,
                                  &(struct kv_ring_shape){.memory_len = memory_len,
                                                          .sink_len = sink_len,
                                                          .chunk_tokens = 8,
                                                          .block_tokens = block,
                                                          .session_len = 4000,
                                                          .groups = &groups},
                                  &err),
                     0);
    assert_int_equal(kv_image_init(&w.image, &w.hosts, &w.ring), 0);
    int n_restored = 0, n_cut = 0, n_forks = 0;
    for (int step = 0; step < 800 && w.ring.n_tokens < 3900; step++) {
        write_tokens(&w, 1 + (int32_t)below(8));
        if (below(4) == 0) copy_some(&w, 1 + (int)below(3));
        if (below(20) == 0) { // the log is cut and goes on otherwise
            int64_t n = w.ring.n_tokens - below((uint32_t)block * 2);
            if (n < 1) n = 1;
            int rc = kv_ring_truncate(&w.ring, n);
            kv_image_cut(&w.image, rc == KV_GONE ? 0 : n, block);
            w.version++;
            n_cut++;
        }
        if (w.ring.n_tokens > 0 && below(10) == 0) {
            while (!copy_some(&w, 1 + (int)below(5))) continue;
            if (below(2)) {
                park_and_restore(&w);
                n_restored++;
            }
        }
        if (w.ring.n_tokens > 0 && below(4) == 0) n_forks += fork_and_restore(&w);
        check(&w);
    }
    assert_true(n_restored > 10 && n_cut > 10 && n_forks > 10);
    kv_image_release(&w.image);
    kv_ring_release(&w.ring);
    check(&w);
    kv_pool_release(&w.pool);
    kv_pool_release(&w.hosts);
}

static void test_what_comes_back_is_what_went(void **state) {
    static const int32_t windows[][2] = {{4000, 0}, {64, 4}, {37, 0}, {100, 20}, {9, 8}};
    seed = 5;
    for (size_t i = 0; i < 5; i++)
        for (int32_t block = 4; block <= MAX_BLOCK; block *= 2) {
            if (windows[i][0] == 4000 && block < MAX_BLOCK) continue; // more blocks than there are
            walk(windows[i][0], windows[i][1], block, &one);
            walk(windows[i][0], windows[i][1], block, random_groups());
        }
}

// Only what a turn has written is copied again.
static void test_an_image_is_brought_up_to_date(void **state) {
    static struct world w;
    struct err err;
    int32_t slot;
    w = (struct world){.version = 1};
    groups = one;
    assert_int_equal(kv_pool_init(&w.pool, BLOCKS, &err), 0);
    assert_int_equal(kv_pool_init(&w.hosts, 11, &err), 0);
    assert_int_equal(
        kv_ring_init(&w.ring, &w.pool, &(struct kv_ring_shape){1000, 0, 8, 8, 1000, NULL}, &err),
        0);
    assert_int_equal(kv_image_init(&w.image, &w.hosts, &w.ring), 0);
    for (int i = 0; i < 10; i++) write_tokens(&w, 8);
    while (!copy_some(&w, 1)) continue;
    assert_int_equal(w.image.n_held, 10);
    write_tokens(&w, 3);
    assert_int_equal(kv_image_missing(&w.image, &w.ring), 1);
    while (!copy_some(&w, 1)) continue;
    write_tokens(&w, 2); // the last block grew: it is copied again, to the same place
    assert_int_equal(kv_image_missing(&w.image, &w.ring), 1);
    assert_int_equal(kv_image_next(&w.image, &w.ring, &slot), 1);
    assert_int_equal(w.image.n_held, 11);
    // A copy that is being read is not freed; if no other copy is free, that is reported.
    kv_image_copied(&w.image, &w.ring, slot);
    write_tokens(&w, 1);
    kv_pool_ref(&w.hosts, w.image.copies[slot].host);
    int32_t theirs = w.image.copies[slot].host;
    assert_int_equal(kv_image_next(&w.image, &w.ring, &slot), E_NOMEM);
    kv_pool_unref(&w.hosts, theirs);
    assert_int_equal(kv_image_next(&w.image, &w.ring, &slot), 1);
    kv_image_release(&w.image);
    assert_int_equal(w.hosts.n_free, 11);
    kv_ring_release(&w.ring);
    kv_pool_release(&w.pool);
    kv_pool_release(&w.hosts);
}

static void test_all_or_nothing(void **state) {
    static struct world w;
    struct err err;
    w = (struct world){0};
    assert_int_equal(kv_pool_init(&w.pool, 4, &err), 0);
    assert_int_equal(kv_pool_init(&w.hosts, 3, &err), 0);
    assert_int_equal(
        kv_ring_init(&w.ring, &w.pool, &(struct kv_ring_shape){100, 0, 8, 8, 100, NULL}, &err), 0);
    assert_int_equal(kv_ring_restore(&w.ring, 33), E_NOMEM);
    assert_int_equal(w.pool.n_free, 4);
    assert_int_equal(kv_ring_restore(&w.ring, 32), 0);
    assert_int_equal(kv_image_init(&w.image, &w.hosts, &w.ring), 0);
    assert_int_equal(kv_image_fill(&w.image, &w.ring), E_NOMEM);
    assert_int_equal(w.hosts.n_free, 3);
    assert_int_equal(kv_ring_truncate(&w.ring, 24), 0);
    assert_int_equal(kv_image_fill(&w.image, &w.ring), 0);
    assert_int_equal(kv_image_missing(&w.image, &w.ring), 0);
    check(&w);
    kv_image_release(&w.image);
    kv_ring_release(&w.ring);
    kv_pool_release(&w.pool);
    kv_pool_release(&w.hosts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_comes_back_is_what_went),
        cmocka_unit_test(test_an_image_is_brought_up_to_date),
        cmocka_unit_test(test_all_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
