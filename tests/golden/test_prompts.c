// Prompt learning against transformers and PEFT (tests/fixtures/prompts, make_prompts.py): virtual
// tokens before and amid a text, prefixes, windows, chunks, turns with an eviction between; and that
// the same virtual ids of two tables never share a cache.
#include "tests/golden/model_golden.h"
#include "tests/unit/tmp_dir.h"

enum { N_VIRTUAL = 5, N_TOKENS = 43, STRIDE = 10 };

struct fixture {
    char model[128], dir[128];
    struct safetensors *golden;
    const int32_t *ids; // (N_TOKENS)
};

static void fixture_open(struct fixture *f, const char *family) {
    snprintf(f->model, sizeof f->model, "tests/fixtures/models/%s", family);
    snprintf(f->dir, sizeof f->dir, "tests/fixtures/prompts/%s", family);
    f->golden = golden_open(f->dir, N_TOKENS, &f->ids);
}

static struct prompt *table(const struct fixture *f, const struct engine *e, const char *kind) {
    char path[192];
    struct err err = {0};
    struct prompt *p;
    snprintf(path, sizeof path, "%s/%s", f->dir, kind);
    if (engine_prompt_load(e, path, &p, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(p->n_rows, N_VIRTUAL);
    return p;
}

// The log of a golden result, by the word before any underscore.
static int64_t log_of(const struct fixture *f, const char *kind, int32_t *log) {
    static const struct { int at, row; } amid[] = {{7, 2}, {8, 0}, {20, 1}, {46, 2}};
    int64_t n = 0;
    if (strcmp(kind, "virtual") != 0) {
        for (int32_t i = 0; i < N_VIRTUAL; i++) log[n++] = PROMPT_ID_FIRST + i;
        for (int32_t i = 0; i < N_TOKENS; i++) log[n++] = f->ids[i];
        return n;
    }
    for (int32_t i = 0, k = 0; i < N_TOKENS || k < 4; n++) {
        if (k < 4 && amid[k].at == n)
            log[n] = PROMPT_ID_FIRST + amid[k++].row;
        else
            log[n] = f->ids[i++];
    }
    return n;
}

static void compare(const char *what, const struct rows *rows, int64_t first,
                    const struct tensor *t) {
    const float *want = t->data;
    double worst = 0;
    int64_t n = t->shape[0], cols = t->shape[1];
    assert_int_equal(cols, rows->vocab / STRIDE);
    double unit = spread(want, (size_t)(n * cols));
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < cols; c++) {
            float got = rows->data[(first + r) * rows->vocab + c * STRIDE];
            assert_true(isfinite(got));
            worst = fmax(worst, fabs((double)got - want[r * cols + c]));
        }
    check_off(what, worst, unit);
}

static void score(struct engine *e, uint64_t sequence, const struct prompt *p, const int32_t *log,
                  int64_t n, int32_t memory_len, int32_t sink_len, struct rows *rows,
                  struct outcome *o) {
    struct engine_turn turn = turn_for(e, sequence, log, n, memory_len, sink_len);
    turn.score_only = true;
    turn.prompt = p;
    turn.on_logits = rows_keep;
    turn.on_logits_ctx = rows;
    run_turn(e, &turn, o);
    assert_int_equal(o->finish, FINISH_LENGTH);
}

static void test_logits(void **state) {
    static const int32_t chunks[] = {64, 1, 7, 3};
    static int32_t log[MAX_LOG];
    struct fixture f;
    struct outcome o;
    fixture_open(&f, *state);
    int n_checked = 0;
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        struct engine *e = engine_for(f.model, chunks[c], 8, 0);
        for (size_t i = 0; i < safetensors_count(f.golden); i++) {
            const struct tensor *t = safetensors_at(f.golden, i);
            char kind[32], what[256];
            int memory_len = 0, sink_len = 0;
            if (strcmp(t->name, "input_ids") == 0) continue;
            snprintf(kind, sizeof kind, "%.*s", (int)strcspn(t->name, "_"), t->name);
            if (strchr(t->name, '_'))
                assert_int_equal(sscanf(strchr(t->name, '_'), "_m%d_s%d", &memory_len, &sink_len),
                                 2);
            bool amid = strcmp(kind, "virtual") == 0;
            struct prompt *p = table(&f, e, amid ? "ptuning" : kind);
            struct rows rows = rows_new(e->info.n_vocab);
            int64_t n = log_of(&f, kind, log);
            score(e, 1, p, log, n, memory_len, sink_len, &rows, &o);
            assert_int_equal(rows.n_seen, t->shape[0]);
            snprintf(what, sizeof what, "%s %s in chunks of %d", f.model, t->name, chunks[c]);
            compare(what, &rows, prompt_n_prefix(p), t);
            release(e, 1);
            free(rows.data);
            prompt_free(p);
            n_checked++;
        }
        engine_close(e);
    }
    assert_true(n_checked >= 4 * 12);
    safetensors_close(f.golden);
}

// Turns with an eviction before the last: the same bits as in one turn.
static void turns_of(const struct fixture *f, const char *kind) {
    static int32_t log[MAX_LOG];
    struct engine *e = engine_for(f->model, 9, 8, 0);
    struct prompt *p = table(f, e, kind);
    struct rows whole = rows_new(e->info.n_vocab), parts = rows_new(e->info.n_vocab);
    struct outcome o;
    int64_t n = log_of(f, kind, log);
    score(e, 1, p, log, n, 16, 5, &whole, &o);
    score(e, 2, p, log, 11, 16, 5, &parts, &o);
    assert_int_equal(o.source, CACHE_NONE);
    score(e, 2, p, log, 31, 16, 5, &parts, &o);
    assert_int_equal(o.n_cached, 11);
    release(e, 2);
    score(e, 2, p, log, n, 16, 5, &parts, &o);
    assert_int_equal(o.n_cached, 0);
    if (test_is_exact())
        assert_memory_equal(whole.data, parts.data, (size_t)(n * whole.vocab) * sizeof(float));
    free(whole.data);
    free(parts.data);
    prompt_free(p);
    engine_close(e);
}

static void test_turns(void **state) {
    struct fixture f;
    fixture_open(&f, *state);
    turns_of(&f, "soft");
    turns_of(&f, "prefix");
    safetensors_close(f.golden);
}

// Two tasks and none, with equal ids, in one group that shares blocks and in one sequence.
static void test_tables_share_nothing(void **state) {
    static int32_t log[MAX_LOG];
    struct fixture f;
    struct outcome o;
    fixture_open(&f, *state);
    struct engine *e = engine_for(f.model, 64, 8, 0);
    struct prompt *soft = table(&f, e, "soft"), *other = table(&f, e, "other");
    struct prompt *again = table(&f, e, "soft");
    struct rows rows = rows_new(e->info.n_vocab);
    int64_t n = log_of(&f, "soft", log);
    assert_false(sequence_same_prompt(soft->hash, other->hash));
    assert_true(sequence_same_prompt(soft->hash, again->hash));
    const struct {
        uint64_t sequence;
        const struct prompt *p;
        const char *golden;
        int64_t n_cached, n_shared;
    } steps[] = {
        {1, soft, "soft", 0, 0},     {2, other, "other", 0, 0}, // another session of the group
        {1, other, "other", 40, 40}, // the same session with the other table: the blocks of 2
        {2, soft, "soft", 0, 0},     // both have dropped the first table's
        {3, again, "soft", 40, 40},  // equal contents, loaded apart
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct engine_turn turn = turn_for(e, steps[i].sequence, log, n, 0, 0);
        turn.score_only = true;
        turn.share_group = 7;
        turn.prompt = steps[i].p;
        turn.on_logits = rows_keep;
        turn.on_logits_ctx = &rows;
        memset(rows.data, 0, (size_t)(n * rows.vocab) * sizeof(float));
        run_turn(e, &turn, &o);
        assert_int_equal(o.n_cached, steps[i].n_cached);
        assert_int_equal(o.n_shared, steps[i].n_shared);
        struct tensor last = *safetensors_find(f.golden, steps[i].golden);
        int64_t skip = steps[i].n_cached; // rows that the cache had
        last.data = (const float *)last.data + skip * last.shape[1];
        last.shape[0] -= skip;
        compare(steps[i].golden, &rows, skip, &last);
    }
    prompt_free(soft);
    prompt_free(other);
    prompt_free(again);
    free(rows.data);
    engine_close(e);
    safetensors_close(f.golden);
}

static void drain(struct engine *e) {
    struct engine_event ev;
    engine_stop(e);
    while (engine_round(e)) continue;
    while (engine_poll(e, &ev) == 1) continue;
    engine_close(e);
}

// run_turn, past the events of snapshots that are written or removed.
static void run_beside_snapshots(struct engine *e, struct engine_turn *t, struct outcome *o) {
    struct engine_event ev;
    memset(o, 0, sizeof *o);
    submit(e, t);
    for (int rounds = 0; !o->done; rounds++) {
        assert_true(rounds < 10000000);            // a thread reads the file
        e->core.caches.tiers.prefill_rate = 1e-12; // computing is slower than any copy
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1)
            if (ev.kind != ENGINE_SNAPSHOT) outcome_take(o, &ev);
    }
}

// A snapshot is read after a restart under its own table, and refused under another.
static void test_snapshots(void **state) {
    static int32_t log[MAX_LOG];
    static const char *const kinds[] = {"soft", "prefix"};
    struct fixture f;
    fixture_open(&f, *state);
    for (int k = 0; k < 2; k++) {
        for (int same = 0; same < 2; same++) {
            struct tmp_dir dir;
            tmp_dir_open(&dir);
            runner_snapshots = dir.path;
            int64_t n = log_of(&f, kinds[k], log);
            for (int run = 0; run < 2; run++) {
                struct engine *e = engine_for(f.model, 64, 8, 0);
                struct prompt *p = table(&f, e, run == 0 || same ? kinds[k] : "other");
                struct outcome o;
                struct engine_turn turn = turn_for(e, 1, log, n, 0, 0);
                turn.sampling.max_tokens = 3;
                turn.prompt = p;
                turn.lasting_id = "session";
                run_beside_snapshots(e, &turn, &o);
                if (run == 1) assert_int_equal(o.source, same ? CACHE_SNAPSHOT : CACHE_NONE);
                if (run == 1 && !same) assert_int_equal(o.n_cached, 0);
                engine_save_at_stop(e);
                prompt_free(p); // the engine needs no table for what it has cached
                drain(e);
            }
            tmp_dir_close(&dir);
        }
    }
    runner_snapshots = NULL;
    safetensors_close(f.golden);
}

static struct engine_event wait_for(struct engine *e, uint64_t sequence,
                                    enum engine_event_kind kind) {
    struct engine_event ev = {0};
    for (int rounds = 0; rounds < 10000000; rounds++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1)
            if (ev.sequence == sequence && ev.kind == kind) return ev;
    }
    fail_msg("sequence %d: nothing happened", (int)sequence);
    return ev;
}

// A turn with a table over n tokens of the log draws what a fresh sequence draws, out of this cache.
static void draws_right(struct engine *e, struct engine *calm, uint64_t sequence,
                        const struct prompt *p, const int32_t *log, int64_t n,
                        enum engine_cache_source source, int64_t n_cached) {
    enum { DRAW = 6 };
    static struct outcome out, alone;
    struct engine_turn t = turn_for(e, sequence, log, n, 24, 5);
    struct engine_turn same = turn_for(calm, 1, log, n, 24, 5);
    t.prompt = same.prompt = p;
    t.n_input = 3;
    t.sampling.max_tokens = same.sampling.max_tokens = DRAW;
    run_beside_snapshots(e, &t, &out);
    run_turn(calm, &same, &alone);
    release(calm, 1);
    assert_int_equal(out.finish, FINISH_LENGTH);
    assert_int_equal(out.source, source);
    assert_int_equal(out.n_cached, n_cached);
    if (!test_is_exact()) return;
    assert_memory_equal(out.ids, alone.ids, DRAW * sizeof *out.ids);
    assert_memory_equal(out.logprobs, alone.logprobs, DRAW * sizeof *out.logprobs);
}

// Copies in host memory and forks, in a window that has moved on, are of their own table alone.
static void test_parked_and_forked(void **state) {
    static int32_t log[MAX_LOG];
    static const char *const kinds[] = {"soft", "prefix"};
    enum { FIRST = 34, NEXT = 38 };
    struct fixture f;
    struct outcome o;
    fixture_open(&f, *state);
    for (int k = 0; k < 2; k++) {
        struct engine *calm = engine_for(f.model, 64, 8, 0);
        runner_host_bytes = INT64_C(64) << 20;
        struct engine *e = engine_for(f.model, 9, 8, 0);
        runner_host_bytes = 0;
        struct prompt *p = table(&f, e, kinds[k]), *other = table(&f, e, "other");
        log_of(&f, kinds[k], log);
        for (uint64_t sequence = 1; sequence <= 3; sequence++) {
            struct engine_turn t = turn_for(e, sequence, log, FIRST, 24, 5);
            t.score_only = true;
            t.prompt = p;
            run_beside_snapshots(e, &t, &o);
            engine_sequence_park(e, sequence);
            (void)wait_for(e, sequence, ENGINE_PARKED);
        }
        assert_int_equal(engine_sequence_fork(e, 3, 4, FIRST), 0);
        assert_int_equal(wait_for(e, 4, ENGINE_FORKED).n_cached, FIRST);
        assert_int_equal(engine_sequence_fork(e, 3, 5, FIRST), 0);
        (void)wait_for(e, 5, ENGINE_FORKED);
        draws_right(e, calm, 1, p, log, NEXT, CACHE_HOST, FIRST);
        draws_right(e, calm, 2, other, log, NEXT, CACHE_RECOMPUTED, 0); // equal ids
        draws_right(e, calm, 4, p, log, NEXT, CACHE_HOST, FIRST);
        draws_right(e, calm, 5, other, log, NEXT, CACHE_RECOMPUTED, 0);
        draws_right(e, calm, 3, NULL, log + 5, NEXT - 5, CACHE_RECOMPUTED, 0); // and none
        prompt_free(p);
        prompt_free(other);
        drain(e);
        drain(calm);
    }
    safetensors_close(f.golden);
}

static void refused(struct engine *e, struct engine_turn *t, int code, const char *says) {
    struct err err = {0};
    assert_int_equal(engine_turn_submit(e, t, &err), code);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
    free(t->ids);
}

static void test_bad_turns(void **state) {
    static int32_t log[MAX_LOG];
    struct fixture f;
    struct err err = {0};
    struct prompt *p;
    fixture_open(&f, *state);
    struct engine *e = engine_for(f.model, 64, 8, 0);
    struct prompt *soft = table(&f, e, "soft"), *prefix = table(&f, e, "prefix");
    int64_t n = log_of(&f, "soft", log);
    struct engine_turn t = turn_for(e, 1, log, n, 0, 0);
    refused(e, &t, E_INVAL, "vocabulary"); // without a table
    log[9] = PROMPT_ID_FIRST + N_VIRTUAL;
    t = turn_for(e, 1, log, n, 0, 0);
    t.prompt = soft;
    refused(e, &t, E_INVAL, "position 9");
    log[9] = PROMPT_ID_FIRST + 1; // of a prefix, at another place
    t = turn_for(e, 1, log, n, 0, 0);
    t.prompt = prefix;
    refused(e, &t, E_INVAL, "position 9");
    t = turn_for(e, 1, log, N_VIRTUAL, 0, 0);
    t.prompt = prefix;
    refused(e, &t, E_INVAL, "prefix");
    t = turn_for(e, 1, log + 1, 6, 0, 0);
    t.prompt = prefix;
    refused(e, &t, E_INVAL, "position 0");
    assert_true(engine_prompt_load(e, "tests/fixtures/prompts", &p, &err) < 0);
    assert_non_null(strstr(err.text, "adapter_config.json"));
    prompt_free(soft);
    prompt_free(prefix);
    engine_close(e);
    safetensors_close(f.golden);
}

int main(void) {
    enum { KINDS = 5 };
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } kinds[KINDS] = {{"logits", test_logits},
                      {"turns", test_turns},
                      {"tables share nothing", test_tables_share_nothing},
                      {"snapshots", test_snapshots},
                      {"parked and forked", test_parked_and_forked}};
    struct CMUnitTest tests[N_FAMILIES * KINDS + 1];
    static char names[N_FAMILIES * KINDS][64];
    int n = 0;
    for (int f = 0; f < N_FAMILIES; f++)
        for (int k = 0; k < KINDS; k++, n++) {
            snprintf(names[n], sizeof names[n], "%s: %s", families[f], kinds[k].name);
            tests[n] = (struct CMUnitTest){names[n], kinds[k].run, NULL, NULL,
                                           (void *)(uintptr_t)families[f]};
        }
    tests[n] = (struct CMUnitTest){"turns that are refused", test_bad_turns, NULL, NULL,
                                   (void *)(uintptr_t)families[0]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
