// Keywords of JSON Schema that become combinations of others: each accepts what it should, and nothing else.
#include "tests/unit/grammar_walk.h"

static void check_all(const struct row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) check(GRAMMAR_JSON_SCHEMA, &rows[i]);
}

static void not_and_if(void **state) {
    static const struct row rows[] = {
        {"{\"type\":\"string\",\"not\":{\"const\":\"no\"}}",
         {"+\"yes\"", "+\"n\"", "+\"noo\"", "+\"\"", "-\"no\"", "-1"}},
        {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"b\"]},\"maxLength\":1}",
         {"+\"c\"", "-\"a\"", "-\"b\"", "-\"cc\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"^x\"}}",
         {"+\"ax\"", "+\"\"", "-\"x\"", "-\"xa\""}},
        {"{\"type\":\"string\",\"not\":{\"maxLength\":0}}", {"+\"a\"", "-\"\""}},
        {"{\"not\":{\"type\":\"string\"}}", {"+1", "+null", "+[]", "-\"a\""}},
        {"{\"type\":\"integer\",\"minimum\":-2,\"maximum\":2,\"not\":{\"const\":0}}",
         {"+-2", "+1", "-0", "-3"}},
        {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":9,\"not\":{\"enum\":[3,5]}}",
         {"+2", "+4", "+6", "-3", "-5", "-10"}},
        {"{\"enum\":[\"a\",\"b\",1],\"not\":{\"enum\":[\"a\",1]}}", {"+\"b\"", "-\"a\"", "-1"}},
        {"{\"type\":[\"string\",\"number\",\"null\"],\"not\":{\"anyOf\":[{\"type\":\"null\"},{"
         "\"const\":\"x\"}]}}",
         {"+\"y\"", "+1", "-null", "-\"x\""}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"not\":{\"required\":[\"a\","
         "\"b\"]}}",
         {"+{}", "+{\"a\":1}", "+{\"b\":1}", "-{\"a\":1,\"b\":1}"}},
        {"{\"anyOf\":[{\"not\":{}},{\"type\":\"null\"}]}", {"+null", "-1"}},
        {"{\"not\":{\"not\":{\"type\":\"null\"}}}", {"+null", "-1"}},
        {"{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"a\",\"b\"]},\"x\":{\"type\":"
         "\"integer\"}},\"required\":[\"k\"],\"if\":{\"properties\":{\"k\":{\"const\":\"a\"}}},"
         "\"then\":{\"required\":[\"x\"]},\"else\":{\"properties\":{\"x\":false}}}",
         {"+{\"k\":\"a\",\"x\":1}", "+{\"k\":\"b\"}", "-{\"k\":\"a\"}", "-{\"k\":\"b\",\"x\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"},\"x\":{},\"y\":{}},"
         "\"required\":[\"k\"],\"allOf\":[{\"if\":{\"properties\":{\"k\":{\"const\":\"a\"}}},"
         "\"then\":{\"required\":[\"x\"]}},{\"if\":{\"properties\":{\"k\":{\"const\":\"b\"}}},"
         "\"then\":{\"required\":[\"y\"]}}]}",
         {"+{\"k\":\"a\",\"x\":1}", "+{\"k\":\"b\",\"y\":1}", "+{\"k\":\"c\"}",
          "-{\"k\":\"a\",\"y\":1}", "-{\"k\":\"b\",\"x\":1}"}},
        {"{\"if\":true}", {"+1", "+null"}},
        {"{\"if\":{\"type\":\"string\"},\"else\":{\"type\":\"integer\"}}",
         {"+\"a\"", "+1", "-null"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":["
         "\"b\"]}}",
         {"+{}", "+{\"b\":1}", "+{\"a\":1,\"b\":1}", "-{\"a\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependencies\":{\"a\":[\"b\"],"
         "\"b\":{\"properties\":{\"b\":{\"type\":\"null\"}}}}}",
         {"+{\"b\":null}", "+{\"a\":1,\"b\":null}", "-{\"a\":1}", "-{\"b\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"dependentSchemas\":{\"a\":{"
         "\"properties\":{\"u\":{\"enum\":[\"cm\"]}},\"required\":[\"u\"]}}}",
         {"+{}", "+{\"a\":1,\"u\":\"cm\"}", "-{\"a\":1}", "-{\"a\":1,\"u\":\"in\"}"}},
    };
    check_all(rows, sizeof rows / sizeof *rows);
}

static void one_of(void **state) {
    static const struct row rows[] = {
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\",\"default\":"
         "\"a\"},\"x\":{}}},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"},\"y\":{}},"
         "\"required\":[\"y\"]}]}",
         {"+{\"k\":\"a\"}", "+{\"k\":\"b\",\"y\":1}", "-{\"y\":1}", "-{\"k\":\"b\"}", "-{}"}},
        {"{\"oneOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/"
         "b\"}],\"$defs\":{\"base\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":"
         "\"integer\"}}},\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/"
         "base\"},{\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"]}]},\"b\":{"
         "\"allOf\":[{\"$ref\":\"#/$defs/"
         "base\"},{\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"]}]}}}",
         {"+{\"n\":1,\"k\":\"a\"}", "+{\"k\":\"b\"}", "-{\"n\":1}", "-{\"k\":\"c\"}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"oneOf\":[{\"required\":[\"a\"]}"
         ",{\"required\":[\"b\"]}]}",
         {"+{\"a\":1}", "+{\"b\":1}", "-{\"a\":1,\"b\":1}", "-{}"}},
        {"{\"oneOf\":[{\"type\":\"integer\",\"maximum\":5},{\"type\":\"integer\",\"minimum\":3}]}",
         {"+2", "+6", "-3", "-5"}},
        {"{\"oneOf\":[{\"type\":\"string\",\"pattern\":\"^a\"},{\"type\":\"string\",\"pattern\":"
         "\"b$\"}]}",
         {"+\"a\"", "+\"b\"", "+\"cb\"", "-\"ab\"", "-\"c\""}},
        {"{\"oneOf\":[{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":1},{\"type\":"
         "\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1}]}",
         {"+[null]", "+[1,2]", "-[]", "-[1,null]"}},
        {"{\"allOf\":[{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]},{\"anyOf\":[{"
         "\"type\":\"integer\"},{\"type\":\"null\"}]}]}",
         {"+1", "-\"a\"", "-null"}},
        {"{\"type\":\"number\",\"minimum\":1,\"exclusiveMinimum\":true,\"maximum\":2,"
         "\"exclusiveMaximum\":false}",
         {"+1.5", "+2", "-1", "-2.5"}},
    };
    check_all(rows, sizeof rows / sizeof *rows);
}

static void unevaluated(void **state) {
    static const struct row rows[] = {
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"]},{"
         "\"properties\":{\"b\":{}}}],\"unevaluatedProperties\":false}",
         {"+{\"a\":1,\"b\":1}", "-{\"b\":1}", "-{\"a\":1,\"c\":1}"}},
        {"{\"$ref\":\"#/$defs/"
         "o\",\"properties\":{\"b\":{}},\"unevaluatedProperties\":false,\"$defs\":{\"o\":{\"type\":"
         "\"object\",\"properties\":{\"a\":{}}}}}",
         {"+{\"a\":1,\"b\":1}", "-{\"c\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"unevaluatedProperties\":{\"type\":"
         "\"null\"}}",
         {"+{\"a\":1,\"z\":null}", "-{\"z\":1}"}},
        {"{\"type\":\"object\",\"anyOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{"
         "\"properties\":{\"b\":{}},\"required\":[\"b\"]}],\"unevaluatedProperties\":false}",
         {"+{\"a\":1}", "+{\"b\":1}", "-{\"c\":1}", "-{}"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"unevaluatedItems\":false}",
         {"+[]", "+[null]", "-[null,null]"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}},\"unevaluatedProperties\":"
         "false},{\"properties\":{\"b\":{}}}]}",
         {"+{\"a\":1}", "-{\"a\":1,\"b\":1}", "-{\"b\":1}"}},
    };
    check_all(rows, sizeof rows / sizeof *rows);
}

static void arrays(void **state) {
    static const struct row rows[] = {
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",\"c\"]},\"uniqueItems\":true}",
         {"+[]", "+[\"c\",\"a\"]", "+[\"a\",\"b\",\"c\"]", "-[\"a\",\"a\"]",
          "-[\"a\",\"b\",\"a\"]"}},
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
         "c\"},\"uniqueItems\":true,\"minItems\":2,\"maxItems\":2,\"$defs\":{\"c\":{\"type\":"
         "\"integer\",\"minimum\":1,\"maximum\":3}}}",
         {"+[1,3]", "+[3, 1]", "-[1]", "-[1,1]", "-[1,2,3]", "-[4,1]"}},
        {"{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"boolean\"},{\"type\":\"null\"}]},"
         "\"uniqueItems\":true}",
         {"+[true,null,false]", "-[true,true]"}},
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\","
         "\"i\",\"j\",\"k\",\"l\"]},\"uniqueItems\":true,\"minItems\":1,\"maxItems\":2}",
         {"+[\"a\"]", "+[\"a\",\"l\"]", "-[]", "-[\"a\",\"a\"]", "-[\"a\",\"b\",\"c\"]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true,\"maxItems\":1}",
         {"+[]", "+[\"a\"]", "-[\"a\",\"b\"]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"const\":3}}",
         {"+[3]", "+[1,3]", "+[3,3,1]", "-[]", "-[1]", "-[1,2]"}},
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]},\"contains\":{\"const\":\"a\"},"
         "\"minContains\":2,\"maxContains\":3}",
         {"+[\"a\",\"a\"]", "+[\"b\",\"a\",\"a\",\"a\",\"b\"]", "-[\"a\"]",
          "-[\"a\",\"a\",\"a\",\"a\"]", "-[\"b\"]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"items\":{\"type\":"
         "\"integer\"},\"contains\":{\"const\":5},\"maxItems\":3}",
         {"+[null,5]", "+[null,1,5]", "-[null,1]", "-[null]", "-[null,1,1,5]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"const\":1},"
         "\"minContains\":0}",
         {"+[]", "+[2]"}},
    };
    check_all(rows, sizeof rows / sizeof *rows);
}

static void names_and_patterns(void **state) {
    static const struct row rows[] = {
        {"{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"const\":\"a\"},{\"pattern\":\"^x\"}"
         "]},\"additionalProperties\":{\"type\":\"null\"}}",
         {"+{\"a\":null}", "+{\"xy\":null,\"a\":null}", "-{\"b\":null}", "-{\"a\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"not\":{\"enum\":[\"a\",\"b\"]}},"
         "\"additionalProperties\":{\"type\":\"null\"}}",
         {"+{\"c\":null}", "+{}", "-{\"a\":null}", "-{\"b\":null}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"integer\"},\"additionalProperties\":{}"
         "}",
         {"+{}", "-{\"a\":1}"}},
        {"{\"pattern\":\"^\\\\p{Lu}\\\\p{Ll}*$\"}",
         {"+\"A\"", "+\"Éa\"", "-\"a\"", "-\"AA\"", "-\"\""}},
        {"{\"pattern\":\"^[\\\\p{L}\\\\p{Nd}_]{2,3}$\"}",
         {"+\"é1\"", "+\"_あ9\"", "-\"a\"", "-\"a b\""}},
        {"{\"pattern\":\"^[^\\\\p{L}]$\"}", {"+\"1\"", "+\" \"", "-\"a\"", "-\"͸\""}},
        {"{\"pattern\":\"^\\\\P{General_Category=Letter}$\"}", {"+\"1\"", "-\"a\""}},
        {"{\"pattern\":\"(^a|b$)\"}", {"+\"ax\"", "+\"xb\"", "-\"xa\"", "-\"\""}},
        {"{\"pattern\":\"(?=ab)a\"}", {"+\"xab\"", "-\"a\""}},
        {"{\"pattern\":\"^(?=a)b|c\"}", {"+\"c\"", "+\"xc\"", "-\"ab\"", "-\"b\""}},
        {"{\"pattern\":\"^[A-Z]{2}(?!00)\\\\d{2}$\"}", {"+\"AB01\"", "+\"AB10\"", "-\"AB00\""}},
        {"{\"pattern\":\"^(?!a(?=b))[a-c]{2}$\"}", {"+\"ac\"", "+\"bb\"", "-\"ab\""}},
        {"{\"pattern\":\"^P(?:(\\\\d+W)|(?!.*W)(?=\\\\d|T\\\\d)(\\\\d+Y)?(\\\\d+M)?(\\\\d+D)?(T(?="
         "\\\\d)(\\\\d+H)?(\\\\d+M)?(\\\\d+([.,]\\\\d+)?S)?)?)$\",\"format\":\"duration\"}",
         {"+\"P1W\"", "+\"P1Y2M\"", "+\"PT5S\"", "-\"P\"", "-\"P1DT\"", "-\"PT\""}},
        {"{\"pattern\":\"^(?!^[-+.]*$)[+-]?0*(?:\\\\d{0,6}|(?=[\\\\d.]{1,9}0*$)\\\\d{0,6}\\\\."
         "\\\\d{0,2}0*$)\"}",
         {"+\"1\"", "+\"-12.50\"", "+\"0.5\"", "-\".\"", "-\"-\"", "-\"+-\""}},
        {"{\"pattern\":\"^a{3}$\",\"maxLength\":2000,\"minLength\":1}", {"+\"aaa\"", "-\"aa\""}},
        {"{\"format\":\"uri\",\"maxLength\":2083,\"minLength\":1}",
         {"+\"https://a.bc/d\"", "-\"\""}},
        {"{\"format\":\"json-pointer\"}", {"+\"\"", "+\"/a~1b\"", "-\"a\"", "-\"/~\""}},
    };
    check_all(rows, sizeof rows / sizeof *rows);
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
        cmocka_unit_test(not_and_if),
        cmocka_unit_test(one_of),
        cmocka_unit_test(unevaluated),
        cmocka_unit_test(arrays),
        cmocka_unit_test(names_and_patterns),
        cmocka_unit_test(refused_by_path),
        cmocka_unit_test(expansions_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
