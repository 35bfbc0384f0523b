// onig_pattern: rewrites, refusals, and that a rewritten pattern matches like Oniguruma's.
#include "engine/text/onig_pattern.h"
#include "engine/text/pre_tokenizer.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

struct translation {
    const char *from, *to; // NULL: E_UNSUPPORTED
};
static const struct translation translations[] = {
    {"abc|d+?", "abc|d+?"},
    {"\\p{L}\\P{Nd}", "\\p{L}\\P{Nd}"},
    {"\\p{^L}", "\\P{L}"},
    {"\\p{Han}", "\\p{sc:Han}"},
    {"\\d\\D", "\\p{Nd}\\P{Nd}"},
    {"[^(a|[.,!])]", "[^\\(a\\|\\.\\,\\!\\)]"},
    {"[a[b-]c]", "[ab\\-c]"},
    {"[a-z_]", "[a-z\\_]"},
    {"a{,3}b{2,}c{2}", "a{0,3}b{2,}c{2}"},
    {"a{x}", "a\\{x}"},
    {"\\u4e00\\x{9fa5}\\v", "\\x{4e00}\\x{9fa5}\\x{b}"},
    {"(?i:x)(?!\\r)(?<=y)", "(?i:x)(?!\\r)(?<=y)"},
    {"(?i)a", "(?i)a"},
    {"[\\-\\]\\[]", "[\\-\\]\\[]"},
    {"\\/ \\ ", "\\/ \\ "},
    {"(a)\\1", NULL},
    {"a(?i)b", NULL},
    {"(?x)a", NULL},
    {"(?<n>a)", NULL},
    {"\\h", NULL},
    {"\\b", NULL},
    {"\\X", NULL},
    {"[[:alpha:]]", NULL},
    {"[a&&b]", NULL},
    {"[a[^b]]", NULL},
    {"[]a]", NULL},
    {"[a", NULL},
    {"[!-\\s]", NULL},
    {"[\\W]", NULL},
    {"a{2}+", NULL},
    {"a{2}?", NULL},
    {"\\xff", NULL},
    {"\\x{110000}", NULL},
    {"\\p{L", NULL},
    {"\\p{L&}", NULL},
    {"\\pL", NULL},
    {"a\\", NULL},
};

static void test_translations(void **state) {
    for (size_t i = 0; i < sizeof translations / sizeof *translations; i++) {
        const struct translation *t = &translations[i];
        struct buf out;
        struct err err = {0};
        buf_init(&out, 1 << 16);
        int rc = onig_pattern_translate(t->from, &out, &err);
        if (rc != (t->to ? 0 : E_UNSUPPORTED))
            fail_msg("'%s': %d %s, '%s'", t->from, rc, err.text, buf_z(&out));
        if (t->to) assert_string_equal(buf_z(&out), t->to);
        buf_release(&out);
    }
}

// Words are joined with '|'.
static int collect(void *ctx, const char *word, size_t len) {
    struct buf *out = ctx;
    if (out->len) buf_addc(out, '|');
    return buf_add(out, word, len);
}

struct cutting {
    const char *pattern, *text, *want;
};
static const struct cutting cuttings[] = {
    // U+180E is no space in Unicode since 6.3; PCRE2's own \s still takes it.
    {"\\s+", "a\u180eb c", "a\u180eb| |c"},
    {"\\S+", "a\u180eb c", "a\u180eb| |c"},
    {"[\\s]", "a\u180eb\u3000c", "a\u180eb|\u3000|c"},
    {"[^\\S]", "a\u180eb\u3000c", "a\u180eb|\u3000|c"},
    {"\\w+", "a\u0301_\u203f- \u24d0", "a\u0301_\u203f|- |\u24d0"},
    {"\\p{Han}+", "ab中文、cd", "ab|中文|、cd"},
    {"(?i:'S)", "it's IT'S", "it|'s| IT|'S"},
    {"^b", "a\nb", "a\n|b"},
    {"x*", "axxb", "a|xx|b"},
};

static void test_cutting(void **state) {
    for (size_t i = 0; i < sizeof cuttings / sizeof *cuttings; i++) {
        struct pre_tokenizer p = {0};
        struct pre_run run;
        struct err err = {0};
        struct buf out;
        buf_init(&out, 1 << 16);
        if (pre_tokenizer_add(&p, PRE_PATTERN, cuttings[i].pattern, PRE_ISOLATED, false, &err) < 0)
            fail_msg("%s: %s", cuttings[i].pattern, err.text);
        assert_int_equal(pre_run_init(&run, &p, 100, collect, &out, &err), 0);
        assert_int_equal(pre_run(&run, cuttings[i].text, strlen(cuttings[i].text), true), 0);
        assert_string_equal(buf_z(&out), cuttings[i].want);
        pre_run_release(&run);
        pre_tokenizer_release(&p);
        buf_release(&out);
    }
}

static void test_too_long(void **state) {
    struct buf out;
    struct err err = {0};
    size_t len = 10 << 20;
    char *pattern = malloc(len + 1);
    memset(pattern, 'a', len);
    pattern[len] = '\0';
    buf_init(&out, 1 << 20);
    assert_int_equal(onig_pattern_translate(pattern, &out, &err), E_LIMIT);
    buf_release(&out);
    free(pattern);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_translations),
        cmocka_unit_test(test_cutting),
        cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
