// Which folder is the model's, and where its tokenizer files are.
#include "engine/model/ft_folder.h"
#include "engine/model/text_files.h"
#include "tests/unit/ft_writer.h"

static struct tmp_dir dir;

static int setup(void **state) {
    tmp_dir_open(&dir);
    return 0;
}
static int teardown(void **state) {
    ft_remove(dir.path);
    return 0;
}

static void make(const char *sub) {
    assert_int_equal(mkdir(tmp_path(&dir, sub), 0777), 0);
}

static const char *find(const char *path) {
    static char out[PATH_MAX];
    struct err err = {0};
    bool found;
    if (ft_folder_find(out, path, &found, &err) < 0) fail_msg("%s", err.text);
    return found ? out : NULL;
}

static void takes_the_folder_or_the_only_one_in_it(void **state) {
    struct err err = {0};
    bool found;
    char out[PATH_MAX];
    assert_null(find(dir.path));
    assert_null(find("/nonexistent"));
    make("2-gpu");
    make("old-2-gpu");
    make("0-gpu");
    make("-1-gpu");
    make("2-gpu-old");
    tmp_text(&dir, "old-2-gpu/config.ini", "");
    tmp_text(&dir, "0-gpu/config.ini", "");
    tmp_text(&dir, "-1-gpu/config.ini", "");
    tmp_text(&dir, "2-gpu-old/config.ini", "");
    assert_null(find(dir.path)); // 2-gpu is empty
    tmp_text(&dir, "2-gpu/config.ini", "");
    assert_string_equal(find(dir.path), tmp_path(&dir, "2-gpu"));
    assert_string_equal(find(tmp_path(&dir, "2-gpu")), tmp_path(&dir, "2-gpu"));
    make("16-gpu");
    make("8-gpu");
    tmp_text(&dir, "16-gpu/config.ini", "");
    tmp_text(&dir, "8-gpu/config.ini", "");
    assert_int_equal(ft_folder_find(out, dir.path, &found, &err), E_INVAL);
    assert_non_null(strstr(err.text, "holds 2-gpu, 8-gpu, 16-gpu: say which"));
    assert_string_equal(find(tmp_path(&dir, "8-gpu")), tmp_path(&dir, "8-gpu"));
}

static void safetensors_come_first(void **state) {
    make("1-gpu");
    tmp_text(&dir, "1-gpu/config.ini", "");
    tmp_text(&dir, "config.json", "{}");
    tmp_text(&dir, "pytorch_model.bin", "");
    assert_non_null(find(dir.path)); // what could not be read otherwise
    tmp_text(&dir, "model.safetensors", "");
    assert_null(find(dir.path));
}

static void ranks_are_in_the_name(void **state) {
    make("4-gpu");
    assert_int_equal(ft_folder_ranks(tmp_path(&dir, "4-gpu")), 4);
    assert_int_equal(ft_folder_ranks(tmp_path(&dir, "4-gpu/")), 4);
    assert_int_equal(ft_folder_ranks(dir.path), 0);
    assert_int_equal(ft_folder_ranks("/nonexistent/4-gpu"), 0);
    make("999999999999-gpu");
    assert_int_equal(ft_folder_ranks(tmp_path(&dir, "999999999999-gpu")), 0);
}

static const char *text_dir(const char *path) {
    static char out[PATH_MAX], real[PATH_MAX];
    struct err err = {0};
    if (text_files_dir(out, path, NULL, &err) < 0) fail_msg("%s", err.text);
    return realpath(out, real);
}

static void words_of_a_repository(void **state) {
    char out[PATH_MAX];
    struct err err;
    make("fastertransformer");
    make("fastertransformer/1");
    make("fastertransformer/1/2-gpu");
    make("preprocessing");
    make("preprocessing/1");
    tmp_text(&dir, "fastertransformer/1/2-gpu/config.ini", "");
    tmp_text(&dir, "preprocessing/1/gpt2-vocab.json", "{}");
    const char *checkpoint = tmp_path(&dir, "fastertransformer/1/2-gpu");
    assert_string_equal(text_dir(checkpoint), checkpoint);
    tmp_text(&dir, "preprocessing/1/gpt2-merges.txt", "a b");
    assert_string_equal(text_dir(checkpoint), tmp_path(&dir, "preprocessing/1"));
    tmp_text(&dir, "fastertransformer/1/2-gpu/20B_tokenizer.json", "{}");
    assert_string_equal(text_dir(checkpoint), checkpoint);
    // One that is named comes before any other, and must be one.
    assert_int_equal(text_files_dir(out, checkpoint, "configs/demo-model", &err), 0);
    assert_string_equal(out, "configs/demo-model");
    assert_int_equal(text_files_dir(out, checkpoint, tmp_path(&dir, "preprocessing"), &err),
                     E_NOTFOUND);
}

static void words_are_beside_or_around(void **state) {
    int n = -1;
    struct err err;
    assert_string_equal(text_dir("configs/demo-model"),
                        realpath("configs/demo-model", (char[PATH_MAX]){0}));
    make("2-gpu");
    tmp_text(&dir, "2-gpu/config.ini", "");
    assert_string_equal(text_dir(dir.path), tmp_path(&dir, "2-gpu"));
    tmp_text(&dir, "vocab.json", "{}");
    assert_string_equal(text_dir(dir.path), tmp_path(&dir, "2-gpu")); // not without merges
    tmp_text(&dir, "merges.txt", "a b");
    assert_string_equal(text_dir(dir.path), dir.path);
    assert_string_equal(text_dir(tmp_path(&dir, "2-gpu")), dir.path);
    tmp_text(&dir, "2-gpu/tokenizer.json", "{}");
    assert_string_equal(text_dir(dir.path), tmp_path(&dir, "2-gpu"));
    make("copy");
    assert_int_equal(text_files_copy(dir.path, tmp_path(&dir, "copy"), &n, &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(access(tmp_path(&dir, "copy/merges.txt"), R_OK), 0);
    assert_int_equal(text_files_copy(dir.path, "/nonexistent", &n, &err), E_NOTFOUND);
}

static void check_name(const char *path, const char *want) {
    char name[100];
    ft_folder_model_name(name, sizeof name, path);
    if (strcmp(name, want) != 0) fail_msg("%s: %s, not %s", path, name, want);
}

// In the cache of Hugging Face's tools a folder is called by its commit, and a GGUF file is a link to a hash.
static void a_cached_model_has_its_repository_s_name(void **state) {
    make("models--acme--Small-1B");
    make("models--acme--Small-1B/snapshots");
    make("models--acme--Small-1B/snapshots/0123");
    tmp_text(&dir, "models--acme--Small-1B/5678", "");
    assert_int_equal(
        symlink("../../5678", tmp_path(&dir, "models--acme--Small-1B/snapshots/0123/m-Q4_0.gguf")),
        0);
    check_name(tmp_path(&dir, "models--acme--Small-1B/snapshots/0123"), "Small-1B");
    check_name(tmp_path(&dir, "models--acme--Small-1B/snapshots/0123/m-Q4_0.gguf"), "m-Q4_0");
    check_name("/x/models--gpt2/snapshots/0123", "gpt2");
    check_name("/x/snapshots/0123", "0123");
    check_name("/x/models--a--b/snapshots", "snapshots");
    check_name("/models--a--b/0123", "0123");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(takes_the_folder_or_the_only_one_in_it, setup, teardown),
        cmocka_unit_test_setup_teardown(safetensors_come_first, setup, teardown),
        cmocka_unit_test_setup_teardown(ranks_are_in_the_name, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cached_model_has_its_repository_s_name, setup, teardown),
        cmocka_unit_test_setup_teardown(words_are_beside_or_around, setup, teardown),
        cmocka_unit_test_setup_teardown(words_of_a_repository, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
