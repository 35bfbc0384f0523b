// Keywords of JSON Schema that become combinations of others: each accepts what it should, and nothing else
// (fixtures/schemas/keywords.jsonl), or is refused by its path.
#include "base/json.h"
#include "tests/unit/grammar_walk.h"

enum { MOST_INSTANCES = 24 };

// The values as texts with a sign before each: instances of a struct row. Returns how many there are.
static int add_instances(const char **out, int n, char sign, const cJSON *values) {
    const cJSON *v;
    cJSON_ArrayForEach(v, values) {
        char *text = json_print(v), *signed_text = malloc(strlen(text) + 2);
        assert_true(n < MOST_INSTANCES - 1);
        sprintf(signed_text, "%c%s", sign, text);
        free(text);
        out[n++] = signed_text;
    }
    return n;
}

static void check_line(const char *line, size_t len) {
    struct err err = {0};
    cJSON *json = json_parse(line, len, &json_limits_message, &err);
    if (!json) fail_msg("%.*s: %s", (int)len, line, err.text);
    char *schema = json_print(json_member(json, "schema"));
    struct row r = {.text = schema};
    int n_accepted = add_instances(r.instances, 0, '+', json_member(json, "accepts"));
    int n = add_instances(r.instances, n_accepted, '-', json_member(json, "refuses"));
    assert_true(n_accepted > 0);
    check(GRAMMAR_JSON_SCHEMA, &r);
    for (int i = 0; i < n; i++) free((char *)r.instances[i]);
    free(schema);
    cJSON_Delete(json);
}

static void accepts_and_refuses(void **state) {
    struct buf all;
    struct err err = {0};
    int n = 0;
    buf_init(&all, 1 << 20);
    if (buf_read_file(&all, "tests/fixtures/schemas/keywords.jsonl", 1 << 20, &err) < 0)
        fail_msg("%s", err.text);
    for (const char *line = buf_z(&all), *end; (end = strchr(line, '\n')); line = end + 1, n++)
        check_line(line, (size_t)(end - line));
    assert_true(n > 0);
    buf_release(&all);
}

static void refused_by_path(void **state) {
    static const struct {
        const char *text, *word;
    } rows[] = {
        {"{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true}",
         "#/uniqueItems: it is supported where"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
         "#/oneOf: two of its schemas"},
        {"{\"oneOf\":[{\"type\":\"string\",\"format\":\"date\"},{\"type\":\"string\",\"format\":"
         "\"time\"}]}",
         "#/oneOf: two of its schemas"},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"\\\\p{L}\"}}", "#/not"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"if\":{\"format\":\"date\"},\"then\":{}}}}",
         "#/properties/a/if"},
        {"{\"type\":\"object\",\"additionalProperties\":{},\"minProperties\":2}",
         "#/minProperties"},
        {"{\"enum\":[\"a\"],\"pattern\":\"a\\\\b\"}", "\\b (word boundaries)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused(GRAMMAR_JSON_SCHEMA, rows[i].text, E_UNSUPPORTED, rows[i].word);
}

// Schemas that grow when they are expanded end with a refusal, or compile; either takes little time.
static void expansions_are_bounded(void **state) {
    static char text[1 << 17];
    static const char *const parts[] = {
        "{\"if\":{\"properties\":{\"k%d\":{\"const\":1}}},\"then\":{\"required\":[\"r%d\"]}}",
        "{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
        "{\"oneOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
        "{\"not\":{\"required\":[\"a%d\",\"b%d\"]}}",
    };
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        struct net n;
        struct err err = {0};
        size_t len = (size_t)snprintf(text, sizeof text, "{\"type\":\"object\",\"allOf\":[");
        for (int i = 0; i < 200; i++) {
            if (i) text[len++] = ',';
            len += (size_t)snprintf(text + len, sizeof text - len, parts[k], i, i);
        }
        len += (size_t)snprintf(text + len, sizeof text - len, "]}");
        net_init(&n);
        int rc = grammar_compile(&n, GRAMMAR_JSON_SCHEMA, text, len, NULL, &err);
        assert_true(rc == 0 || rc == E_LIMIT || rc == E_INVAL || rc == E_UNSUPPORTED);
        net_release(&n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_and_refuses),
        cmocka_unit_test(refused_by_path),
        cmocka_unit_test(expansions_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
