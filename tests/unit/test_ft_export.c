// Export refuses what FasterTransformer cannot express, and removes everything when it fails.
// (tests/golden/test_ft.c checks the files that it writes.)
#include "base/log.h"
#include "engine/model/ft_export.h"
#include "engine/model/model_config.h"
#include "tests/unit/ft_writer.h"
#include <sys/resource.h>

static struct tmp_dir dir, source;

static int setup(void **state) {
    log_set_level(LOG_OFF);
    tmp_dir_open(&dir);
    tmp_dir_open(&source);
    return 0;
}
static int teardown(void **state) {
    ft_remove(dir.path);
    ft_remove(source.path);
    return 0;
}

static int run(const char *from, const char *to, int n, const char *dtype, struct err *err) {
    char written[PATH_MAX];
    struct ft_export_options o = {
        .model_dir = from, .out_dir = to, .tensor_parallel = n, .dtype = dtype};
    memset(err, 0, sizeof *err);
    return ft_export(&o, written, err);
}

static int count(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    if (!d) return -1;
    while (readdir(d)) n++;
    closedir(d);
    return n - 2; // . and ..
}

static void refuse(const char *from, int n, const char *dtype, int code, const char *names) {
    struct err err;
    int rc = run(from, dir.path, n, dtype, &err);
    if (rc != code || !strstr(err.text, names)) fail_msg("%s: %d, %s", from, rc, err.text);
    assert_int_equal(count(dir.path), 0);
}

static void other_families_are_refused_by_name(void **state) {
    refuse("tests/fixtures/models/llama", 1, NULL, E_UNSUPPORTED, "the family llama");
    refuse("tests/fixtures/models/qwen3", 1, NULL, E_UNSUPPORTED, "no RMS norm");
    refuse("tests/fixtures/models/gpt_neox", 1, NULL, E_UNSUPPORTED, "the family gpt_neox");
    refuse("tests/fixtures/models/xglm", 1, NULL, E_UNSUPPORTED, "tanh only");
    refuse("/nonexistent", 1, NULL, E_NOTFOUND, "/nonexistent");
}

static void switches_without_a_key_are_refused(void **state) {
    refuse("tests/fixtures/variants/gpt2_scale_by_layer", 1, NULL, E_UNSUPPORTED,
           "scale of attention by layer");
    refuse("tests/fixtures/variants/gpt2_unscaled", 1, NULL, E_UNSUPPORTED,
           "scale of attention but");
    refuse("tests/fixtures/variants/bloom_normed_residual", 1, NULL, E_UNSUPPORTED,
           "apply_residual_connection_post_layernorm");
    refuse("tests/fixtures/variants/opt_no_bias", 1, NULL, E_UNSUPPORTED, "activation");
}

static void ranks_and_dtypes_have_their_ranges(void **state) {
    const char *gpt2 = "tests/fixtures/models/gpt2";
    refuse(gpt2, 0, NULL, E_INVAL, "tensor_parallel: 0");
    refuse(gpt2, 257, NULL, E_INVAL, "1 .. 256");
    refuse(gpt2, 3, NULL, E_INVAL, "4 heads do not divide by 3");
    refuse(gpt2, 8, NULL, E_INVAL, "4 heads do not divide by 8");
    refuse(gpt2, 1, "int8", E_INVAL, "fp32, fp16 or bf16");
}

static void what_is_there_is_not_overwritten(void **state) {
    struct err err;
    const char *gpt2 = "tests/fixtures/models/gpt2";
    assert_int_equal(run(gpt2, dir.path, 2, NULL, &err), 0);
    assert_int_equal(run(gpt2, dir.path, 2, NULL, &err), E_EXISTS);
    assert_non_null(strstr(err.text, "2-gpu exists already"));
    assert_int_equal(run(gpt2, dir.path, 1, NULL, &err), 0);
    assert_int_equal(count(dir.path), 2);
    assert_int_equal(run(gpt2, tmp_path(&dir, "1-gpu/config.ini"), 1, NULL, &err), E_IO);
    assert_int_equal(run(gpt2, tmp_path(&dir, "no/such"), 1, NULL, &err), E_NOTFOUND);
}

// A value that only wider numbers hold is not made infinite.
static void values_must_fit(void **state) {
    struct safetensors *from;
    struct err err;
    if (safetensors_open(&from, "tests/fixtures/models/gpt2/model.safetensors", &err) < 0)
        fail_msg("%s", err.text);
    size_t n = safetensors_count(from);
    struct tensor *list = calloc(n, sizeof *list);
    for (size_t i = 0; i < n; i++) list[i] = *safetensors_at(from, i);
    struct safetensors_writer *out = NULL;
    assert_int_equal(
        safetensors_create(&out, tmp_path(&source, "model.safetensors"), list, n, &err), 0);
    for (size_t i = 0; i < n; i++) {
        float *values = malloc(list[i].bytes);
        memcpy(values, list[i].data, list[i].bytes);
        if (strstr(list[i].name, "h.1.mlp.c_fc.weight")) values[77] = 70000;
        assert_int_equal(safetensors_write(out, values, list[i].bytes, &err), 0);
        free(values);
    }
    assert_int_equal(safetensors_finish(out, &err), 0);
    safetensors_close(from);
    free(list);
    tmp_copy(&source, "tests/fixtures/models/gpt2", "config.json");
    refuse(source.path, 2, "fp16", E_UNSUPPORTED, "h.1.mlp.c_fc.weight' has values that f16");
    assert_int_equal(run(source.path, dir.path, 2, "bf16", &err), 0);
}

// A missing tensor is found before anything is written.
static void the_source_is_checked_first(void **state) {
    struct tensor one = {
        .name = "transformer.wte.weight", .dtype = DTYPE_F32, .n_dims = 2, .shape = {320, 64}};
    struct safetensors_writer *out = NULL;
    struct err err;
    static float zeros[320 * 64];
    assert_int_equal(
        safetensors_create(&out, tmp_path(&source, "model.safetensors"), &one, 1, &err), 0);
    assert_int_equal(safetensors_write(out, zeros, sizeof zeros, &err), 0);
    assert_int_equal(safetensors_finish(out, &err), 0);
    tmp_copy(&source, "tests/fixtures/models/gpt2", "config.json");
    refuse(source.path, 1, NULL, E_NOTFOUND, "'transformer.wpe.weight' is missing");
    refuse(source.path, 1, NULL, E_NOTFOUND, "missing");
    assert_int_equal(access(tmp_path(&dir, "1-gpu"), F_OK), -1);
}

// --- failures in the middle ---

static int64_t seen;
static volatile sig_atomic_t stop;

static void stop_half_way(void *ctx, int64_t done, int64_t total) {
    assert_true(done > seen && done <= total);
    seen = done;
    if (done > total / 2) stop = 1;
}

static void a_stopped_export_leaves_nothing(void **state) {
    struct err err = {0};
    char written[PATH_MAX];
    const char *out = tmp_path(&dir, "new");
    struct ft_export_options o = {.model_dir = "tests/fixtures/models/bloom",
                                  .out_dir = out,
                                  .tensor_parallel = 2,
                                  .progress = stop_half_way,
                                  .stop = &stop};
    seen = stop = 0;
    assert_int_equal(ft_export(&o, written, &err), E_CANCELLED);
    assert_true(seen > 0);
    assert_int_equal(count(out), -1);
    assert_int_equal(mkdir(out, 0777), 0); // a folder that was there stays
    seen = stop = 0;
    assert_int_equal(ft_export(&o, written, &err), E_CANCELLED);
    assert_int_equal(count(out), 0);
}

// As a full disk: a file that may not grow further.
static void a_failed_write_leaves_nothing(void **state) {
    struct err err;
    struct rlimit was, small;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = (struct rlimit){60000, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = run("tests/fixtures/models/gpt2", dir.path, 1, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(rc, E_IO);
    assert_non_null(strstr(err.text, "cannot write"));
    assert_int_equal(count(dir.path), 0);
}

static void tokens_and_words_go_along(void **state) {
    struct err err;
    struct model_config m;
    tmp_copy(&source, "tests/fixtures/models/gpt2", "config.json");
    tmp_copy(&source, "tests/fixtures/models/gpt2", "model.safetensors");
    tmp_text(&source, "generation_config.json",
             "{\"bos_token_id\":3,\"eos_token_id\":[4,5],\"temperature\":0.5,\"top_k\":7}");
    tmp_text(&source, "tokenizer.json", "{}");
    tmp_text(&source, "chat_template.jinja", "hello");
    assert_int_equal(run(source.path, dir.path, 2, "fp16", &err), 0);
    assert_int_equal(access(tmp_path(&dir, "2-gpu/tokenizer.json"), R_OK), 0);
    assert_int_equal(access(tmp_path(&dir, "2-gpu/chat_template.jinja"), R_OK), 0);
    if (model_config_load(&m, dir.path, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(m.bos_id, 3);
    assert_int_equal(m.n_eos, 2);
    assert_int_equal(m.eos_ids[1], 5);
    assert_true(m.temperature == 0.5f && m.top_k == 7 && m.top_p < 0);
    assert_int_equal(m.dtype, DTYPE_F16);
    assert_int_equal(m.max_positions, 256);
    assert_true(m.norm_eps == 1e-5f);
}

#define test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        test(other_families_are_refused_by_name),
        test(switches_without_a_key_are_refused),
        test(ranks_and_dtypes_have_their_ranges),
        test(what_is_there_is_not_overwritten),
        test(values_must_fit),
        test(the_source_is_checked_first),
        test(a_stopped_export_leaves_nothing),
        test(a_failed_write_leaves_nothing),
        test(tokens_and_words_go_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
