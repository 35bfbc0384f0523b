// stop_filter: stop strings apply to the text that clients see, however the answer is cut.
#include "base/err.h"
#include "engine/text/stop_filter.h"
#include "tests/cmocka.h"
#include <string.h>

#define THINK "<think>", "</think>"
#define CALL "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\\ny\"}}\n</tool_call>"
#define XML "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"

static const struct chat_syntax hermes = {TOOL_SYNTAX_HERMES, THINK},
                                xml = {TOOL_SYNTAX_XML, THINK},
                                mistral = {TOOL_SYNTAX_MISTRAL, NULL, NULL},
                                llama = {TOOL_SYNTAX_LLAMA, NULL, NULL}, none;

struct row {
    const struct chat_syntax *syntax;
    enum stop_in in;
    const char *text, *stop;
    const char *want;     // NULL: all of it
    bool thinks, goes_on; // the answer begins inside thinking; it continues an answer
};

static const struct row rows[] = {
    {&hermes, STOP_IN_ALL, "<think>\na\n</think>\n\nb", "\n", .want = "<think>"},
    {&hermes, STOP_IN_OLD_RECORD, "<think>\na\n</think>\n\nb", "\n", .want = "<think>"},
    {&hermes, STOP_IN_ANSWER, "<think>\na END\n</think>\n\nb END", "END",
     .want = "<think>\na END\n</think>\n\nb "},
    {&hermes, STOP_IN_ANSWER, "<think>\na\n</think>\n\nFour.\n\nFive", "\n",
     .want = "<think>\na\n</think>\n\nFour."},
    {&hermes, STOP_IN_ANSWER, "a\n</think>\n\nb\nc", "\n", "a\n</think>\n\nb", .thinks = true},
    {&hermes, STOP_IN_ANSWER, "a\nb </think", "\n", NULL, .thinks = true},
    {&hermes, STOP_IN_ANSWER, "\n\nb\nc", "\n", "", .goes_on = true},
    {&hermes, STOP_IN_ANSWER, "b <think>\n", "\n",
     .want = "b <think>"}, // not at the answer's beginning
    {&none, STOP_IN_ANSWER, "<think>\nx", "\n", .want = "<think>"},
    // A stop string begins in one part and ends in the next: it is in neither.
    {&hermes, STOP_IN_ANSWER, "<think>ab</think>ab", "b</think>", .want = NULL},
    {&hermes, STOP_IN_ANSWER, "<think>a</think>bab", "ab", .want = "<think>a</think>b"},
    // Without tools, the markup is text.
    {&hermes, STOP_IN_ANSWER, CALL, "\n", .want = "<tool_call>"},
    {&hermes, STOP_IN_TEXT, CALL, "\n", .want = NULL},
    {&hermes, STOP_IN_TEXT, CALL, "call", .want = NULL},
    {&hermes, STOP_IN_TEXT, CALL, "<", .want = NULL},
    {&hermes, STOP_IN_TEXT, CALL, "}", .want = NULL},
    {&hermes, STOP_IN_TEXT, "Wait.\n" CALL "\n" CALL, "\n", .want = NULL},
    {&hermes, STOP_IN_TEXT, "Wait.\nNo." CALL, "\n", .want = "Wait."},
    {&hermes, STOP_IN_TEXT, "a < b <tool_x", "<", .want = "a "},
    {&hermes, STOP_IN_TEXT, CALL "\nDone. END", "END", .want = CALL "\nDone. "},
    {&hermes, STOP_IN_TEXT, "<think>\nx\n</think>\n\n" CALL, "\n", .want = NULL},
    {&hermes, STOP_IN_TEXT, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "{", .want = NULL},
    {&hermes, STOP_IN_TEXT, "{\"name\": \"f\", \"age\": 3}", "}",
     .want = "{\"name\": \"f\", \"age\": 3"},
    {&hermes, STOP_IN_TEXT, "<tool_call>no call</tool_call>", "call>", .want = "<tool_"},
    {&xml, STOP_IN_TEXT, XML, "\n", .want = NULL},
    {&xml, STOP_IN_TEXT, XML "END", "END", .want = XML},
    {&mistral, STOP_IN_TEXT, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", "[",
     .want = NULL},
    {&mistral, STOP_IN_TEXT, "[TOOL_CALLS]f[ARGS]{\"a\": \"END\"}", "END", .want = NULL},
    {&llama, STOP_IN_TEXT, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "|",
     .want = NULL},
    {&none, STOP_IN_TEXT, CALL, "\n", .want = "<tool_call>"},
};

// The answer in pieces of `step` bytes, those before byte `early` too early to stop.
static void check(const struct row *r, size_t step, size_t early, const char *want, bool stops) {
    struct stop_filter f = {0};
    struct stop_place place = {
        .in = r->in, .thinks = r->thinks, .goes_on = r->goes_on, .syntax = *r->syntax};
    struct buf out;
    size_t len = strlen(r->text);
    int rc = 0;
    buf_init(&out, 1 << 20);
    assert_int_equal(stop_filter_begin(&f, &r->stop, 1, &place), 0);
    for (size_t at = 0; at < len && rc == 0; at += step) {
        size_t n = len - at < step ? len - at : step;
        rc = stop_filter_feed(&f, r->text + at, n, at + n <= early, &out);
    }
    assert_true(rc >= 0);
    if (rc == 0) assert_int_equal(stop_filter_flush(&f, &out), 0);
    // A stop string may end in what was held back, as the white space that ends an answer.
    if (stops != (rc == 1) || strcmp(buf_z(&out), want) != 0)
        print_message("%s, stop %s, by %zu: %s\n", r->text, r->stop, step, buf_z(&out));
    assert_string_equal(buf_z(&out), want);
    if (rc == 1) assert_true(stops);
    buf_release(&out);
    stop_filter_release(&f);
}

static void test_places(void **state) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        for (size_t step = 1; step <= strlen(r->text); step++)
            check(r, step, 0, r->want ? r->want : r->text, r->want != NULL);
    }
}

static void test_early(void **state) {
    static const struct row text = {&none, STOP_IN_ALL, "ab END cd END", "END", .want = NULL},
                            chat = {&hermes, STOP_IN_TEXT, "ab\ncd\nef", "\n", .want = NULL};
    check(&text, 1, 5, "ab ", true);
    check(&text, 1, 6, "ab END cd ", true);
    check(&text, 1, 12, "ab END cd ", true);
    check(&text, 1, 13, "ab END cd END", false);
    check(&chat, 1, 2, "ab", true);
    check(&chat, 1, 3, "ab\ncd", true); // the parser holds white space back; its place counts
    check(&chat, 1, 6, "ab\ncd\nef", false);
}

// A further answer begins anew, also in the midst of one.
static void test_again(void **state) {
    struct stop_filter f = {0};
    const char *const stop[] = {"x"};
    struct stop_place place = {.in = STOP_IN_TEXT, .syntax = hermes};
    struct buf out;
    buf_init(&out, 1 << 10);
    for (int i = 0; i < 3; i++) {
        buf_reset(&out);
        assert_int_equal(stop_filter_begin(&f, stop, 1, &place), 0);
        assert_int_equal(stop_filter_feed(&f, "<think>x</think>\n<tool", 22, false, &out), 0);
        assert_string_equal(buf_z(&out), "<think>x</think>\n");
    }
    assert_int_equal(stop_filter_begin(&f, (const char *const[]){""}, 1, &place), E_INVAL);
    stop_filter_release(&f);
    buf_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
