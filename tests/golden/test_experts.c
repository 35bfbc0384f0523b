// Families with experts against the reference results in tests/fixtures, with the tests that all families
// have (families_golden.h); their weights in 8 bits; ranks, by PARLEY_TEST_TP and PARLEY_TEST_PP, as all golden tests.
#include "engine/model/checkpoint.h"
#include "engine/model/model.h"
#include "tests/golden/families_golden.h"
#include "tests/unit/tmp_dir.h"

static const char *const expert_families[] = {"qwen3_moe",          "qwen2_moe", "mixtral",
                                              "glm4_moe",           "gpt_oss",   "later/gemma4_moe",
                                              "later/glm4_moe_lite"};
enum { N_EXPERT_FAMILIES = sizeof expert_families / sizeof *expert_families };

// The logits of all tokens, in chunks.
static struct rows logits_in(const char *dir, enum weight_format weights, const int32_t *ids,
                             int32_t chunk) {
    struct engine *e = engine_for_weights(dir, weights, chunk, 8, 0);
    struct rows rows = rows_new(e->info.n_vocab);
    struct outcome o;
    struct engine_turn turn = turn_for(e, 1, ids, N_TOKENS, 0, 0);
    turn.score_only = true;
    turn.on_logits = rows_keep;
    turn.on_logits_ctx = &rows;
    run_turn(e, &turn, &o);
    assert_int_equal(rows.n_seen, N_TOKENS);
    engine_close(e);
    return rows;
}

// Activations of 16 bits. A row that goes to another expert differs by more, so that the mean is bounded.
static void test_near(void **state) {
    struct fixture f = {0};
    fixture_open(&f, *state);
    const struct tensor *t = safetensors_find(f.tensors, "logits");
    struct rows got = logits_in(f.dir, WEIGHTS_OWN, f.ids, 32);
    const size_t n = t->bytes / sizeof(float);
    float *kept = malloc((size_t)N_TOKENS * (size_t)got.vocab * sizeof *kept);
    assert_non_null(kept);
    const float *rows = stored_rows(&f, &got, t, kept), *want = t->data;
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += pow((double)rows[i] - want[i], 2);
    const double rms = sqrt(squares / (double)n) / spread(want, n);
    if (getenv("PARLEY_TEST_SHOW")) print_message("%s: rms %.3g of the spread\n", f.dir, rms);
    assert_true(rms < 0.25);
    free(kept), free(got.data);
    fixture_close(&f);
}

// Weights of 8 bits: near the reference, as near as the rounding of so small a model allows (a row that goes to
// another expert differs by more, so that the mean is bounded), and the same bits in any chunks.
static void test_8bit(void **state) {
    static const double most[] = {[WEIGHTS_INT8] = 0.15, [WEIGHTS_FP8] = 0.5};
    struct fixture f = {0};
    fixture_open(&f, *state);
    struct rows want = logits_in(f.dir, WEIGHTS_OWN, f.ids, N_TOKENS);
    const size_t n = (size_t)N_TOKENS * (size_t)want.vocab;
    for (int w = WEIGHTS_INT8; w <= WEIGHTS_FP8; w++) {
        struct rows got = logits_in(f.dir, (enum weight_format)w, f.ids, N_TOKENS);
        struct rows parts = logits_in(f.dir, (enum weight_format)w, f.ids, 5);
        double squares = 0;
        for (size_t i = 0; i < n; i++)
            squares += ((double)got.data[i] - want.data[i]) * ((double)got.data[i] - want.data[i]);
        double rms = sqrt(squares / (double)n) / spread(want.data, n);
        if (getenv("PARLEY_TEST_SHOW")) print_message("%s %d: rms %.3g\n", f.dir, w, rms);
        if (!(rms > 0 && rms < most[w]))
            fail_msg("%s: rms %.3g with weights of 8 bits", f.dir, rms);
        same_bits(f.dir, &got, &parts, 0, N_TOKENS);
        free(got.data), free(parts.data);
    }
    free(want.data);
    fixture_close(&f);
}

static struct tmp_dir dir;

// --- all experts of a layer in one tensor ---

enum { LAYERS = 3, EXPERTS = 8, WIDTH = 48, HIDDEN = 64 }; // of the fixture qwen3_moe

static void add_tensor(struct tensor *list, size_t *n, const struct tensor *t) {
    list[(*n)++] = *t;
}

static struct tensor stacked(char name[64], int layer, const char *stem, int64_t rows,
                             int64_t cols) {
    snprintf(name, 64, "model.layers.%d.mlp.experts.%s", layer, stem);
    return (struct tensor){.name = name,
                           .dtype = DTYPE_BF16,
                           .n_dims = 3,
                           .shape = {EXPERTS, rows, cols},
                           .bytes = (size_t)(EXPERTS * rows * cols) * 2};
}

static void write_expert(struct safetensors_writer *w, const struct checkpoint *cp, int layer,
                         int e, const char *stem) {
    char name[96];
    struct err err = {0};
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.weight", layer, e, stem);
    const struct tensor *t = checkpoint_find(cp, name);
    assert_non_null(t);
    assert_int_equal(safetensors_write(w, t->data, t->bytes, &err), 0);
}

static void stack_experts(const char *from) {
    static char names[2 * LAYERS][64];
    struct tensor list[200];
    struct checkpoint *cp = NULL;
    struct safetensors_writer *w = NULL;
    struct err err = {0};
    size_t n = 0;
    assert_int_equal(checkpoint_open(&cp, from, &err), 0);
    for (size_t i = 0; i < checkpoint_count(cp); i++)
        if (!strstr(checkpoint_at(cp, i)->name, ".experts."))
            add_tensor(list, &n, checkpoint_at(cp, i));
    const size_t n_others = n;
    for (int l = 0; l < LAYERS; l++) {
        const struct tensor up = stacked(names[2 * l], l, "gate_up_proj", 2 * WIDTH, HIDDEN);
        const struct tensor down = stacked(names[2 * l + 1], l, "down_proj", HIDDEN, WIDTH);
        add_tensor(list, &n, &up);
        add_tensor(list, &n, &down);
    }
    assert_int_equal(safetensors_create(&w, tmp_path(&dir, "model.safetensors"), list, n, &err), 0);
    for (size_t i = 0; i < n_others; i++)
        assert_int_equal(safetensors_write(w, list[i].data, list[i].bytes, &err), 0);
    for (int l = 0; l < LAYERS; l++) {
        for (int e = 0; e < EXPERTS; e++) {
            write_expert(w, cp, l, e, "gate_proj");
            write_expert(w, cp, l, e, "up_proj");
        }
        for (int e = 0; e < EXPERTS; e++) write_expert(w, cp, l, e, "down_proj");
    }
    assert_int_equal(safetensors_finish(w, &err), 0);
    checkpoint_close(cp);
    tmp_copy(&dir, from, "config.json");
}

// Both forms of a file give the same bits, also with weights of 8 bits.
static void test_stacked(void **state) {
    struct fixture f = {0};
    fixture_open(&f, "qwen3_moe");
    tmp_dir_open(&dir);
    stack_experts(f.dir);
    for (int w = WEIGHTS_OWN; w <= WEIGHTS_FP8; w++) {
        struct rows one = logits_in(f.dir, (enum weight_format)w, f.ids, 32);
        struct rows all = logits_in(dir.path, (enum weight_format)w, f.ids, 32);
        same_bits("experts in one tensor", &one, &all, 0, N_TOKENS);
        free(one.data), free(all.data);
    }
    tmp_dir_close(&dir);
    fixture_close(&f);
}

// --- a router's logits that are no numbers ---

enum { BAD_TOKEN = 17 };

// The fixture with an embedding of one token that holds NaNs.
static void write_with_nan(const char *from) {
    struct tensor list[200];
    struct checkpoint *cp = NULL;
    struct safetensors_writer *w = NULL;
    struct err err = {0};
    size_t n = 0;
    assert_int_equal(checkpoint_open(&cp, from, &err), 0);
    for (size_t i = 0; i < checkpoint_count(cp); i++) add_tensor(list, &n, checkpoint_at(cp, i));
    assert_int_equal(safetensors_create(&w, tmp_path(&dir, "model.safetensors"), list, n, &err), 0);
    for (size_t i = 0; i < n; i++) {
        const bool embeds = strcmp(list[i].name, "model.embed_tokens.weight") == 0;
        uint16_t *copy = malloc(list[i].bytes);
        assert_non_null(copy);
        memcpy(copy, list[i].data, list[i].bytes);
        for (int k = 0; embeds && k < HIDDEN; k++) copy[BAD_TOKEN * HIDDEN + k] = 0x7fc0; // BF16
        assert_int_equal(safetensors_write(w, copy, list[i].bytes, &err), 0);
        free(copy);
    }
    assert_int_equal(safetensors_finish(w, &err), 0);
    checkpoint_close(cp);
    tmp_copy(&dir, from, "config.json");
}

// Its turn ends with an error; another one in the same steps has the bits that it has alone.
static void test_nan(void **state) {
    static struct outcome bad, good, alone;
    static const int32_t words[] = {3, 4, 5, BAD_TOKEN, 6};
    struct fixture f = {0};
    struct engine_event ev;
    fixture_open(&f, "qwen3_moe");
    tmp_dir_open(&dir);
    write_with_nan(f.dir);
    for (int32_t i = 0; i < 24; i++) assert_int_not_equal(f.ids[i], BAD_TOKEN);
    struct engine *e = engine_for(dir.path, 16, 8, 0);
    struct engine_turn one = turn_for(e, 1, words, 5, 0, 0), two = turn_for(e, 2, f.ids, 24, 0, 0);
    one.sampling.max_tokens = two.sampling.max_tokens = 8;
    memset(&bad, 0, sizeof bad), memset(&good, 0, sizeof good);
    submit(e, &one);
    submit(e, &two);
    while (!bad.done || !good.done) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) outcome_take(ev.sequence == 1 ? &bad : &good, &ev);
    }
    assert_int_equal(bad.finish, FINISH_ERROR);
    assert_int_equal(bad.n, 0);
    assert_int_equal(good.finish, FINISH_LENGTH);
    struct engine_turn again = turn_for(e, 3, f.ids, 24, 0, 0);
    again.sampling.max_tokens = 8;
    run_turn(e, &again, &alone);
    assert_int_equal(alone.n, good.n);
    assert_memory_equal(alone.ids, good.ids, (size_t)good.n * sizeof *good.ids);
    engine_close(e);
    tmp_dir_close(&dir);
    fixture_close(&f);
}

// --- files that are refused ---

// Replaces `from` by as many bytes in a file of the folder.
static void patch(const char *file, const char *from, const char *to) {
    char *bytes;
    FILE *f = fopen(tmp_path(&dir, file), "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    const size_t n = (size_t)ftell(f), len = strlen(from);
    rewind(f);
    bytes = malloc(n);
    assert_int_equal(fread(bytes, 1, n, f), n);
    fclose(f);
    char *at = memmem(bytes, n, from, len);
    if (!at) fail_msg("%s has no %s", file, from);
    assert_int_equal(strlen(to), len);
    memcpy(at, to, len);
    tmp_write(&dir, file, bytes, n);
    free(bytes);
}

static void refuses(const char *family, const char *file, const char *from, const char *to,
                    const char *sentence) {
    char path[128];
    struct model *m = NULL;
    struct backend *be;
    struct err err = {0};
    snprintf(path, sizeof path, "tests/fixtures/models/%s", family);
    tmp_copy(&dir, path, "config.json");
    tmp_copy(&dir, path, "model.safetensors");
    patch(file, from, to);
    assert_int_equal(backend_cpu_open(&be, 1, NULL, &err), 0);
    const struct model_load_options o = {.dir = dir.path, .backend = be, .split = &split_single};
    assert_true(model_load(&m, &o, &err) < 0);
    if (!strstr(err.text, sentence)) fail_msg("'%s' does not say '%s'", err.text, sentence);
    be->ops->close(be);
}

static void test_refused(void **state) {
    tmp_dir_open(&dir);
    refuses("qwen3_moe", "config.json", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9",
            "'num_experts_per_tok' is 9 of 8 experts");
    refuses("qwen3_moe", "config.json", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\":-1",
            "'num_experts_per_tok'");
    refuses("qwen3_moe", "config.json", "\"num_local_experts\": 8", "\"num_local_experts\": 7",
            "'model.layers.0.mlp.gate.weight' has the shape (8, 64), not (7, 64)");
    refuses("qwen3_moe", "config.json", "\"num_local_experts\": 8", "\"num_other_experts\": 8",
            "'num_experts' is missing");
    refuses("qwen3_moe", "config.json", "\"moe_intermediate_size\": 48",
            "\"moe_intermediate_size\": 47",
            "experts.0.gate_proj.weight' has the shape (48, 64), not (47, 64)");
    refuses("qwen3_moe", "config.json", "\"mlp_only_layers\": []", "\"mlp_only_layers\":[7]",
            "'mlp_only_layers' names a layer");
    refuses("qwen3_moe", "model.safetensors", "layers.1.mlp.experts.3.up_proj",
            "layers.1.mlp.experts.3.up_prox",
            "'model.layers.1.mlp.experts.3.up_proj.weight' is missing");
    refuses("qwen3_moe", "model.safetensors", "layers.2.mlp.gate.", "layers.2.mlp.gote.",
            "'model.layers.2.mlp.gate.weight' is missing");
    refuses("glm4_moe", "model.safetensors", "layers.1.mlp.gate.e_score",
            "layers.1.mlp.gate.f_score",
            "'model.layers.1.mlp.gate.e_score_correction_bias' is missing");
    refuses("glm4_moe", "config.json", "\"n_group\": 1", "\"n_group\": 3",
            "'n_group' is 3 of 8 experts");
    refuses("mixtral", "config.json", "\"num_local_experts\": 4", "\"num_local_experts\": 5",
            "block_sparse_moe.gate.weight' has the shape (4, 64), not (5, 64)");
    refuses("gpt_oss", "model.safetensors", "layers.2.self_attn.sinks", "layers.2.self_attn.sonks",
            "'model.layers.2.self_attn.sinks' is missing");
    refuses("gpt_oss", "model.safetensors", "layers.2.mlp.experts.down_proj_bias",
            "layers.2.mlp.experts.down_proj_bios",
            "'model.layers.2.mlp.experts.down_proj_bias' is missing");
    tmp_dir_close(&dir);
}

int main(void) {
    enum { KINDS = 5 };
    struct CMUnitTest tests[KINDS * N_EXPERT_FAMILIES + 3];
    char names[KINDS * N_EXPERT_FAMILIES][64];
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } kinds[KINDS] = {{"logits", test_logits},
                      {"greedy", test_greedy},
                      {"turns", test_four_turns_on_one_cache},
                      {"windows", test_windows},
                      {"8 bits", test_8bit}};
    size_t n = 0;
    for (size_t i = 0; i < KINDS * N_EXPERT_FAMILIES; i++) {
        const char *family = expert_families[i / KINDS], *only = getenv("PARLEY_TEST_FAMILY");
        if (i % KINDS > 0 && !test_is_exact()) continue;
        if (only && strcmp(only, family) != 0) continue;
        snprintf(names[n], sizeof names[n], "%s: %s", family, kinds[i % KINDS].name);
        tests[n] =
            (struct CMUnitTest){.name = names[n],
                                .test_func = test_is_exact() ? kinds[i % KINDS].run : test_near,
                                .initial_state = (void *)(uintptr_t)family};
        n++;
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_stacked);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_nan);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_refused);
    return _cmocka_run_group_tests("experts", tests, n, NULL, NULL);
}
