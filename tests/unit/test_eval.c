// SQuAD's measures against the values of its own script, and items that cannot be read.
#include "tests/cmocka.h"
#include "ws/cli/eval_items.h"
#include "ws/cli/eval_results.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void normalizes(const char *text, const char *want) {
    struct buf out;
    buf_init(&out, 1000);
    eval_normalize(text, &out);
    assert_string_equal(buf_z(&out), want);
    buf_release(&out);
}

static void normalizes_as_squad_does(void **state) {
    normalizes("", "");
    normalizes("The", "");
    normalizes("  The  Eiffel-Tower, in a city!  ", "eiffeltower in city");
    normalizes("an apple a day; THE END.", "apple day end");
    normalizes("theatre banana", "theatre banana");
    normalizes("The a an the.", ""); // "the." is an article once its point is gone
    normalizes("\tone\n two\r\n", "one two");
    normalizes("caf\xc3\xa9 'A'", "caf\xc3\xa9");
}

static void measures_as_squad_does(void **state) {
    assert_true(eval_exact("The Cat!", "cat"));
    assert_false(eval_exact("cats", "cat"));
    assert_true(eval_exact("the", "") && eval_f1("the", "") == 1);
    assert_true(eval_f1("", "cat") == 0 && eval_f1("cat", "") == 0);
    assert_true(eval_f1("a red ball", "red ball") == 1);
    assert_true(eval_f1("dog", "cat") == 0);
    assert_true(fabs(eval_f1("the big red ball", "red") - 0.5) < 1e-12); // 1/3 and 1
    // A word counts as often as both have it: 2 of 3, and 2 of 2.
    assert_true(fabs(eval_f1("no no no", "no no") - 0.8) < 1e-12);
}

// --- the file of results ---

static char path[300];

static void write_file(const char *text, const char *mode) {
    FILE *f = fopen(path, mode);
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void results_are_gone_on_with(void **state) {
    static const char header[] = "{\"eval\":\"lambada\"}";
    char dir[] = "/tmp/parley-eval-XXXXXX";
    struct eval_results r;
    struct err err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/results.jsonl", dir);
    assert_int_equal(eval_results_open(&r, path, header, 3, &err), 0);
    struct eval_result one = {.logprob = -1.5, .correct = true};
    assert_int_equal(eval_results_add(&r, 2, &one, &err), 0);
    struct eval_result ruled_out = {.logprob = -INFINITY};
    assert_int_equal(eval_results_add(&r, 0, &ruled_out, &err), 0);
    assert_int_equal(eval_results_close(&r, &err), 0);

    write_file("{\"item\":1,\"corr", "a"); // killed while it wrote
    for (int again = 0; again < 2; again++) {
        assert_int_equal(eval_results_open(&r, path, header, 3, &err), 0);
        assert_int_equal(r.n_found, 2);
        assert_true(r.list[2].done && r.list[2].correct && r.list[2].logprob == -1.5);
        assert_true(r.list[0].done && r.list[0].logprob == -INFINITY && !r.list[1].done);
        assert_int_equal(eval_results_close(&r, &err), 0);
    }
    assert_int_equal(eval_results_open(&r, path, "{\"eval\":\"squad\"}", 3, &err), E_INVAL);
    assert_non_null(strstr(err.text, "another"));
    assert_int_equal(eval_results_open(&r, path, header, 2, &err), E_FORMAT); // item 2 of 2
    write_file("no result\n", "a");
    assert_int_equal(eval_results_open(&r, path, header, 3, &err), E_FORMAT);
    write_file("{\"eval", "w"); // killed in its first line
    assert_int_equal(eval_results_open(&r, path, header, 3, &err), 0);
    assert_int_equal(r.n_found, 0);
    struct eval_result answer = {.answer = strdup("a \"b\"\n"), .f1 = 0.5};
    assert_int_equal(eval_results_add(&r, 1, &answer, &err), 0);
    assert_int_equal(eval_results_close(&r, &err), 0);
    assert_int_equal(eval_results_open(&r, path, header, 3, &err), 0);
    assert_string_equal(r.list[1].answer, "a \"b\"\n");
    assert_true(r.list[1].f1 == 0.5);
    assert_int_equal(eval_results_close(&r, &err), 0);
    remove(path);
    remove(dir);
}

static void full_disk_is_an_error(void **state) {
    struct eval_results r;
    struct err err = {0};
    char dir[] = "/tmp/parley-eval-XXXXXX";
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/results.jsonl", dir);
    assert_int_equal(eval_results_open(&r, path, "{}", 1, &err), 0);
    fclose(r.file);
    r.file = fopen("/dev/full", "a");
    struct eval_result one = {.logprob = -1};
    assert_int_equal(eval_results_add(&r, 0, &one, &err), E_IO);
    assert_non_null(strstr(err.text, "No space"));
    eval_results_close(&r, &err);
    remove(path);
    remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalizes_as_squad_does),
        cmocka_unit_test(measures_as_squad_does),
        cmocka_unit_test(results_are_gone_on_with),
        cmocka_unit_test(full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
