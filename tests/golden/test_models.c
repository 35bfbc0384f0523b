// Every family of dense layers against its reference results (families_golden.h).
#include "tests/golden/families_golden.h"

// A norm over all heads needs those of the other ranks, which tensor parallelism does not gather.
static bool tp_refuses(const char *folder) {
    return test_ranks("PARLEY_TEST_TP") > 1 && strcmp(folder, "later/olmo3_yarn") == 0;
}

static void test_refused(void **state) {
    char dir[128];
    struct engine_options o;
    struct engine *e;
    struct err err = {0};
    snprintf(dir, sizeof dir, "tests/fixtures/%s", (const char *)*state);
    engine_options_init(&o);
    o.model_dir = dir;
    o.device = test_device_for_ranks();
    o.tensor_parallel = test_ranks("PARLEY_TEST_TP");
    assert_int_equal(engine_open_manual(&e, &o, &clock_system, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "norm"));
}

int main(void) {
    enum { KINDS = 4 };
    static const char *const later[] = {"phi3",   "olmo3_yarn",    "smollm3",          "granite",
                                        "glm4",   "ministral3",    "hunyuan_v1_dense", "cohere2",
                                        "gemma2", "gemma3_scaled", "mistral3_vl"};
    enum { N_ALL = N_FAMILIES + sizeof later / sizeof *later };
    struct CMUnitTest tests[KINDS * N_ALL];
    char names[KINDS * N_ALL][96], folders[N_ALL][64];
    for (size_t i = 0; i < N_ALL; i++)
        snprintf(folders[i], sizeof folders[i], "%s/%s", i < N_FAMILIES ? "models" : "later",
                 i < N_FAMILIES ? families[i] : later[i - N_FAMILIES]);
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } kinds[KINDS] = {{"logits", test_logits},
                      {"greedy", test_greedy},
                      {"turns", test_four_turns_on_one_cache},
                      {"windows", test_windows}};
    size_t n = 0;
    for (size_t i = 0; i < KINDS * N_ALL; i++) {
        bool refused = tp_refuses(folders[i / KINDS]);
        if (i % KINDS > 0 && (refused || !test_is_exact()))
            continue; // which token is best may differ
        snprintf(names[n], sizeof names[n], "%s: %s", folders[i / KINDS], kinds[i % KINDS].name);
        tests[n] = (struct CMUnitTest){.name = names[n],
                                       .test_func = refused ? test_refused : kinds[i % KINDS].run,
                                       .initial_state = folders[i / KINDS]};
        n++;
    }
    return _cmocka_run_group_tests("families", tests, n, NULL, NULL);
}
