// Patterns of volatile text: which settings are refused and how, and what is removed from a text.
#include "sessions/matching/volatile_text.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

static struct volatile_text *made(const char *patterns) {
    struct volatile_text *v;
    struct err err = {0};
    if (volatile_text_new(&v, patterns, &err) < 0) fail_msg("%s", err.text);
    return v;
}

static void leaves(const char *patterns, const char *text, int removes, const char *rest) {
    struct volatile_text *v = made(patterns);
    struct buf out;
    buf_init(&out, 1 << 20);
    assert_int_equal(volatile_text_remove(v, text, strlen(text), &out), removes);
    assert_string_equal(buf_z(&out), rest);
    buf_release(&out);
    volatile_text_free(v);
}

static void refused(const char *patterns, const char *says) {
    struct volatile_text *v;
    struct err err = {0};
    assert_int_equal(volatile_text_new(&v, patterns, &err), E_INVAL);
    assert_null(v);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say %s", err.text, says);
}

static void nothing_is_set(void **state) {
    assert_null(made(""));
    assert_null(made("  "));
    assert_null(made(NULL));
}

static void bad_settings_are_refused(void **state) {
    char many[200] = "", longest[VOLATILE_PATTERN_BYTES + 8];
    refused("abc", "between slashes");
    refused("/abc", "between slashes");
    refused("/abc\\/", "between slashes");
    refused("/a/ b", "between slashes");
    refused("/a//b/", "between slashes");
    refused("//", "1 to 1000 bytes");
    refused("/good/ /a(b/", "/a(b/ is not understood at byte 3");
    refused("/x*/", "matches the empty text");
    for (int i = 0; i <= VOLATILE_PATTERNS_MAX; i++) strcat(many, "/a/ ");
    refused(many, "at most 16");
    memset(longest, 'a', sizeof longest);
    longest[0] = longest[sizeof longest - 2] = '/';
    longest[sizeof longest - 1] = '\0';
    refused(longest, "1 to 1000 bytes");
}

static void matches_are_removed(void **state) {
    leaves("/hash: \\w+\\n/", "hash: 1f\nYou are brief.", 1, "You are brief.");
    leaves("/^cch=.*$/", "a\ncch=12;\nb", 1, "a\n\nb");
    leaves("/\\d+/ /a +b/", "a 12 b, a 7 b; none", 1, ", ; none");
    leaves("/<left>.*?<\\/left>/", "<left>1</left>x<left>2</left>", 1, "x");
    leaves("/é+/", "caféé", 1, "caf");
    leaves("/nothing/", "some text", 0, "some text");
    leaves("/nothing/", "", 0, "");
}

static void bad_text_is_no_fault(void **state) {
    leaves("/b/",
           "a\xff"
           "b\xc3",
           1, "a\xff\xc3");
}

// A pattern that takes a text apart again and again ends, and that text stays whole.
static void evil_patterns_end(void **state) {
    size_t n = 200000;
    char *text = malloc(n + 1);
    struct volatile_text *v = made("/(a+)+b/ /tail/");
    struct buf out;
    assert_non_null(text);
    memset(text, 'a', n);
    strcpy(text + n - 4, "tail");
    buf_init(&out, 1 << 20);
    assert_int_equal(volatile_text_remove(v, text, n, &out), 1);
    assert_int_equal(out.len, n - 4);
    buf_release(&out);
    volatile_text_free(v);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_set),      cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(matches_are_removed), cmocka_unit_test(bad_text_is_no_fault),
        cmocka_unit_test(evil_patterns_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
