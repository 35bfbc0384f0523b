// stop_matcher: against a plain search over the whole text, whatever the chunks.
#include "base/err.h"
#include "base/utf8.h"
#include "engine/text/stop_matcher.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

// Where the reader's text ends, by definition: at the first byte that completes a stop string,
// before the longest string that ends there.
static size_t expected(const char *text, const char *const *strings, int n, int *which) {
    *which = -1;
    for (size_t end = 1; end <= strlen(text); end++) {
        for (int i = 0; i < n; i++) {
            size_t len = strlen(strings[i]);
            if (len > end || memcmp(text + end - len, strings[i], len) != 0) continue;
            if (*which < 0 || len > strlen(strings[*which])) *which = i;
        }
        if (*which >= 0) return end - strlen(strings[*which]);
    }
    return strlen(text);
}

static size_t next_chunk(const char *text, size_t at) { // whole characters
    size_t len = strlen(text), to = at + 1 + (size_t)(rand() % 5);
    if (to > len) to = len;
    while (to < len && ((unsigned char)text[to] & 0xc0) == 0x80) to++;
    return to;
}

static void check(const char *text, const char *const *strings, int n) {
    struct stop_matcher m;
    struct buf out;
    int which, rc = 0;
    size_t want = expected(text, strings, n, &which), longest = 0;
    for (int i = 0; i < n; i++)
        if (strlen(strings[i]) > longest) longest = strlen(strings[i]);
    buf_init(&out, 1 << 20);
    assert_int_equal(stop_matcher_init(&m, strings, n), 0);
    for (size_t at = 0, to; at < strlen(text) && rc == 0; at = to) {
        to = next_chunk(text, at);
        rc = stop_matcher_feed(&m, text + at, to - at, &out);
        assert_true(utf8_valid(m.held, m.n_held));
        assert_true(utf8_valid(buf_z(&out), out.len));
        assert_true(longest == 0 || m.n_held < longest);
        if (rc == 0) assert_int_equal(out.len + m.n_held, to);
    }
    assert_int_equal(rc, which >= 0);
    assert_int_equal(m.matched, which);
    if (rc == 0) assert_int_equal(stop_matcher_flush(&m, &out), 0);
    assert_int_equal(out.len, want);
    assert_memory_equal(buf_z(&out), text, want);
    buf_release(&out);
}

static void test_examples(void **state) {
    check("Hello\nUser: x", (const char *const[]){"\nUser:"}, 1);
    check("Hello\nUse", (const char *const[]){"\nUser:"}, 1);
    check("aaab", (const char *const[]){"aab"}, 1);
    check("ababac", (const char *const[]){"abac"}, 1);
    check("abcd", (const char *const[]){"abcd", "bc"}, 2);
    check("xabcd", (const char *const[]){"cd", "abcd"}, 2);
    check("naïve 你好。", (const char *const[]){"好", "。"}, 2);
    check("nothing", NULL, 0);
}

static void test_random(void **state) {
    static const char *const letters[] = {"a", "b", "é", "你"};
    srand(1);
    for (int round = 0; round < 20000; round++) {
        char text[128] = "", strings[STOP_MAX_STRINGS][64];
        const char *list[STOP_MAX_STRINGS];
        int n = 1 + rand() % STOP_MAX_STRINGS;
        for (int i = rand() % 30; i > 0; i--) strcat(text, letters[rand() % 4]);
        for (int i = 0; i < n; i++) {
            strings[i][0] = '\0';
            for (int k = 1 + rand() % 5; k > 0; k--) strcat(strings[i], letters[rand() % 4]);
            list[i] = strings[i];
        }
        check(text, list, n);
    }
}

static void test_limits(void **state) {
    struct stop_matcher m;
    struct buf out;
    char longest[STOP_MAX_BYTES + 1];
    memset(longest, 'x', sizeof longest);
    longest[STOP_MAX_BYTES] = '\0';
    assert_int_equal(stop_matcher_init(&m, (const char *const[]){longest}, 1), E_INVAL);
    assert_int_equal(stop_matcher_init(&m, (const char *const[]){""}, 1), E_INVAL);
    assert_int_equal(stop_matcher_init(&m, (const char *const[]){"\xe4"}, 1), E_INVAL);
    const char *many[STOP_MAX_STRINGS + 1];
    for (int i = 0; i <= STOP_MAX_STRINGS; i++) many[i] = "a";
    assert_int_equal(stop_matcher_init(&m, many, STOP_MAX_STRINGS), 0);
    assert_int_equal(stop_matcher_init(&m, many, STOP_MAX_STRINGS + 1), E_INVAL);
    longest[STOP_MAX_BYTES - 1] = '\0';
    assert_int_equal(stop_matcher_init(&m, (const char *const[]){longest}, 1), 0);
    buf_init(&out, 4);
    // An error of the output buffer is returned
    assert_int_equal(stop_matcher_feed(&m, "abcdefgh", 8, &out), E_LIMIT);
    buf_release(&out);
}

static void test_nothing_after_a_match(void **state) {
    struct stop_matcher m;
    struct buf out;
    buf_init(&out, 100);
    assert_int_equal(stop_matcher_init(&m, (const char *const[]){"."}, 1), 0);
    assert_int_equal(stop_matcher_feed(&m, "a.b", 3, &out), 1);
    assert_int_equal(stop_matcher_feed(&m, "c", 1, &out), 1);
    assert_int_equal(stop_matcher_flush(&m, &out), 0);
    assert_string_equal(buf_z(&out), "a");
    buf_release(&out);
}

// What was given is not given again, and what comes then begins anew.
static void test_flush_lets_go(void **state) {
    struct stop_matcher m;
    struct buf out;
    buf_init(&out, 100);
    assert_int_equal(stop_matcher_init(&m, (const char *const[]){"abc"}, 1), 0);
    assert_int_equal(stop_matcher_feed(&m, "xab", 3, &out), 0);
    assert_string_equal(buf_z(&out), "x");
    assert_int_equal(stop_matcher_flush(&m, &out), 0);
    assert_string_equal(buf_z(&out), "xab");
    assert_int_equal(stop_matcher_flush(&m, &out), 0);
    assert_int_equal(stop_matcher_feed(&m, "cd", 2, &out), 0); // not the end of an abc
    assert_string_equal(buf_z(&out), "xabcd");
    buf_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),      cmocka_unit_test(test_random),
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_nothing_after_a_match),
        cmocka_unit_test(test_flush_lets_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
