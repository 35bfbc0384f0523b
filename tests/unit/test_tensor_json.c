// Tensors in JSON: 64-bit numbers as they were written, shapes, and what must be refused.
#include "tests/cmocka.h"
#include "ws/kserve/http/number_data.h"
#include "ws/kserve/http/tensor_json.h"
#include <stdlib.h>
#include <string.h>

struct read_result {
    struct tensors tensors;
    struct err err;
    cJSON *json;
    int rc;
};

static struct read_result read_inputs(const char *text) {
    struct read_result g = {.rc = 0};
    g.json = json_parse(text, strlen(text), &json_limits_message, &g.err);
    assert_non_null(g.json);
    g.rc = tensors_read(&g.tensors, g.json, text, "", 0, &g.err);
    return g;
}

static void release(struct read_result *g) {
    tensors_release(&g->tensors);
    cJSON_Delete(g->json);
}

#define INPUT(type, shape, data)                                                                   \
    "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"" type "\",\"shape\":" shape ",\"data\":" data    \
    "}]}"

static void expect_refused(const char *text, const char *sentence) {
    struct read_result g = read_inputs(text);
    assert_int_equal(g.rc, E_INVAL);
    assert_string_equal(g.err.text, sentence);
    release(&g);
}

static void test_integers_of_64_bits_are_exact(void **state) {
    struct read_result g = read_inputs(INPUT(
        "UINT64", "[2,2]", "[[18446744073709551615, 9007199254740993],[0,9223372036854775809 ]]"));
    assert_int_equal(g.rc, 0);
    const struct tensor *t = tensors_find(&g.tensors, "x");
    assert_true(tensor_u64(t, 0) == UINT64_MAX);
    assert_true(tensor_u64(t, 1) == UINT64_C(9007199254740993));
    assert_true(tensor_u64(t, 2) == 0);
    assert_true(tensor_u64(t, 3) == UINT64_C(9223372036854775809));
    release(&g);

    g = read_inputs(INPUT("INT64", "[3]", "[-9223372036854775808,9223372036854775807,-1e3]"));
    assert_int_equal(g.rc, 0);
    t = tensors_find(&g.tensors, "x");
    assert_true((int64_t)tensor_u64(t, 0) == INT64_MIN);
    assert_true((int64_t)tensor_u64(t, 1) == INT64_MAX);
    assert_true((int64_t)tensor_u64(t, 2) == -1000);
    release(&g);
}

static void test_numbers_beyond_their_type_are_refused(void **state) {
    expect_refused(INPUT("UINT64", "[1]", "[18446744073709551616]"),
                   "input 'x': element 0 is not a valid UINT64");
    expect_refused(INPUT("UINT64", "[1]", "[-1]"), "input 'x': element 0 is not a valid UINT64");
    expect_refused(INPUT("INT64", "[1]", "[9223372036854775808]"),
                   "input 'x': element 0 is not a valid INT64");
    expect_refused(INPUT("UINT32", "[2]", "[1,4294967296]"),
                   "input 'x': element 1 is not a valid UINT32");
    expect_refused(INPUT("INT32", "[1]", "[0.5]"), "input 'x': element 0 is not a valid INT32");
    expect_refused(INPUT("FP32", "[1]", "[1e39]"), "input 'x': element 0 is not a valid FP32");
    expect_refused(INPUT("BF16", "[1]", "[1]"),
                   "input 'x': BF16 data is accepted in binary form only");
    expect_refused(INPUT("BYTES", "[1]", "[1]"), "input 'x': element 0 is not a string");
}

static void test_names_written_with_escapes_are_read(void **state) {
    struct read_result g = read_inputs("{\"inp\\u0075ts\":[{\"name\":\"x\",\"datatype\":\"UINT64\","
                                       "\"shape\":[1],\"d\\u0061ta\":[7]}"
                                       "]}");
    assert_int_equal(g.rc, 0);
    assert_true(tensor_u64(tensors_find(&g.tensors, "x"), 0) == 7);
    release(&g);
}

static void test_shapes_bound_what_is_allocated(void **state) {
    expect_refused(INPUT("UINT32", "[2147483647,2147483647,2147483647]", "[1]"),
                   "input 'x' has too many elements");
    expect_refused(INPUT("UINT32", "[2147483647]", "[1]"),
                   "input 'x' has fewer elements than the 2147483647 of its shape");
    expect_refused(INPUT("UINT32", "[3]", "[1,2]"), "input 'x' has 2 elements, its shape needs 3");
    expect_refused(INPUT("UINT32", "[1]", "[1,2]"),
                   "input 'x' has more than the 1 elements of its shape");
    expect_refused(INPUT("UINT32", "[1,1,1,1,1,1,1]", "[1]"),
                   "input 'x': shape must be an array of at most 6 numbers");
    expect_refused(INPUT("UINT32", "[-1]", "[1]"),
                   "input 'x': a dimension must be from 0 to 2147483647");
}

static struct read_result read_hollow(const char *text) {
    struct read_result g = {.rc = 0};
    char *hollow = number_data_hollow(text, strlen(text), 0);
    assert_non_null(hollow);
    assert_int_equal(strlen(hollow), strlen(text));
    g.json = json_parse(hollow, strlen(text), &json_limits_message, &g.err);
    free(hollow);
    assert_non_null(g.json);
    g.rc = tensors_read(&g.tensors, g.json, text, "", 0, &g.err);
    return g;
}

// Every case above that json_parse accepts is read alike, whether the tree has the numbers or not.
static void test_numbers_are_read_from_the_text(void **state) {
    struct read_result g = read_hollow(INPUT("INT64", "[2,3]",
                                             "[ [-9223372036854775808,9223372036854775807,-1e3],\n"
                                             "[0, 12.0 ,-0]]"));
    assert_int_equal(g.rc, 0);
    assert_null(
        cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(g.json, "inputs"), 0), "data")
            ->child);
    static const int64_t wants[] = {INT64_MIN, INT64_MAX, -1000, 0, 12, 0};
    for (size_t i = 0; i < 6; i++)
        assert_true((int64_t)tensor_u64(tensors_find(&g.tensors, "x"), i) == wants[i]);
    release(&g);
    g = read_hollow(
        INPUT("FP32", "[4]", "[1.5,-2e-3,0.1,340282346638528859811704183484516925440]"));
    assert_int_equal(g.rc, 0);
    static const float floats[] = {1.5f, -2e-3f, 0.1f, 3.4028234663852886e38f};
    for (size_t i = 0; i < 4; i++)
        assert_true((float)tensor_number(tensors_find(&g.tensors, "x"), i) == floats[i]);
    release(&g);
    static const struct {
        const char *text, *sentence;
    } refused[] = {
        {INPUT("UINT32", "[2]", "[1,4294967296]"), "input 'x': element 1 is not a valid UINT32"},
        {INPUT("UINT64", "[1]", "[18446744073709551616]"),
         "input 'x': element 0 is not a valid UINT64"},
        {INPUT("FP32", "[1]", "[1e999]"), "input 'x': element 0 is not a valid FP32"},
        {INPUT("UINT32", "[3]", "[1,2]"), "input 'x' has 2 elements, its shape needs 3"},
        {INPUT("UINT32", "[1]", "[1,2]"), "input 'x' has more than the 1 elements of its shape"},
        {INPUT("UINT32", "[2147483647]", "[1]"),
         "input 'x' has fewer elements than the 2147483647 of its shape"},
        {INPUT("BYTES", "[1]", "[1]"), "input 'x': element 0 is not a string"},
        {INPUT("BF16", "[1]", "[1]"), "input 'x': BF16 data is accepted in binary form only"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        g = read_hollow(refused[i].text);
        assert_int_equal(g.rc, E_INVAL);
        assert_string_equal(g.err.text, refused[i].sentence);
        release(&g);
    }
}

// What is not an array of numbers in JSON's grammar stays, so that json_parse judges it.
static void test_other_arrays_stay(void **state) {
    static const char *const kept[] = {
        "{\"data\":[1,2,]}",  "{\"data\":[01]}",         "{\"data\":[1 2]}", "{\"data\":[[1]",
        "{\"data\":[,1]}",    "{\"data\":[1.]}",         "{\"data\":[-]}",   "{\"data\":[true]}",
        "{\"data\":[\"1\"]}", "{\"datas\":[1,2]}",       "{\"data\":1}",     "{\"data\"",
        "[\"data\",[1,2]]",   "{\"x\":\"\\\"data\":[1]", "{\"data\":[1}]}",  "{\"data\":[1e]}",
    };
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char *hollow = number_data_hollow(kept[i], strlen(kept[i]), 0);
        assert_string_equal(hollow, kept[i]);
        free(hollow);
    }
    char *hollow = number_data_hollow("{\"data\" : [1,2]}", 16, 0);
    assert_string_equal(hollow, "{\"data\" : [   ]}");
    free(hollow);
    hollow = number_data_hollow("{\"data\":[1,2]}", 14, 6);
    assert_string_equal(hollow, "{\"data\":[1,2]}"); // short
    free(hollow);
}

static void test_raw_bytes_must_add_up(void **state) {
    static const char text[] =
        "{\"inputs\":[{\"name\":\"a\",\"datatype\":\"UINT32\",\"shape\":[1],"
        "\"parameters\":{\"binary_data_size\":4}},{\"name\":\"b\",\"datatype\":\"BYTES\","
        "\"shape\":[2],\"parameters\":{\"binary_data_size\":11}}]}";
    static const char raw[] = "\x05\0\0\0\x01\0\0\0x\x02\0\0\0yz";
    struct err err = {0};
    struct tensors t;
    cJSON *json = json_parse(text, strlen(text), &json_limits_message, &err);
    assert_non_null(json);
    assert_int_equal(tensors_read(&t, json, text, raw, 15, &err), 0);
    assert_true(tensor_u64(tensors_find(&t, "a"), 0) == 5);
    const struct tensor *b = tensors_find(&t, "b");
    assert_true(b->texts[0].len == 1 && b->texts[1].len == 2 && b->texts[1].bytes[1] == 'z');
    tensors_release(&t);
    assert_int_equal(tensors_read(&t, json, text, raw, 14, &err), E_INVAL);
    tensors_release(&t);
    assert_int_equal(tensors_read(&t, json, text, raw, 16, &err), E_INVAL);
    tensors_release(&t);
    cJSON_Delete(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_of_64_bits_are_exact),
        cmocka_unit_test(test_numbers_beyond_their_type_are_refused),
        cmocka_unit_test(test_names_written_with_escapes_are_read),
        cmocka_unit_test(test_shapes_bound_what_is_allocated),
        cmocka_unit_test(test_numbers_are_read_from_the_text),
        cmocka_unit_test(test_other_arrays_stay),
        cmocka_unit_test(test_raw_bytes_must_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
