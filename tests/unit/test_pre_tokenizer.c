// pre_tokenizer: every behaviour, plain and inverted, with adjacent matches and matches at both
// ends.
#include "engine/text/pre_tokenizer.h"
#include "tests/cmocka.h"
#include <string.h>

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
    {PRE_WHITE_SPACE, NULL, PRE_REMOVED, false, " a  b\u3000c", "a|b|c"},
    {PRE_PUNCTUATION, NULL, PRE_ISOLATED, false, "a, b!!\u3002+c", "a|,| b|!|!|\u3002|+|c"},
    {PRE_PUNCTUATION, NULL, PRE_CONTIGUOUS, false, "a!!b", "a|!!|b"},
    {PRE_WORDS, NULL, PRE_ISOLATED, false, " it's \u00e9t\u00e9_1 ++", "it|'|s|\u00e9t\u00e9_1|++"},
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
        assert_int_equal(pre_run(&run, c->text, strlen(c->text), true), 0);
        if (strcmp(buf_z(&out), c->want) != 0)
            fail_msg("%zu: '%s', not '%s'", i, buf_z(&out), c->want);
        pre_run_release(&run);
        pre_tokenizer_release(&p);
        buf_release(&out);
    }
}

// Each step cuts the pieces that the step before made. PRE_PREFIX_SPACE puts a space before each
// piece.
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
    assert_int_equal(pre_run(&run, "a1,b, c2d", 9, true), 0);
    assert_string_equal(buf_z(&out), " a|1| b| c|2|d");
    pre_run_release(&run);
    for (int i = 3; i < PRE_MAX_STEPS; i++)
        assert_int_equal(pre_tokenizer_add(&p, PRE_NUMERIC, NULL, PRE_ISOLATED, false, &err), 0);
    assert_int_equal(pre_tokenizer_add(&p, PRE_NUMERIC, NULL, PRE_ISOLATED, false, &err), E_LIMIT);
    pre_tokenizer_release(&p);
    buf_release(&out);
}

static void run_steps(const struct pre_tokenizer *p, const char *text, bool at_start,
                      const char *want) {
    struct pre_run run;
    struct err err;
    struct buf out;
    buf_init(&out, 1 << 16);
    assert_int_equal(pre_run_init(&run, p, strlen(text), collect, &out, &err), 0);
    assert_int_equal(pre_run(&run, text, strlen(text), at_start), 0);
    assert_string_equal(buf_z(&out), want);
    pre_run_release(&run);
    buf_release(&out);
}

static void test_metaspace(void **state) {
    static const struct {
        enum pre_prepend prepend;
        bool split, at_start;
        const char *text, *want;
    } rows[] = {{PREPEND_ALWAYS, true, false, "a b  c", "\u2581a|\u2581b|\u2581|\u2581c"},
                {PREPEND_ALWAYS, true, false, " a ", "\u2581a|\u2581"},
                {PREPEND_ALWAYS, false, false, "a b", "\u2581a\u2581b"},
                {PREPEND_FIRST, true, false, "a b", "a|\u2581b"},
                {PREPEND_FIRST, true, true, "a b", "\u2581a|\u2581b"},
                {PREPEND_NEVER, true, true, "\u2581a b", "\u2581a|\u2581b"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pre_tokenizer p = {0};
        struct err err;
        assert_int_equal(pre_tokenizer_add(&p, PRE_METASPACE, "\u2581", PRE_ISOLATED, false, &err),
                         0);
        p.steps[0].prepend = rows[i].prepend;
        p.steps[0].split = rows[i].split;
        run_steps(&p, rows[i].text, rows[i].at_start, rows[i].want);
        pre_tokenizer_release(&p);
    }
    // The first piece counts as the start of the text, whichever step made it.
    struct pre_tokenizer p = {0};
    struct err err;
    assert_int_equal(pre_tokenizer_add(&p, PRE_LITERAL, "-", PRE_ISOLATED, false, &err), 0);
    assert_int_equal(pre_tokenizer_add(&p, PRE_METASPACE, "\u2581", PRE_ISOLATED, false, &err), 0);
    p.steps[1].prepend = PREPEND_FIRST;
    run_steps(&p, "a-b", true, "\u2581a|-|b");
    pre_tokenizer_release(&p);
}

static void test_fixed_length_and_alphabet(void **state) {
    struct pre_tokenizer p = {0};
    struct err err;
    struct pre_step *step = pre_tokenizer_add_step(&p, PRE_FIXED_LENGTH, &err);
    step->length = 2;
    assert_non_null(pre_tokenizer_add_step(&p, PRE_BYTE_ALPHABET, &err));
    run_steps(&p, "a \u00e9bc", true, "a\u0120|\u00c3\u00a9b|c");
    pre_tokenizer_release(&p);
}

static void test_unicode_scripts(void **state) {
    struct pre_tokenizer p = {0};
    struct err err;
    struct pre_step *step = pre_tokenizer_add_step(&p, PRE_PATTERN, &err);
    step->behavior = PRE_REMOVED;
    step->invert = true;
    assert_int_equal(pattern_unicode_scripts(&step->pattern, &err), 0);
    run_steps(&p, "どこで生れ。Yes", true, "どこで生れ|。|Yes"); // Hugging Face's own example
    run_steps(&p, "Apples are りんご 林檎", true, "Apples are |りんご 林檎");
    run_steps(&p, " \u03b1 1 a", true, "\u03b1 |1 |a");
    pre_tokenizer_release(&p);
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
    assert_int_equal(pre_run(&run, "ab", 2, true), E_CANCELLED);
    assert_int_equal(pre_run(&run, "b", 1, true), E_CANCELLED);
    pre_run_release(&run);
    pre_tokenizer_release(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behaviors),       cmocka_unit_test(test_steps),
        cmocka_unit_test(test_metaspace),       cmocka_unit_test(test_fixed_length_and_alphabet),
        cmocka_unit_test(test_unicode_scripts), cmocka_unit_test(test_errors_come_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
