// Equal prefixes are stored once within a group, and the bits do not change: donors that are idle,
// run, have wrapped rings or are evicted; a pool for a few that serves many; and nothing crosses
// from one group to another. On a fixture model and the demo model.
#include "tests/golden/lines.h"
#ifdef PARLEY_DEBUG_KV
#include <sanitizer/asan_interface.h>
#endif

static const char *const models[] = {"tests/fixtures/models/qwen3", "configs/demo-model"};
// A cache whose vectors are keys and values at once.
static const char *const latents = "tests/fixtures/later/glm4_moe_lite";
enum { M = 40, CHUNK = 16, BLOCK = 8 };

static struct line a, b, c;

static void line_begin(const struct engine *e, struct line *l, uint64_t sequence, uint64_t group,
                       const struct line *like, int64_t n) {
    free(l->rows.data);
    *l = (struct line){.sequence = sequence, .group = group, .n = n};
    l->rows = rows_new(e->info.n_vocab);
    if (like)
        memcpy(l->log, like->log, (size_t)n * sizeof *l->log);
    else
        random_log(e, l->log, n);
}

static void lines_free(void) {
    free(a.rows.data), free(b.rows.data), free(c.rows.data);
    a.rows.data = b.rows.data = c.rows.data = NULL;
}

static int32_t in_use(const struct engine *e) {
    return e->info.n_blocks - e->core.caches.pool.n_free;
}

// Sessions with a prompt of 50 tokens in common.
static void test_common_prompt(void **state) {
    seed = 31;
    struct engine *e = engine_for(*state, CHUNK, BLOCK, 0);
    int32_t m = e->info.max_memory_len;
    line_begin(e, &a, 1, 7, NULL, 50);
    go_on(e, &a, 10, m);
    assert_int_equal(out.n_shared, 0);
    assert_int_equal(out.source, CACHE_NONE);
    int32_t held = in_use(e);

    line_begin(e, &b, 2, 7, &a, 50);
    hear(e, &b, 15);
    go_on(e, &b, 20, m);
    assert_int_equal(out.n_shared, 48);
    assert_int_equal(out.n_cached, 48);
    assert_int_equal(out.source, CACHE_NONE); // a first turn still
    assert_int_equal(out.n_prefilled, 17);
    assert_int_equal(in_use(e), held + (b.n - 1 + BLOCK - 1) / BLOCK - 48 / BLOCK);
    compare_fresh(e, &b, 48, m);

    release(e, 1); // one of the sharers goes, the other's next turn keeps what it has
    hear(e, &b, 5);
    go_on(e, &b, 5, m);
    assert_int_equal(out.source, CACHE_KEPT);
    assert_int_equal(out.n_shared, 0);
    assert_int_equal(out.n_cached, b.n - 5 - 5 - 1);
    compare_fresh(e, &b, b.n - 11, m);

    hear(e, &a, 4); // and the one that went comes back to what is left of it
    go_on(e, &a, 5, m);
    assert_int_equal(out.source, CACHE_RECOMPUTED);
    assert_int_equal(out.n_shared, 48);
    compare_fresh(e, &a, 48, m);

    line_begin(e, &c, 3, 8, &a, 50); // another sequence has the same input
    go_on(e, &c, 5, m);
    assert_int_equal(out.n_cached, 0);
    line_begin(e, &c, 4, 0, &a, 50); // and so has one that does not share
    go_on(e, &c, 5, m);
    assert_int_equal(out.n_cached, 0);
    line_begin(e, &c, 5, 7, &a, 50); // another window
    go_on(e, &c, 5, m - 1);
    assert_int_equal(out.n_cached, 0);
    for (uint64_t s = 1; s <= 5; s++) release(e, s);
    assert_int_equal(in_use(e), 0);
    engine_close(e);
    lines_free();
}

// The donor is in the middle of its own turn: what it has computed in full blocks is there.
static void test_running_donor(void **state) {
    struct engine_event ev;
    seed = 32;
    struct engine *e = engine_for(*state, CHUNK, BLOCK, 0);
    line_begin(e, &a, 1, 7, NULL, 70);
    line_begin(e, &b, 2, 7, &a, 70);
    line_begin(e, &c, 3, 7, &a, 70);
    struct engine_turn t[3];
    struct line *lines[3] = {&a, &b, &c};
    static struct outcome o[3];
    memset(o, 0, sizeof o);
    for (int i = 0; i < 3; i++) {
        t[i] = turn_for(e, 1 + (uint64_t)i, a.log, 70, M, LINE_SINKS);
        t[i].share_group = 7;
        t[i].sampling.max_tokens = 50;
        t[i].on_logits = rows_keep;
        t[i].on_logits_ctx = &lines[i]->rows;
    }
    submit(e, &t[0]);
    for (int round = 0; !o[0].done || !o[1].done || !o[2].done; round++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) outcome_take(&o[ev.sequence - 1], &ev);
        if (round == 2) submit(e, &t[1]);  // amid the donor's prefill
        if (round == 20) submit(e, &t[2]); // amid its decoding
    }
    assert_int_equal(o[1].n_shared, 48);
    // Both have decoded past 70 by then, but for the sinks their blocks begin too late for this
    // log.
    assert_int_equal(o[2].n_shared, BLOCK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(o[i].n, 50);
        assert_memory_equal(o[i].ids, o[0].ids, 50 * sizeof *o[i].ids); // greedy
        memcpy(lines[i]->log + 70, o[i].ids, 50 * sizeof *o[i].ids);
        lines[i]->n = 120;
        compare_fresh(e, lines[i], o[i].n_cached, M);
    }
    engine_close(e);
    lines_free();
}

// Two prompts come in at the same moment: both are computed, and stored once.
static void test_equal_prompts_at_once(void **state) {
    struct engine_event ev;
    seed = 33;
    struct engine *e = engine_for(*state, CHUNK, BLOCK, 0);
    int32_t m = e->info.max_memory_len;
    line_begin(e, &a, 1, 7, NULL, 100);
    line_begin(e, &b, 2, 7, &a, 100);
    static struct outcome o[2];
    memset(o, 0, sizeof o);
    struct line *lines[2] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        struct engine_turn t = turn_for(e, 1 + (uint64_t)i, a.log, 100, m, LINE_SINKS);
        t.share_group = 7;
        t.sampling.max_tokens = 20;
        t.on_logits = rows_keep;
        t.on_logits_ctx = &lines[i]->rows;
        submit(e, &t);
    }
    while (!o[0].done || !o[1].done) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) outcome_take(&o[ev.sequence - 1], &ev);
    }
    // 119 tokens of each, greedy, so all of them equal: 14 full blocks once, and each one's last.
    assert_int_equal(in_use(e), 14 + 2);
    struct engine_load load;
    engine_load(e, &load);
    assert_int_equal(load.blocks_idle, 16);
    for (int i = 0; i < 2; i++) {
        memcpy(lines[i]->log + 100, o[i].ids, 20 * sizeof *o[i].ids);
        lines[i]->n = 120;
        compare_fresh(e, lines[i], 0, m);
    }
    engine_close(e);
    lines_free();
}

// The donor's window has moved on: a sequence with an equally long log takes over sinks and window.
static void test_wrapped_donor(void **state) {
    seed = 34;
    struct engine *e = engine_for(*state, CHUNK, BLOCK, 0);
    line_begin(e, &a, 1, 7, NULL, 130);
    go_on(e, &a, 47, M); // 177 tokens, 176 of them in the cache
    line_begin(e, &b, 2, 7, &a, a.n);
    hear(e, &b, 10);
    go_on(e, &b, 40, M);
    assert_int_equal(out.n_shared, 176);
    compare_fresh(e, &b, 176, M);
    line_begin(e, &c, 3, 7, &a, 150); // too short for the donor's window: the sinks' block is left
    hear(e, &c, 10);
    go_on(e, &c, 10, M);
    assert_int_equal(out.n_shared, BLOCK);
    compare_fresh(e, &c, BLOCK, M);
    hear(e, &a, 30); // the donor, its blocks shared, goes on
    go_on(e, &a, 60, M);
    assert_int_equal(out.n_cached, 176);
    compare_fresh(e, &a, 176, M);
    engine_close(e);
    lines_free();
}

// A sequence that changes its group takes no shared blocks with it.
static void test_another_group_starts_over(void **state) {
    seed = 35;
    struct engine *e = engine_for(*state, CHUNK, BLOCK, 0);
    line_begin(e, &a, 1, 7, NULL, 50);
    go_on(e, &a, 10, M);
    a.group = 8;
    hear(e, &a, 5);
    go_on(e, &a, 5, M);
    assert_int_equal(out.n_cached, 0);
    a.group = 0;
    hear(e, &a, 5);
    go_on(e, &a, 5, M);
    assert_int_equal(out.n_cached, 0);
    // A fork into another group, too: what it shared is given back before its first step.
    a.group = 7;
    hear(e, &a, 5);
    go_on(e, &a, 5, M);
    assert_int_equal(engine_sequence_fork(e, 1, 2, a.n), 0);
    line_begin(e, &b, 2, 8, &a, a.n);
    hear(e, &b, 5);
    go_on(e, &b, 5, M);
    assert_int_equal(out.n_cached, 0);
    struct engine_turn t = turn_for(e, 9, a.log, 5, M, LINE_SINKS);
    struct err err = {0};
    t.share_group = (uint64_t)INT64_MAX + 1; // tags need a bit
    assert_int_equal(engine_turn_submit(e, &t, &err), E_INVAL);
    free(t.ids);
    engine_close(e);
    lines_free();
}

// Twenty-four sessions of two owners with their prompts of 40 tokens, in a pool for six: turns in
// any order, several at once, rewinds, releases. kv_check runs after every step; every sequence's
// log is compared at the end of each of its turns that is looked at.
static void many_in_a_small_pool(const char *dir, int32_t host_windows) {
    enum { LINES = 24, PROMPT = 40, TURNS = 300 };
    static struct line lines[LINES];
    static struct outcome o[LINES];
    static bool busy[LINES];
    struct engine_event ev;
    int64_t shared = 0, n_parked = 0, n_restored = 0, n_released = 0, compared = 0, next_turn = 1;
    seed = 36;
    struct engine *calm = engine_for(dir, CHUNK, BLOCK, 0);
    int32_t one = kv_ring_max_blocks(&(struct kv_ring_shape){.memory_len = M,
                                                             .sink_len = LINE_SINKS,
                                                             .chunk_tokens = CHUNK,
                                                             .block_tokens = BLOCK,
                                                             .session_len = MAX_LOG});
    runner_host_bytes = host_windows * one * calm->info.block_bytes;
    struct engine *e = engine_for(dir, CHUNK, BLOCK, 6 * one * calm->info.block_bytes);
    runner_host_bytes = 0;
    for (int i = 0; i < LINES; i++) {
        line_begin(e, &lines[i], 1 + (uint64_t)i, 1 + (uint64_t)i % 2, i > 1 ? &lines[i % 2] : NULL,
                   PROMPT);
        if (i > 1) hear(e, &lines[i], below(4));
        busy[i] = false;
    }
    for (int turns = 0, running = 0; turns < TURNS || running > 0;) {
        int i = (int)below(LINES);
        struct line *l = &lines[i];
        if (!busy[i] && turns < TURNS && running < 8) {
            if (below(6) == 0 && l->n > PROMPT) l->n = PROMPT + below((uint32_t)(l->n - PROMPT));
            if (l->n > 150) l->n = PROMPT;
            hear(e, l, 1 + below(10));
            struct engine_turn t = turn_for(e, l->sequence, l->log, l->n, M, LINE_SINKS);
            t.turn = (uint64_t)next_turn++;
            t.share_group = l->group;
            t.sampling.max_tokens = 1 + (int32_t)below(20);
            t.on_logits = rows_keep;
            t.on_logits_ctx = &l->rows;
            memset(&o[i], 0, sizeof o[i]);
            submit(e, &t);
            busy[i] = true;
            turns++, running++;
        } else if (!busy[i] && below(8) == 0) {
            if (host_windows > 0 && below(4) > 0)
                engine_sequence_park(e, l->sequence);
            else
                engine_sequence_release(e, l->sequence);
        }
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            int k = (int)ev.sequence - 1;
            if (ev.kind == ENGINE_RELEASED || ev.kind == ENGINE_PARKED) {
                n_released += ev.why == RELEASE_PRESSURE;
                n_parked += ev.kind == ENGINE_PARKED;
                continue;
            }
            outcome_take(&o[k], &ev);
            if (!o[k].done) continue;
            assert_int_equal(o[k].finish, FINISH_LENGTH);
            shared += o[k].n_shared;
            n_restored += o[k].source == CACHE_HOST;
            memcpy(lines[k].log + lines[k].n, o[k].ids, (size_t)o[k].n * sizeof *o[k].ids);
            lines[k].n += o[k].n;
            busy[k] = false;
            running--;
            if (turns % 6 > 0) continue;
            compare_fresh(calm, &lines[k], o[k].n_cached, M);
            compared++;
        }
    }
    print_message("%lld tokens shared, %lld caches given up, %lld parked, %lld brought back, %lld "
                  "turns compared\n",
                  (long long)shared, (long long)n_released, (long long)n_parked,
                  (long long)n_restored, (long long)compared);
    assert_true(shared > 1000 && n_released > 20 && compared > 20);
    if (host_windows > 0) assert_true(n_parked > 20 && n_restored > 10);
    for (int i = 0; i < LINES; i++) {
        release(e, lines[i].sequence);
        free(lines[i].rows.data);
        lines[i].rows.data = NULL;
    }
    assert_int_equal(in_use(e), 0);
    assert_null(e->owned);
    engine_close(e);
    engine_close(calm);
}

static void test_many_in_a_small_pool(void **state) {
    many_in_a_small_pool(*state, 0);
}

// The same with room in host memory: images of blocks that others share, brought back beside blocks
// that are there already.
static void test_many_with_a_host_tier(void **state) {
    many_in_a_small_pool(*state, 10);
}

// More sequences than the owner's table has room for, forked from one: the oldest go, and new turns
// are taken all the same.
static void test_forks_do_not_shut_the_door(void **state) {
    struct engine_event ev;
    seed = 37;
    struct engine *e = engine_for(*state, CHUNK, BLOCK, 0);
    int32_t m = e->info.max_memory_len;
    e->core.caches.opt.max_idle = 10;
    line_begin(e, &a, 1, 7, NULL, 50);
    go_on(e, &a, 5, m);
    int n_released = 0;
    for (uint64_t s = 2; s < 60; s++) {
        assert_int_equal(engine_sequence_fork(e, s - 1, s, 50), 0);
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) n_released += ev.kind == ENGINE_RELEASED;
        assert_true(HASH_COUNT(e->owned) <= 10);
        assert_true(HASH_COUNT(e->core.caches.sequences) <= 10);
    }
    assert_int_equal(n_released, 49);
    line_begin(e, &b, 59, 7, &a, 50);
    hear(e, &b, 3);
    go_on(e, &b, 5, m);
    assert_int_equal(out.n_cached, 50);
    e->core.caches.opt.max_idle = 100; // room for the one that it is compared with
    compare_fresh(e, &b, 50, m);
    engine_close(e);
    lines_free();
}

// A freed block's bytes are gone, and AddressSanitizer catches every read of them.
static void test_freed_blocks_are_poisoned(void **state) {
#ifndef PARLEY_DEBUG_KV
    print_message("freed blocks are poisoned with VARIANT=asan alone: not run\n");
    skip();
#else
    if (strcmp(test_device(), "cpu") != 0) skip();
    seed = 38;
    struct engine *e = engine_for(*state, CHUNK, BLOCK, 0);
    const struct kv_store *kv = &e->core.caches.stores.arena;
    line_begin(e, &a, 1, 7, NULL, 50);
    go_on(e, &a, 5, M);
    int32_t block = e->core.caches.sequences->ring.blocks[0];
    char *bytes = (char *)kv->data + (size_t)block * kv->block_bytes;
    assert_null(__asan_region_is_poisoned(bytes, kv->block_bytes));
    release(e, 1);
    assert_int_equal(e->core.caches.pool.refs[block], 0);
    for (size_t i = 0; i < kv->block_bytes; i += 64)
        assert_true(__asan_address_is_poisoned(bytes + i));
    __asan_unpoison_memory_region(bytes, kv->block_bytes);
    for (size_t i = 0; i < kv->block_bytes; i++) assert_int_equal((unsigned char)bytes[i], 0xff);
    line_begin(e, &a, 1, 7, NULL, 50); // and the block serves again
    go_on(e, &a, 5, M);
    compare_fresh(e, &a, 0, M);
    engine_close(e);
    lines_free();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"fixture: a common prompt", test_common_prompt, NULL, NULL, (void *)models[0]},
        {"latents: a common prompt", test_common_prompt, NULL, NULL, (void *)latents},
        {"fixture: a running donor", test_running_donor, NULL, NULL, (void *)models[0]},
        {"fixture: equal prompts at once", test_equal_prompts_at_once, NULL, NULL,
         (void *)models[0]},
        {"fixture: a wrapped donor", test_wrapped_donor, NULL, NULL, (void *)models[0]},
        {"fixture: another group starts over", test_another_group_starts_over, NULL, NULL,
         (void *)models[0]},
        {"fixture: many in a small pool", test_many_in_a_small_pool, NULL, NULL, (void *)models[0]},
        {"fixture: many with a host tier", test_many_with_a_host_tier, NULL, NULL,
         (void *)models[0]},
        {"fixture: forks do not shut the door", test_forks_do_not_shut_the_door, NULL, NULL,
         (void *)models[0]},
        {"fixture: freed blocks are poisoned", test_freed_blocks_are_poisoned, NULL, NULL,
         (void *)models[0]},
        {"demo: a common prompt", test_common_prompt, NULL, NULL, (void *)models[1]},
        {"demo: a running donor", test_running_donor, NULL, NULL, (void *)models[1]},
        {"demo: a wrapped donor", test_wrapped_donor, NULL, NULL, (void *)models[1]},
        {"int8 cache: a common prompt", test_common_prompt, runner_with_int8, runner_with_auto,
         (void *)models[0]},
        {"int8 cache: a wrapped donor", test_wrapped_donor, runner_with_int8, runner_with_auto,
         (void *)models[0]},
        {"int8 cache: freed blocks are poisoned", test_freed_blocks_are_poisoned, runner_with_int8,
         runner_with_auto, (void *)models[0]},
        {"fp8 cache: a common prompt", test_common_prompt, runner_with_fp8, runner_with_auto,
         (void *)models[0]},
        {"fp8 cache: freed blocks are poisoned", test_freed_blocks_are_poisoned, runner_with_fp8,
         runner_with_auto, (void *)models[0]},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
