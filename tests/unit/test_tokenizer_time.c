// tokenizer: time is linear in the text, whatever the text.
#include "engine/text/tokenizer.h"
#include "tests/cmocka.h"
#include "tests/scale.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// A few bytes repeated: about a second each if the time is linear, minutes if it is not. One model
// gets a word of 10 MB, the others a tenth of that.
static void test_linear_time(void **state) {
    static const char *const models[] = {"configs/demo-model",
                                         "tests/fixtures/text/gpt_neox",
                                         "tests/fixtures/text/bloom",
                                         "tests/fixtures/text/llama2_spm",
                                         "tests/fixtures/text/xglm_spm",
                                         "tests/fixtures/text/xglm_json",
                                         "tests/fixtures/text/pieces_unused"};
    static const char *const units[] = {"a", " ",  "ab", "a ",           "\n", " \n", "1",
                                        "!", "'s", "中", "\u0301\u0323", "<|", "  a"};
    size_t longest = (size_t)test_scaled(10 << 20);
    char *text = malloc(longest + 8);
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        struct tokenizer *t;
        struct err err = {0};
        assert_int_equal(tokenizer_open(&t, models[k], &err), 0);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            size_t n = 0, unit = strlen(units[i]);
            size_t len = k == 0 && i == 0 ? longest : longest / 10;
            for (; n + unit <= len; n += unit) memcpy(text + n, units[i], unit);
            struct token_list ids;
            token_list_init(&ids);
            double start = seconds();
            if (tokenizer_encode(t, text, n, NULL, &ids, &err) < 0)
                fail_msg("%s '%s': %s", models[k], units[i], err.text);
            double took = seconds() - start;
            if (took > 90)
                fail_msg("%s: %zu bytes of '%s' took %.0f s", models[k], n, units[i], took);
            assert_true(ids.len <= n + 1); // a space in front may be one more
            token_list_release(&ids);
        }
        tokenizer_close(t);
    }
    free(text);
}

// Processor time of the best of three runs: neighbours on the machine count for little.
static double encoding_time(const struct tokenizer *t, const char *text, size_t len) {
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        struct token_list ids;
        struct timespec from, to;
        token_list_init(&ids);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        assert_int_equal(tokenizer_encode(t, text, len, NULL, &ids, NULL), 0);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        double took =
            (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
        if (took < best) best = took;
        token_list_release(&ids);
    }
    return best;
}

// Four times the text takes four times the time, and a little for the heap's height and the caches;
// a square would be 16.
static void test_time_grows_with_the_text(void **state) {
    static const char *const models[] = {
        "tests/fixtures/text/gpt2", "tests/fixtures/text/llama2_spm",
        "tests/fixtures/text/xglm_spm", "tests/fixtures/text/xglm_json",
        "tests/fixtures/text/pieces_unused"};
    static const char *const units[] = {"a",  "ab", "the", "\u00e9", "\u0301\u0323",
                                        "  ", "a ", "<s>"};
    enum { SMALL = 1 << 16 };
    char *text = malloc(4 * SMALL + 8);
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        struct tokenizer *t;
        struct err err = {0};
        assert_int_equal(tokenizer_open(&t, models[k], &err), 0);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            size_t n = 0, unit = strlen(units[i]);
            for (; n + unit <= 4 * SMALL; n += unit) memcpy(text + n, units[i], unit);
            size_t small = n / 4 - n / 4 % unit;
            double once = encoding_time(t, text, small), four = encoding_time(t, text, n);
            if (four > 9 * once + 0.02)
                fail_msg("%s, '%s': %g s for %zu bytes, %g s for %zu", models[k], units[i], once,
                         small, four, n);
        }
        tokenizer_close(t);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_time),
        cmocka_unit_test(test_time_grows_with_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
