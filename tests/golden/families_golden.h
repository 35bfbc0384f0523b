// The tests of a family against its reference results in tests/fixtures/models or tests/fixtures/later: the logits of a
// 96-token text, plain and under each window, whatever the chunk; greedy text; a session of four turns on one cache;
// greedy under each window. A test's state is the family's name, its folder in tests/fixtures, or a folder by its whole
// path.
#pragma once
#include "tests/golden/model_golden.h"

enum { N_TOKENS = 96 };

struct fixture {
    char dir[128];
    cJSON *golden;
    struct safetensors *tensors;
    const int32_t *ids; // (N_TOKENS)
};

// The longest session with the rotary frequencies for short texts (longrope) of the model that was opened last; 0: none.
static int64_t short_len;

static void fixture_open(struct fixture *f, const char *family) {
    static struct model_config config;
    char path[192];
    struct err err = {0};
    const char *in = strchr(family, '/') ? "tests/fixtures/" : "tests/fixtures/models/";
    snprintf(f->dir, sizeof f->dir, "%s%s", family[0] == '/' ? "" : in, family);
    snprintf(path, sizeof path, "%s/golden.json", f->dir);
    f->golden = json_parse_file(path, &json_limits_file, &err);
    if (!f->golden) fail_msg("%s", err.text);
    f->tensors = golden_open(f->dir, N_TOKENS, &f->ids);
    assert_int_equal(model_config_load(&config, f->dir, NULL), 0);
    short_len = config.ropes[0].short_len;
}

static void fixture_close(struct fixture *f) {
    cJSON_Delete(f->golden);
    safetensors_close(f->tensors);
}

static void compare_logits(const char *what, const float *got, const float *want, size_t n) {
    double worst = 0, unit = spread(want, n);
    for (size_t i = 0; i < n; i++) {
        assert_true(isfinite(got[i]));
        worst = fmax(worst, fabs((double)got[i] - want[i]));
    }
    check_off(what, worst, unit);
}

// The rows that the fixture holds out of all that were computed: all; in `later` the last ones; else each so many-th.
static const float *stored_rows(const struct fixture *f, const struct rows *rows,
                                const struct tensor *t, float *kept) {
    const int64_t n = t->shape[0], step = N_TOKENS / n, vocab = rows->vocab;
    if (strstr(f->dir, "/later/")) return rows->data + (N_TOKENS - n) * vocab;
    assert_int_equal(n * step, N_TOKENS);
    for (int64_t i = 0; step > 1 && i < n; i++)
        memcpy(kept + i * vocab, rows->data + (i * step + step - 1) * vocab,
               (size_t)vocab * sizeof *kept);
    return step > 1 ? kept : rows->data;
}

// One variant of the 96 logits (memory_len 0: plain), in chunks of `chunk`.
static void check_variant(const struct fixture *f, const struct tensor *t, int32_t memory_len,
                          int32_t sink_len, int32_t chunk, const float *same_bits) {
    struct engine *e = engine_for(f->dir, chunk, 8, 0);
    struct rows rows = rows_new(e->info.n_vocab);
    struct outcome o;
    struct engine_turn turn = turn_for(e, 1, f->ids, N_TOKENS, memory_len, sink_len);
    turn.score_only = true;
    turn.on_logits = rows_keep;
    turn.on_logits_ctx = &rows;
    run_turn(e, &turn, &o);
    assert_int_equal(o.finish, FINISH_LENGTH);
    assert_int_equal(rows.n_seen, N_TOKENS);
    assert_int_equal(rows.last, N_TOKENS - 1);
    char what[256];
    snprintf(what, sizeof what, "%s %s in chunks of %d", f->dir, t->name, chunk);
    size_t n = (size_t)N_TOKENS * (size_t)rows.vocab;
    float *kept = malloc(n * sizeof *kept);
    assert_non_null(kept);
    compare_logits(what, stored_rows(f, &rows, t, kept), t->data, t->bytes / sizeof(float));
    free(kept);
    if (same_bits && test_is_exact() && memcmp(rows.data, same_bits, n * sizeof(float)) != 0)
        fail_msg("%s: other bits", what);
    if (same_bits) free(rows.data);
    engine_close(e);
    if (same_bits) return;
    static const int32_t chunks[] = {1, 7, 32, 95};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        check_variant(f, t, memory_len, sink_len, chunks[i], rows.data);
    }
    free(rows.data);
}

static const cJSON *windows_of(const struct fixture *f) {
    return cJSON_GetObjectItemCaseSensitive(f->golden, "windows");
}

static void test_logits(void **state) {
    struct fixture f = {0};
    fixture_open(&f, *state);
    int n_variants = 0;
    for (size_t i = 0; i < safetensors_count(f.tensors); i++) {
        const struct tensor *t = safetensors_at(f.tensors, i);
        int memory_len = 0, sink_len = 0;
        if (strncmp(t->name, "logits", 6) != 0) continue;
        if (t->name[6] != '\0')
            assert_int_equal(sscanf(t->name, "logits_m%d_s%d", &memory_len, &sink_len), 2);
        check_variant(&f, t, memory_len, sink_len, 96, NULL);
        n_variants++;
    }
    assert_true(n_variants >= (cJSON_GetArraySize(windows_of(&f)) ? 2 : 1));
    fixture_close(&f);
}

// One greedy turn behind log; appends what it draws to the log. Where the fixture says that the
// lead of the best logit is clear, ids must be equal; where it is not, the reference's own
// continuation is scored instead, and each of its tokens must have been as good as the best.
static int64_t check_greedy(const char *what, struct engine *e, uint64_t sequence, int32_t *log,
                            int64_t n, int64_t n_input, const cJSON *want_ids, double gap,
                            int32_t memory_len, int32_t sink_len) {
    static int32_t want[MAX_LOG];
    int64_t n_want = json_ids(want_ids, want);
    struct outcome o;
    struct engine_turn turn = turn_for(e, sequence, log, n, memory_len, sink_len);
    turn.n_input = n_input;
    turn.sampling.max_tokens = (int32_t)n_want;
    // The reference has the frequencies of the text's length; a session those of its own bound.
    if (n + n_want <= short_len) turn.session_len = short_len;
    run_turn(e, &turn, &o);
    assert_int_equal(o.n, n_want);
    memcpy(log + n, want, (size_t)n_want * sizeof *want);
    if (gap >= 1e-3) {
        for (int64_t i = 0; i < n_want; i++) {
            if (o.ids[i] != want[i])
                fail_msg("%s: token %lld is %d, not %d", what, (long long)i, o.ids[i], want[i]);
        }
        return n + n_want;
    }
    struct rows rows = rows_new(e->info.n_vocab);
    turn = turn_for(e, sequence + 1000, log, n + n_want, memory_len, sink_len);
    turn.score_only = true;
    turn.on_logits = rows_keep;
    turn.on_logits_ctx = &rows;
    run_turn(e, &turn, &o);
    for (int64_t p = n; p < n + n_want; p++) {
        const float *row = rows.data + (p - 1) * rows.vocab;
        float best = row[0];
        for (int32_t i = 1; i < rows.vocab; i++) best = fmaxf(best, row[i]);
        if (best - row[log[p]] > gap + 2e-3)
            fail_msg("%s: token %lld is no near tie", what, (long long)(p - n));
    }
    free(rows.data);
    return n + n_want;
}

static double gap_of(const cJSON *object) {
    const cJSON *gap = cJSON_GetObjectItemCaseSensitive(object, "min_top2_gap");
    assert_non_null(gap);
    return gap->valuedouble;
}

static void test_greedy(void **state) {
    struct fixture f = {0};
    static int32_t log[MAX_LOG];
    fixture_open(&f, *state);
    const cJSON *g = cJSON_GetObjectItemCaseSensitive(f.golden, "greedy");
    struct engine *e = engine_for(f.dir, 32, 8, 0);
    int64_t n = json_log(g, "prompt", log);
    check_greedy(f.dir, e, 1, log, n, n, cJSON_GetObjectItemCaseSensitive(g, "output"), gap_of(g),
                 0, 0);
    engine_close(e);
    fixture_close(&f);
}

static void test_four_turns_on_one_cache(void **state) {
    struct fixture f = {0};
    static int32_t log[MAX_LOG];
    fixture_open(&f, *state);
    struct engine *e = engine_for(f.dir, 8, 16, 0);
    int64_t n = 0;
    for (const cJSON *t = cJSON_GetObjectItemCaseSensitive(f.golden, "turns")->child; t;
         t = t->next) {
        int64_t before = n;
        n += json_log(t, "context", log + n);
        n = check_greedy("turns", e, 1, log, n, n - before,
                         cJSON_GetObjectItemCaseSensitive(t, "generated"), gap_of(t), 0, 0);
    }
    assert_true(n > 60);
    engine_close(e);
    fixture_close(&f);
}

static void test_windows(void **state) {
    struct fixture f = {0};
    static int32_t log[MAX_LOG];
    fixture_open(&f, *state);
    const cJSON *w;
    cJSON_ArrayForEach(w, windows_of(&f)) {
        int64_t memory_len, sink_len, n = json_log(w, "prompt", log);
        assert_int_equal(json_get_int(w, "memory_len", 1, 1000, &memory_len, NULL), JSON_PRESENT);
        assert_int_equal(json_get_int(w, "sink_len", 0, 1000, &sink_len, NULL), JSON_PRESENT);
        struct engine *e = engine_for(f.dir, 9, 8, 0);
        check_greedy("windows", e, 1, log, n, n, cJSON_GetObjectItemCaseSensitive(w, "greedy"),
                     gap_of(w), (int32_t)memory_len, (int32_t)sink_len);
        engine_close(e);
    }
    fixture_close(&f);
}
