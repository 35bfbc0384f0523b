// pre_tokenizer: every behaviour, inverted too, over matches side by side and at both ends.
#include "engine/text/pre_tokenizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h> // needs the ones above

static int collect(void *ctx, const char *word, size_t len) {
    struct buf *out = ctx;
    if (out->len) buf_addc(out, '|');
    return buf_add(out, word, len);
}

struct cutting {
    enum pre_kind kind;
    const char *pattern;
    enum pre_behavior behavior;
    bool invert;
    const char *text, *want;
};
// The results that Hugging Face's NormalizedString::split documents for "the-final--countdown", and
// more.
static const struct cutting cuttings[] = {
    {PRE_LITERAL, "-", PRE_ISOLATED, false, "the-final--countdown", "the|-|final|-|-|countdown"},
    {PRE_LITERAL, "-", PRE_REMOVED, false, "the-final--countdown", "the|final|countdown"},
    {PRE_LITERAL, "-", PRE_WITH_PREVIOUS, false, "the-final--countdown", "the-|final-|-|countdown"},
    {PRE_LITERAL, "-", PRE_WITH_NEXT, false, "the-final--countdown", "the|-final|-|-countdown"},
    {PRE_LITERAL, "-", PRE_CONTIGUOUS, false, "the-final--countdown", "the|-|final|--|countdown"},
    {PRE_PATTERN, "-", PRE_WITH_PREVIOUS, false, "-a-", "-|a-"},
    {PRE_PATTERN, "-", PRE_WITH_NEXT, false, "-a-", "-a|-"},
    {PRE_PATTERN, "-", PRE_CONTIGUOUS, false, "--a--", "--|a|--"},
    {PRE_PATTERN, "-", PRE_REMOVED, false, "---", ""},
    {PRE_PATTERN, "[a-z]+", PRE_REMOVED, true, "the-final--countdown", "the|final|countdown"},
    {PRE_PATTERN, "[a-z]+", PRE_WITH_PREVIOUS, true, "the-final", "the-|final"},
    {PRE_PATTERN, "[a-z]", PRE_CONTIGUOUS, true, "ab-c", "ab|-|c"},
    {PRE_NUMERIC, NULL, PRE_ISOLATED, false, "a12½Ⅳb", "a|1|2|½|Ⅳ|b"},
    {PRE_NUMERIC, NULL, PRE_CONTIGUOUS, false, "a12½Ⅳb3", "a|12½Ⅳ|b|3"},
    {PRE_PREFIX_SPACE, NULL, PRE_ISOLATED, false, "a b", " a b"},
    {PRE_PREFIX_SPACE, NULL, PRE_ISOLATED, false, " a", " a"},
};

static void test_behaviors(void **state) {
    for (size_t i = 0; i < sizeof cuttings / sizeof *cuttings; i++) {
        const struct cutting *c = &cuttings[i];
        struct pre_tokenizer p = {0};
        struct pre_run run;
        struct err err;
        struct buf out;
        buf_init(&out, 1 << 16);
        assert_int_equal(pre_tokenizer_add(&p, c->kind, c->pattern, c->behavior, c->invert, &err),
                         0);
        assert_int_equal(pre_run_init(&run, &p, 100, collect, &out, &err), 0);
        assert_int_equal(pre_run(&run, c->text, strlen(c->text)), 0);
        if (strcmp(buf_z(&out), c->want) != 0)
            fail_msg("%zu: '%s', not '%s'", i, buf_z(&out), c->want);
        pre_run_release(&run);
        pre_tokenizer_release(&p);
        buf_release(&out);
    }
}

// Each step cuts the pieces of the one before, and each piece gets its own space.
static void test_steps(void **state) {
    struct pre_tokenizer p = {0};
    struct pre_run run;
    struct err err;
    struct buf out;
    buf_init(&out, 1 << 16);
    assert_int_equal(pre_tokenizer_add(&p, PRE_LITERAL, ",", PRE_REMOVED, false, &err), 0);
    assert_int_equal(pre_tokenizer_add(&p, PRE_PREFIX_SPACE, NULL, PRE_ISOLATED, false, &err), 0);
    assert_int_equal(pre_tokenizer_add(&p, PRE_PATTERN, "\\d", PRE_ISOLATED, false, &err), 0);
    assert_int_equal(pre_run_init(&run, &p, 100, collect, &out, &err), 0);
    assert_int_equal(pre_run(&run, "a1,b, c2d", 9), 0);
    assert_string_equal(buf_z(&out), " a|1| b| c|2|d");
    pre_run_release(&run);
    for (int i = 3; i < PRE_MAX_STEPS; i++)
        assert_int_equal(pre_tokenizer_add(&p, PRE_NUMERIC, NULL, PRE_ISOLATED, false, &err), 0);
    assert_int_equal(pre_tokenizer_add(&p, PRE_NUMERIC, NULL, PRE_ISOLATED, false, &err), E_LIMIT);
    pre_tokenizer_release(&p);
    buf_release(&out);
}

static int stop_at_once(void *ctx, const char *word, size_t len) {
    return E_CANCELLED;
}

static void test_errors_come_through(void **state) {
    struct pre_tokenizer p = {0};
    struct pre_run run;
    struct err err;
    assert_int_equal(pre_tokenizer_add(&p, PRE_PATTERN, "b", PRE_WITH_NEXT, false, &err), 0);
    assert_int_equal(pre_tokenizer_add(&p, PRE_LITERAL, "", PRE_WITH_NEXT, false, &err), E_FORMAT);
    assert_int_equal(pre_tokenizer_add(&p, PRE_PATTERN, "(", PRE_WITH_NEXT, false, &err),
                     E_UNSUPPORTED);
    assert_int_equal(pre_tokenizer_add(&p, PRE_PATTERN, "(?<=a+)b", PRE_WITH_NEXT, false, &err),
                     E_UNSUPPORTED);
    assert_int_equal(pre_run_init(&run, &p, 100, stop_at_once, NULL, &err), 0);
    assert_int_equal(pre_run(&run, "ab", 2), E_CANCELLED);
    assert_int_equal(pre_run(&run, "b", 1), E_CANCELLED);
    pre_run_release(&run);
    pre_tokenizer_release(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behaviors),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_errors_come_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
