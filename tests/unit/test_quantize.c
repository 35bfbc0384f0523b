// Folders in 8 bits: what is read from one is what loading would have made, bit for bit; what stops
// half-way leaves nothing.
#include "tests/unit/tmp_dir.h"
static size_t block_bytes = 1000; // small tensors are several blocks
#define QUANTIZE_BLOCK_BYTES block_bytes
#include "base/log.h"
#include "engine/model/quantize.c"
#include "tests/unit/fake_backend.h"
#include <math.h>
#include <sys/resource.h>

static struct tmp_dir dir;

static int setup(void **state) {
    log_set_level(LOG_OFF);
    tmp_dir_open(&dir);
    return 0;
}

static void clear_out(const char *out) {
    struct job j;
    snprintf(j.dir, sizeof j.dir, "%s", out);
    remove_folder(&j);
    assert_true(access(out, F_OK) < 0);
}

static int teardown(void **state) {
    tmp_dir_close(&dir);
    return 0;
}

static struct model *load(struct fake_backend *f, const char *path, bool int8) {
    struct model *m = NULL;
    struct err err = {0};
    *f = fake_backend();
    if (model_load(&m, path, &f->be, &split_single, int8, NULL, NULL, &err) != 0)
        fail_msg("%s", err.text);
    return m;
}

static void same_weight(const struct weight *a, const struct weight *b) {
    assert_int_equal(a->data == NULL, b->data == NULL);
    if (!a->data) return;
    assert_int_equal(a->dtype, b->dtype);
    assert_true(a->rows == b->rows && a->cols == b->cols);
    assert_memory_equal(a->data, b->data, a->bytes);
}

static void same_vector(const float *a, const float *b, int32_t n) {
    assert_int_equal(a == NULL, b == NULL);
    if (a) assert_memory_equal(a, b, (size_t)n * sizeof *a);
}

static void same_models(const struct model *a, const struct model *b) {
    const struct model_config *c = &a->config;
    assert_true(a->config.int8 && b->config.int8);
    same_weight(&a->embed, &b->embed);
    same_weight(&a->head, &b->head);
    same_weight(&a->embed_in, &b->embed_in);
    same_weight(&a->embed_out, &b->embed_out);
    same_vector(a->final_norm.weight, b->final_norm.weight, c->width);
    same_vector(a->position_table, b->position_table,
                (c->max_positions + c->position_offset) * c->width);
    for (int32_t l = 0; l < a->n_layers; l++) {
        const struct layer_weights *x = &a->layers[l], *y = &b->layers[l];
        same_weight(&x->qkv, &y->qkv);
        same_weight(&x->o, &y->o);
        same_weight(&x->up, &y->up);
        same_weight(&x->down, &y->down);
        same_vector(x->attn_norm.weight, y->attn_norm.weight, c->width);
        same_vector(x->attn_norm.bias, y->attn_norm.bias, c->width);
        same_vector(x->qkv_bias, y->qkv_bias, x->qkv.rows);
        same_vector(x->up_bias, y->up_bias, x->up.rows);
        same_vector(x->down_bias, y->down_bias, c->width);
    }
}

static void saved_is_what_loading_makes_test(void **state) {
    static const char *const folders[] = {
        "models/llama", "models/gpt2", "models/gptj",  "models/gpt_neox",        "models/bloom",
        "models/opt",   "models/xglm", "models/qwen3", "variants/opt_post_norm",
    };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        for (int large = 0; large < 2; large++) {
            struct fake_backend f, g;
            struct err err = {0};
            struct quantize_result result;
            char from[200], out[200];
            block_bytes = large ? (size_t)8 << 20 : 1000;
            snprintf(from, sizeof from, "tests/fixtures/%s", folders[i]);
            snprintf(out, sizeof out, "%s/out", dir.path);
            if (quantize_write(&(struct quantize_options){.model_dir = from, .out_dir = out},
                               &result, &err) < 0)
                fail_msg("%s: %s", from, err.text);
            assert_true(result.n_matrices > 4 && result.bytes_after < result.bytes_before);
            struct model *made = load(&f, from, true), *read = load(&g, out, false);
            same_models(made, read);
            assert_string_equal(made->fingerprint, read->fingerprint); // sessions go on
            model_free(made);
            model_free(read);
            clear_out(out);
        }
}

static int64_t seen;
static void note(void *ctx, int64_t done, int64_t total) {
    assert_true(done > seen && done <= total);
    seen = done;
}

// Tokenizer and suggestions come along, and every key of config.json.
static void the_folder_is_whole_test(void **state) {
    struct err err = {0};
    struct quantize_result result;
    struct buf before, after;
    char out[200];
    snprintf(out, sizeof out, "%s/whole/", dir.path); // a slash at the end is no other folder
    seen = 0;
    struct quantize_options o = {
        .model_dir = "configs/demo-model", .out_dir = out, .progress = note};
    assert_int_equal(quantize_write(&o, &result, &err), 0);
    assert_int_equal(seen, result.bytes_before);
    assert_int_equal(quantize_write(&o, &result, &err), E_EXISTS);
    static const char *const same[] = {"tokenizer.json", "tokenizer_config.json",
                                       "generation_config.json", "chat_template.jinja"};
    for (int i = 0; i < 4; i++) {
        char path[300];
        snprintf(path, sizeof path, "configs/demo-model/%s", same[i]);
        assert_int_equal(buf_read_file(&before, path, 1 << 24, &err), 0);
        snprintf(path, sizeof path, "%s%s", out, same[i]);
        assert_int_equal(buf_read_file(&after, path, 1 << 24, &err), 0);
        assert_int_equal(before.len, after.len);
        assert_memory_equal(before.data, after.data, before.len);
        buf_release(&before);
        buf_release(&after);
    }
    // A second time from what is in 8 bits already: refused, and nothing is made.
    char again[200];
    snprintf(again, sizeof again, "%s/again", dir.path);
    o = (struct quantize_options){.model_dir = out, .out_dir = again};
    assert_int_equal(quantize_write(&o, &result, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "quantization_config"));
    assert_true(access(again, F_OK) < 0);
    clear_out(out);
}

static volatile sig_atomic_t stop;
static void set_stop(void *ctx, int64_t done, int64_t total) {
    if (done > total / 2) stop = 1;
}

static void nothing_is_left_test(void **state) {
    struct err err = {0};
    struct quantize_result result;
    char out[200], partial[300];
    snprintf(out, sizeof out, "%s/none", dir.path);
    snprintf(partial, sizeof partial, "%s.partial", out);
    struct quantize_options o = {.model_dir = "tests/fixtures/models/gpt2", .out_dir = out};
    // No room, as far as a process can tell itself so.
    struct rlimit old, small = {100000, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = quantize_write(&o, &result, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_true(rc < 0);
    assert_non_null(strstr(err.text, partial));
    assert_true(access(out, F_OK) < 0 && access(partial, F_OK) < 0);
    // Interrupted.
    o.progress = set_stop;
    o.stop = &stop;
    assert_int_equal(quantize_write(&o, &result, &err), E_CANCELLED);
    assert_true(access(out, F_OK) < 0 && access(partial, F_OK) < 0);
    // What a killed run left is not touched.
    assert_int_equal(mkdir(partial, 0777), 0);
    stop = 0;
    assert_int_equal(quantize_write(&o, &result, &err), E_EXISTS);
    assert_non_null(strstr(err.text, partial));
    assert_int_equal(rmdir(partial), 0);
    // No folder at all; one that cannot be made.
    o = (struct quantize_options){.model_dir = dir.path, .out_dir = out};
    assert_int_equal(quantize_write(&o, &result, &err), E_NOTFOUND);
    o = (struct quantize_options){.model_dir = "tests/fixtures/models/gpt2",
                                  .out_dir = "/proc/none/such"};
    assert_true(quantize_write(&o, &result, &err) < 0);
    // FasterTransformer's are told from what is none.
    tmp_text(&dir, "config.ini", "[gpt]\n");
    o = (struct quantize_options){.model_dir = dir.path, .out_dir = out};
    assert_int_equal(quantize_write(&o, &result, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "FasterTransformer"));
    unlink(tmp_path(&dir, "config.ini"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_is_what_loading_makes_test),
        cmocka_unit_test(the_folder_is_whole_test),
        cmocka_unit_test(nothing_is_left_test),
    };
    return cmocka_run_group_tests_name("quantize", tests, setup, teardown);
}
