// config.pbtxt: what is read, and the line of every fault.
#include "tests/cmocka.h"
#include "ws/kserve/pbtxt.h"
#include <string.h>

static const struct pbtxt *at(const struct pbtxt *p, const char *name, int n) {
    const struct pbtxt *f = pbtxt_find(p, name);
    for (; f && n > 0; n--) f = f->next;
    return f;
}

static void test_reads(void **state) {
    static const char text[] = "# a comment\n"
                               "name: \"a\\\"b\" 'c'\n"
                               "max_batch_size: -8;\n"
                               "input [ { name: \"x\", dims: [ -1, 2 ] }, { name: \"y\" } ]\n"
                               "parameters { key: \"k\" value: { string_value: \"v\" } }\n"
                               "sequence_batching < direct { } >\n"
                               "empty []\n";
    struct pbtxt *p;
    struct err err = {0};
    assert_int_equal(pbtxt_parse(&p, text, "f", &err), 0);
    assert_string_equal(pbtxt_find(p, "name")->value, "a\"bc");
    assert_string_equal(pbtxt_find(p, "max_batch_size")->value, "-8");
    assert_string_equal(pbtxt_find(at(p, "input", 0), "name")->value, "x");
    assert_string_equal(at(at(p, "input", 0), "dims", 1)->value, "2");
    assert_string_equal(pbtxt_find(at(p, "input", 1), "name")->value, "y");
    const struct pbtxt *parameter = pbtxt_find(p, "parameters");
    assert_int_equal(parameter->line, 5);
    assert_string_equal(pbtxt_find(pbtxt_find(parameter, "value"), "string_value")->value, "v");
    assert_non_null(pbtxt_find(pbtxt_find(p, "sequence_batching"), "direct"));
    assert_null(pbtxt_find(p, "empty"));
    assert_null(pbtxt_find(NULL, "name"));
    pbtxt_free(p);
}

static void test_faults(void **state) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"a: \"x", "f:1: a string does not end"},
        {"a: 1\nb: \"\\q\"", "f:2: unknown escape in a string"},
        {"a:\n\n", "f:3: a value is missing"},
        {"a { b: 1", "f:1: the file ends inside a message"},
        {"a { b: 1 >", "f:1: a field's name is missing"},
        {"a", "f:1: a field needs"},
        {"a: [1, 2", "f:1: a list does not end"},
        {"}", "f:1: a field's name is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pbtxt *p;
        struct err err = {0};
        assert_int_equal(pbtxt_parse(&p, cases[i].text, "f", &err), E_FORMAT);
        assert_null(p);
        assert_memory_equal(err.text, cases[i].says, strlen(cases[i].says));
    }
}

static void test_depth(void **state) {
    char text[4096] = "";
    struct pbtxt *p;
    struct err err = {0};
    for (int i = 0; i < 100; i++) strcat(text, "a{");
    assert_int_equal(pbtxt_parse(&p, text, "f", &err), E_FORMAT);
    assert_non_null(strstr(err.text, "too deeply"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
