// The filter from_json of chat templates: what Python's json.loads reads, refusals, hostile texts, and the
// origin of bytes.
#include "tests/unit/jinja_fixture.h"

static const struct jinja_sample samples[] = {
    {"{{ '{\"city\": \"Paris\", \"n\": [1, -2.50, 1e3, true, false, null]}' | from_json }}",
     "{'city': 'Paris', 'n': [1, -2.5, 1000.0, True, False, None]}", 0},
    {"{% for k, v in ('{\"a\": 1, \"b\": {\"c\": \"d\"}}' | fromjson).items() %}{{ k }}={{ v | "
     "tojson }};"
     "{% endfor %}",
     "a=1;b={\"c\": \"d\"};", 0},
    {"{{ ' \\t\\r\\n[ ] ' | from_json }}{{ '{ }' | from_json }}{{ '[[],{}]' | from_json }}",
     "[]{}[[], {}]", 0},
    {"{{ '\"\\\\u00e9\\\\ud83d\\\\ude00\\\\n\\\\\"\\\\/\\\\\\\\\"' | from_json }}", "é😀\n\"/\\", 0},
    {"{{ '\"\"' | from_json | length }}{{ '\"naïve 你好\"' | from_json | length }}", "08", 0},
    {"{{ '{\"a\":1,\"b\":2,\"a\":3}' | from_json }}", "{'a': 3, 'b': 2}", 0},
    {"{{ '[NaN, Infinity, -Infinity, -0, -0.0, 0.1, 1E-7, 1e400]' | from_json }}",
     "[nan, inf, -inf, 0, -0.0, 0.1, 1e-07, inf]", 0},
    {"{{ '[9223372036854775807,-9223372036854775808]' | from_json }}",
     "[9223372036854775807, -9223372036854775808]", 0},
    {"{{ '\"<b>\"' | safe | from_json ~ '<' }}{{ '\"\x7f\"' | from_json | length }}", "<b><1", 0},
    {"{{ ('{\"a\": [1, {\"b\": \"x\"}]}' | from_json).a[1].b }}{{ d | tojson | from_json == d }}",
     "xTrue", 0},
    {"{{ '7' | from_json + 1 }}{{ 'true' | from_json is true }}{{ 'null' | from_json is none }}",
     "8TrueTrue", 0},
};

static const struct jinja_sample refused[] = {
    {"\n{{ '' | from_json }}", "line 2: from_json: a value is expected at character 0", E_INVAL},
    {"{{ '  ' | from_json }}", "a value is expected at character 2", E_INVAL},
    {"{{ '你[1,]' | from_json }}", "a value is expected at character 0", E_INVAL},
    {"{{ '[1,]' | from_json }}", "a value is expected at character 3", E_INVAL},
    {"{{ '[\"你\",]' | from_json }}", "a value is expected at character 5", E_INVAL},
    {"{{ '[1 2]' | from_json }}", "a comma is expected at character 3", E_INVAL},
    {"{{ '[1' | from_json }}", "a comma is expected at character 2", E_INVAL},
    {"{{ '{\"a\" 1}' | from_json }}", "a colon is expected at character 5", E_INVAL},
    {"{{ '{\"a\":1,}' | from_json }}", "a name in double quotes is expected at character 7",
     E_INVAL},
    {"{{ \"{'a':1}\" | from_json }}", "a name in double quotes is expected at character 1",
     E_INVAL},
    {"{{ '{1:1}' | from_json }}", "a name in double quotes is expected at character 1", E_INVAL},
    {"{{ '1 2' | from_json }}", "extra data at character 2", E_INVAL},
    {"{{ '01' | from_json }}", "extra data at character 1", E_INVAL},
    {"{{ '1.' | from_json }}", "extra data at character 1", E_INVAL},
    {"{{ '1e+' | from_json }}", "extra data at character 1", E_INVAL},
    {"{{ '-' | from_json }}", "a value is expected at character 0", E_INVAL},
    {"{{ '+1' | from_json }}", "a value is expected at character 0", E_INVAL},
    {"{{ '0x10' | from_json }}", "extra data at character 1", E_INVAL},
    {"{{ 'nulls' | from_json }}", "extra data at character 4", E_INVAL},
    {"{{ '\"abc' | from_json }}", "unterminated string at character 4", E_INVAL},
    {"{{ '\"abc\\\\' | from_json }}", "invalid escape at character 5", E_INVAL},
    {"{{ '\"\\\\x41\"' | from_json }}", "invalid escape at character 2", E_INVAL},
    {"{{ '\"\\\\u12\"' | from_json }}", "invalid \\uXXXX escape at character 3", E_INVAL},
    {"{{ '\"a\\nb\"' | from_json }}", "invalid control character at character 2", E_INVAL},
    {"{{ '\"\\\\ud83d\"' | from_json }}", "half of a surrogate pair", E_UNSUPPORTED},
    {"{{ '\"\\\\ude00\"' | from_json }}", "half of a surrogate pair", E_UNSUPPORTED},
    {"{{ '\"\\\\ud83d\\\\u0041\"' | from_json }}", "half of a surrogate pair", E_UNSUPPORTED},
    {"{{ d | from_json }}", "the JSON object must be str, not dict", E_INVAL},
    {"{{ n | from_json }}", "the JSON object must be str, not NoneType", E_INVAL},
    {"{{ nothing | from_json }}", "the JSON object must be str, not Undefined", E_INVAL},
    // Python has whole numbers of any length.
    {"{{ '9223372036854775808' | from_json }}", "a whole number past 64 bits", E_LIMIT},
};

static void test_values(void **state) {
    JINJA_CHECK(samples);
}

static void test_refused(void **state) {
    JINJA_CHECK(refused);
}

// Each ends soon, with little stack and memory.
static const struct jinja_sample hostile[] = {
    {"{{ ('[' * 1000000) | from_json }}", "from_json: nested deeper than 64", E_LIMIT},
    {"{{ ('{\"a\":' * 1000000) | from_json }}", "from_json: nested deeper than 64", E_LIMIT},
    {"{{ ('[' * 66 ~ ']' * 66) | from_json }}", "from_json: nested deeper than 64", E_LIMIT},
    {"{{ ('[' * 65 ~ ']' * 65) | from_json | length }}", "1", 0},
    {"{% set s = ' ' * 1000000 %}{% for i in range(99999) %}{% if (s ~ '1') | from_json %}{% endif "
     "%}"
     "{% endfor %}",
     "too many steps", E_LIMIT},
    {"{% set s = '\"' ~ 'a' * 1000000 ~ '\"' %}{% for i in range(99999) %}{% if s | from_json %}{% "
     "endif %}"
     "{% endfor %}",
     "", E_LIMIT},
    {"{% set s = '1' * 1000000 %}{{ s | from_json }}", "a whole number past 64 bits", E_LIMIT},
    {"{% set s = '[' ~ '[],' * 9999999 %}{{ s | from_json }}", "", E_LIMIT},
    // As many keys as a worker could compare for minutes.
    {"{% set ns = namespace(s='{') %}{% for i in range(5000) %}{% set ns.s = ns.s ~ '\"' ~ i ~ "
     "'\":0,' %}"
     "{% endfor %}{% for i in range(99999) %}{% if (ns.s ~ '\"x\":0}') | from_json %}{% endif %}{% "
     "endfor %}",
     "", E_LIMIT},
};

static void test_hostile(void **state) {
    jinja_more_steps = 1000000;
    JINJA_CHECK(hostile);
    jinja_more_steps = 0;
}

// What a user wrote inside JSON is known as the user's; brackets and names of the template are not.
static void test_origins(void **state) {
    static const struct {
        const char *json, *text, *want, *origins;
    } cases[] = {
        {"{\"k\": \"xY\"}", "a{{ (u | from_json).k }}b", "axYb", "0110"},
        {"{\"k\": \"xY\"}", "{% for k, v in (u | from_json).items() %}{{ k }}={{ v }}{% endfor %}",
         "k=xY", "1011"},
        {"\"\\u00e9\\nb\"", "{{ u | from_json }}", "é\nb", "1111"},
        {"xY", "{{ ('[\"' ~ u ~ '\", \"t\"]') | from_json | join('-') }}", "xY-t", "1100"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct jinja_template *t;
        struct jinja_run r;
        struct jinja_string s, u = {.s = cases[i].json, .len = strlen(cases[i].json)};
        struct err err = {0};
        struct tm now = {0};
        uint8_t marks[64];
        memset(marks, 1, sizeof marks);
        u.origin = marks;
        assert_int_equal(jinja_open(&t, cases[i].text, strlen(cases[i].text), &err), 0);
        assert_int_equal(jinja_begin(&r, 64, &now, &err), 0);
        assert_int_equal(jinja_set(&r, "u", jinja_str(u)), 0);
        if (jinja_render(&r, t, &s) != 0) fail_msg("%s: %s", cases[i].text, err.text);
        assert_int_equal(s.len, strlen(cases[i].want));
        assert_memory_equal(s.s, cases[i].want, s.len);
        for (size_t k = 0; k < s.len; k++)
            if (jinja_string_origin(s, k) != cases[i].origins[k] - '0')
                fail_msg("%s: origin of byte %zu", cases[i].text, k);
        jinja_end(&r);
        jinja_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
