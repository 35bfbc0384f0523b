// FasterTransformer folders against the Hugging Face folders they were made from: as the converters
// write them (by formulas of the test's own, tests/unit/ft_writer.h) and as export does, for one,
// two and four ranks. The same weights must give the same bits of logits.
#include "base/log.h"
#include "engine/model/ft_export.h"
#include "tests/golden/runner.h"
#include "tests/unit/ft_writer.h"
#include <dirent.h>

enum { N_TOKENS = 48 };

static const char *const families[] = {"gpt2", "opt", "bloom", "gptj"};
enum { N_FAMILIES = sizeof families / sizeof *families };

static int setup(void **state) {
    log_set_level(LOG_OFF); // unused keys and files are said in warnings
    return 0;
}

// --- logits ---

static struct rows score(const char *dir) {
    static struct outcome o;
    int32_t ids[N_TOKENS];
    struct engine *e = engine_for(dir, 32, 16, 0);
    struct rows rows = rows_new(e->info.n_vocab);
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (i * i * 7 + 3) % e->info.n_vocab;
    struct engine_turn turn = turn_for(e, 1, ids, N_TOKENS, 0, 0);
    turn.score_only = true;
    turn.on_logits = rows_keep;
    turn.on_logits_ctx = &rows;
    run_turn(e, &turn, &o);
    assert_int_equal(rows.n_seen, N_TOKENS);
    engine_close(e);
    return rows;
}

// The largest difference, in units of the reference's spread.
static double distance(const struct rows *got, const struct rows *want) {
    size_t n = (size_t)N_TOKENS * (size_t)want->vocab;
    double sum = 0, squares = 0, worst = 0;
    assert_int_equal(got->vocab, want->vocab);
    for (size_t i = 0; i < n; i++) sum += (double)want->data[i];
    for (size_t i = 0; i < n; i++) squares += pow((double)want->data[i] - sum / (double)n, 2);
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)got->data[i] - (double)want->data[i]));
    return worst / sqrt(squares / (double)n);
}

static void expect_logits(const char *dir, const struct rows *want, double bound) {
    struct rows got = score(dir);
    double d = distance(&got, want);
    if (!(d <= bound)) fail_msg("%s: off by %.3g of the spread", dir, d);
    free(got.data);
}

static void fixture_path(char out[100], const char *family) {
    snprintf(out, 100, "tests/fixtures/models/%s", family);
}

// --- export ---

static void export_ok(const char *from, const char *to, int n_ranks, const char *dtype,
                      char written[PATH_MAX]) {
    struct err err = {0};
    struct ft_export_options o = {
        .model_dir = from, .out_dir = to, .tensor_parallel = n_ranks, .dtype = dtype};
    if (ft_export(&o, written, &err) < 0) fail_msg("%s for %d: %s", from, n_ranks, err.text);
}

static long file_bytes(const char *dir, const char *name, char **bytes) {
    char path[PATH_MAX + 256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long n = ftell(f);
    rewind(f);
    *bytes = malloc((size_t)n + 1);
    assert_int_equal(fread(*bytes, 1, (size_t)n, f), n);
    (*bytes)[n] = '\0';
    fclose(f);
    return n;
}

// Every .bin of `got` is in `want`, byte for byte. Returns how many.
static int expect_files(const char *got, const char *want) {
    int n = 0;
    DIR *d = opendir(got);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char *one = NULL, *other = NULL;
        if (!strstr(e->d_name, ".bin")) continue;
        long a = file_bytes(got, e->d_name, &one), b = file_bytes(want, e->d_name, &other);
        if (a != b || memcmp(one, other, (size_t)a) != 0)
            fail_msg("%s is not the converter's (%ld bytes, %ld)", e->d_name, a, b);
        free(one);
        free(other);
        n++;
    }
    closedir(d);
    return n;
}

// --- tests ---

static void converters_folders_give_the_sources_logits(void **state) {
    for (int f = 0; f < N_FAMILIES; f++) {
        char source[100];
        fixture_path(source, families[f]);
        struct rows want = score(source);
        for (int n = 1; n <= 4; n *= 2) {
            struct ft_writer w;
            ft_writer_open(&w, families[f], n, true);
            expect_logits(w.folder, &want, 0);
            expect_logits(w.dir.path, &want, 0); // the only N-gpu in there
            ft_writer_close(&w);
        }
        free(want.data);
    }
}

static void export_writes_the_converters_files(void **state) {
    static const int n_layer_files[] = {6, 6, 6, 3}; // of all ranks together
    for (int f = 0; f < N_FAMILIES; f++) {
        char source[100];
        fixture_path(source, families[f]);
        struct rows want = score(source);
        for (int n = 1; n <= 4; n *= 2) {
            char written[PATH_MAX];
            struct ft_writer w;
            struct tmp_dir to;
            ft_writer_open(&w, families[f], n, true);
            tmp_dir_open(&to);
            export_ok(source, to.path, n, "fp32", written);
            int n_files = expect_files(written, w.folder);
            int ranked = f == 3 ? 5 : 6, ends[] = {4, 4, 5, 5};
            assert_int_equal(n_files, ends[f] + 3 * (n_layer_files[f] + ranked * n));
            expect_logits(written, &want, 0);
            ft_remove(to.path);
            ft_writer_close(&w);
        }
        free(want.data);
    }
}

// The source's own number format, whatever it is; and from one number of ranks to another.
static void export_keeps_the_dtype_and_reads_its_own(void **state) {
    for (int f = 0; f < N_FAMILIES; f++) {
        char source[100], one[PATH_MAX], four[PATH_MAX], again[PATH_MAX];
        struct tmp_dir to, back;
        tmp_dir_open(&to);
        tmp_dir_open(&back);
        fixture_path(source, families[f]);
        struct rows want = score(source);
        export_ok(source, to.path, 1, NULL, one);
        export_ok(source, to.path, 4, NULL, four);
        expect_logits(four, &want, 0);
        export_ok(four, back.path, 1, NULL, again);
        assert_int_equal(expect_files(again, one), expect_files(one, again));
        expect_logits(again, &want, 0);
        free(want.data);
        ft_remove(to.path);
        ft_remove(back.path);
    }
}

static void shorter_numbers_are_near(void **state) {
    static const struct {
        const char *dtype;
        double bound;
    } cases[] = {{"fp16", 5e-3}, {"bf16", 5e-2}};
    struct rows want = score("tests/fixtures/models/gpt2");
    for (size_t i = 0; i < 2; i++) {
        char written[PATH_MAX];
        struct tmp_dir to;
        tmp_dir_open(&to);
        export_ok("tests/fixtures/models/gpt2", to.path, 2, cases[i].dtype, written);
        struct rows got = score(written);
        double d = distance(&got, &want);
        if (!(d > 0 && d < cases[i].bound)) fail_msg("%s: %g", cases[i].dtype, d);
        free(got.data);
        ft_remove(to.path);
    }
    free(want.data);
}

// OPT-350m's form: post-norm, no final norm, an embedding that is projected. The projections are
// folded in, as OPT's converter does it, so that sums are in another order.
static void projections_are_folded(void **state) {
    const char *source = "tests/fixtures/variants/opt_post_norm";
    char written[PATH_MAX];
    struct tmp_dir to;
    tmp_dir_open(&to);
    struct rows want = score(source);
    export_ok(source, to.path, 3, "fp32", written);
    expect_logits(written, &want, 2e-5);
    free(want.data);
    ft_remove(to.path);
}

static void biases_that_are_not_there_are_zeros(void **state) {
    char written[PATH_MAX];
    struct tmp_dir source, to;
    tmp_dir_open(&source);
    tmp_dir_open(&to);
    tmp_copy(&source, "tests/fixtures/variants/opt_no_bias", "model.safetensors");
    tmp_text(&source, "config.json",
             "{\"model_type\":\"opt\",\"vocab_size\":40,\"hidden_size\":20,\"num_hidden_layers\":2,"
             "\"num_attention_heads\":5,\"ffn_dim\":33,\"max_position_embeddings\":64,"
             "\"enable_bias\":false,\"_remove_final_layer_norm\":true,"
             "\"activation_function\":\"relu\",\"tie_word_embeddings\":false}");
    struct rows want = score(source.path);
    export_ok(source.path, to.path, 1, NULL, written);
    expect_logits(written, &want, 0);
    free(want.data);
    tmp_dir_close(&source);
    ft_remove(to.path);
}

// What BLOOM's converter calls post_layernorm is, to the model's authors, a residual of the normed
// stream; FasterTransformer made it a post-norm layer.
static void blooms_post_layernorm_is_its_authors(void **state) {
    static const char *const lines[] = {"model_variant=bloom-post\n", ""};
    struct ft_writer w;
    struct tmp_dir hf;
    char text[2000], *config;
    tmp_dir_open(&hf);
    tmp_copy(&hf, "tests/fixtures/models/bloom", "model.safetensors");
    assert_true(file_bytes("tests/fixtures/models/bloom", "config.json", &config) > 0);
    snprintf(text, sizeof text, "{\"apply_residual_connection_post_layernorm\": true%s",
             strchr(config, ','));
    tmp_text(&hf, "config.json", text);
    struct rows want = score(hf.path), other = score("tests/fixtures/models/bloom");
    assert_true(distance(&other, &want) > 0.1);
    ft_writer_open(&w, "bloom", 2, false);
    for (size_t i = 0; i < 2; i++) {
        snprintf(
            text, sizeof text,
            "[gpt]\nhead_num=4\nsize_per_head=16\ninter_size=256\nnum_layer=3\nvocab_size=320\n"
            "weight_data_type=fp32\n%slayernorm_type=post_layernorm\n"
            "has_positional_encoding=False\nhas_pre_decoder_layernorm=True\n"
            "use_attention_linear_bias=True\n",
            lines[i]);
        tmp_text(&w.dir, "2-gpu/config.ini", text);
        expect_logits(w.folder, &want, 0);
    }
    free(config);
    free(want.data);
    free(other.data);
    tmp_dir_close(&hf);
    ft_writer_close(&w);
}

// Megatron's embedding has more rows than its vocabulary, to a multiple of 128.
static void rows_past_the_vocabulary_are_left_out(void **state) {
    char path[PATH_MAX];
    struct ft_writer w;
    struct rows want = score("tests/fixtures/models/gpt2");
    ft_writer_open(&w, "gpt2", 2, true);
    snprintf(path, sizeof path, "%s/model.wte.bin", w.folder);
    FILE *f = fopen(path, "ab");
    assert_non_null(f);
    for (int i = 0; i < 64 * w.width; i++) ft_put(f, 1e9f);
    fclose(f);
    expect_logits(w.folder, &want, 0);
    free(want.data);
    ft_writer_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converters_folders_give_the_sources_logits),
        cmocka_unit_test(export_writes_the_converters_files),
        cmocka_unit_test(export_keeps_the_dtype_and_reads_its_own),
        cmocka_unit_test(shorter_numbers_are_near),
        cmocka_unit_test(projections_are_folded),
        cmocka_unit_test(biases_that_are_not_there_are_zeros),
        cmocka_unit_test(blooms_post_layernorm_is_its_authors),
        cmocka_unit_test(rows_past_the_vocabulary_are_left_out),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
