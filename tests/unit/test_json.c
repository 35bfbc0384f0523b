// Reading JSON: each trap of cJSON that the guard closes, the limits, the getters.
#include "base/json.h"
#include "tests/cmocka.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cJSON *parse(const char *text) {
    struct err err = {0};
    cJSON *root = json_parse(text, strlen(text), &json_limits_message, &err);
    if (!root) fail_msg("%s: %s", text, err.text);
    return root;
}

static void assert_refused(const char *text, size_t len, int code) {
    struct err err = {0};
    cJSON *root = json_parse(text, len, &json_limits_message, &err);
    if (root || err.code != code)
        fail_msg("%.*s: %s (%d), not %d", (int)len, text, root ? "taken" : err.text, err.code,
                 code);
    assert_true(err.text[0] != '\0');
}

#define REFUSED(text) assert_refused(text, sizeof(text) - 1, E_FORMAT)
#define TAKEN(text) cJSON_Delete(parse(text))

static void well_formed_values_are_taken(void **state) {
    TAKEN("{}");
    TAKEN("[]");
    TAKEN(" \t\r\n[ 1 , -2 , 0 , -0.5 , 1e5 , 1.5E-3 , 1e+10 , true , false , null ]\n ");
    TAKEN("\"\"");
    TAKEN("3");
    TAKEN("null");
    TAKEN("[\"\\\\u0000\"]"); // an escaped backslash, then text
    TAKEN("{\"a\":{\"a\":1},\"b\":[{},{\"\":[]}]}");
    TAKEN("\"\\ud83d\\ude00 \\u20ac \\\" \\/ \\b\\f\\n\\r\\t\"");
}

// cJSON's own parser reads well-formed text, too.
static void values_are_those_of_cjson(void **state) {
    static const char *const texts[] = {
        "\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\udbff\\udfff \\u007f\\u0080\\u07ff\\u0800\\uFFFF\"",
        "\"\\\" \\\\ \\/ \\b\\f\\n\\r\\t\"",
        "\"\xc3\xa9 \xf0\x9f\x98\x80\"",
        "[0,-0,7,-7,2147483648,-2147483649,999999999999999,-99999999999999,9999999999999999]",
        "[0.5,-1.25e-3,1E5,1e+10,123456789012345678901234567890,1.7976931348623157e308]",
        "[true,false,null,[],{},[[]],\"\"]",
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}],\"\":{\"x\\n\":1}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cJSON *ours = parse(texts[i]), *theirs = cJSON_Parse(texts[i]);
        assert_non_null(theirs);
        if (!cJSON_Compare(ours, theirs, true)) fail_msg("%s", texts[i]);
        if (ours->child) assert_null(ours->child->prev->next);
        char *a = cJSON_PrintUnformatted(ours), *b = cJSON_PrintUnformatted(theirs);
        assert_string_equal(a, b);
        free(a);
        free(b);
        cJSON_Delete(theirs);
        cJSON_Delete(ours);
    }
}

// Keys that are literals stay what they are in copies and in trees that are changed.
static void common_keys_can_be_replaced(void **state) {
    cJSON *o = parse("{\"role\":1,\"content\":\"x\",\"name\":0.5}"), *copy;
    assert_true(cJSON_ReplaceItemInObjectCaseSensitive(o, "content", cJSON_CreateString("y")));
    cJSON *taken = cJSON_DetachItemFromObjectCaseSensitive(o, "role");
    assert_true(cJSON_AddItemToObject(o, "renamed", taken));
    copy = cJSON_Duplicate(o, true);
    cJSON_Delete(o);
    char *text = json_print(copy);
    assert_string_equal(text, "{\"content\":\"y\",\"name\":0.5,\"renamed\":1}");
    free(text);
    cJSON_Delete(copy);
}

static void nul_is_refused_raw_and_in_keys(void **state) {
    REFUSED("\"a\0b\"");
    REFUSED("{}\0");
    REFUSED("{\"a\\u0000b\":1}");
    REFUSED("{\"a\\ud800\":1}");
}

// Legal JSON, and no text that we can hold: a binary file that a tool read.
static void escapes_that_are_no_text_are_replaced(void **state) {
    static const char *const texts[][2] = {
        {"\"a\\u0000b\"", "a\xef\xbf\xbd"
                          "b"},
        {"\"\\\\\\u0000\"", "\\\xef\xbf\xbd"}, // an escaped backslash, then an escaped NUL
        {"\"\\ud800\"", "\xef\xbf\xbd"},
        {"\"\\ud800\\u0041\"", "\xef\xbf\xbd"
                               "A"},
        {"\"\\udc00x\"", "\xef\xbf\xbdx"},
        {"\"\\ud83d\\ud83d\\ude00\"", "\xef\xbf\xbd\xf0\x9f\x98\x80"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cJSON *v = json_parse(texts[i][0], strlen(texts[i][0]), &json_limits_message, NULL);
        assert_non_null(v);
        assert_string_equal(v->valuestring, texts[i][1]);
        cJSON_Delete(v);
    }
}

static void text_after_the_value_is_refused(void **state) {
    REFUSED("{}x");
    REFUSED("{} {}");
    REFUSED("1 2");
    REFUSED("[1]]");
    REFUSED("\"a\" \"b\"");
    REFUSED("true,");
}

static void invalid_utf8_is_refused(void **state) {
    REFUSED("\"\xff\"");
    REFUSED("\"\xc0\xaf\"");
    REFUSED("\"\xed\xa0\x80\"");
    REFUSED("\"\xe2\x82\"");
    REFUSED("\xef\xbb\xbf{}"); // a byte order mark is no white space
}

static void a_refusal_says_whether_the_text_ends_too_early(void **state) {
    static const struct {
        const char *text, *says;
    } cases[] = {{"", "it is empty"},
                 {" \n", "it is empty"},
                 {"{\"a\":", "it ends too early"},
                 {"[1,", "it ends too early"},
                 {"{\"a\":1", "it ends too early"},
                 {"{\"a\":x}", "an unexpected character at byte 5"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        assert_null(json_parse(cases[i].text, strlen(cases[i].text), &json_limits_message, &err));
        assert_non_null(strstr(err.text, cases[i].says));
    }
}

static void what_is_not_json_is_refused(void **state) {
    REFUSED("");
    REFUSED("  ");
    REFUSED("\x01{}"); // cJSON: white space
    REFUSED("{\x0b}");
    REFUSED("\"a\nb\"");
    REFUSED("\"\\x41\"");
    REFUSED("\"\\u12g4\"");
    REFUSED("\"open");
    REFUSED("\"open\\");
    REFUSED("\"open\\\"");
    REFUSED("[1,]");
    REFUSED("[,1]");
    REFUSED("[1 2]");
    REFUSED("{\"a\"}");
    REFUSED("{\"a\":}");
    REFUSED("{\"a\":1,}");
    REFUSED("{a:1}");
    REFUSED("{1:1}");
    REFUSED("{'a':1}");
    REFUSED("[1}");
    REFUSED("[");
    REFUSED("]");
    REFUSED("{\"a\":[}");
    REFUSED(":");
    REFUSED("\"a\":1");
    REFUSED("tru");
    REFUSED("True");
    REFUSED("NaN");
    REFUSED("// comment\n1");
    REFUSED("undefined");
}

static void numbers_have_the_form_of_json(void **state) {
    REFUSED("01");
    REFUSED("-01");
    REFUSED("1.");
    REFUSED(".5");
    REFUSED("-.5");
    REFUSED("-");
    REFUSED("+1");
    REFUSED("1e");
    REFUSED("1e+");
    REFUSED("0x10");
    REFUSED("1.2.3");
    REFUSED("1-2");
    REFUSED("-Infinity");
    TAKEN("0");
    TAKEN("-0");
    TAKEN("0.0");
}

static void numbers_beyond_doubles_are_refused(void **state) {
    REFUSED("1e400");
    REFUSED("[-1e400]");
    REFUSED("1e999999999999");
    REFUSED("179769313486231580000e289");
    TAKEN("1.7976931348623157e308");
    TAKEN("1e-400"); // zero is near enough
    TAKEN("1e000000000005");
}

static void numbers_beyond_cjsons_buffer_are_refused(void **state) {
    char text[80] = "0.";
    memset(text + 2, '1', 60);
    TAKEN(text); // 62 characters
    strcat(text, "1");
    assert_refused(text, strlen(text), E_LIMIT);
    memset(text, '9', 79);
    assert_refused(text, 79, E_LIMIT);
}

static void keys_twice_are_refused(void **state) {
    REFUSED("{\"a\":1,\"a\":2}");
    REFUSED("{\"a\":1,\"b\":2,\"a\":1}");
    REFUSED("{\"ab\":1,\"\\u0061b\":2}"); // the same key spelt otherwise
    TAKEN("{\"a\":1,\"A\":2,\"aa\":3,\"\":4}");
    TAKEN("{\"a\":{\"b\":1},\"c\":{\"b\":1}}");
    TAKEN("[{\"a\":1},{\"a\":1}]");
    REFUSED("{\"a\":{\"b\":1,\"b\":1}}"); // at any depth
    REFUSED("[1,{\"a\":[[{\"b\":1,\"c\":{},\"b\":[]}]]}]");
    REFUSED("{\"a\":{},\"b\":[],\"c\":[{\"d\":{\"e\":1,\"e\":2}}]}");
    // More than are compared on the stack.
    REFUSED("{\"a\":{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1,\"9\":1,"
            "\"10\":1,\"11\":1,\"12\":1,\"13\":1,\"14\":1,\"15\":1,\"16\":1,\"1\":1}}");
}

static void many_keys_cost_little(void **state) {
    struct buf text;
    struct err err;
    buf_init(&text, json_limits_file.max_bytes);
    buf_addc(&text, '{');
    for (int i = 0; i < 190000; i++) buf_addf(&text, "%s\"key%d\":1", i ? "," : "", i);
    buf_addz(&text, ",\"key0\":1}");
    // Comparing each key with each other would take 2e10 steps, a minute: the test would not pass
    // unseen.
    alarm(20);
    assert_null(json_parse(buf_z(&text), text.len, &json_limits_file, &err));
    alarm(0);
    assert_non_null(strstr(err.text, "'key0'"));
    buf_release(&text);
}

static void depth_is_bounded(void **state) {
    struct json_limits limits = {1000, 5, 1000};
    struct err err;
    cJSON *root = json_parse("[[{\"a\":[[]]}]]", 14, &limits, &err);
    assert_non_null(root);
    cJSON_Delete(root);
    assert_null(json_parse("[[{\"a\":[[[]]]}]]", 16, &limits, &err));
    assert_int_equal(err.code, E_LIMIT);
    root = json_parse("[[],[],[],[],[],[],[]]", 22, &limits, &err); // beside is not inside
    assert_non_null(root);
    cJSON_Delete(root);
    root = json_parse("[\"[[[[[[[[\"]", 12, &limits, &err); // nor is text
    assert_non_null(root);
    cJSON_Delete(root);
    char deep[100001];
    memset(deep, '[', sizeof deep);
    assert_refused(deep, sizeof deep, E_LIMIT);
}

static void values_are_counted_before_they_are_made(void **state) {
    struct json_limits limits = {1000, 32, 6};
    struct err err;
    const char *six = "{\"a\":[1,\"x\",null],\"b\":{}}",
               *seven = "{\"a\":[1,\"x\",null],\"b\":{\"c\" :2}}";
    cJSON *root = json_parse(six, strlen(six), &limits, &err);
    assert_non_null(root);
    cJSON_Delete(root);
    assert_null(json_parse(seven, strlen(seven), &limits, &err));
    assert_int_equal(err.code, E_LIMIT);
    limits.max_nodes = 7; // keys are no values, however they are written
    root = json_parse(seven, strlen(seven), &limits, &err);
    assert_non_null(root);
    cJSON_Delete(root);
}

static void bytes_are_bounded(void **state) {
    struct json_limits limits = {4, 32, 100};
    struct err err;
    cJSON_Delete(json_parse("[12]", 4, &limits, &err));
    assert_null(json_parse("[123]", 5, &limits, &err));
    assert_int_equal(err.code, E_LIMIT);
    assert_true(json_limits_message.max_bytes == 1 << 20 && json_limits_message.max_depth == 48 &&
                json_limits_message.max_nodes == 200000);
    assert_true(json_limits_file.max_bytes == 256 << 20 && json_limits_file.max_depth == 64 &&
                json_limits_file.max_nodes == 20000000);
}

static void text_needs_no_terminator(void **state) {
    static const char whole[] = "{\"key\":[true,12,\"x\"]}";
    for (size_t n = 0; n < sizeof whole; n++) { // in a block of its own size, for the sanitizer
        char *copy = malloc(n + !n);
        memcpy(copy, whole, n);
        cJSON *root = json_parse(copy, n, &json_limits_message, NULL);
        assert_true((root != NULL) == (n == sizeof whole - 1));
        cJSON_Delete(root);
        free(copy);
    }
}

// --- memory that runs out at each allocation in turn ---

static int allocations_left;

static void *failing_malloc(size_t n) {
    if (allocations_left-- > 0) return malloc(n);
    errno = ENOMEM;
    return NULL;
}

static void memory_may_end_at_any_point(void **state) {
    const char *text = "{\"a\":[1,\"x\",{\"b\":null}],\"c\":\"yz\"}";
    cJSON_Hooks hooks = {failing_malloc, free};
    cJSON_InitHooks(&hooks);
    int n = 0;
    for (cJSON *root = NULL; !root; n++) {
        struct err err = {0};
        allocations_left = n;
        root = json_parse(text, strlen(text), &json_limits_message, &err);
        if (!root) assert_int_equal(err.code, E_NOMEM);
        cJSON_Delete(root);
    }
    cJSON_InitHooks(NULL);
    assert_true(n > 8);
}

// --- getters ---

static void keys_are_compared_with_their_case(void **state) {
    cJSON *obj = parse("{\"Seed\":1,\"seed\":2}");
    int64_t v = 0;
    assert_int_equal(json_get_int(obj, "seed", 0, 10, &v, NULL), JSON_PRESENT);
    assert_int_equal(v, 2);
    assert_int_equal(json_get_int(obj, "SEED", 0, 10, &v, NULL), JSON_ABSENT);
    cJSON_Delete(obj);
}

static void absent_and_null_leave_the_default(void **state) {
    cJSON *obj = parse("{\"n\":null}");
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "n" : "gone", *s = "default";
        bool b = true;
        int64_t n = 7;
        uint64_t u = 8;
        double d = 0.5;
        const cJSON *item = obj;
        assert_int_equal(json_get_string(obj, key, &s, NULL), JSON_ABSENT);
        assert_int_equal(json_get_bool(obj, key, &b, NULL), JSON_ABSENT);
        assert_int_equal(json_get_int(obj, key, 0, 9, &n, NULL), JSON_ABSENT);
        assert_int_equal(json_get_u64(obj, key, &u, NULL), JSON_ABSENT);
        assert_int_equal(json_get_double(obj, key, 0, 9, &d, NULL), JSON_ABSENT);
        assert_int_equal(json_get_object(obj, key, &item, NULL), JSON_ABSENT);
        assert_int_equal(json_get_array(obj, key, &item, NULL), JSON_ABSENT);
        assert_true(strcmp(s, "default") == 0 && b && n == 7 && u == 8 && d == 0.5 && item == obj);
    }
    cJSON_Delete(obj);
}

static void present_values_are_given(void **state) {
    cJSON *obj =
        parse("{\"s\":\"x\",\"t\":true,\"f\":false,\"i\":-3,\"d\":0.25,\"o\":{\"k\":1},\"a\":[1]}");
    const char *s = NULL;
    bool b = false;
    int64_t n = 0;
    double d = 0;
    const cJSON *item = NULL;
    assert_int_equal(json_get_string(obj, "s", &s, NULL), JSON_PRESENT);
    assert_string_equal(s, "x");
    assert_int_equal(json_get_bool(obj, "t", &b, NULL), JSON_PRESENT);
    assert_true(b);
    assert_int_equal(json_get_bool(obj, "f", &b, NULL), JSON_PRESENT);
    assert_false(b);
    assert_int_equal(json_get_int(obj, "i", -3, 3, &n, NULL), JSON_PRESENT);
    assert_int_equal(n, -3);
    assert_int_equal(json_get_double(obj, "d", 0.25, 1, &d, NULL), JSON_PRESENT);
    assert_true(d == 0.25);
    assert_int_equal(json_get_object(obj, "o", &item, NULL), JSON_PRESENT);
    assert_int_equal(json_get_int(item, "k", 0, 1, &n, NULL), JSON_PRESENT);
    assert_int_equal(json_get_array(obj, "a", &item, NULL), JSON_PRESENT);
    assert_int_equal(cJSON_GetArraySize(item), 1);
    cJSON_Delete(obj);
}

static void wrong_types_are_named(void **state) {
    cJSON *obj = parse("{\"s\":1,\"b\":0,\"i\":\"1\",\"d\":[],\"o\":[],\"a\":{}}"),
          *array = parse("[1]");
    struct err err = {0};
    const char *s;
    bool b;
    int64_t n;
    double d;
    const cJSON *item;
    assert_int_equal(json_get_string(obj, "s", &s, &err), E_INVAL);
    assert_string_equal(err.text, "'s' must be a string");
    assert_int_equal(json_get_bool(obj, "b", &b, &err), E_INVAL);
    assert_string_equal(err.text, "'b' must be true or false");
    assert_int_equal(json_get_int(obj, "i", 1, 5, &n, &err), E_INVAL);
    assert_string_equal(err.text, "'i' must be a whole number from 1 to 5");
    assert_int_equal(json_get_double(obj, "d", 0, 2, &d, &err), E_INVAL);
    assert_string_equal(err.text, "'d' must be a number from 0 to 2");
    assert_int_equal(json_get_object(obj, "o", &item, &err), E_INVAL);
    assert_int_equal(json_get_array(obj, "a", &item, &err), E_INVAL);
    assert_string_equal(err.text, "'a' must be an array");
    assert_int_equal(json_get_string(array, "s", &s, &err), E_INVAL); // not silently absent
    cJSON_Delete(obj);
    cJSON_Delete(array);
}

static void integers_are_whole_exact_and_in_range(void **state) {
    cJSON *obj = parse("{\"half\":1.5,\"big\":9007199254740991,\"over\":9007199254740993,\"low\":-"
                       "9007199254740991,"
                       "\"huge\":1e300,\"exp\":1e3,\"seven\":7}");
    int64_t v = 0;
    assert_int_equal(json_get_int(obj, "half", -10, 10, &v, NULL), E_INVAL);
    assert_int_equal(json_get_int(obj, "over", INT64_MIN, INT64_MAX, &v, NULL), E_INVAL);
    assert_int_equal(json_get_int(obj, "huge", INT64_MIN, INT64_MAX, &v, NULL), E_INVAL);
    assert_int_equal(json_get_int(obj, "seven", 8, 9, &v, NULL), E_INVAL);
    assert_int_equal(json_get_int(obj, "seven", 5, 6, &v, NULL), E_INVAL);
    assert_int_equal(v, 0);
    assert_int_equal(json_get_int(obj, "big", INT64_MIN, INT64_MAX, &v, NULL), JSON_PRESENT);
    assert_true(v == 9007199254740991);
    assert_int_equal(json_get_int(obj, "low", INT64_MIN, INT64_MAX, &v, NULL), JSON_PRESENT);
    assert_true(v == -9007199254740991);
    assert_int_equal(json_get_int(obj, "exp", 0, 1000, &v, NULL), JSON_PRESENT);
    assert_int_equal(v, 1000);
    cJSON_Delete(obj);
}

static void u64_as_number_or_digits(void **state) {
    cJSON *obj = parse("{\"n\":5,\"s\":\"18446744073709551615\",\"over\":\"18446744073709551616\","
                       "\"neg\":-1,\"sign\":\"+1\","
                       "\"minus\":\"-1\",\"blank\":\" "
                       "1\",\"empty\":\"\",\"hex\":\"0x1\",\"big\":9007199254740993,\"f\":0.5}");
    uint64_t v = 0;
    assert_int_equal(json_get_u64(obj, "n", &v, NULL), JSON_PRESENT);
    assert_true(v == 5);
    assert_int_equal(json_get_u64(obj, "s", &v, NULL), JSON_PRESENT);
    assert_true(v == UINT64_MAX);
    static const char *const bad[] = {"over",  "neg", "sign", "minus", "blank",
                                      "empty", "hex", "big",  "f"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(json_get_u64(obj, bad[i], &v, NULL), E_INVAL);
    assert_true(v == UINT64_MAX);
    cJSON_Delete(obj);
}

static void doubles_are_in_range(void **state) {
    cJSON *obj = parse("{\"d\":0.7}");
    double v = 0;
    assert_int_equal(json_get_double(obj, "d", 0.8, 1, &v, NULL), E_INVAL);
    assert_int_equal(json_get_double(obj, "d", 0, 0.6, &v, NULL), E_INVAL);
    assert_int_equal(json_get_double(obj, "d", -INFINITY, INFINITY, &v, NULL), JSON_PRESENT);
    assert_true(v == 0.7);
    // A tree that a program builds, unlike a parsed text, may contain anything.
    cJSON_SetNumberValue(cJSON_GetObjectItem(obj, "d"), NAN);
    assert_int_equal(json_get_double(obj, "d", -INFINITY, INFINITY, &v, NULL), E_INVAL);
    cJSON_Delete(obj);
}

static void files_are_named_in_errors(void **state) {
    char path[] = "/tmp/test_json.XXXXXX";
    struct err err;
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "{\"a\": 1}\n", 9), 9);
    cJSON *root = json_parse_file(path, &json_limits_file, &err);
    assert_non_null(root);
    cJSON_Delete(root);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_null(json_parse_file(path, &json_limits_file, &err));
    assert_int_equal(err.code, E_FORMAT);
    assert_memory_equal(err.text, path, strlen(path));
    assert_null(json_parse_file(path, &(struct json_limits){5, 5, 5}, &err));
    assert_int_equal(err.code, E_LIMIT);
    close(fd);
    unlink(path);
    assert_null(json_parse_file(path, &json_limits_file, &err));
    assert_int_equal(err.code, E_NOTFOUND);
}

static void lists_of_token_ids(void **state) {
    static const struct {
        const char *json;
        int rc;
        size_t n; // read before the first that is none
    } rows[] = {{"[]", 0, 0},          {"[0,1,2147483647]", 0, 3}, {"[7,2147483648]", E_LIMIT, 1},
                {"[-1]", E_LIMIT, 0},  {"[0.5]", E_LIMIT, 0},      {"[1,2,\"3\"]", E_INVAL, 2},
                {"[null]", E_INVAL, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        char place[24];
        int32_t *ids;
        size_t n;
        cJSON *array = json_parse(rows[i].json, strlen(rows[i].json), &json_limits_message, &e);
        assert_non_null(array);
        assert_int_equal(json_copy_ids(array, "ids", &ids, &n, &e), rows[i].rc);
        assert_int_equal(n, rows[i].n);
        snprintf(place, sizeof place, "index %zu is not one", n);
        if (rows[i].rc < 0) assert_non_null(strstr(e.text, place));
        if (rows[i].n == 3) assert_int_equal(ids[2], INT32_MAX);
        free(ids);
        cJSON_Delete(array);
    }
}

// An outline checks all of the text, and keeps nothing of the items of arrays.
static void outlines(void **state) {
    static const char text[] = "{\"a\":[1,{\"x\":[2]},\"s\"],\"b\":{\"c\":\"d\",\"e\":[]}}";
    static const char *const bad[] = {"{\"a\":[1,]}", "{\"a\":[{\"x\":1,\"x\":2}]}", "[1", "[01]"};
    const struct json_limits few = {1 << 20, 48, 8};
    struct err err = {0};
    cJSON *tree = json_parse_outline(text, strlen(text), &few, &err);
    assert_non_null(tree);
    const cJSON *a = json_member(tree, "a");
    assert_true(cJSON_IsArray(a) && !a->child);
    assert_string_equal(json_string(json_member(tree, "b"), "c"), "d");
    cJSON_Delete(tree);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(json_parse_outline(bad[i], strlen(bad[i]), &few, &err));
        assert_int_equal(err.code, E_FORMAT);
    }
    char many[400] = "[1"; // more items than values may live at a time
    for (int i = 0; i < 100; i++) strcat(many, ",1");
    strcat(many, "]");
    tree = json_parse_outline(many, strlen(many), &few, &err);
    assert_non_null(tree);
    cJSON_Delete(tree);
    assert_null(json_parse(many, strlen(many), &few, &err));
    assert_int_equal(err.code, E_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outlines),
        cmocka_unit_test(lists_of_token_ids),
        cmocka_unit_test(well_formed_values_are_taken),
        cmocka_unit_test(values_are_those_of_cjson),
        cmocka_unit_test(common_keys_can_be_replaced),
        cmocka_unit_test(nul_is_refused_raw_and_in_keys),
        cmocka_unit_test(escapes_that_are_no_text_are_replaced),
        cmocka_unit_test(text_after_the_value_is_refused),
        cmocka_unit_test(invalid_utf8_is_refused),
        cmocka_unit_test(what_is_not_json_is_refused),
        cmocka_unit_test(a_refusal_says_whether_the_text_ends_too_early),
        cmocka_unit_test(numbers_have_the_form_of_json),
        cmocka_unit_test(numbers_beyond_doubles_are_refused),
        cmocka_unit_test(numbers_beyond_cjsons_buffer_are_refused),
        cmocka_unit_test(keys_twice_are_refused),
        cmocka_unit_test(many_keys_cost_little),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(values_are_counted_before_they_are_made),
        cmocka_unit_test(bytes_are_bounded),
        cmocka_unit_test(text_needs_no_terminator),
        cmocka_unit_test(memory_may_end_at_any_point),
        cmocka_unit_test(keys_are_compared_with_their_case),
        cmocka_unit_test(absent_and_null_leave_the_default),
        cmocka_unit_test(present_values_are_given),
        cmocka_unit_test(wrong_types_are_named),
        cmocka_unit_test(integers_are_whole_exact_and_in_range),
        cmocka_unit_test(u64_as_number_or_digits),
        cmocka_unit_test(doubles_are_in_range),
        cmocka_unit_test(files_are_named_in_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
