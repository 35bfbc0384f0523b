// Every family of dense layers against its reference results (families_golden.h).
//
// PARLEY_TEST_MODELS=FOLDER (a whole path): instead, each folder in it that has a golden.json, whatever its
// family; PARLEY_TEST_FAMILY=NAME: that one alone. A folder that is refused is skipped, with the sentence.
#include "tests/golden/families_golden.h"

#include <dirent.h>

// What several ranks do not compute, by a word of the sentence. A norm over all heads needs those of the other
// ranks, which tensor parallelism does not gather; embeddings for each layer are not sent between stages.
static const char *refused_because(const char *folder) {
    if (test_ranks("PARLEY_TEST_TP") > 1 && strcmp(folder, "later/olmo3_yarn") == 0) return "norm";
    if (test_ranks("PARLEY_TEST_PP") > 1 && strcmp(folder, "later/gemma4_e") == 0)
        return "embeddings for each layer";
    return NULL;
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
    o.pipeline_parallel = test_ranks("PARLEY_TEST_PP");
    assert_int_equal(engine_open_manual(&e, &o, &clock_system, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, refused_because(*state)));
}

static const struct {
    const char *name;
    CMUnitTestFunction run;
} kinds[] = {{"logits", test_logits},
             {"greedy", test_greedy},
             {"turns", test_four_turns_on_one_cache},
             {"windows", test_windows}};
enum { KINDS = sizeof kinds / sizeof *kinds };

// --- a folder of folders -------------------------------------------------------------------------

enum { MAX_FOLDERS = 128 };

static bool is_refused(const char *dir) {
    struct engine_options o;
    struct engine *e = NULL;
    struct err err = {0};
    engine_options_init(&o);
    o.model_dir = dir;
    o.device = test_device_for_ranks();
    o.tensor_parallel = test_ranks("PARLEY_TEST_TP");
    o.pipeline_parallel = test_ranks("PARLEY_TEST_PP");
    int rc = engine_open_manual(&e, &o, &clock_system, &err);
    if (rc == E_UNSUPPORTED) print_message("%s\n", err.text);
    if (rc < 0 && rc != E_UNSUPPORTED) fail_msg("%s", err.text);
    if (rc == 0) engine_close(e);
    return rc < 0;
}

static void test_folder(void **state) {
    if (is_refused(*state)) skip();
    for (size_t i = 0; i < (test_is_exact() ? KINDS : 1); i++) kinds[i].run(state);
}

static int run_folders(const char *in) {
    static char paths[MAX_FOLDERS][128];
    static struct CMUnitTest tests[MAX_FOLDERS];
    const char *only = getenv("PARLEY_TEST_FAMILY");
    size_t n = 0;
    DIR *d = opendir(in);
    if (!d) return 1;
    for (const struct dirent *e; (e = readdir(d)) && n < MAX_FOLDERS;) {
        char golden[192];
        if (e->d_name[0] == '.' || (only && strcmp(only, e->d_name) != 0)) continue;
        snprintf(paths[n], sizeof paths[n], "%s/%.64s", in, e->d_name);
        snprintf(golden, sizeof golden, "%s/golden.json", paths[n]);
        if (access(golden, R_OK) < 0) continue;
        tests[n] = (struct CMUnitTest){
            .name = paths[n], .test_func = test_folder, .initial_state = paths[n]};
        n++;
    }
    closedir(d);
    return n > 0 ? _cmocka_run_group_tests("folders", tests, n, NULL, NULL) : 1;
}

int main(void) {
    if (getenv("PARLEY_TEST_MODELS")) return run_folders(getenv("PARLEY_TEST_MODELS"));
    static const char *const later[] = {
        "phi3",          "phi3_longrope", "olmo3_yarn",       "smollm3", "granite",
        "glm4",          "ministral3",    "hunyuan_v1_dense", "cohere2", "gemma2",
        "gemma3_scaled", "mistral3_vl",   "gemma4_e"};
    enum { N_ALL = N_FAMILIES + sizeof later / sizeof *later };
    struct CMUnitTest tests[KINDS * N_ALL];
    char names[KINDS * N_ALL][96], folders[N_ALL][64];
    for (size_t i = 0; i < N_ALL; i++)
        snprintf(folders[i], sizeof folders[i], "%s/%s", i < N_FAMILIES ? "models" : "later",
                 i < N_FAMILIES ? families[i] : later[i - N_FAMILIES]);
    size_t n = 0;
    for (size_t i = 0; i < KINDS * N_ALL; i++) {
        bool refused = refused_because(folders[i / KINDS]);
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
