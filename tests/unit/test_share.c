// Equal prefixes: rings of two groups whose logs begin alike, written, cut, forked, evicted and
// started over in any order. Each place of the arena holds a hash of the log up to it, as a key
// does, so a ring with a block of another log would read a wrong hash.
#include "kvcache/check.h"
#include "kvcache/ring.h"
#include "tests/cmocka.h"
#include "tests/unit/random_groups.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 512, MAX_BLOCK_TOKENS = 16, RINGS = 8, LOG = 300 };

static uint64_t arena[MAX_BLOCKS][MAX_BLOCK_TOKENS];
static int copies;

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int copy(void *ctx, int32_t dst, int32_t src) {
    memcpy(arena[dst], arena[src], sizeof arena[dst]);
    copies++;
    return 0;
}

static void wipe(void *ctx, int32_t block, bool is_free) { // nothing survives in a free block
    memset(arena[block], 0xee, sizeof arena[block]);
}

struct log {
    struct kv_ring ring;
    uint64_t group;
    int32_t ids[LOG];
    uint64_t key[LOG]; // for each position the hash of the log up to it
    struct hash128 name;
    int64_t n_named, n_log;
};

static uint64_t *place_of(const struct kv_ring *r, int32_t g, int64_t p) {
    int32_t b = r->maps[g].blocks[kv_map_slot(&r->maps[g], p)];
    assert_in_range(b, 0, MAX_BLOCKS - 1);
    return &arena[b][p % r->block_tokens];
}

static void check_all(const struct kv_pool *pool, struct log *logs) {
    const struct kv_ring *rings[RINGS];
    struct err err = {0};
    size_t n = 0;
    for (int i = 0; i < RINGS; i++) {
        struct kv_ring *r = &logs[i].ring;
        if (!r->blocks) continue;
        rings[n++] = r;
        assert_true(kv_ring_sound(r));
        for (int32_t g = 0; g < r->n_groups; g++)
            for (int64_t p = 0; p < r->n_tokens; p++)
                if (group_sees(r, g, r->n_tokens, p))
                    assert_true(*place_of(r, g, p) == mix(logs[i].key[p] + (uint64_t)g));
    }
    if (kv_check(pool, rings, n, &err) < 0) fail_msg("%s", err.text);
}

// A few stories, each in a few variants: many logs begin alike, and part sooner or later. The other
// group tells the same ones.
static void new_log(struct log *l, const struct kv_pool *pool) {
    uint32_t story = below(3), turn_at = below(LOG);
    l->n_log = LOG;
    for (int64_t i = 0; i < LOG; i++)
        l->ids[i] = (int32_t)(mix(story * 1000 + (uint64_t)i) % 50) + (i > turn_at ? 50 : 0);
    uint64_t k = l->group;
    for (int64_t i = 0; i < LOG; i++) l->key[i] = k = mix(k * 31 + (uint64_t)l->ids[i]);
}

static void name_blocks(struct log *l) {
    struct kv_ring *r = &l->ring;
    for (; l->n_named + r->block_tokens <= r->n_tokens; l->n_named += r->block_tokens) {
        l->name = kv_name_next(&r->pool->names, l->name, l->ids + l->n_named, r->block_tokens);
        kv_ring_name(r, l->n_named, l->name);
    }
}

static int64_t adopt(struct log *l, int64_t n_most) {
    struct kv_ring *r = &l->ring;
    l->name = kv_name_begin(&r->pool->names, r->tag, r->memory_len, r->sink_len);
    l->n_named = 0;
    name_blocks(l);
    int64_t had = r->n_tokens, gained = kv_ring_adopt(r, l->name, l->ids, n_most);
    assert_int_equal(r->n_tokens, had + gained);
    assert_true(r->n_tokens <= n_most || gained == 0);
    assert_true(gained == 0 || r->n_tokens % r->block_tokens == 0);
    name_blocks(l);
    return gained;
}

static bool evict(struct log *logs, const struct log *but) {
    for (int i = 0; i < RINGS; i++) {
        if (&logs[i] == but || !logs[i].ring.blocks) continue;
        kv_ring_release(&logs[i].ring);
        return true;
    }
    return false;
}

static int64_t step(struct kv_pool *pool, struct log *logs, const struct kv_ring_shape *s) {
    struct log *l = &logs[below(RINGS)], *other = &logs[below(RINGS)];
    struct kv_ring *r = &l->ring;
    if (!r->blocks) {
        assert_int_equal(kv_ring_init(r, pool, s, NULL), 0);
        l->group = 1 + below(2);
        r->tag = kv_group_tag(l->group);
        new_log(l, pool);
        return adopt(l, below(LOG));
    }
    switch (below(16)) {
    case 0:
        kv_ring_release(r);
        return 0;
    case 1: // rewinds, continues with other words, and takes over others' blocks of them
        kv_ring_truncate(r, below((uint32_t)r->n_tokens + 1));
        for (int64_t p = r->n_tokens; p < LOG; p++) l->ids[p] = (int32_t)below(2);
        uint64_t k = r->n_tokens > 0 ? l->key[r->n_tokens - 1] : l->group;
        for (int64_t p = r->n_tokens; p < LOG; p++)
            l->key[p] = k = mix(k * 31 + (uint64_t)l->ids[p]);
        return adopt(l, LOG - 1);
    case 2: // the same log again, as when a turn is run again
        kv_ring_truncate(r, below((uint32_t)r->n_tokens + 1));
        return adopt(l, LOG - 1);
    case 3:
        if (other == l || r->n_tokens == 0) return 0;
        kv_ring_release(&other->ring);
        if (kv_ring_fork(&other->ring, r, r->n_tokens - below(2), NULL) != 0) return 0;
        memcpy(other->ids, l->ids, sizeof l->ids);
        memcpy(other->key, l->key, sizeof l->key);
        other->group = l->group;
        return adopt(other, LOG - 1);
    default: {
        int32_t n = 1 + (int32_t)below((uint32_t)s->chunk_tokens);
        if (r->n_tokens + n > LOG) return 0;
        while (kv_ring_extend(r, n, copy, NULL) == E_NOMEM) assert_true(evict(logs, l));
        for (int32_t g = 0; g < r->n_groups; g++)
            for (int64_t p = r->n_tokens; p < r->n_tokens + n; p++)
                *place_of(r, g, p) = mix(l->key[p] + (uint64_t)g);
        kv_ring_commit(r, n);
        name_blocks(l);
        return 0;
    }
    }
}

static void test_random_scripts(void **state) {
    static struct log logs[RINGS];
    int64_t gained = 0, extra = 0;
    for (int i = 0; i < 120; i++) {
        struct kv_ring_shape s = {.session_len = LOG,
                                  .groups = random_groups(),
                                  .block_tokens = 1 << below(5),
                                  .memory_len = 2 + (int32_t)below(80)};
        s.sink_len = (int32_t)below((uint32_t)(s.memory_len < 12 ? s.memory_len : 12));
        s.chunk_tokens = 1 + (int32_t)below(40);
        if (below(3) == 0) s.memory_len = LOG;
        struct kv_pool pool;
        int32_t one = kv_ring_max_blocks(&s);
        int32_t n_blocks = one + (int32_t)below(3 * (uint32_t)one + 1);
        assert_int_equal(kv_pool_init(&pool, n_blocks < MAX_BLOCKS ? n_blocks : MAX_BLOCKS, NULL),
                         0);
        pool.guard = wipe;
        memset(logs, 0, sizeof logs);
        for (int k = 0; k < 400; k++) {
            gained += step(&pool, logs, &s);
            extra += pool.n_extra;
            check_all(&pool, logs);
        }
        for (int k = 0; k < RINGS; k++) kv_ring_release(&logs[k].ring);
        assert_int_equal(pool.n_free, pool.n_blocks);
        kv_pool_release(&pool);
    }
    print_message("%lld tokens taken over, %d blocks copied on write\n", (long long)gained, copies);
    assert_true(gained > 10000 && copies > 100 && extra > 10000);
}

static void start(struct log *l, struct kv_pool *pool, uint64_t group, int32_t memory_len,
                  int32_t sink_len) {
    memset(l, 0, sizeof *l);
    l->group = group;
    assert_int_equal(kv_ring_init(&l->ring, pool,
                                  &(struct kv_ring_shape){.memory_len = memory_len,
                                                          .sink_len = sink_len,
                                                          .chunk_tokens = 16,
                                                          .block_tokens = 8,
                                                          .session_len = LOG},
                                  NULL),
                     0);
    l->ring.tag = kv_group_tag(group);
    for (int i = 0; i < LOG; i++) l->ids[i] = i;
    l->name = kv_name_begin(&pool->names, l->ring.tag, memory_len, sink_len);
}

static void compute(struct log *l, int32_t n) {
    for (; n > 0; n -= 8) {
        int32_t some = n < 8 ? n : 8;
        assert_int_equal(kv_ring_extend(&l->ring, some, copy, NULL), 0);
        kv_ring_commit(&l->ring, some);
        name_blocks(l);
    }
}

// How many tokens may be taken over.
static void test_what_is_found(void **state) {
    struct kv_pool pool;
    static struct log a, b;
    assert_int_equal(kv_pool_init(&pool, 128, NULL), 0);
    start(&a, &pool, 1, 200, 4);
    compute(&a, 60); // seven blocks and a half
    start(&b, &pool, 1, 200, 4);
    assert_int_equal(adopt(&b, 100), 56);
    kv_ring_release(&b.ring);
    start(&b, &pool, 1, 200, 4);
    assert_int_equal(adopt(&b, 55), 48); // no more than is asked for
    kv_ring_release(&b.ring);
    start(&b, &pool, 1, 200, 4);
    compute(&b, 20);
    assert_int_equal(b.ring.blocks[1], a.ring.blocks[1]);     // the same, stored once
    assert_int_not_equal(b.ring.blocks[2], a.ring.blocks[2]); // not full yet
    assert_int_equal(adopt(&b, 100), 36);
    kv_ring_release(&b.ring);
    start(&b, &pool, 1, 200, 4);
    b.ids[17]++; // another word in the third block
    assert_int_equal(adopt(&b, 100), 16);
    kv_ring_release(&b.ring);
    start(&b, &pool, 2, 200, 4); // another group
    assert_int_equal(adopt(&b, 100), 0);
    kv_ring_release(&b.ring);
    start(&b, &pool, 1, 199, 4); // another window
    assert_int_equal(adopt(&b, 100), 0);
    kv_ring_release(&b.ring);
    start(&b, &pool, 1, 200, 3);
    assert_int_equal(adopt(&b, 100), 0);
    kv_ring_release(&b.ring);
    kv_ring_release(&a.ring); // no sequence holds them any more
    start(&b, &pool, 1, 200, 4);
    assert_int_equal(adopt(&b, 100), 0);
    kv_ring_release(&b.ring);
    assert_int_equal(pool.n_free, 128);
    kv_pool_release(&pool);
}

// A donor whose window has moved on gives what a log of that length sees: sinks and window, or only
// the sinks' block, which every log that begins alike can use.
static void test_wrapped_donor(void **state) {
    struct kv_pool pool;
    static struct log a, b;
    assert_int_equal(kv_pool_init(&pool, 128, NULL), 0);
    start(&a, &pool, 1, 40, 4);
    compute(&a, 200);
    start(&b, &pool, 1, 40, 4);
    assert_int_equal(adopt(&b, 210), 200);
    assert_int_equal(b.ring.n_held, a.ring.n_held);
    assert_int_equal(pool.n_free, 128 - a.ring.n_held);
    kv_ring_release(&b.ring);
    start(&b, &pool, 1, 40, 4);
    assert_int_equal(adopt(&b, 195), 8); // its window begins at 156: gone; the sinks' block is not
    kv_ring_release(&b.ring);
    start(&b, &pool, 1, 40, 4);
    compute(&b, 30);
    assert_int_equal(adopt(&b, 210), 170); // over the gap, its own blocks given back
    const struct kv_ring *rings[] = {&a.ring, &b.ring};
    assert_int_equal(kv_check(&pool, rings, 2, NULL), 0);
    kv_ring_release(&a.ring);
    kv_ring_release(&b.ring);
    assert_int_equal(pool.n_free, 128);
    kv_pool_release(&pool);
}

// A block that is cut and written again is not found by what it held before.
static void test_rewritten_block_loses_its_name(void **state) {
    struct kv_pool pool;
    static struct log a, b;
    assert_int_equal(kv_pool_init(&pool, 128, NULL), 0);
    start(&a, &pool, 1, 200, 4);
    compute(&a, 40);
    assert_int_equal(kv_ring_truncate(&a.ring, 20), 0);
    start(&b, &pool, 1, 200, 4);
    assert_int_equal(adopt(&b, 100), 24); // cut but not overwritten: still valid
    kv_ring_release(&b.ring);
    assert_int_equal(kv_ring_extend(&a.ring, 2, copy, NULL), 0);
    kv_ring_commit(&a.ring, 2);
    start(&b, &pool, 1, 200, 4);
    assert_int_equal(adopt(&b, 100), 16);
    kv_ring_release(&b.ring);
    kv_ring_release(&a.ring);
    kv_pool_release(&pool);
}

// A block of another group in a ring, however it came there, is seen before a step reads it.
static void test_foreign_block_is_seen(void **state) {
    struct kv_pool pool;
    static struct log a, b;
    struct err err = {0};
    assert_int_equal(kv_pool_init(&pool, 128, NULL), 0);
    assert_int_not_equal(kv_pool_private_tag(&pool), kv_pool_private_tag(&pool));
    assert_int_not_equal(kv_pool_private_tag(&pool) % 2, kv_group_tag(77) % 2);
    start(&a, &pool, 1, 200, 4);
    start(&b, &pool, 2, 200, 4);
    compute(&a, 40);
    compute(&b, 40);
    assert_true(kv_ring_sound(&a.ring) && kv_ring_sound(&b.ring));
    int32_t own = b.ring.blocks[2];
    b.ring.blocks[2] = a.ring.blocks[2];
    kv_pool_ref(&pool, a.ring.blocks[2]);
    assert_false(kv_ring_sound(&b.ring));
    const struct kv_ring *rings[] = {&a.ring, &b.ring};
    assert_int_equal(kv_check(&pool, rings, 2, &err), E_INTERNAL);
    assert_non_null(strstr(err.text, "group"));
    kv_pool_unref(&pool, a.ring.blocks[2]);
    b.ring.blocks[2] = own;
    kv_ring_release(&a.ring);
    kv_ring_release(&b.ring);
    assert_int_equal(pool.n_free, 128);
    kv_pool_release(&pool);
}

int main(void) {
    seed = 5;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_scripts),
        cmocka_unit_test(test_what_is_found),
        cmocka_unit_test(test_wrapped_donor),
        cmocka_unit_test(test_rewritten_block_loses_its_name),
        cmocka_unit_test(test_foreign_block_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
