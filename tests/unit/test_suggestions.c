// suggestions.json of a model's folder: what is read, what is refused by name, and where there is none.
#include "tests/cmocka.h"
#include "ws/suggestions.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[PATH_MAX], file[PATH_MAX + 32];

static int make_folder(void **state) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/parley-suggestions-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir)) return -1;
    snprintf(file, sizeof file, "%s/suggestions.json", dir);
    return 0;
}

static int remove_folder(void **state) {
    unlink(file);
    return rmdir(dir);
}

static int read_text(const char *text, char **json, struct err *err) {
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return suggestions_read(dir, json, err);
}

static void no_file_is_no_error(void **state) {
    struct err err;
    char *json = (char *)"";
    assert_int_equal(suggestions_read(dir, &json, &err), 0);
    assert_null(json);
    assert_int_equal(suggestions_read("/dev/null", &json, &err), 0); // a model in one file
    assert_null(json);
}

static void the_two_keys_are_read(void **state) {
    struct err err;
    char *json;
    assert_int_equal(read_text(" [ {\"text\": \"1 + 1?\", \"title\": \"\\u00fcber\", \"x\": 1} ]\n",
                               &json, &err),
                     0);
    assert_string_equal(json, "[{\"title\":\"\xc3\xbc"
                              "ber\",\"text\":\"1 + 1?\"}]");
    free(json);
    assert_int_equal(read_text("[]", &json, &err), 0);
    assert_string_equal(json, "[]");
    free(json);
}

static void others_are_refused_by_name(void **state) {
    char many[2000] = "[", long_title[400];
    for (int i = 0; i <= SUGGESTIONS_MAX; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many),
                 "%s{\"title\":\"a\",\"text\":\"b\"}", i ? "," : "");
    strcat(many, "]");
    snprintf(long_title, sizeof long_title, "[{\"title\":\"%0*d\",\"text\":\"b\"}]",
             SUGGESTION_TITLE_BYTES + 1, 0);
    const struct {
        const char *text, *said;
    } rows[] = {{"{}", "not an array"},
                {"[1]", "'title'"},
                {"[{\"title\":\"a\"}]", "'text'"},
                {"[{\"title\":\"\",\"text\":\"b\"}]", "'title'"},
                {"[{\"title\":\"a\",\"text\":7}]", "'text'"},
                {long_title, "1 to 100 bytes"},
                {many, "more than 12"},
                {"[{\"title\":", "suggestions.json"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        char *json = (char *)"";
        assert_true(read_text(rows[i].text, &json, &err) < 0);
        assert_null(json);
        assert_non_null(strstr(err.text, "suggestions.json"));
        assert_non_null(strstr(err.text, rows[i].said));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_file_is_no_error, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_two_keys_are_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(others_are_refused_by_name, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
