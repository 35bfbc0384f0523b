// Tokenizer files that fuzzing found or that its findings suggested: refused without side effects,
// or harmless. The sanitizers find leaks and reads out of bounds.
#include "engine/text/charsmap.h"
#include "engine/text/pattern.h"
#include "engine/text/tokenizer.h"
#include "tests/unit/tmp_dir.h"
#include <time.h>

static void files_that_are_no_objects(void **state) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "special_tokens_map.json", "added_tokens.json"};
    struct tmp_dir dir;
    tmp_dir_open(&dir);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct tokenizer *t;
        struct err err = {0};
        tmp_text(&dir, names[i], "2");
        assert_int_equal(tokenizer_open(&t, dir.path, &err), E_FORMAT);
        assert_non_null(strstr(err.text, names[i]));
        assert_int_equal(unlink(tmp_path(&dir, names[i])), 0);
    }
    tmp_dir_close(&dir);
}

#define HAS_VALUE (1u << 8)
#define OFFSET(n) ((uint32_t)(n) << 10)
#define VALUE (1u << 31)

struct table {
    uint32_t size, units[512];
    char strings[8];
};

// One key, two bytes long, and its replacement at `value` in the strings.
static struct table table_of(unsigned first, unsigned second, uint32_t value, const char *strings) {
    struct table t = {.size = sizeof t.units};
    memcpy(t.strings, strings, strlen(strings));
    size_t a = 256 ^ first, base_a = 128, b = base_a ^ second, base_b = 32;
    t.units[0] = OFFSET(256);
    t.units[a] = OFFSET(a ^ base_a) | first;
    t.units[b] = OFFSET(b ^ base_b) | HAS_VALUE | second;
    t.units[base_b] = VALUE | value;
    return t;
}

static int open_table(struct charsmap *c, const struct table *t, struct err *err) {
    int rc = charsmap_init(c, (const char *)t, sizeof *t, err);
    if (rc < 0) charsmap_release(c);
    return rc;
}

// The root is looked at without its value, which no walk takes; reached as a child it has one.
static void a_root_that_is_its_own_child(void **state) {
    struct table t = {.size = sizeof t.units};
    struct charsmap c;
    struct err err = {0};
    t.units[0] = OFFSET(5) | HAS_VALUE | 5;
    t.units[5] = VALUE | 0x7ffffff0;
    assert_int_equal(open_table(&c, &t, &err), E_FORMAT);
    assert_non_null(strstr(err.text, "past the table"));
}

static void parts_of_characters(void **state) {
    struct charsmap c;
    struct err err = {0};
    size_t len = 0;
    struct table t = table_of('a', 'b', 0, "\xf0");
    assert_int_equal(open_table(&c, &t, &err), E_FORMAT);
    assert_non_null(strstr(err.text, "not UTF-8"));
    t = table_of('a', 'b', 1, "\xc3\xa9");
    assert_int_equal(open_table(&c, &t, &err), E_FORMAT);
    assert_non_null(strstr(err.text, "part of a character"));
    // The first half of a character of four bytes is no key that a text holds.
    t = table_of(0xf0, 0x9f, 0, "x");
    assert_int_equal(open_table(&c, &t, &err), 0);
    assert_null(charsmap_find(&c, "\xf0\x9f\x91\x8d", 4, true, &len));
    charsmap_release(&c);
    t = table_of(0xc3, 0xa9, 0, "e");
    assert_int_equal(open_table(&c, &t, &err), 0);
    assert_string_equal(charsmap_find(&c, "\xc3\xa9t\xc3\xa9", 5, true, &len), "e");
    assert_int_equal(len, 2);
    charsmap_release(&c);
}

// Each match is cheap enough, but all together are not: the square of the text's length, or 2^n for
// many words.
static void patterns_that_take_long(void **state) {
    static const struct {
        const char *regex, *part;
        size_t n;
    } cases[] = {{"a+b|a", "a", 100000}, {"(?:a|aa)+(?!a)b|a", "aaaaaaaaaaaaaaaaaaaaaaac", 2000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pattern p = {0};
        struct matcher m;
        struct err err = {0};
        size_t part = strlen(cases[i].part), len = cases[i].n * part, from, to;
        char *text = malloc(len);
        assert_non_null(text);
        for (size_t k = 0; k < cases[i].n; k++) memcpy(text + k * part, cases[i].part, part);
        assert_int_equal(pattern_regex(&p, cases[i].regex, &err), 0);
        assert_int_equal(matcher_init(&m, &p, len, &err), 0);
        assert_int_equal(m.allowed_us, 500000 + 10 * (int64_t)len);
        m.allowed_us = 10000; // these texts take seconds, and far less would show it
        struct match_walk w = {.matcher = &m, .text = text, .len = len};
        int rc;
        clock_t start = clock();
        do rc = match_walk_next(&w, &from, &to, &err);
        while (rc > 0);
        assert_int_equal(rc, E_LIMIT);
        assert_non_null(strstr(err.text, "takes too long"));
        assert_true(clock() - start < 20 * CLOCKS_PER_SEC);
        matcher_release(&m);
        pattern_release(&p);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_are_no_objects),
        cmocka_unit_test(a_root_that_is_its_own_child),
        cmocka_unit_test(parts_of_characters),
        cmocka_unit_test(patterns_that_take_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
