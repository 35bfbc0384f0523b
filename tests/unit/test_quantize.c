// Folders in 8 bits: reading one gives the bits that quantising at load gives; an interrupted write
// leaves nothing.
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
    quantize_remove(out);
    assert_true(access(out, F_OK) < 0);
}

static int teardown(void **state) {
    tmp_dir_close(&dir);
    return 0;
}

static struct model *load(struct fake_backend *f, const char *path, enum weight_format weights) {
    struct model *m = NULL;
    struct err err = {0};
    *f = fake_backend();
    if (model_load(&m,
                   &(struct model_load_options){
                       .dir = path, .backend = &f->be, .split = &split_single, .weights = weights},
                   &err) != 0)
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
    assert_true(a->config.int8 == b->config.int8 && a->config.fp8 == b->config.fp8);
    assert_true(a->config.int8 != a->config.fp8);
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
        for (int kind = 0; kind < 4; kind++) {
            bool large = kind % 2;
            enum weight_format weights = kind < 2 ? WEIGHTS_INT8 : WEIGHTS_FP8;
            struct fake_backend f, g;
            struct err err = {0};
            struct quantize_result result;
            char from[200], out[200];
            block_bytes = large ? (size_t)8 << 20 : 1000;
            snprintf(from, sizeof from, "tests/fixtures/%s", folders[i]);
            snprintf(out, sizeof out, "%s/out", dir.path);
            if (quantize_write(&(struct quantize_options){.model_dir = from,
                                                          .out_dir = out,
                                                          .weights = weights},
                               &result, &err) < 0)
                fail_msg("%s: %s", from, err.text);
            // Padding to whole tiles may make narrow matrices larger
            assert_true(result.n_matrices > 4);
            struct model *made = load(&f, from, weights), *read = load(&g, out, WEIGHTS_OWN);
            same_models(made, read);
            assert_string_equal(made->fingerprint, read->fingerprint); // sessions go on
            model_free(made);
            model_free(read);
            clear_out(out);
        }
}

// --- panels that the CPU uses in place, in the mapped file

static struct model *load_on_cpu(struct backend *be, const char *path, bool int8) {
    struct model *m = NULL;
    struct err err = {0};
    if (model_load(&m,
                   &(struct model_load_options){.dir = path,
                                                .backend = be,
                                                .split = &split_single,
                                                .weights = int8 ? WEIGHTS_INT8 : WEIGHTS_OWN},
                   &err) != 0)
        fail_msg("%s", err.text);
    return m;
}

// The mapped file holds the same bytes as the CPU would pack itself.
static void same_panels(const struct weight *made, const struct weight *read, bool mapped) {
    assert_true(!made->mapped && read->mapped == mapped);
    assert_true(made->rows == read->rows && made->cols == read->cols);
    assert_int_equal(made->layout, read->layout);
    assert_int_equal((uintptr_t)read->data % INT8_PANEL_ALIGNMENT, 0);
    assert_memory_equal(made->data, read->data,
                        (size_t)(int8_panels(made->rows) * int8_panel_bytes(made->cols)));
    assert_memory_equal(made->scales, read->scales, (size_t)made->rows * sizeof(float));
}

static void panels_are_mapped_test(void **state) {
    static const struct {
        const char *name;
        bool qkv; // else the heads' rows are in turn, and are read
    } folders[] = {{"llama", true}, {"gpt2", true},   {"qwen3", true},
                   {"opt", true},   {"bloom", false}, {"gpt_neox", false}};
    struct backend *be = NULL;
    struct err err = {0};
    assert_int_equal(backend_cpu_open(&be, 2, "auto", &err), 0);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct quantize_result result;
        char from[200], out[200];
        snprintf(from, sizeof from, "tests/fixtures/models/%s", folders[i].name);
        snprintf(out, sizeof out, "%s/out", dir.path);
        struct quantize_options o = {.model_dir = from, .out_dir = out, .weights = WEIGHTS_INT8};
        assert_int_equal(quantize_write(&o, &result, &err), 0);
        struct model *made = load_on_cpu(be, from, true), *read = load_on_cpu(be, out, false);
        assert_true(made->n_mapped == 0 && !made->files);
        assert_int_equal(made->weight_bytes, read->weight_bytes);
        for (int32_t l = 0; l < made->n_layers; l++) {
            const struct layer_weights *a = &made->layers[l], *b = &read->layers[l];
            same_panels(&a->qkv, &b->qkv, folders[i].qkv);
            same_panels(&a->o, &b->o, true);
            same_panels(&a->up, &b->up, true);
            same_panels(&a->down, &b->down, true);
        }
        same_panels(&made->head, &read->head, true);
        model_free(made);
        model_free(read);
        clear_out(out);
    }
    be->ops->close(be);
}

// A rank's rows are mapped if they are contiguous, its columns are read. Both give the same
// integers as a matrix that is quantised here.
static void ranks_read_panels_test(void **state) {
    static const char *const folders[] = {"llama", "gpt2", "bloom"};
    for (size_t i = 0; i < 3; i++) {
        struct quantize_result result;
        struct err err = {0};
        char from[200], out[200];
        snprintf(from, sizeof from, "tests/fixtures/models/%s", folders[i]);
        snprintf(out, sizeof out, "%s/out", dir.path);
        struct quantize_options o = {.model_dir = from, .out_dir = out, .weights = WEIGHTS_INT8};
        assert_int_equal(quantize_write(&o, &result, &err), 0);
        for (int rank = 0; rank < 2; rank++) {
            struct split s = {.tp_rank = rank, .tp_size = 2, .pp_rank = 0, .pp_size = 1};
            struct fake_backend f = fake_backend(), g = fake_backend();
            struct backend *be = NULL;
            struct model *made = NULL, *read = NULL, *packed = NULL, *mapped = NULL;
            assert_int_equal(
                model_load(&made,
                           &(struct model_load_options){
                               .dir = from, .backend = &f.be, .split = &s, .weights = WEIGHTS_INT8},
                           &err),
                0);
            assert_int_equal(
                model_load(&read,
                           &(struct model_load_options){.dir = out, .backend = &g.be, .split = &s},
                           &err),
                0);
            same_models(made, read);
            assert_int_equal(backend_cpu_open(&be, 1, "portable", &err), 0);
            assert_int_equal(
                model_load(&packed,
                           &(struct model_load_options){
                               .dir = from, .backend = be, .split = &s, .weights = WEIGHTS_INT8},
                           &err),
                0);
            assert_int_equal(
                model_load(&mapped,
                           &(struct model_load_options){.dir = out, .backend = be, .split = &s},
                           &err),
                0);
            // A rank's rows of two stacked matrices are not contiguous.
            same_panels(&packed->layers[1].up, &mapped->layers[1].up,
                        !packed->config.kinds[0].feed.gated);
            same_panels(&packed->head, &mapped->head, true);
            same_panels(&packed->layers[1].down, &mapped->layers[1].down, false);
            model_free(made);
            model_free(read);
            model_free(packed);
            model_free(mapped);
            be->ops->close(be);
        }
        clear_out(out);
    }
}

// replaces its first occurrence in the folder's config.json
static void change_config(const char *out, const char *text, const char *to) {
    char path[300];
    struct buf b;
    struct err err = {0};
    snprintf(path, sizeof path, "%s/config.json", out);
    assert_int_equal(buf_read_file(&b, path, 1 << 20, &err), 0);
    const char *config = buf_z(&b), *at = strstr(config, text);
    assert_non_null(at);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "%.*s%s%s", (int)(at - config), config, to, at + strlen(text));
    assert_int_equal(fclose(f), 0);
    buf_release(&b);
}

static void refused(const char *out, int code, const char *says) {
    struct backend *be = NULL;
    struct model *m = NULL;
    struct err err = {0};
    assert_int_equal(backend_cpu_open(&be, 1, "portable", &err), 0);
    assert_int_equal(
        model_load(&m,
                   &(struct model_load_options){.dir = out, .backend = be, .split = &split_single},
                   &err),
        code);
    if (!strstr(err.text, says)) fail_msg("%s", err.text);
    be->ops->close(be);
}

static void hostile_panels_are_refused_test(void **state) {
    struct quantize_result result;
    struct err err = {0};
    char out[200], file[300];
    snprintf(out, sizeof out, "%s/out", dir.path);
    snprintf(file, sizeof file, "%s/model.safetensors", out);
    struct quantize_options o = {
        .model_dir = "tests/fixtures/models/llama", .out_dir = out, .weights = WEIGHTS_INT8};
    assert_int_equal(quantize_write(&o, &result, &err), 0);
    change_config(out, "\"layout_version\": 1", "\"layout_version\": 2");
    refused(out, E_UNSUPPORTED, "version 2");
    change_config(out, "\"layout_version\": 2", "\"layout_version\": 1");
    change_config(out, "panels16x4", "panels32x4");
    refused(out, E_UNSUPPORTED, "panels32x4");
    change_config(out, "\"layout\": \"panels32x4\",", "");
    refused(out, E_UNSUPPORTED, "version 1");
    change_config(out, "\"layout_version\": 1,", "");
    refused(out, E_UNSUPPORTED, "stored as u8"); // the file does not say that they are panels
    clear_out(out);
    assert_int_equal(quantize_write(&o, &result, &err), 0);
    change_config(out, "\"intermediate_size\": 160", "\"intermediate_size\": 176");
    refused(out, E_FORMAT, "(10, 16, 16, 4), not (11, 16, 16, 4)");
    change_config(out, "\"intermediate_size\": 176", "\"intermediate_size\": 160");
    // A file that ends inside its last tensor is refused before anything is mapped. If it is cut
    // while it is being loaded, that is an error too, not the signal that touching the page would
    // raise.
    struct checkpoint *cp = NULL;
    struct stat st;
    assert_int_equal(checkpoint_open(&cp, out, &err), 0);
    const struct tensor *t = checkpoint_find(cp, "lm_head.weight");
    assert_true(t && stat(file, &st) == 0);
    assert_int_equal(checkpoint_populate(cp, t, 0, t->bytes, &err), 0);
    assert_int_equal(checkpoint_populate(cp, t, 1, t->bytes, &err), E_INTERNAL);
    assert_int_equal(truncate(file, 4096), 0);
    t = checkpoint_find(cp, "model.layers.2.mlp.down_proj.weight");
    assert_int_equal(checkpoint_populate(cp, t, 0, t->bytes, &err), E_CORRUPT);
    checkpoint_close(cp);
    refused(out, E_FORMAT, "truncated");
    clear_out(out);
}

// The values of a matrix of the demo model, as one of the two folders has them.
static float *values_of(struct checkpoint *cp, const struct tensor *t) {
    struct err err = {0};
    const size_t n = t->bytes / dtype_size(t->dtype);
    char *raw = malloc(t->bytes);
    float *out = malloc(n * sizeof *out);
    assert_non_null(raw);
    assert_non_null(out);
    assert_int_equal(checkpoint_read(cp, t, 0, raw, t->bytes, &err), 0);
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        if (t->dtype == DTYPE_F32) {
            memcpy(&out[i], raw + i * sizeof *out, sizeof *out);
            continue;
        }
        memcpy(&half, raw + i * sizeof half, sizeof half);
        out[i] = t->dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
    }
    free(raw);
    return out;
}

// Other tensors come back unchanged; of the matrices, the error is what
// 4 bits leave of about normal values.
static void four_bits_read_back_test(void **state) {
    struct err err = {0};
    struct quantize_result result;
    struct checkpoint *from, *to;
    char out[200];
    int n = 0, kept = 0;
    snprintf(out, sizeof out, "%s/int4", dir.path);
    block_bytes = 30000;
    struct quantize_options o = {
        .model_dir = "configs/demo-model", .out_dir = out, .weights = WEIGHTS_INT4};
    if (quantize_write(&o, &result, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(checkpoint_open(&from, o.model_dir, &err), 0);
    if (checkpoint_open(&to, out, &err) < 0) fail_msg("%s", err.text);
    for (size_t i = 0; i < checkpoint_count(from); i++) {
        const struct tensor *t = checkpoint_at(from, i), *u = checkpoint_find(to, t->name);
        struct group_format f;
        double off = 0, all = 0;
        assert_non_null(u);
        float *was = values_of(from, t), *is = values_of(to, u);
        if (!checkpoint_groups(to, u, &f)) { // norms and the embedding
            assert_memory_equal(was, is, t->bytes / dtype_size(t->dtype) * sizeof *was);
            kept++;
        } else {
            assert_true(f.bits == 4 && f.group == INT4_GROUP && f.scale == GROUP_SCALE_BF16);
            for (int64_t k = 0; k < t->shape[0] * t->shape[1]; k++) {
                off += pow((double)was[k] - is[k], 2);
                all += pow(was[k], 2);
            }
            if (off > 0.02 * all || off < 0.004 * all)
                fail_msg("%s: %.4f of the squares are lost", t->name, off / all);
            n++;
        }
        free(was);
        free(is);
    }
    assert_true(n == result.n_matrices && n == 56 && kept > 16);
    checkpoint_close(from);
    checkpoint_close(to);
    clear_out(out);
    o.model_dir = "tests/fixtures/models/llama"; // 64 columns
    assert_int_equal(quantize_write(&o, &result, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "no matrix of outputs by inputs whose inputs 128 divides"));
    assert_true(access(out, F_OK) < 0);
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
    struct quantize_options o = {.model_dir = "configs/demo-model",
                                 .out_dir = out,
                                 .weights = WEIGHTS_INT8,
                                 .progress = note};
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
    // A folder that is in 8 bits already is refused, and nothing is written.
    char again[200];
    snprintf(again, sizeof again, "%s/again", dir.path);
    o = (struct quantize_options){.model_dir = out, .out_dir = again, .weights = WEIGHTS_INT8};
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
    struct quantize_options o = {
        .model_dir = "tests/fixtures/models/gpt2", .out_dir = out, .weights = WEIGHTS_INT8};
    // No room: the limit on file sizes stands for a full disk.
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
    o = (struct quantize_options){.model_dir = dir.path, .out_dir = out, .weights = WEIGHTS_INT8};
    assert_int_equal(quantize_write(&o, &result, &err), E_NOTFOUND);
    o = (struct quantize_options){.model_dir = "tests/fixtures/models/gpt2",
                                  .out_dir = "/proc/none/such"};
    assert_true(quantize_write(&o, &result, &err) < 0);
    // A FasterTransformer folder is recognised, and refused as such.
    tmp_text(&dir, "config.ini", "[gpt]\n");
    o = (struct quantize_options){.model_dir = dir.path, .out_dir = out, .weights = WEIGHTS_INT8};
    assert_int_equal(quantize_write(&o, &result, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "FasterTransformer"));
    unlink(tmp_path(&dir, "config.ini"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_is_what_loading_makes_test),
        cmocka_unit_test(panels_are_mapped_test),
        cmocka_unit_test(ranks_read_panels_test),
        cmocka_unit_test(hostile_panels_are_refused_test),
        cmocka_unit_test(four_bits_read_back_test),
        cmocka_unit_test(the_folder_is_whole_test),
        cmocka_unit_test(nothing_is_left_test),
    };
    return cmocka_run_group_tests_name("quantize", tests, setup, teardown);
}
