// Files of several ranks as one tensor each: reading any range, and every fault of a folder, from a
// missing file to one that is replaced while it is read.
#include "base/io.h"
#include "base/log.h"
#include "engine/model/checkpoint.h"
#include "engine/model/fingerprint.h"
#include "tests/unit/ft_writer.h"
#include <fcntl.h>

static struct ft_writer w;

static int setup(void **state) {
    log_set_level(LOG_OFF);
    ft_writer_open(&w, *state ? *state : "gpt2", 2, true);
    return 0;
}
static int teardown(void **state) {
    ft_writer_close(&w);
    return 0;
}

static struct checkpoint *open_ok(const char *dir) {
    struct checkpoint *c = NULL;
    struct err err = {0};
    if (checkpoint_open(&c, dir, &err) < 0) fail_msg("%s", err.text);
    return c;
}

static const char *in_folder(const char *name) {
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", w.folder, name);
    return path;
}

static void edit_config(const char *from, const char *to) {
    static char text[4000], rest[4000];
    FILE *f = fopen(in_folder("config.ini"), "r+");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    char *at = strstr(text, from);
    assert_non_null(at);
    strcpy(rest, at + strlen(from));
    strcpy(at, to);
    strcat(text, rest);
    rewind(f);
    assert_int_equal(ftruncate(fileno(f), 0), 0);
    fputs(text, f);
    fclose(f);
}

// --- values ---

// A range of a rank's files: at any offset and length, the bytes are those of the whole tensor.
static void any_bytes_of_a_merged_tensor(void **state) {
    struct checkpoint *c = open_ok(w.folder);
    struct err err;
    const char *const names[] = {"model.layers.1.attention.query_key_value.weight",
                                 "model.layers.1.attention.query_key_value.bias",
                                 "model.layers.2.attention.dense.weight",
                                 "model.layers.0.mlp.dense_h_to_4h.weight", "model.wpe.weight"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const struct tensor *t = checkpoint_find(c, names[k]);
        assert_non_null(t);
        assert_null(t->data);
        char *all = malloc(t->bytes), *some = malloc(t->bytes);
        for (size_t at = 0; at < t->bytes; at++)
            if (at % 97 == 0) // byte by byte would take long
                for (size_t i = at; i < at + 97 && i < t->bytes; i++)
                    if (checkpoint_read(c, t, i, all + i, 1, &err) < 0) fail_msg("%s", err.text);
        for (size_t i = 0; i < 200; i++) {
            size_t from = i * 7919 % t->bytes, n = (i * i * 104729 + i) % (t->bytes - from + 1);
            if (i == 0) from = 0, n = t->bytes;
            memset(some, 0x55, t->bytes);
            assert_int_equal(checkpoint_read(c, t, from, some, n, &err), 0);
            assert_memory_equal(some, all + from, n);
        }
        assert_int_equal(checkpoint_read(c, t, t->bytes, some, 0, &err), 0);
        assert_int_equal(checkpoint_read(c, t, t->bytes, some, 1, &err), E_INTERNAL);
        assert_int_equal(checkpoint_read(c, t, SIZE_MAX, some, 2, &err), E_INTERNAL);
        free(all);
        free(some);
    }
    checkpoint_close(c);
}

static void shapes_are_the_models(void **state) {
    struct checkpoint *c = open_ok(w.dir.path);
    assert_int_equal(checkpoint_ft_ranks(c), 2);
    assert_int_equal(checkpoint_count(c), 2 + 2 + 3 * 12);
    const struct tensor *t = checkpoint_find(c, "model.layers.0.attention.query_key_value.weight");
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], 64);
    assert_int_equal(t->shape[1], 192);
    assert_int_equal(t->bytes, 64 * 192 * 4);
    t = checkpoint_find(c, "model.layers.2.mlp.dense_4h_to_h.weight");
    assert_int_equal(t->shape[0], 256);
    for (size_t i = 0; i < checkpoint_count(c); i++)
        assert_int_equal(checkpoint_index(c, checkpoint_at(c, i)), i);
    checkpoint_forget(c, t); // there is nothing to forget
    checkpoint_close(c);
}

static void fingerprint_knows_no_ranks(void **state) {
    char prints[2][FINGERPRINT_LEN + 1];
    struct ft_writer four;
    struct err err;
    ft_writer_open(&four, "gpt2", 4, true);
    const char *const dirs[] = {w.folder, four.folder};
    for (int i = 0; i < 2; i++) {
        struct model_config m;
        struct checkpoint *c = open_ok(dirs[i]);
        assert_int_equal(model_config_load(&m, dirs[i], &err), 0);
        assert_int_equal(fingerprint_compute(prints[i], &m, c, &err), 0);
        checkpoint_close(c);
    }
    assert_string_equal(prints[0], prints[1]);
    ft_writer_close(&four);
}

// --- the head ---

static void head_that_is_the_embedding(void **state) {
    struct model_config m;
    struct err err;
    assert_int_equal(model_config_load(&m, w.folder, &err), 0);
    assert_true(m.tied_head); // OPT's converter writes a copy, BLOOM's a transposed one
    FILE *f = fopen(in_folder("model.lm_head.weight.bin"), "r+b");
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    fputc(1, f);
    fclose(f);
    assert_int_equal(model_config_load(&m, w.folder, &err), 0);
    assert_false(m.tied_head);
    assert_int_equal(unlink(in_folder("model.lm_head.weight.bin")), 0);
    assert_int_equal(model_config_load(&m, w.folder, &err), 0);
    assert_true(m.tied_head);
}

// A head of its own from BLOOM's converter is transposed while reading.
static void untied_head_of_bloom_is_turned(void **state) {
    struct err err;
    float *row = malloc(320 * 64 * sizeof *row), v;
    FILE *f = fopen(in_folder("model.lm_head.weight.bin"), "wb");
    for (int i = 0; i < 64; i++)
        for (int token = 0; token < 320; token++) ft_put(f, (float)(token * 100 + i));
    fclose(f);
    struct checkpoint *c = open_ok(w.folder);
    const struct tensor *t = checkpoint_find(c, "model.lm_head.weight");
    assert_int_equal(t->shape[0], 320);
    assert_int_equal(checkpoint_read(c, t, 0, row, t->bytes, &err), 0);
    for (int token = 0; token < 320; token++)
        for (int i = 0; i < 64; i++) assert_true(row[token * 64 + i] == (float)(token * 100 + i));
    assert_int_equal(checkpoint_read(c, t, (17 * 64 + 5) * 4 + 1, row, 64 * 3 * 4, &err), 0);
    memcpy(&v, (char *)row + 3, sizeof v);
    assert_true(v == 1706);
    checkpoint_close(c);
    // From other writers it lies as FasterTransformer reads it.
    edit_config("model_variant=bloom-pre\n", "");
    c = open_ok(w.folder);
    t = checkpoint_find(c, "model.lm_head.weight");
    assert_int_equal(checkpoint_read(c, t, 4, &v, 4, &err), 0);
    assert_true(v == 100);
    checkpoint_close(c);
    free(row);
}

static void gptj_must_have_its_head(void **state) {
    struct checkpoint *c = NULL;
    struct err err;
    assert_int_equal(unlink(in_folder("model.lm_head.bias.bin")), 0);
    assert_int_equal(checkpoint_open(&c, w.folder, &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "2-gpu/model.lm_head.bias.bin is missing"));
}

// --- what is wrong ---

static void expect(int code, const char *names) {
    struct checkpoint *c = NULL;
    struct model_config m;
    struct err err = {0};
    int rc = checkpoint_open(&c, w.folder, &err);
    if (rc != code || !strstr(err.text, names)) fail_msg("%d: %s", rc, err.text);
    assert_int_equal(model_config_load(&m, w.folder, &err), code);
    assert_null(c);
}

static void a_missing_file_is_named(void **state) {
    const char *name = "model.layers.2.mlp.dense_h_to_4h.bias.1.bin";
    char away[512];
    snprintf(away, sizeof away, "%s/away", w.folder);
    assert_int_equal(rename(in_folder(name), away), 0);
    expect(E_NOTFOUND, "2-gpu/model.layers.2.mlp.dense_h_to_4h.bias.1.bin is missing");
    assert_int_equal(mkdir(in_folder(name), 0777), 0);
    expect(E_FORMAT, "is not a regular file");
    assert_int_equal(rmdir(in_folder(name)), 0);
    assert_int_equal(mkfifo(in_folder(name), 0666), 0);
    expect(E_FORMAT, "is not a regular file"); // and does not wait for a writer
    assert_int_equal(unlink(in_folder(name)), 0);
    assert_int_equal(rename(away, in_folder(name)), 0);
    checkpoint_close(open_ok(w.folder));
}

static void resize(const char *name, long by) {
    struct stat s;
    assert_int_equal(stat(in_folder(name), &s), 0);
    assert_int_equal(truncate(in_folder(name), s.st_size + by), 0);
}

static void a_wrong_size_is_named_with_both(void **state) {
    resize("model.layers.1.attention.query_key_value.weight.1.bin", -4);
    expect(E_FORMAT, "attention.query_key_value.weight.1.bin has 24572 bytes; by config.ini it "
                     "must have 24576 (64 x 192 of fp32, a rank's part)");
    resize("model.layers.1.attention.query_key_value.weight.1.bin", 4);
    resize("model.final_layernorm.bias.bin", 256);
    expect(E_FORMAT, "final_layernorm.bias.bin has 512 bytes; by config.ini it must have 256 "
                     "(64 of fp32)");
    resize("model.final_layernorm.bias.bin", -256);
    resize("model.wpe.bin", 256); // no padding of positions
    expect(E_FORMAT, "model.wpe.bin has 65792");
    resize("model.wpe.bin", -256);
    resize("model.wte.bin", 4);
    expect(E_FORMAT, "model.wte.bin has 81924");
    resize("model.wte.bin", 252); // a row more
    checkpoint_close(open_ok(w.folder));
    resize("model.wte.bin", 320 * 256); // twice the vocabulary is a different model
    expect(E_FORMAT, "model.wte.bin");
    resize("model.wte.bin", -321 * 256);
    checkpoint_close(open_ok(w.folder));
    edit_config("weight_data_type = fp32", "weight_data_type = fp16");
    expect(E_FORMAT, "model.wte.bin has 81920 bytes; by config.ini it must have 40960");
}

static void ranks_must_agree(void **state) {
    char moved[200];
    edit_config("num_layer = 3\n", "num_layer = 3\ntensor_para_size = 4\n");
    expect(E_FORMAT, "'tensor_para_size' is 4 in a folder called 2-gpu");
    edit_config("tensor_para_size = 4\n", "");
    // Without either, the files are counted.
    snprintf(moved, sizeof moved, "%s/moved", w.dir.path);
    assert_int_equal(rename(w.folder, moved), 0);
    struct checkpoint *c = open_ok(moved);
    assert_int_equal(checkpoint_ft_ranks(c), 2);
    checkpoint_close(c);
    assert_int_equal(rename(moved, w.folder), 0);
    // A rank too many: a file left over from another conversion.
    tmp_text(&w.dir, "2-gpu/model.layers.0.attention.query_key_value.weight.2.bin", "");
    expect(E_FORMAT, "files of more than 2 ranks");
    assert_int_equal(unlink(in_folder("model.layers.0.attention.query_key_value.weight.2.bin")), 0);
    edit_config("head_num = 4\nsize_per_head = 16", "head_num = 1\nsize_per_head = 64");
    expect(E_FORMAT, "1 heads do not divide by 2 tensor-parallel ranks");
}

static void a_file_changed_meanwhile_is_an_error(void **state) {
    char bytes[64];
    struct err err;
    struct checkpoint *c = open_ok(w.folder);
    const char *name = "model.layers.0.attention.dense.weight";
    const struct tensor *t = checkpoint_find(c, name);
    assert_int_equal(checkpoint_check_unchanged(c, &err), 0);
    assert_int_equal(checkpoint_read(c, t, 0, bytes, sizeof bytes, &err), 0);
    resize("model.layers.0.attention.dense.weight.0.bin", -4);
    assert_int_equal(checkpoint_read(c, t, 0, bytes, sizeof bytes, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "dense.weight.0.bin: the file changed"));
    assert_int_equal(checkpoint_check_unchanged(c, &err), E_CORRUPT);
    assert_int_equal(unlink(in_folder("model.layers.0.attention.dense.weight.0.bin")), 0);
    assert_int_equal(checkpoint_read(c, t, 0, bytes, sizeof bytes, &err), E_NOTFOUND);
    checkpoint_close(c);
}

// Between the check and the read.
static void a_file_cut_while_it_is_open(void **state) {
    char bytes[64];
    struct err err;
    int fd = open(in_folder("model.wpe.bin"), O_RDONLY);
    resize("model.wpe.bin", -65536 + 32);
    assert_int_equal(io_read_at(fd, bytes, sizeof bytes, 0, "wpe", &err), E_CORRUPT);
    close(fd);
}

static void not_a_folder_of_this_kind(void **state) {
    struct checkpoint *c = NULL;
    struct err err;
    assert_int_equal(unlink(in_folder("config.ini")), 0);
    assert_int_equal(checkpoint_open(&c, w.folder, &err), E_NOTFOUND);
    tmp_text(&w.dir, "2-gpu/config.ini", "[gpt]\nhead_num = 4\n");
    expect(E_FORMAT, "2-gpu/config.ini: 'size_per_head' is missing");
}

#define test(f, family)                                                                            \
    { #f "(" family ")", f, setup, teardown, (void *)family }

int main(void) {
    const struct CMUnitTest tests[] = {
        test(any_bytes_of_a_merged_tensor, "gpt2"),
        test(shapes_are_the_models, "gpt2"),
        test(fingerprint_knows_no_ranks, "gpt2"),
        test(head_that_is_the_embedding, "opt"),
        test(head_that_is_the_embedding, "bloom"),
        test(untied_head_of_bloom_is_turned, "bloom"),
        test(gptj_must_have_its_head, "gptj"),
        test(a_missing_file_is_named, "gpt2"),
        test(a_wrong_size_is_named_with_both, "gpt2"),
        test(ranks_must_agree, "gpt2"),
        test(a_file_changed_meanwhile_is_an_error, "gpt2"),
        test(a_file_cut_while_it_is_open, "gpt2"),
        test(not_a_folder_of_this_kind, "gpt2"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
