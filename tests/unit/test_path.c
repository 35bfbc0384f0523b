// Paths of files in a folder: what fits, what is too long, and which files a folder has.
#include "base/err.h"
#include "base/path.h"
#include "tests/unit/in_tmp_dir.h"

static void a_folder_and_a_name(void **state) {
    char path[PATH_MAX];
    assert_int_equal(path_join(path, "/models/demo", "config.json", NULL), 0);
    assert_string_equal(path, "/models/demo/config.json");
}

// PATH_MAX counts the final zero.
static void the_longest_path_fits_and_the_next_one_is_refused(void **state) {
    char folder[PATH_MAX], path[PATH_MAX];
    struct err err = {0};
    memset(folder, 'x', sizeof folder);
    folder[PATH_MAX - 1 - 2] = '\0'; // and "/a"
    assert_int_equal(path_join(path, folder, "a", &err), 0);
    assert_int_equal(strlen(path), PATH_MAX - 1);
    assert_int_equal(path_join(path, folder, "ab", &err), E_LIMIT);
    assert_non_null(strstr(err.text, "xxx/ab is too long"));
    assert_false(path_holds(folder, "ab", F_OK));
}

static void a_folder_holds_its_files(void **state) {
    tmp_text(&dir, "here", "text");
    assert_true(path_holds(dir.path, "here", F_OK));
    assert_true(path_holds(dir.path, "here", R_OK));
    assert_false(path_holds(dir.path, "elsewhere", F_OK));
}

static void an_absolute_path_keeps_the_name_of_a_file_s_link(void **state) {
    char real[PATH_MAX], want[PATH_MAX], got[PATH_MAX];
    struct err err = {0};
    assert_non_null(realpath(dir.path, real));
    assert_int_equal(mkdir(tmp_path(&dir, "snapshot"), 0777), 0);
    tmp_text(&dir, "0123abcd", "text");
    assert_int_equal(symlink("../0123abcd", tmp_path(&dir, "snapshot/m.gguf")), 0);
    assert_int_equal(symlink("snapshot", tmp_path(&dir, "link")), 0);
    assert_int_equal(path_absolute(got, tmp_path(&dir, "link/m.gguf"), &err), 0);
    path_join(want, real, "snapshot/m.gguf", NULL);
    assert_string_equal(got, want);
    assert_int_equal(path_absolute(got, tmp_path(&dir, "link/../snapshot/"), &err),
                     0); // a folder's own
    path_join(want, real, "snapshot", NULL);
    assert_string_equal(got, want);
    assert_int_equal(path_absolute(got, "Makefile", &err), 0);
    assert_true(got[0] == '/' && strcmp(strrchr(got, '/'), "/Makefile") == 0);
    assert_int_equal(path_absolute(got, "/dev/null", &err), 0);
    assert_string_equal(got, "/dev/null");
    assert_int_equal(path_absolute(got, tmp_path(&dir, "none"), &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "/none"));
    unlink(tmp_path(&dir, "link"));
    unlink(tmp_path(&dir, "snapshot/m.gguf"));
    rmdir(tmp_path(&dir, "snapshot"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_and_a_name),
        cmocka_unit_test(the_longest_path_fits_and_the_next_one_is_refused),
        cmocka_unit_test(a_folder_holds_its_files),
        cmocka_unit_test(an_absolute_path_keeps_the_name_of_a_file_s_link),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
