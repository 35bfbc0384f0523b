// A cache of 8 bits in every family: its bits depend neither on chunks nor on turns, plain and
// under a window; and the logits are off from those of an F32 cache by no more than was measured
// when the bounds were set. (Company, eviction, forks, equal prompts and parking with such a cache:
// test_invariants.c, test_fork.c, test_sharing.c, test_tiers.c.)
#include "tests/golden/runner.h"
#include "tests/random_walk.h"

enum { N_TOKENS = 96 };

// How far off the logits may be, root mean square in units of their spread: half as much again as
// was measured on the CPU. The models are small and random: what has learned something loses less
// (tests/e2e/kv_dtype.test.mjs has the demo model's bounds).
static const struct family {
    const char *name;
    double int8, fp8;
} families[] = {{"llama", 0.037, 0.18},
                {"mistral", 0.036, 0.18},
                {"qwen2", 0.032, 0.17},
                {"qwen3", 0.019, 0.078},
                {"gpt2", 0.0043, 0.022},
                {"gptj", 0.013, 0.06},
                {"gpt_neox", 0.0115, 0.05},
                {"bloom", 0.017, 0.078},
                {"opt", 0.0115, 0.06},
                {"xglm", 0.0062, 0.031},
                {"gpt_oss", 0.155, 0.55},
                {"later/gemma3_scaled", 0.029, 0.152},
                {"later/gemma4_e", 0.0205, 0.109},
                {"later/glm4_moe_lite", 0.172, 0.44}};
enum { N_FAMILIES = sizeof families / sizeof *families };

static struct rows logits_of(const char *path, int kv, const int32_t *ids, int32_t memory_len,
                             int32_t sink_len, int32_t chunk, int32_t turn_len) {
    static struct outcome o;
    runner_kv = kv;
    struct engine *e = engine_for(path, chunk, 8, 0);
    runner_kv = RUNNER_KV_AUTO;
    struct rows rows = rows_new(e->info.n_vocab);
    for (int32_t n = 0; n < N_TOKENS;) {
        n = N_TOKENS - n < turn_len ? N_TOKENS : n + turn_len;
        struct engine_turn turn = turn_for(e, 1, ids, n, memory_len, sink_len);
        turn.score_only = true;
        turn.on_logits = rows_keep;
        turn.on_logits_ctx = &rows;
        run_turn(e, &turn, &o);
        assert_int_equal(o.finish, FINISH_LENGTH);
    }
    engine_close(e);
    return rows;
}

static double distance(const struct rows *got, const struct rows *want) {
    int64_t n = (int64_t)N_TOKENS * got->vocab;
    double sum = 0, squares = 0, off = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got->data[i] - want->data[i];
        sum += want->data[i];
        squares += (double)want->data[i] * want->data[i];
        off += d * d;
    }
    return sqrt(off / (squares - sum / (double)n * sum));
}

static void check(const char *path, int kv, const int32_t *ids, int32_t memory_len,
                  int32_t sink_len, double *off) {
    static const int32_t chunks[] = {1, 7, 32, 95}, turns[] = {N_TOKENS, 13, N_TOKENS, 40};
    struct rows exact =
        logits_of(path, RUNNER_KV_AUTO, ids, memory_len, sink_len, N_TOKENS, N_TOKENS);
    struct rows got = logits_of(path, kv, ids, memory_len, sink_len, N_TOKENS, N_TOKENS);
    for (int i = 0; i < 4; i++) {
        struct rows same = logits_of(path, kv, ids, memory_len, sink_len, chunks[i], turns[i]);
        assert_memory_equal(same.data, got.data,
                            (size_t)N_TOKENS * (size_t)got.vocab * sizeof(float));
        free(same.data);
    }
    *off = distance(&got, &exact);
    free(got.data);
    free(exact.data);
}

static void test_family(void **state) {
    const struct family *f = *state;
    int32_t ids[N_TOKENS];
    char path[200];
    double off[2][2];
    snprintf(path, sizeof path, "tests/fixtures/%s%s", strchr(f->name, '/') ? "" : "models/",
             f->name);
    struct engine *e = engine_for(path, N_TOKENS, 8, 0);
    seed = 5;
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (int32_t)below((uint32_t)e->info.n_vocab);
    engine_close(e);
    for (int fp8 = 0; fp8 < 2; fp8++) {
        int kv = fp8 ? RUNNER_KV_FP8 : RUNNER_KV_INT8;
        check(path, kv, ids, 0, 0, &off[fp8][0]);
        check(path, kv, ids, 21, 3, &off[fp8][1]);
    }
    print_message("%s: off by %.5f of the spread with int8 (%.5f under a window), %.5f with fp8 "
                  "(%.5f)\n",
                  f->name, off[0][0], off[0][1], off[1][0], off[1][1]);
    for (int window = 0; window < 2; window++) {
        assert_true(off[0][window] > 0 && off[0][window] <= f->int8);
        assert_true(off[1][window] > 0 && off[1][window] <= f->fp8);
    }
}

// What the cache says that it takes is what 8 bits and their scales take, and the pool has so many
// more blocks of the same bytes.
static void test_sizes(void **state) {
    const char *path = "configs/demo-model";
    struct engine_info info[2];
    for (int i = 0; i < 2; i++) {
        runner_kv = i ? RUNNER_KV_INT8 : RUNNER_KV_AUTO;
        struct engine *e = engine_for(path, 64, 64, 64 << 20);
        info[i] = e->info;
        assert_int_equal(e->core.caches.stores.arena.block_bytes, e->info.block_bytes);
        assert_string_equal(engine_kv_dtype_name(e->info.kv_dtype),
                            i ? "int8" : dtype_name(e->backend->act_dtype));
        engine_close(e);
    }
    runner_kv = RUNNER_KV_AUTO;
    double size = (double)dtype_size(info[0].kv_dtype), dim = 64; // of the demo model's heads
    double want = (1 + 4 / dim) / size, ratio = (double)info[1].block_bytes / info[0].block_bytes;
    assert_true(fabs(ratio - want) < 0.01);
    assert_true(fabs((double)info[0].n_blocks / info[1].n_blocks - want) < 0.01);
}

int main(void) {
    struct CMUnitTest tests[N_FAMILIES + 1];
    for (int i = 0; i < N_FAMILIES; i++)
        tests[i] = (struct CMUnitTest){families[i].name, test_family, NULL, NULL,
                                       (void *)(uintptr_t)&families[i]};
    tests[N_FAMILIES] = (struct CMUnitTest){"sizes", test_sizes, NULL, NULL, NULL};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
