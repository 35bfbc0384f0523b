// Writing JSON: commas, escapes, exact numbers; the output can be read back.
#include "base/json_form.h"
#include "base/philox.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct buf out;
static struct json_writer w;

static int setup(void **state) {
    buf_init(&out, 1 << 20);
    json_writer_init(&w, &out);
    return 0;
}

static int teardown(void **state) {
    buf_release(&out);
    return 0;
}

static const char *again(void) { // what was written since the last call
    static char text[4096];
    snprintf(text, sizeof text, "%s", buf_z(&out));
    buf_reset(&out);
    json_writer_init(&w, &out);
    return text;
}

static void commas_and_nesting(void **state) {
    json_open(&w, NULL, '{');
    json_put_string(&w, "s", "x");
    json_put_string(&w, "none", NULL);
    json_open(&w, "a", '[');
    json_put_int(&w, NULL, 1);
    json_put_int(&w, NULL, 2);
    json_open(&w, NULL, '{');
    json_close(&w, '}');
    json_open(&w, NULL, '[');
    json_close(&w, ']');
    json_close(&w, ']');
    json_put_bool(&w, "t", true);
    json_put_bool(&w, "f", false);
    json_put_null(&w, "n");
    json_put_raw(&w, "r", "{\"x\":[]}", 8);
    json_put_int(&w, "i", -5);
    json_close(&w, '}');
    assert_string_equal(
        again(), "{\"s\":\"x\",\"none\":null,\"a\":[1,2,{},[]],\"t\":true,\"f\":false,\"n\":null,"
                 "\"r\":{\"x\":[]},\"i\":-5}");
}

static void lists_of_numbers(void **state) {
    const int32_t ids[] = {3, -1};
    const float values[] = {0.5f, -INFINITY};
    json_open(&w, NULL, '{');
    json_put_ids(&w, "ids", ids, 2);
    json_put_floats(&w, "values", values, 2);
    json_put_ids(&w, "none", NULL, 0);
    json_put_int_or_null(&w, "zero", 0);
    json_put_int_or_null(&w, "absent", -1);
    json_put_raw(&w, "raw", NULL, 0);
    json_close(&w, '}');
    assert_string_equal(again(), "{\"ids\":[3,-1],\"values\":[0.5,null],\"none\":[],\"zero\":0,"
                                 "\"absent\":null,\"raw\":null}");
}

static const char *written(const char *text, size_t len) {
    json_put_text(&w, NULL, text, len);
    return again();
}

#define WRITTEN(text) written(text, sizeof(text) - 1)

static void strings_are_escaped(void **state) {
    assert_string_equal(WRITTEN(""), "\"\"");
    assert_string_equal(WRITTEN("a\"b\\c"), "\"a\\\"b\\\\c\"");
    assert_string_equal(WRITTEN("\b\f\n\r\t\x01\x1f\0z"),
                        "\"\\b\\f\\n\\r\\t\\u0001\\u001f\\u0000z\"");
    assert_string_equal(WRITTEN("\x7f\u00e4\u20ac\U0001f600"), "\"\x7f\u00e4\u20ac\U0001f600\"");
    assert_string_equal(WRITTEN("\u2027\u2028\u2029\u202a"), "\"\u2027\\u2028\\u2029\u202a\"");
    assert_string_equal(WRITTEN("a/b</script></"), "\"a/b<\\/script><\\/\"");
    assert_string_equal(WRITTEN("/"), "\"/\"");
    json_put_string(&w, "k\"\n", "v");
    assert_string_equal(again(), "\"k\\\"\\n\":\"v\"");
}

static void invalid_utf8_is_replaced(void **state) {
    assert_string_equal(WRITTEN("a\xff"
                                "b\xe2\x82"),
                        "\"a\xef\xbf\xbd"
                        "b\xef\xbf\xbd\"");
    assert_string_equal(WRITTEN("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void integers_are_exact(void **state) {
    static const int64_t values[] = {
        0, -1, 9, 10, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 9007199254740993};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char want[32];
        snprintf(want, sizeof want, "%lld", (long long)values[i]);
        json_put_int(&w, NULL, values[i]);
        assert_string_equal(again(), want);
    }
    json_put_u64_string(&w, "seed", UINT64_MAX);
    assert_string_equal(again(), "\"seed\":\"18446744073709551615\"");
    json_put_u64_string(&w, NULL, 0);
    assert_string_equal(again(), "\"0\"");
}

static const char *number(double v) {
    json_put_double(&w, NULL, v);
    return again();
}

static void doubles_in_nine_digits(void **state) {
    static const struct {
        double v;
        const char *text;
    } rows[] = {{0, "0"},
                {1, "1"},
                {-1, "-1"},
                {0.1, "0.1"},
                {-2.5, "-2.5"},
                {100, "100"},
                {1e-4, "0.0001"},
                {0.00012345678912, "0.000123456789"},
                {123456.75, "123456.75"},
                {1e8, "100000000"},
                {0.9999999999, "1"},
                {9.9999999999, "10"},
                {99999999.99, "100000000"},
                {1e9, "1e+09"},
                {1e300, "1e+300"},
                {-1e-7, "-1e-07"},
                {1.0 / 3, "0.333333333"},
                {NAN, "null"},
                {INFINITY, "null"},
                {-INFINITY, "null"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(number(rows[i].v), rows[i].text);
    }
}

// Against printf, and as what matters: every float reads back as itself.
static void doubles_as_printf_and_floats_read_back(void **state) {
    for (uint64_t i = 0; i < 300000; i++) {
        uint32_t r[4];
        philox4x32(i, (uint32_t[4]){0}, r);
        float f;
        memcpy(&f, &r[0], 4);
        if (i % 2) f = -(float)(r[1] % 100000 + 1) * (float)exp2(-(double)(r[2] % 40)); // near 1
        if (!isfinite(f)) continue;
        char want[40];
        snprintf(want, sizeof want, "%.9g", (double)f);
        const char *got = number((double)f);
        if (strtof(got, NULL) != f) fail_msg("%a: %s", f, got);
        if (strcmp(got, want) !=
            0) { // allowed in the last digit where the next is a tie to 15 digits
            double error = fabs(strtod(got, NULL) - f), best = fabs(strtod(want, NULL) - f);
            if (error > best * (1 + 1e-6)) fail_msg("%s, not %s", got, want);
        }
    }
}

static void floats_are_as_short_as_they_can_be(void **state) {
    static const struct {
        float v;
        const char *want;
    } cases[] = {{0.7f, "0.7"}, {1, "1"},         {-2.5f, "-2.5"},
                 {0, "0"},      {1e-8f, "1e-08"}, {INFINITY, "null"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_put_float(&w, NULL, cases[i].v);
        assert_string_equal(again(), cases[i].want);
    }
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t r[4];
        float f;
        philox4x32(i, (uint32_t[4]){0}, r);
        memcpy(&f, &r[0], 4);
        if (!isfinite(f)) continue;
        json_put_float(&w, NULL, f);
        assert_true(strtof(again(), NULL) == f);
    }
}

static void any_text_reads_back(void **state) {
    static const char alphabet[] = "ab<//\\\"\n\x02\x7f\xc3\xa4\xe2\x80\xa8\xa9\xff";
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t r[4];
        char text[25] = {0};
        philox4x32(i, (uint32_t[4]){0}, r);
        for (uint32_t k = 0; k < r[3] % 24; k++)
            text[k] = alphabet[(r[k / 8] >> 4 * (k % 8) & 15) + (k + i) % 2];
        struct buf whole;
        buf_init(&whole, 1000);
        buf_add_utf8(&whole, text, strlen(text));
        const char *json = written(text, strlen(text));
        struct err err;
        cJSON *root = json_parse(json, strlen(json), &json_limits_message, &err);
        if (!root) fail_msg("%s: %s", json, err.text);
        assert_string_equal(root->valuestring, buf_z(&whole));
        assert_null(strstr(json, "</"));
        cJSON_Delete(root);
        buf_release(&whole);
    }
}

static void a_full_buffer_is_an_error_not_half_a_value(void **state) {
    struct buf small;
    buf_init(&small, 20);
    json_writer_init(&w, &small);
    for (int i = 0; i < 10; i++) json_put_string(&w, NULL, "0123456789");
    assert_int_equal(small.error, E_LIMIT);
    assert_true(small.len <= 20);
    buf_release(&small);
}

// Texts that are all escapes, in buffers of every size: each escape is written whole, or E_LIMIT.
static void texts_of_escapes_alone(void **state) {
    static const struct {
        char c;
        const char *escape;
    } rows[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {1, "\\u0001"}, {31, "\\u001f"}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        size_t each = strlen(rows[r].escape);
        for (size_t len = 0; len < 200; len++) {
            struct buf b;
            char text[200];
            memset(text, rows[r].c, len);
            buf_init(&b, len * each); // exactly enough
            json_escape(&b, text, len);
            assert_int_equal(b.error, 0);
            assert_int_equal(b.len, len * each);
            for (size_t i = 0; i < len; i++)
                assert_memory_equal(b.data + i * each, rows[r].escape, each);
            assert_int_equal(strlen(buf_z(&b)), b.len);
            buf_release(&b);
            if (len == 0) continue;
            buf_init(&b, len * each - 1);
            json_escape(&b, text, len);
            assert_int_equal(b.error, E_LIMIT);
            assert_int_equal(b.len, (len - 1) * each); // no half escape
            buf_release(&b);
        }
    }
}

// With arguments that the compiler does not know: it warns of a NULL that it sees.
static void put_both(const char *key, const char *value) {
    json_form(&w, "%s:%s", key, value);
}

// A form writes what the calls that it stands for write.
static void forms_are_calls(void **state) {
    json_form(&w, "{text:%s", "x\"");
    put_both("none", NULL);
    json_form(&w, "part:%.*s,word:'a b',list:[1,%d,%ld,%zu,[],{}],%s:{", 2, "abc", -7,
              (int64_t)INT64_MIN, (size_t)3, "given");
    json_put_int(&w, "between", 1);
    json_form(&w, "head:%+ld,tail:%+ld,seed:%lu},yes:%hhd,no:false,gone:null}", (int64_t)-1,
              (int64_t)0, (uint64_t)UINT64_MAX, true);
    assert_string_equal(again(),
                        "{\"text\":\"x\\\"\",\"none\":null,\"part\":\"ab\",\"word\":\"a b\","
                        "\"list\":[1,-7,-9223372036854775808,3,[],{}],\"given\":{"
                        "\"between\":1,\"head\":null,\"tail\":0,"
                        "\"seed\":\"18446744073709551615\"},\"yes\":true,\"no\":false,"
                        "\"gone\":null}");
    json_form(&w, "[%g,%f", 0.1, (double)0.7f);
    put_both(NULL, "5");
    json_form(&w, "true,'']");
    assert_string_equal(again(), "[0.1,0.7,\"5\",true,\"\"]");
    json_form_to(&out, "{a:%d}", 1);
    assert_string_equal(again(), "{\"a\":1}");
}

// --- trees ---

static void trees_are_made_of_forms(void **state) {
    const char *volatile nothing = NULL;
    cJSON *tree = json_tree("{type:'object',n:%ld,list:[1,{%s:%s}],none:%s}", (int64_t)7, "key",
                            "a \"quoted\" text", nothing);
    char *text = cJSON_PrintUnformatted(tree);
    assert_string_equal(text, "{\"type\":\"object\",\"n\":7,\"list\":[1,{\"key\":"
                              "\"a \\\"quoted\\\" text\"}],\"none\":null}");
    cJSON_free(text);
    cJSON_Delete(tree);
}

static void members_that_say_nothing_are_left_out(void **state) {
    const char *volatile nothing = NULL;
    static const char form[] = "{a?:%s,b?:%.*s,c?:%d,d?:%ld,e?:%zu,f?:%+ld,g?:%hhd,h?:%g,i?:%f}";
    struct buf text;
    for (int full = 0; full < 3; full++) {
        const char *word = full == 2 ? "x" : full ? "" : nothing;
        int n = full == 2;
        buf_init(&text, 1000);
        json_form_to(&text, form, word, n, "y", n, (long)n, (size_t)n, (long)(n - 1), n, (double)n,
                     (double)n);
        assert_string_equal(buf_z(&text), n ? "{\"a\":\"x\",\"b\":\"y\",\"c\":1,\"d\":1,\"e\":1,"
                                              "\"f\":0,\"g\":true,\"h\":1,\"i\":1}"
                                            : "{}");
        buf_release(&text);
    }
}

static void values_are_put_in_place_or_freed(void **state) {
    struct buf words, broken;
    cJSON *tree = json_tree("{a:1,b:2}"), *list = json_set(tree, "list", cJSON_CreateArray());
    assert_non_null(json_set(tree, "a", cJSON_CreateNumber(3))); // keeps its place
    assert_non_null(json_append(list, cJSON_CreateTrue()));
    buf_init(&words, 100);
    buf_addz(&words, "words");
    assert_non_null(json_append(list, json_take_text(&words)));
    assert_null(words.data);
    char *text = cJSON_PrintUnformatted(tree);
    assert_string_equal(text, "{\"a\":3,\"b\":2,\"list\":[true,\"words\"]}");
    cJSON_free(text);
    buf_init(&broken, 2);
    buf_addz(&broken, "too long");
    assert_null(json_take_text(&broken));
    assert_null(json_set(tree, "c", NULL));
    assert_null(json_set(NULL, "c", cJSON_CreateTrue())); // the sanitizer says whether it was freed
    assert_null(json_append(NULL, cJSON_CreateTrue()));
    assert_null(json_append(list, NULL));
    cJSON_Delete(tree);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_escapes_alone),
        cmocka_unit_test(trees_are_made_of_forms),
        cmocka_unit_test(members_that_say_nothing_are_left_out),
        cmocka_unit_test(values_are_put_in_place_or_freed),
        cmocka_unit_test_setup_teardown(commas_and_nesting, setup, teardown),
        cmocka_unit_test_setup_teardown(forms_are_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_of_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(strings_are_escaped, setup, teardown),
        cmocka_unit_test_setup_teardown(invalid_utf8_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(integers_are_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(doubles_in_nine_digits, setup, teardown),
        cmocka_unit_test_setup_teardown(doubles_as_printf_and_floats_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(floats_are_as_short_as_they_can_be, setup, teardown),
        cmocka_unit_test_setup_teardown(any_text_reads_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_buffer_is_an_error_not_half_a_value, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
