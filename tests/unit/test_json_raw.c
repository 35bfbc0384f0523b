// Values as they were written: members by name, items of arrays.
#include "base/json_raw.h"
#include "tests/cmocka.h"
#include <stdio.h>
#include <string.h>

static void expect(const char *text, const char *key, const char *want) {
    size_t len = 0;
    const char *raw = json_raw_value(text, key, &len);
    if (!want) {
        assert_null(raw);
        return;
    }
    assert_non_null(raw);
    char got[200];
    snprintf(got, sizeof got, "%.*s", (int)len, raw);
    assert_string_equal(got, want);
}

static void members_by_name(void **state) {
    const char *text = " { \"a\" : 18446744073709551615 , \"b\":{\"a\":\"}\\\"{\", \"c\": [1, 2]},"
                       "\"c\":\"x\\\\\",\"d\":[],\"e\":true} ";
    expect(text, "a", "18446744073709551615");
    expect(text, "b", "{\"a\":\"}\\\"{\", \"c\": [1, 2]}");
    expect(text, "c", "\"x\\\\\"");
    expect(text, "d", "[]");
    expect(text, "e", "true");
    expect(text, "f", NULL);
    expect("{}", "a", NULL);
    expect("{\"\\u0061\":1}", "a", NULL); // an escaped spelling is another one
}

static void items_in_order(void **state) {
    const char *text = "[ {\"x\":\"],[\"} ,2, [3,[4]] ,\"five\" ]";
    static const char *const want[] = {"{\"x\"", "2", "[3,[4]]", "\"five\""};
    const char *item = json_raw_first(text);
    for (int i = 0; i < 4; i++, item = json_raw_next(item)) {
        assert_non_null(item);
        assert_memory_equal(item, want[i], strlen(want[i]));
    }
    assert_null(item);
    assert_null(json_raw_first("[ ]"));
    expect(json_raw_first("[{\"a\":1}]"), "a", "1");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(members_by_name),
                                       cmocka_unit_test(items_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
