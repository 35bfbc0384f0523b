// Switches that no fixture of transformers has, against logits computed in double precision by
// tests/fixtures/make_variants.py: plain and under a window, whatever the chunk.
#include "tests/golden/model_golden.h"

static const char *const variants[] = {
    "opt_post_norm",
    "opt_no_bias",
    "gpt_neox_serial",
    "gpt_neox_linear",
    "bloom_eleven_heads",
    "bloom_normed_residual",
    "gpt2_scale_by_layer",
    "gpt2_unscaled",
    "gptj_tied",
    "xglm_odd",
    "llama_odd",
    "olmoe_clip",
    "qwen2_moe_windows",
    "deepseek_v3_biases",
    "deepseek_v3_fp8",
    "granite_hybrid",
    "glm",
    "gemma",
    "cohere",
};
enum { N_VARIANTS = sizeof variants / sizeof *variants, N_TOKENS = 40 };

static void check(const char *dir, const int32_t *ids, const struct tensor *want,
                  int32_t memory_len, int32_t sink_len, int32_t chunk) {
    static struct outcome o;
    struct engine *e = engine_for(dir, chunk, 8, 0);
    struct rows rows = rows_new(e->info.n_vocab);
    struct engine_turn turn = turn_for(e, 1, ids, N_TOKENS, memory_len, sink_len);
    turn.score_only = true;
    turn.on_logits = rows_keep;
    turn.on_logits_ctx = &rows;
    run_turn(e, &turn, &o);
    assert_int_equal(rows.n_seen, N_TOKENS);
    size_t n = (size_t)N_TOKENS * (size_t)rows.vocab;
    assert_int_equal(want->bytes, n * sizeof(float));
    const float *expected = want->data;
    double worst = 0, unit = spread(expected, n);
    for (size_t i = 0; i < n; i++) worst = fmax(worst, fabs((double)rows.data[i] - expected[i]));
    if (getenv("PARLEY_TEST_SHOW"))
        print_message("%s %s in chunks of %d: %.3g of the spread\n", dir, want->name, chunk,
                      worst / unit);
    if (!(worst <= 2e-5 * unit))
        fail_msg("%s %s in chunks of %d: off by %.3g of the spread", dir, want->name, chunk,
                 worst / unit);
    free(rows.data);
    engine_close(e);
}

static void test_variant(void **state) {
    static const int32_t chunks[] = {1, 7, N_TOKENS};
    char dir[128];
    int n_checked = 0;
    snprintf(dir, sizeof dir, "tests/fixtures/variants/%s", (const char *)*state);
    const int32_t *ids;
    struct safetensors *tensors = golden_open(dir, N_TOKENS, &ids);
    for (size_t i = 0; i < safetensors_count(tensors); i++) {
        const struct tensor *t = safetensors_at(tensors, i);
        int memory_len = 0, sink_len = 0;
        if (strncmp(t->name, "logits", 6) != 0) continue;
        if (t->name[6] != '\0')
            assert_int_equal(sscanf(t->name, "logits_m%d_s%d", &memory_len, &sink_len), 2);
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
            check(dir, ids, t, memory_len, sink_len, chunks[c]);
        n_checked++;
    }
    assert_int_equal(n_checked, 2);
    safetensors_close(tensors);
}

int main(void) {
    struct CMUnitTest tests[N_VARIANTS];
    for (size_t i = 0; i < N_VARIANTS; i++)
        tests[i] = (struct CMUnitTest){
            .name = variants[i], .test_func = test_variant, .initial_state = (void *)variants[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
