// normalizer: the forms, where plain spans go, and marks without end.
#include "engine/text/normalizer.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct form {
    enum normalize_kind kind;
    const char *text, *want;
};
static const struct form forms[] = {
    {NORMALIZE_NFC, "e\u0301 \u212b \u1100\u1161\u11a8 abc", "\u00e9 \u00c5 \uac01 abc"},
    {NORMALIZE_NFD, "\u00e9 \uac01", "e\u0301 \u1100\u1161\u11a8"},
    {NORMALIZE_NFKC, "\ufb01 \uff21 \u2460 \u00bd", "fi A 1 1\u20442"},
    {NORMALIZE_NFKD, "\ufb01\u00e9", "fie\u0301"},
    {NORMALIZE_NFC, "a\u0315\u0300\u05ae\u0300b",
     "\u00e0\u05ae\u0300\u0315b"},             // NormalizationTest.txt
    {NORMALIZE_NFC, "\u0958", "\u0915\u093c"}, // excluded from composition
    {NORMALIZE_NFC, "", ""},
    {NORMALIZE_NFC, "\u0301", "\u0301"},
};

static void test_forms(void **state) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct normalizer n = {.steps = {{.kind = forms[i].kind}}, .n_steps = 1};
        struct buf out;
        struct err err;
        buf_init(&out, 0);
        assert_int_equal(normalizer_apply(&n, forms[i].text, strlen(forms[i].text), &out, NULL, 0,
                                          false, NULL, &err),
                         0);
        if (strcmp(buf_z(&out), forms[i].want) != 0) fail_msg("%zu: '%s'", i, buf_z(&out));
        buf_release(&out);
    }
}

// utf8proc's own functions on the whole text say the same.
static void test_random_against_utf8proc(void **state) {
    static const char *const parts[] = {"a",      " ",      "\u0301", "\u0323", "\u0300",
                                        "é",      "\u1100", "\u1161", "\u11a8", "가",
                                        "\ufb01", "\u0915", "\u093c", "中",     "\u0315",
                                        "\u05ae", "\ufdfa", "👍",      "\u09c7", "\u09be"};
    srand(4);
    for (int round = 0; round < 20000; round++) {
        char text[256] = "";
        for (int i = rand() % 24; i > 0; i--)
            strcat(text, parts[(size_t)rand() % (sizeof parts / sizeof *parts)]);
        for (int form = 0; form < 4; form++) {
            struct normalizer n = {.steps = {{.kind = NORMALIZE_NFC + (unsigned)form}},
                                   .n_steps = 1};
            struct buf out;
            struct err err;
            const utf8proc_uint8_t *u = (const utf8proc_uint8_t *)text;
            utf8proc_uint8_t *want = form == 0   ? utf8proc_NFC(u)
                                     : form == 1 ? utf8proc_NFD(u)
                                     : form == 2 ? utf8proc_NFKC(u)
                                                 : utf8proc_NFKD(u);
            buf_init(&out, 0);
            assert_int_equal(
                normalizer_apply(&n, text, strlen(text), &out, NULL, 0, false, NULL, &err), 0);
            assert_string_equal(buf_z(&out), (char *)want);
            free(want);
            buf_release(&out);
        }
    }
}

static void check_spans(const char *text, size_t from, size_t to, size_t want_from,
                        size_t want_to) {
    struct normalizer n = {.steps = {{.kind = NORMALIZE_NFC}}, .n_steps = 1};
    struct text_span spans[] = {{from, to}, {to, strlen(text)}};
    struct buf out;
    struct err err;
    buf_init(&out, 0);
    assert_int_equal(normalizer_apply(&n, text, strlen(text), &out, spans, 2, false, NULL, &err),
                     0);
    assert_int_equal(spans[0].from, want_from);
    assert_int_equal(spans[0].to, want_to);
    assert_int_equal(spans[1].to, out.len);
    buf_release(&out);
}

static void test_spans_move_along(void **state) {
    check_spans("abc", 1, 2, 1, 2);
    check_spans("e\u0301x>abc", 5, 8, 4, 7);
    check_spans(">e\u0301x", 1, 4, 1, 3);
    check_spans(">\u00e9x", 1, 3, 1, 3); // the markup before it keeps its last character
    check_spans("e\u0301x", 1, 3, 0, 2); // border inside a character: all of it
    check_spans("\u212b\u212b", 0, 3, 0, 4);
}

// Marks of two alternating classes: insertion sort would take quadratic time.
static void test_marks_are_linear(void **state) {
    struct normalizer n = {.steps = {{.kind = NORMALIZE_NFC}}, .n_steps = 1};
    size_t len = 4 << 20;
    char *text = malloc(len);
    for (size_t i = 0; i + 4 <= len; i += 4) memcpy(text + i, "\u0301\u0323", 4);
    struct buf out;
    struct err err;
    buf_init(&out, 0);
    assert_int_equal(normalizer_apply(&n, text, len, &out, NULL, 0, false, NULL, &err), 0);
    assert_int_equal(out.len, len);
    assert_memory_equal(out.data, "\u0323\u0323", 4);
    assert_memory_equal(out.data + len - 4, "\u0301\u0301", 4);
    buf_release(&out);
    free(text);
}

static void test_sequence(void **state) {
    struct normalizer n = {.steps = {{.kind = NORMALIZE_NFD}, {.kind = NORMALIZE_NFKC}},
                           .n_steps = 2};
    struct buf out;
    struct err err;
    buf_init(&out, 0);
    assert_int_equal(normalizer_apply(&n, "\u00e9\ufb01", 5, &out, NULL, 0, false, NULL, &err), 0);
    assert_string_equal(buf_z(&out), "\u00e9fi");
    buf_release(&out);
}

// A tokenizer.json may hold a Replace that makes a book of each letter.
static void test_growth_is_bounded(void **state) {
    struct normalizer n = {0};
    struct buf out;
    struct err err = {0};
    char text[5000], sentence[1001];
    memset(text, 'a', sizeof text);
    memset(sentence, 'b', sizeof sentence - 1);
    sentence[sizeof sentence - 1] = '\0';
    for (n.n_steps = 0; n.n_steps < 2; n.n_steps++) {
        n.steps[n.n_steps].kind = NORMALIZE_REPLACE;
        n.steps[n.n_steps].content = strdup(n.n_steps ? sentence : "aaaaaaaa");
        assert_int_equal(pattern_literal(&n.steps[n.n_steps].pattern, "a", &err), 0);
    }
    buf_init(&out, 0);
    n.n_steps = 1; // as much as a form of Unicode's makes of a character
    assert_int_equal(normalizer_apply(&n, text, sizeof text, &out, NULL, 0, false, NULL, &err), 0);
    assert_int_equal(out.len, 8 * sizeof text);
    n.n_steps = 2;
    assert_int_equal(normalizer_apply(&n, text, sizeof text, &out, NULL, 0, false, NULL, &err),
                     E_LIMIT);
    assert_non_null(strstr(err.text, "normalizer makes more than 385536 bytes of 5000"));
    assert_true(out.cap <= 385536 + 1);
    buf_release(&out);
    normalizer_release(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_random_against_utf8proc),
        cmocka_unit_test(test_spans_move_along),
        cmocka_unit_test(test_marks_are_linear),
        cmocka_unit_test(test_sequence),
        cmocka_unit_test(test_growth_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
