// Synthetic checkpoints: they load, they are the shapes they claim to be, the same seed gives the
// same bytes.
#include "tests/unit/tmp_dir.h"
// How large a shard may be, under the test's control.
static long long shard_bytes;
#define SYNTH_SHARD_BYTES shard_bytes
#include "base/philox.h"
#include "engine/model/checkpoint.h"
#include "engine/model/model.h"
#include "engine/model/synth.c"
#include "tests/unit/fake_backend.h"
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

static int setup(void **state) {
    shard_bytes = (long long)4 << 30;
    return 0;
}

static void write_ok(const struct synth_options *o) {
    struct err err = {0};
    if (synth_write(o, &err) != 0) fail_msg("%s", err.text);
}

static struct checkpoint *open_ok(const char *path) {
    struct checkpoint *c = NULL;
    struct err err = {0};
    if (checkpoint_open(&c, path, &err) != 0) fail_msg("%s", err.text);
    return c;
}

static void same_tensors(const struct tmp_dir *a, const struct tmp_dir *b, bool same) {
    struct checkpoint *x = open_ok(a->path), *y = open_ok(b->path);
    assert_int_equal(checkpoint_count(x), checkpoint_count(y));
    for (size_t i = 0; i < checkpoint_count(x); i++) {
        const struct tensor *t = checkpoint_at(x, i), *u = checkpoint_find(y, t->name);
        assert_non_null(u);
        assert_int_equal(t->bytes, u->bytes);
        assert_int_equal(memcmp(t->data, u->data, t->bytes) == 0, same);
    }
    checkpoint_close(x);
    checkpoint_close(y);
}

static void moments(const struct checkpoint *c, const char *name, double *mean, double *deviation) {
    const struct tensor *t = checkpoint_find(c, name);
    assert_non_null(t);
    size_t n = t->bytes / dtype_size(t->dtype);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        struct tensor_view v = {.data = t->data, .dtype = t->dtype, .row_stride = 1};
        double x = fake_element(&v, (int64_t)i, 0);
        sum += x;
        squares += x * x;
    }
    *mean = sum / (double)n;
    *deviation = sqrt(squares / (double)n - *mean * *mean);
}

static void tiny_loads_and_looks_right(void **state) {
    struct tmp_dir d;
    struct err err = {0};
    tmp_dir_open(&d);
    write_ok(&(struct synth_options){.like = "tiny", .out_dir = d.path, .seed = 1});
    struct fake_backend f = fake_backend();
    struct model *m = NULL;
    if (model_load(
            &m,
            &(struct model_load_options){.dir = d.path, .backend = &f.be, .split = &split_single},
            &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(m->config.n_eos, 1);
    assert_int_equal(m->config.dtype, DTYPE_BF16);
    struct checkpoint *c = open_ok(d.path);
    int64_t n = 0;
    for (size_t i = 0; i < checkpoint_count(c); i++) n += (int64_t)checkpoint_at(c, i)->bytes / 2;
    assert_int_equal(n, model_config_n_params(&m->config));
    double mean, deviation;
    moments(c, "model.layers.0.mlp.up_proj.weight", &mean, &deviation);
    assert_true(fabs(mean) < 0.005 && fabs(deviation - 0.125) < 0.005); // 1 / sqrt(64)
    moments(c, "model.layers.1.mlp.down_proj.weight", &mean, &deviation);
    assert_true(fabs(deviation - 1 / sqrt(128) / 2) < 0.002); // 2 layers: 1 / sqrt(4) less
    moments(c, "model.norm.weight", &mean, &deviation);
    assert_true(fabs(mean - 1) < 0.05 && deviation > 0.01 && deviation < 0.1);
    const struct tensor *k = checkpoint_find(c, "model.layers.0.self_attn.k_proj.weight");
    const struct tensor *v = checkpoint_find(c, "model.layers.0.self_attn.v_proj.weight");
    assert_memory_not_equal(k->data, v->data, k->bytes);
    checkpoint_close(c);
    model_free(m);
    tmp_dir_close(&d);
}

static void same_seed_same_bytes(void **state) {
    struct tmp_dir a, b, other, shards;
    tmp_dir_open(&a);
    tmp_dir_open(&b);
    tmp_dir_open(&other);
    tmp_dir_open(&shards);
    write_ok(&(struct synth_options){.like = "tiny", .out_dir = a.path, .seed = 7});
    write_ok(&(struct synth_options){.like = "tiny", .out_dir = b.path, .seed = 7});
    write_ok(&(struct synth_options){.like = "tiny", .out_dir = other.path, .seed = 8});
    shard_bytes = 100000;
    write_ok(&(struct synth_options){.like = "tiny", .out_dir = shards.path, .seed = 7});
    assert_int_equal(access(tmp_path(&shards, "model.safetensors"), F_OK), -1);
    assert_int_equal(access(tmp_path(&shards, "model.safetensors.index.json"), F_OK), 0);
    same_tensors(&a, &b, true);
    same_tensors(&a, &other, false);
    same_tensors(&a, &shards, true);
    tmp_dir_close(&a);
    tmp_dir_close(&b);
    tmp_dir_close(&other);
    tmp_dir_close(&shards);
}

// Sizes as the models' authors give them.
static void shapes_are_those_of_the_models(void **state) {
    static const struct {
        const char *name;
        int64_t n_params;
    } known[] = {
        {"llama-1b", 1235814400},      {"llama-3b", 3212749824},   {"llama-8b", 8030261248},
        {"mistral-7b", 7248023552},    {"qwen2-0.5b", 494032768},  {"qwen2-7b", 7615616512},
        {"qwen3-0.6b", 596049920},     {"qwen3-8b", 8190735360},   {"demo", 14162304},
        {"gpt2", 124439808},           {"gpt2-xl", 1557611200},    {"gpt-j-6b", 6050882784},
        {"gpt-neox-20b", 20554567680}, {"bloom-560m", 559214592},  {"bloom-7b1", 7069016064},
        {"opt-125m", 125239296},       {"opt-350m", 331196416},    {"opt-6.7b", 6658473984},
        {"xglm-564m", 564463616},      {"llama-70b", 70553706496},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct tmp_dir d;
        struct err err = {0};
        struct synth_options o = {.like = known[i].name, .out_dir = NULL};
        tmp_dir_open(&d);
        o.out_dir = d.path;
        assert_non_null(strstr(synth_names(), known[i].name));
        struct plan p = {.options = &o};
        buf_init(&p.config_json, 100000);
        assert_int_equal(read_named(&p, &err), 0);
        assert_int_equal(write_config(&p, &err), 0);
        assert_int_equal(deal_shards(&p, &err), 0);
        assert_int_equal(model_config_n_params(&p.config), known[i].n_params);
        assert_int_equal(p.all.total, 2 * known[i].n_params);
        assert_int_equal(p.config.kinds[0].attention.window, 0);
        assert_true(p.n_shards >= p.all.total / shard_bytes &&
                    p.n_shards <= p.all.total / shard_bytes * 8 / 7 + 2);
        synth_tensors_free(&p.all);
        free(p.shards);
        free(p.block);
        buf_release(&p.config_json);
        tmp_dir_close(&d);
    }
}

// What is written is what the loader looks for, in every family.
static void every_family_loads(void **state) {
    static const char *const families[] = {"llama", "mistral",  "qwen2", "qwen3", "gpt2",
                                           "gptj",  "gpt_neox", "bloom", "opt",   "xglm"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        char config[100];
        struct tmp_dir d;
        struct err err = {0};
        struct fake_backend f = fake_backend();
        struct model *m = NULL;
        tmp_dir_open(&d);
        snprintf(config, sizeof config, "tests/fixtures/models/%s/config.json", families[i]);
        write_ok(&(struct synth_options){.config_path = config, .out_dir = d.path});
        if (model_load(&m,
                       &(struct model_load_options){
                           .dir = d.path, .backend = &f.be, .split = &split_single},
                       &err) != 0)
            fail_msg("%s", err.text);
        struct checkpoint *c = open_ok(d.path);
        int64_t n = 0;
        for (size_t t = 0; t < checkpoint_count(c); t++)
            n += (int64_t)(checkpoint_at(c, t)->bytes / dtype_size(checkpoint_at(c, t)->dtype));
        assert_int_equal(n, model_config_n_params(&m->config)); // nothing else is written
        checkpoint_close(c);
        model_free(m);
        tmp_dir_close(&d);
    }
}

static void takes_a_configuration_and_a_tokenizer(void **state) {
    struct tmp_dir d;
    struct model_config c, from;
    struct err err;
    tmp_dir_open(&d);
    write_ok(&(struct synth_options){.config_path = "tests/fixtures/models/qwen3/config.json",
                                     .out_dir = d.path,
                                     .dtype = "f32",
                                     .tokenizer_from = "configs/demo-model"});
    assert_int_equal(model_config_load(&c, d.path, &err), 0);
    assert_int_equal(model_config_load_file(&from, "tests/fixtures/models/qwen3/config.json", &err),
                     0);
    assert_int_equal(c.dtype, DTYPE_F32);
    from.dtype = c.dtype;
    assert_memory_equal(&c, &from, sizeof c);
    assert_int_equal(access(tmp_path(&d, "tokenizer.json"), F_OK), 0);
    assert_int_equal(access(tmp_path(&d, "chat_template.jinja"), F_OK), 0);
    struct fake_backend f = fake_backend();
    struct model *m = NULL;
    assert_int_equal(model_load(&m,
                                &(struct model_load_options){
                                    .dir = d.path, .backend = &f.be, .split = &split_single},
                                &err),
                     0);
    model_free(m);
    tmp_dir_close(&d);
    tmp_dir_open(&d);
    write_ok(&(struct synth_options){.like = "tiny", .out_dir = d.path, .dtype = "f16"});
    assert_int_equal(model_config_load(&c, d.path, &err), 0);
    assert_int_equal(c.dtype, DTYPE_F16);
    assert_int_equal(access(tmp_path(&d, "tokenizer.json"), F_OK), -1);
    tmp_dir_close(&d);
}

static void refuses(struct synth_options o, int code, const char *names) {
    struct err err = {0};
    int rc = synth_write(&o, &err);
    if (rc != code || !strstr(err.text, names))
        fail_msg("%d '%s', not %d '%s'", rc, err.text, code, names);
}

static void says_what_is_wrong_and_leaves_nothing(void **state) {
    struct tmp_dir d, empty;
    tmp_dir_open(&d);
    tmp_dir_open(&empty);
    refuses((struct synth_options){.out_dir = d.path}, E_INVAL, "either");
    refuses((struct synth_options){.like = "gpt-9", .out_dir = d.path}, E_NOTFOUND, "llama-8b");
    refuses((struct synth_options){.like = "tiny", .out_dir = d.path, .dtype = "i8"}, E_INVAL,
            "i8");
    refuses((struct synth_options){.config_path = "/nonexistent", .out_dir = d.path}, E_NOTFOUND,
            "/nonexistent");
    refuses((struct synth_options){.like = "tiny", .out_dir = "/nonexistent/x"}, E_NOTFOUND,
            "/nonexistent/x");
    refuses((struct synth_options){.like = "tiny", .out_dir = d.path, .tokenizer_from = empty.path},
            E_NOTFOUND, "tokenizer");
    // A limit on file sizes stands for a full disk.
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 50000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    refuses((struct synth_options){.like = "tiny", .out_dir = d.path}, E_IO, "model.safetensors");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rmdir(d.path), 0); // the failed writes left nothing behind
    write_ok(&(struct synth_options){.like = "tiny", .out_dir = d.path}); // makes the folder
    refuses((struct synth_options){.like = "tiny", .out_dir = d.path}, E_EXISTS, "config.json");
    assert_int_equal(access(tmp_path(&d, "model.safetensors"), F_OK), 0);
    tmp_dir_close(&d);
    tmp_dir_close(&empty);
}

static int64_t last_done, last_total;
static void note(void *ctx, int64_t done, int64_t total) {
    assert_true(done >= last_done && done <= total);
    last_done = done;
    last_total = total;
}

static void reports_progress(void **state) {
    struct tmp_dir d;
    tmp_dir_open(&d);
    write_ok(&(struct synth_options){.like = "tiny", .out_dir = d.path, .progress = note});
    assert_true(last_done > 0);
    assert_int_equal(last_done, last_total);
    tmp_dir_close(&d);
}

// The values of a tensor do not depend on how it is cut into blocks.
static void blocks_join(void **state) {
    struct synth_values v;
    uint16_t whole[1000], parts[1000];
    synth_values_init(&v, 3, "x", DTYPE_BF16, 0, 1);
    synth_values_fill(&v, whole, 0, 1000);
    synth_values_fill(&v, parts, 0, 256);
    synth_values_fill(&v, parts + 256, 256, 4);
    synth_values_fill(&v, parts + 260, 260, 740);
    assert_memory_equal(whole, parts, sizeof whole);
    // Value i comes from word i % 4 of draw i / 4.
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t counter[4] = {i / 4, 0, 0, 0}, w[4];
        philox4x32(v.key, counter, w);
        uint32_t x = w[i % 4], sum = (x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24);
        assert_int_equal(whole[i],
                         bf16_from_f32((float)(((double)sum - 510) / sqrt(4 * 65535.0 / 12))));
    }
}

// A folder without weights stands for the written one: the same bytes from any offset, the same model.
static void values_need_no_file(void **state) {
    static const struct {
        size_t offset, n;
    } reads[] = {{0, 0}, {0, 1}, {3, 5}, {8, 8}, {7, 9001}, {8190, 4}};
    struct tmp_dir written, recipe;
    struct err err = {0};
    char bytes[16384];
    tmp_dir_open(&written);
    tmp_dir_open(&recipe);
    write_ok(&(struct synth_options){.like = "tiny", .out_dir = written.path, .seed = 7});
    write_ok(&(struct synth_options){
        .like = "tiny", .out_dir = recipe.path, .seed = 7, .no_weights = true});
    struct checkpoint *x = open_ok(written.path), *y = open_ok(recipe.path);
    assert_int_equal(checkpoint_count(x), checkpoint_count(y));
    for (size_t i = 0; i < checkpoint_count(x); i++) {
        const struct tensor *t = checkpoint_at(x, i), *u = checkpoint_at(y, i);
        assert_string_equal(t->name, u->name);
        assert_int_equal(t->bytes, u->bytes);
        assert_null(u->data);
        char *all = malloc(u->bytes);
        assert_int_equal(checkpoint_read(y, u, 0, all, u->bytes, &err), 0);
        assert_memory_equal(all, t->data, t->bytes);
        free(all);
        for (size_t k = 0; k < sizeof reads / sizeof *reads; k++) {
            if (reads[k].offset + reads[k].n > u->bytes) continue;
            assert_int_equal(checkpoint_read(y, u, reads[k].offset, bytes, reads[k].n, &err), 0);
            assert_memory_equal(bytes, (const char *)t->data + reads[k].offset, reads[k].n);
        }
    }
    checkpoint_close(x);
    checkpoint_close(y);
    struct fake_backend f = fake_backend(), g = fake_backend();
    struct model *m = NULL, *n = NULL;
    assert_int_equal(model_load(&m,
                                &(struct model_load_options){
                                    .dir = written.path, .backend = &f.be, .split = &split_single},
                                &err),
                     0);
    assert_int_equal(model_load(&n,
                                &(struct model_load_options){
                                    .dir = recipe.path, .backend = &g.be, .split = &split_single},
                                &err),
                     0);
    assert_string_equal(m->fingerprint, n->fingerprint);
    model_free(m);
    model_free(n);
    // It is a model that is not overwritten; synth_remove leaves the folder alone.
    assert_int_equal(
        synth_write(&(struct synth_options){.like = "tiny", .out_dir = recipe.path}, &err),
        E_EXISTS);
    static const char *const bad[] = {"", "[]", "{}", "{\"seed\":-1}", "{\"seed\":\"1\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tmp_write(&recipe, "random.json", bad[i], strlen(bad[i]));
        assert_true(checkpoint_open(&x, recipe.path, &err) < 0);
        assert_non_null(strstr(err.text, "random.json"));
    }
    synth_remove(recipe.path);
    assert_int_equal(rmdir(recipe.path), 0);
    assert_int_equal(mkdir(recipe.path, 0700), 0);
    tmp_dir_close(&written);
    tmp_dir_close(&recipe);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(tiny_loads_and_looks_right, setup),
        cmocka_unit_test_setup(same_seed_same_bytes, setup),
        cmocka_unit_test_setup(shapes_are_those_of_the_models, setup),
        cmocka_unit_test_setup(every_family_loads, setup),
        cmocka_unit_test_setup(takes_a_configuration_and_a_tokenizer, setup),
        cmocka_unit_test_setup(says_what_is_wrong_and_leaves_nothing, setup),
        cmocka_unit_test_setup(reports_progress, setup),
        cmocka_unit_test_setup(blocks_join, setup),
        cmocka_unit_test_setup(values_need_no_file, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
