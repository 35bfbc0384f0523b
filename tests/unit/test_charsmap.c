// charsmap: look-ups in a small table laid out by hand, and tables that point outside themselves.
#include "engine/text/charsmap.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

#define N_UNITS 512
#define HAS_VALUE (1u << 8)
#define OFFSET(n) ((uint32_t)(n) << 10)
#define VALUE (1u << 31)

struct table {
    uint32_t size;
    uint32_t units[N_UNITS];
    char strings[8];
};

// The keys "a" -> "x" and "ab" -> "yz". The root's children lie from 256 on; 'a' leads to unit 256
// ^ 'a', whose own offset brings its children, and its value at label 0, back to the first block.
static void make(struct table *t) {
    memset(t, 0, sizeof *t);
    t->size = sizeof t->units;
    memcpy(t->strings, "x\0yz", 5);
    size_t a = 256 ^ 'a', base_a = 128, ab = base_a ^ 'b', base_ab = 32;
    t->units[0] = OFFSET(256);
    t->units[a] = OFFSET(a ^ base_a) | HAS_VALUE | 'a';
    t->units[base_a] = VALUE | 0;
    t->units[ab] = OFFSET(ab ^ base_ab) | HAS_VALUE | 'b';
    t->units[base_ab] = VALUE | 2;
}

static int open_table(struct charsmap *c, const struct table *t, struct err *err) {
    int rc = charsmap_init(c, (const char *)t, sizeof *t, err);
    if (rc < 0) charsmap_release(c);
    return rc;
}

static void test_find(void **state) {
    struct table t;
    struct charsmap c;
    struct err err = {0};
    size_t len = 0;
    make(&t);
    if (open_table(&c, &t, &err) < 0) fail_msg("%s", err.text);
    assert_string_equal(charsmap_find(&c, "abc", 3, false, &len), "x");
    assert_int_equal(len, 1);
    assert_string_equal(charsmap_find(&c, "abc", 3, true, &len), "yz");
    assert_int_equal(len, 2);
    // No further than it may look
    assert_string_equal(charsmap_find(&c, "abc", 1, true, &len), "x");
    assert_null(charsmap_find(&c, "b", 1, true, &len));
    assert_null(charsmap_find(&c, "", 0, true, &len));
    assert_null(charsmap_find(&c, "\0a", 2, true, &len));
    assert_true(c.begins['a']);
    assert_false(c.begins['b']);
    charsmap_release(&c);
}

static void refuse(const struct table *t, const char *says) {
    struct charsmap c;
    struct err err = {0};
    assert_int_equal(open_table(&c, t, &err), E_FORMAT);
    if (!strstr(err.text, says)) fail_msg("%s", err.text);
}

static void test_hostile(void **state) {
    struct table t;
    make(&t);
    t.units[0] = OFFSET(512); // one block behind the end
    refuse(&t, "past the table");
    make(&t);
    t.units[256 ^ 'a'] = OFFSET(0x1fffff) | 1u << 9 | 'a';
    refuse(&t, "past the table");
    make(&t);
    t.units[32] = VALUE | sizeof t.strings; // a string that is not there
    refuse(&t, "string");
    make(&t);
    t.size = sizeof t;
    refuse(&t, "no trie");
    t.size = 1022;
    refuse(&t, "no trie");
    struct charsmap c;
    struct err err;
    assert_int_equal(charsmap_init(&c, "abc", 3, &err), E_FORMAT);
    // A circle: 'a' leads back to the root's children. Walks end with the text.
    make(&t);
    t.units[256 ^ 'a'] = OFFSET(256 ^ 'a' ^ 256) | 'a';
    assert_int_equal(open_table(&c, &t, &err), 0);
    size_t len;
    assert_null(charsmap_find(&c, "aaaaaaaa", 8, true, &len));
    charsmap_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
