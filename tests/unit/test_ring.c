// The ring against a brute-force model of the window rule: a table that remembers, for every pool
// block, which sequence position was last written to each of its places. Random shapes, chunks,
// cuts and copies; after every step all that any token of the step may see must still lie where
// kv_map says, and kv_check must hold.
#include "kvcache/check.h"
#include "kvcache/ring.h"
#include "tests/cmocka.h"
#include "tests/random_walk.h"
#include "tests/unit/random_groups.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 512, MAX_BLOCK_TOKENS = 32 };

// Stands for a backend's arena: each place holds its owner and position as one number.
struct arena {
    int64_t place[MAX_BLOCKS][MAX_BLOCK_TOKENS];
    int copies;
};
static struct arena arena;

static int arena_copy(void *ctx, int32_t dst, int32_t src) {
    memcpy(arena.place[dst], arena.place[src], sizeof arena.place[dst]);
    arena.copies++;
    return 0;
}

static int64_t *group_place(const struct kv_ring *r, int32_t g, int64_t p) {
    int32_t b = r->maps[g].blocks[kv_map_slot(&r->maps[g], p)];
    assert_in_range(b, 0, MAX_BLOCKS - 1);
    return &arena.place[b][p % r->block_tokens];
}

static int64_t *place_of(const struct kv_ring *r, int64_t p) {
    return group_place(r, 0, p);
}

// What a group's block holds at a position where `what` was written.
static int64_t in_group(int32_t g, int64_t what) {
    return what + ((int64_t)g << 50);
}

static void write_at(const struct kv_ring *r, int64_t p, int64_t what) {
    for (int32_t g = 0; g < r->n_groups; g++) *group_place(r, g, p) = in_group(g, what);
}

static void look_at(const struct kv_ring *r, int64_t t, int64_t p, int64_t what) {
    for (int32_t g = 0; g < r->n_groups; g++)
        if (group_sees(r, g, t, p)) assert_int_equal(*group_place(r, g, p), in_group(g, what));
}

// Writes the step's positions, then checks every position that attention reads for each token.
static void write_and_look(struct kv_ring *r, int owner, int32_t n) {
    for (int64_t p = r->n_tokens; p < r->n_tokens + n; p++) write_at(r, p, owner * 1000000 + p);
    for (int64_t t = r->n_tokens; t < r->n_tokens + n; t++)
        for (int64_t p = 0; p <= t; p++) look_at(r, t, p, owner * 1000000 + p);
}

static void check(const struct kv_pool *pool, const struct kv_ring *const *rings, size_t n) {
    struct err err = {0};
    if (kv_check(pool, rings, n, &err) < 0) fail_msg("%s", err.text);
}

static struct kv_ring_shape random_shape(void) {
    struct kv_ring_shape s = {.block_tokens = 1 << below(6), .groups = random_groups()};
    s.memory_len = 1 + (int32_t)below(70);
    s.sink_len = (int32_t)below((uint32_t)(s.memory_len < 20 ? s.memory_len : 20));
    s.chunk_tokens = 1 + (int32_t)below(40);
    s.session_len = below(4) == 0 ? 1 + below(200) : 1000;
    return s;
}

static void run_shape(struct kv_ring_shape s) {
    struct kv_pool pool;
    struct kv_ring r;
    assert_int_equal(kv_pool_init(&pool, MAX_BLOCKS, NULL), 0);
    assert_int_equal(kv_ring_init(&r, &pool, &s, NULL), 0);
    const struct kv_ring *rings[] = {&r};
    int32_t bound = kv_ring_max_blocks(&s);
    int64_t goal = 10 * s.memory_len < s.session_len ? 10 * s.memory_len : s.session_len;
    for (int step = 0; step < 400 && r.n_tokens < goal; step++) {
        if (below(8) == 0 && r.n_tokens > 0) {
            int64_t to = r.n_tokens - (int64_t)below((uint32_t)(below(2) ? 4 : r.n_tokens) + 1);
            if (to < 0) to = 0;
            int rc = kv_ring_truncate(&r, to);
            assert_int_equal(r.n_tokens, rc == KV_GONE ? 0 : to);
            check(&pool, rings, 1);
            continue;
        }
        int32_t n = 1 + (int32_t)below((uint32_t)s.chunk_tokens);
        if (n > goal - r.n_tokens) n = (int32_t)(goal - r.n_tokens);
        assert_int_equal(kv_ring_extend(&r, n, NULL, NULL), 0);
        assert_true(r.n_held <= bound);
        write_and_look(&r, 1, n);
        kv_ring_commit(&r, n);
        check(&pool, rings, 1);
    }
    kv_ring_release(&r);
    assert_int_equal(pool.n_free, pool.n_blocks);
    kv_pool_release(&pool);
}

static void test_window_rule_under_random_steps(void **state) {
    for (int i = 0; i < 300; i++) run_shape(random_shape());
}

static void test_cut_keeps_what_it_says(void **state) {
    // While nothing has left the window, any cut is complete. Later the window moves on, and a cut
    // across a lost block is reported.
    struct kv_pool pool;
    struct kv_ring r;
    assert_int_equal(kv_pool_init(&pool, 64, NULL), 0);
    assert_int_equal(
        kv_ring_init(&r, &pool, &(struct kv_ring_shape){32, 4, 16, 8, 1000, NULL}, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kv_ring_extend(&r, 16, NULL, NULL), 0);
        kv_ring_commit(&r, 16);
    }
    assert_int_equal(kv_ring_truncate(&r, 5), 0);
    assert_int_equal(r.n_tokens, 5);
    assert_int_equal(r.n_held, 1);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(kv_ring_extend(&r, 16, NULL, NULL), 0);
        kv_ring_commit(&r, 16);
    }
    assert_int_equal(kv_ring_truncate(&r, 100), KV_GONE);
    assert_int_equal(r.n_tokens, 0);
    assert_int_equal(r.n_held, 0);
    assert_int_equal(pool.n_free, 64);
    kv_ring_release(&r);
    kv_pool_release(&pool);
}

static void test_full_pool_changes_nothing(void **state) {
    struct kv_pool pool;
    struct kv_ring r;
    assert_int_equal(kv_pool_init(&pool, 3, NULL), 0);
    assert_int_equal(
        kv_ring_init(&r, &pool, &(struct kv_ring_shape){100, 0, 64, 8, 1000, NULL}, NULL), 0);
    assert_int_equal(kv_ring_extend(&r, 10, NULL, NULL), 0);
    kv_ring_commit(&r, 10);
    assert_int_equal(kv_ring_extend(&r, 20, NULL, NULL), E_NOMEM);
    assert_int_equal(r.n_held, 2);
    assert_int_equal(pool.n_free, 1);
    const struct kv_ring *rings[] = {&r};
    check(&pool, rings, 1);
    assert_int_equal(kv_ring_extend(&r, 14, NULL, NULL), 0);
    kv_ring_commit(&r, 14);
    check(&pool, rings, 1);
    kv_ring_release(&r);
    kv_pool_release(&pool);
}

// Two rings over the same blocks: the one that writes first gets its own copy of the block it
// writes to.
static void test_copy_on_write(void **state) {
    struct kv_pool pool;
    struct kv_ring a, b;
    assert_int_equal(kv_pool_init(&pool, 16, NULL), 0);
    assert_int_equal(
        kv_ring_init(&a, &pool, &(struct kv_ring_shape){64, 4, 16, 8, 200, NULL}, NULL), 0);
    assert_int_equal(kv_ring_extend(&a, 12, NULL, NULL), 0);
    write_and_look(&a, 1, 12);
    kv_ring_commit(&a, 12);
    assert_int_equal(kv_ring_fork(&b, &a, 12, NULL), 0);
    const struct kv_ring *rings[] = {&a, &b};
    check(&pool, rings, 2);

    arena.copies = 0;
    assert_int_equal(kv_ring_extend(&b, 3, arena_copy, NULL), 0);
    assert_int_equal(arena.copies, 1);
    for (int64_t p = 12; p < 15; p++) *place_of(&b, p) = -p;
    kv_ring_commit(&b, 3);
    check(&pool, rings, 2);
    assert_int_equal(*place_of(&b, 9), 1000009);        // copied
    assert_ptr_equal(place_of(&a, 3), place_of(&b, 3)); // still shared
    assert_int_equal(kv_ring_extend(&a, 3, arena_copy, NULL), 0);
    assert_int_equal(arena.copies, 1); // a is alone on its block now
    write_and_look(&a, 1, 3);
    kv_ring_commit(&a, 3);
    assert_int_equal(*place_of(&b, 13), -13);
    kv_ring_release(&a);
    kv_ring_release(&b);
    assert_int_equal(pool.n_free, 16);
    kv_pool_release(&pool);
}

// Many rings over one pool, forked from one another, written, cut and released in any order: what a
// ring reads at a position is always what its own line of ancestors wrote there.
enum { FAMILY = 6, LINE = 400 };
struct relative {
    struct kv_ring ring;
    int64_t wrote[LINE]; // what was written at each position
};

static void family_write(struct relative *r, int32_t n) {
    static int64_t next = 1;
    for (int64_t p = r->ring.n_tokens; p < r->ring.n_tokens + n; p++)
        write_at(&r->ring, p, r->wrote[p] = next++);
}

static void family_check(const struct kv_pool *pool, struct relative *family) {
    const struct kv_ring *rings[FAMILY];
    size_t n = 0;
    for (int i = 0; i < FAMILY; i++) {
        struct kv_ring *r = &family[i].ring;
        if (!r->blocks) continue;
        rings[n++] = r;
        for (int64_t p = 0; p < r->n_tokens; p++) look_at(r, r->n_tokens, p, family[i].wrote[p]);
    }
    check(pool, rings, n);
}

// Makes room as eviction does, by releasing a ring other than the current one. False if there is
// none.
static bool family_evict(struct relative *family, const struct relative *but) {
    for (int i = 0; i < FAMILY; i++) {
        if (&family[i] == but || !family[i].ring.blocks) continue;
        kv_ring_release(&family[i].ring);
        return true;
    }
    return false;
}

static void family_step(struct kv_pool *pool, struct relative *family,
                        const struct kv_ring_shape *s) {
    struct relative *r = &family[below(FAMILY)], *other = &family[below(FAMILY)];
    uint32_t what = below(16);
    if (!r->ring.blocks) {
        assert_int_equal(kv_ring_init(&r->ring, pool, s, NULL), 0);
    } else if (what == 0) {
        kv_ring_release(&r->ring);
    } else if (what <= 2 && other != r && r->ring.n_tokens > 0) {
        kv_ring_release(&other->ring);
        int64_t back = below(2) ? below(8) : below((uint32_t)r->ring.n_tokens + 1);
        int64_t n = r->ring.n_tokens > back ? r->ring.n_tokens - back : 0;
        int rc = kv_ring_fork(&other->ring, &r->ring, n, NULL);
        assert_true(rc == 0 || rc == KV_GONE);
        if (rc == KV_GONE) assert_null(other->ring.blocks);
        memcpy(other->wrote, r->wrote, sizeof r->wrote);
    } else if (what == 3) {
        kv_ring_truncate(&r->ring, below((uint32_t)r->ring.n_tokens + 1));
    } else {
        int32_t n = 1 + (int32_t)below((uint32_t)s->chunk_tokens);
        if (r->ring.n_tokens + n > s->session_len) return;
        // One ring alone always fits, and blocks that others share with it need no room.
        while (kv_ring_extend(&r->ring, n, arena_copy, NULL) == E_NOMEM)
            assert_true(family_evict(family, r));
        family_write(r, n);
        kv_ring_commit(&r->ring, n);
    }
}

static void test_forks_under_random_steps(void **state) {
    static struct relative family[FAMILY];
    for (int i = 0; i < 150; i++) {
        struct kv_ring_shape s = random_shape();
        if (s.session_len > LINE) s.session_len = LINE;
        struct kv_pool pool;
        // Pools with room for just one ring up to most of them.
        int32_t one = kv_ring_max_blocks(&s);
        int32_t n_blocks = one + (int32_t)below(3 * (uint32_t)one + 1);
        assert_int_equal(kv_pool_init(&pool, n_blocks < MAX_BLOCKS ? n_blocks : MAX_BLOCKS, NULL),
                         0);
        memset(family, 0, sizeof family);
        arena.copies = 0;
        for (int step = 0; step < 300; step++) {
            family_step(&pool, family, &s);
            family_check(&pool, family);
        }
        for (int k = 0; k < FAMILY; k++) kv_ring_release(&family[k].ring);
        assert_int_equal(pool.n_free, pool.n_blocks);
        assert_int_equal(pool.n_extra, 0);
        kv_pool_release(&pool);
    }
}

// A fork holds only the blocks that the shorter sequence needs, and reports if they are gone.
static void test_fork_of_a_wrapped_ring(void **state) {
    struct kv_pool pool;
    struct kv_ring a, b, c;
    assert_int_equal(kv_pool_init(&pool, 64, NULL), 0);
    assert_int_equal(
        kv_ring_init(&a, &pool, &(struct kv_ring_shape){32, 4, 16, 8, 1000, NULL}, NULL), 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(kv_ring_extend(&a, 10, NULL, NULL), 0);
        kv_ring_commit(&a, 10);
    }
    int32_t n_free = pool.n_free;
    assert_int_equal(kv_ring_fork(&b, &a, 100, NULL), 0);
    assert_int_equal(b.n_held, a.n_held);
    assert_int_equal(pool.n_free, n_free);
    assert_int_equal(kv_ring_fork(&c, &a, 60, NULL), KV_GONE);
    assert_null(c.blocks);
    assert_int_equal(kv_ring_fork(&c, &a, 0, NULL), KV_GONE); // sinks alone cannot be continued
    kv_ring_release(&a);
    const struct kv_ring *rings[] = {&b};
    check(&pool, rings, 1);
    kv_pool_count_begin(&pool);
    assert_int_equal(kv_ring_count(&b), b.n_held);
    kv_ring_release(&b);
    assert_int_equal(pool.n_free, 64);
    kv_pool_release(&pool);
}

// A step that fails between extend and commit: cutting to nothing gives back what the step had
// taken.
static void test_failed_first_step(void **state) {
    struct kv_pool pool;
    struct kv_ring r;
    assert_int_equal(kv_pool_init(&pool, 8, NULL), 0);
    assert_int_equal(
        kv_ring_init(&r, &pool, &(struct kv_ring_shape){32, 0, 16, 8, 100, NULL}, NULL), 0);
    assert_int_equal(kv_ring_extend(&r, 16, NULL, NULL), 0);
    assert_int_equal(kv_ring_truncate(&r, 0), 0);
    assert_int_equal(pool.n_free, 8);
    kv_ring_release(&r);
    kv_pool_release(&pool);
}

static void test_bounds(void **state) {
    // 4 sinks in one block of 16, then a window of 60 + a chunk of 32: at most 91 positions in a
    // row, 7 blocks.
    assert_int_equal(kv_ring_max_blocks(&(struct kv_ring_shape){64, 4, 32, 16, 100000, NULL}),
                     1 + 7);
    // A short log needs no more than itself
    assert_int_equal(kv_ring_max_blocks(&(struct kv_ring_shape){64, 4, 32, 16, 40, NULL}), 3);
    assert_int_equal(kv_ring_max_blocks(&(struct kv_ring_shape){64, 0, 1, 16, 1, NULL}), 1);
    struct kv_pool pool;
    struct kv_ring r;
    struct err err = {0};
    assert_int_equal(kv_pool_init(&pool, 4, NULL), 0);
    assert_int_equal(kv_ring_init(&r, &pool, &(struct kv_ring_shape){8, 8, 4, 16, 100, NULL}, &err),
                     E_INVAL);
    assert_int_equal(kv_ring_init(&r, &pool, &(struct kv_ring_shape){8, 0, 4, 12, 100, NULL}, &err),
                     E_INVAL);
    kv_pool_release(&pool);
}

// The rings of one turn's branches: in each step every ring becomes a copy of a random one, and all
// continue to write.
static void test_shared_rings_under_random_steps(void **state) {
    enum { RINGS = 5 };
    for (int round = 0; round < 40; round++) {
        struct kv_ring_shape s = random_shape();
        struct kv_pool pool;
        struct kv_ring r[RINGS];
        const struct kv_ring *all[RINGS];
        s.session_len = 400;
        assert_int_equal(kv_pool_init(&pool, MAX_BLOCKS, NULL), 0);
        assert_int_equal(kv_ring_init(&r[0], &pool, &s, NULL), 0);
        r[0].tag = 6;
        for (int i = 1; i < RINGS; i++) assert_int_equal(kv_ring_init_like(&r[i], &r[0], NULL), 0);
        for (int i = 0; i < RINGS; i++) all[i] = &r[i];
        for (int step = 0; step < 30; step++) {
            int from = (int)below(RINGS), before = pool.n_free;
            for (int i = 0; i < RINGS; i++) {
                if (i == from) continue;
                kv_ring_share(&r[i], &r[from]);
                assert_int_equal(r[i].n_tokens, r[from].n_tokens);
                check(&pool, all, RINGS);
            }
            assert_true(pool.n_free >= before); // no block was taken from the pool
            int32_t n = 1 + (int32_t)below((uint32_t)(s.chunk_tokens < 9 ? s.chunk_tokens : 9));
            if (r[from].n_tokens + n > s.session_len) break;
            bool again = below(3) == 0; // another ring finds no room: the step does not run
            for (int pass = again ? 0 : 1; pass < 2; pass++) {
                for (int i = 0; i < RINGS; i++)
                    assert_int_equal(kv_ring_extend(&r[i], n, arena_copy, NULL), 0);
                for (int i = 0; i < RINGS && pass == 0; i++) kv_ring_unextend(&r[i], n);
                if (pass == 0) check(&pool, all, RINGS);
            }
            for (int i = 0; i < RINGS; i++) {
                for (int64_t p = r[i].n_tokens; p < r[i].n_tokens + n; p++) write_at(&r[i], p, p);
                kv_ring_commit(&r[i], n);
            }
            check(&pool, all, RINGS);
        }
        for (int i = 0; i < RINGS; i++) kv_ring_release(&r[i]);
        assert_int_equal(pool.n_free, MAX_BLOCKS);
        kv_pool_release(&pool);
    }
}

int main(void) {
    seed = 7;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window_rule_under_random_steps),
        cmocka_unit_test(test_cut_keeps_what_it_says),
        cmocka_unit_test(test_full_pool_changes_nothing),
        cmocka_unit_test(test_copy_on_write),
        cmocka_unit_test(test_forks_under_random_steps),
        cmocka_unit_test(test_fork_of_a_wrapped_ring),
        cmocka_unit_test(test_shared_rings_under_random_steps),
        cmocka_unit_test(test_failed_first_step),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
