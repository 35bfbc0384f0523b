// Each construct of each notation accepts exactly the texts that it should: instances are walked byte by
// byte through the automaton. A row is a text, and instances with + (accepted) or - (refused) before them.
#include "tests/unit/grammar_walk.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- JSON Schema ---------------------------------------------------------------------------------

static void schemas(void **state) {
    static const struct row rows[] = {
        {"true", {"+1", "+\"a\"", "+{\"a\":[1,{}]}", "+null", "+[]", "-", "-{", "-[1,]", "-nul"}},
        {"{}", {"+{\"a\":{\"b\":null}}", "+-1.5e+10", "-01", "-1.", "-.5", "-\"\n\"", "-\"\\x\""}},
        {"{\"type\":\"string\"}",
         {"+\"\"", "+\"a\\n\\u00e9\\\"\"", "+\"\xc3\xa9\xf0\x9f\x98\x80\"", "+\"\\ud83d\\ude00\"",
          "-\"\\ud83d\"", "-\"\xff\"", "-\"\\u12\"", "-1", "-\"a"}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"-\"a\"", "+\"ab\"", "+\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "-\"abcd\"", "+\"\\n\\u0041\"",
          "+\"\\ud83d\\ude00x\"", "-\"\\ud83d\\ude00\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a+$\"}", {"+\"aaa\"", "-\"\"", "-\"ab\""}},
        {"{\"type\":\"string\",\"pattern\":\"b\"}", {"+\"abc\"", "+\"b\"", "-\"ac\"", "+\"b\\n\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-c]+$\",\"minLength\":2,\"maxLength\":4}",
         {"-\"a\"", "+\"ab\"", "+\"abca\"", "-\"abcab\"", "-\"ad\""}},
        {"{\"type\":\"string\",\"pattern\":\"^\\\"\\\\\\\\$\"}", {"+\"\\\"\\\\\"", "-\"a\""}},
        // look-aheads at the start: zod's e-mail address, a host name's length, an end inside, alternatives in a group
        {"{\"type\":\"string\",\"format\":\"email\",\"pattern\":\"^(?!\\\\.)(?!.*\\\\.\\\\.)([A-Za-"
         "z0-9_'+"
         "\\\\-\\\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\\\-]*\\\\.)+[A-Za-z]{2,}$\"}",
         {"+\"a.b@c.de\"", "-\"a..b@c.de\"", "-\".a@c.de\"", "-\"a@c.d\"", "-\"ab.c.de\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(?=.{1,5}\\\\.?$)[a-z]+(\\\\.[a-z]+)*\\\\.?$\"}",
         {"+\"ab.cd.\"", "+\"abcde\"", "-\"abc.de\"", "-\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(?![)|]|b)(?:a|b|\\\\))\",\"maxLength\":2}",
         {"+\"a\"", "+\"ab\"", "-\"b\"", "-\")\"", "-\"aaa\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(?=a)\"}", {"+\"a\"", "+\"ab\"", "-\"ba\""}},
        {"{\"type\":\"string\",\"format\":\"date\"}",
         {"+\"2024-02-29\"", "-\"2023-02-29\"", "+\"2000-02-29\"", "-\"1900-02-29\"",
          "+\"1999-12-31\"", "-\"1999-11-31\"", "-\"1999-13-01\"", "-\"1999-1-1\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}",
         {"+\"2024-02-29T23:59:59Z\"", "+\"2024-01-01T00:00:00.5+01:00\"", "-\"2024-01-01\"",
          "-\"2024-01-01T24:00:00Z\"", "-\"2024-01-01T00:00:00\""}},
        {"{\"type\":\"string\",\"format\":\"uuid\"}",
         {"+\"123e4567-e89b-12d3-a456-426614174000\"", "-\"123e4567e89b12d3a456426614174000\""}},
        {"{\"type\":\"string\",\"format\":\"email\"}",
         {"+\"a.b@c.de\"", "-\"a@\"", "-\"a.@b.c\"", "-\"@b.c\""}},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}",
         {"+\"255.0.10.1\"", "-\"256.0.0.1\"", "-\"1.2.3\"", "-\"01.2.3.4\""}},
        {"{\"type\":\"string\",\"format\":\"of-our-own\"}", {"+\"anything\""}},
        {"{\"type\":\"integer\"}", {"+0", "+-7", "+123456789012345", "-1.5", "-01", "-+1", "-1e3"}},
        {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}",
         {"+-12",
          "-\x2d"
          "13",
          "+-1", "+0", "+9", "+99", "+100", "+105", "-106", "-1000", "+42"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":10}",
         {"-0", "+1", "+9", "-10", "--1"}},
        {"{\"type\":\"integer\",\"minimum\":1.5,\"maximum\":3.5}", {"-1", "+2", "+3", "-4"}},
        {"{\"type\":\"integer\",\"minimum\":1000}", {"-999", "+1000", "+54321", "-0"}},
        {"{\"type\":\"number\"}", {"+1.25", "+-0.5e-3", "+3", "-1.", "-e3", "-1e400"}},
        {"{\"type\":\"number\",\"minimum\":0.5,\"maximum\":1.75}",
         {"-0.4", "-0.49", "+0.5", "+0.50001", "+0.9", "+1", "+1.0", "+1.7", "+1.749", "+1.75",
          "-1.7501", "-1.8", "-2", "-0", "--1"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":100}",
         {"-0", "-0.0", "+0.001", "+99.99", "+100", "-100.01", "+7", "-101"}},
        {"{\"type\":\"number\",\"minimum\":-2.5,\"exclusiveMaximum\":-0.25}",
         {"+-2.5",
          "-"
          "-2.51",
          "+-1", "+-0.26",
          "-"
          "-0.25",
          "-"
          "-0.2",
          "-0", "-1", "+-0.3"}},
        {"{\"type\":\"number\",\"minimum\":1.25,\"maximum\":1.5}",
         {"-1.2", "+1.25", "+1.3", "+1.259", "+1.5", "-1.51", "-1", "-2"}},
        {"{\"type\":\"number\",\"minimum\":0}", {"+0", "+0.25", "+12345678901.25", "--1"}},
        {"{\"enum\":[1,\"a\",null,{\"x\":[true]},1.5]}",
         {"+1", "+\"a\"", "+null", "+{\"x\":[true]}", "+1.5", "-2", "-\"b\"", "-{}"}},
        {"{\"type\":\"string\",\"enum\":[1,\"a\",\"ab\",\"\xc3\xa9\"]}",
         {"-1", "+\"a\"", "+\"ab\"", "+\"\xc3\xa9\"", "-\"\""}},
        {"{\"type\":\"integer\",\"enum\":[1,2,3],\"minimum\":2}", {"-1", "+2", "+3"}},
        {"{\"const\":\"x\\\"y\"}", {"+\"x\\\"y\"", "-\"x\""}},
        {"{\"type\":[\"null\",\"boolean\"]}", {"+null", "+true", "+false", "-0", "-\"\""}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
         "\"string\"}},\"required\":[\"a\"],\"additionalProperties\":false}",
         {"+{\"a\":1}", "+{\"a\":1,\"b\":\"x\"}", "+{ \"a\": 1, \"b\": \"x\" }",
          "+{\n  \"a\": 1,\n  \"b\": \"x\"\n}", "-{}", "-{\"b\":\"x\"}", "-{\"a\":\"1\"}",
          "-{\"a\":1,\"c\":1}", "-{\"a\":1,}", "-{\"a\":1,\"a\":2}", "-{,\"a\":1}"}},
        // patterns that hold together
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"foo\":{\"type\":\"integer\"}},"
         "\"required\":[\"foo\"]},"
         "{\"patternProperties\":{\"^f\":{\"minimum\":3},\"^x\":{\"type\":\"null\"}}},"
         "{\"patternProperties\":{\"^f\":{\"type\":\"integer\"}}}]}",
         {"+{\"foo\":3}", "-{\"foo\":2}", "-{\"foo\":3.5}", "-{}",
          "+{\"foo\":3,\"fa\":4,\"x\":null}", "-{\"foo\":3,\"fa\":2}", "-{\"foo\":3,\"fa\":4.5}",
          "-{\"foo\":3,\"x\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true},"
         "\"additionalProperties\":false}",
         {"+{}", "+{\"a\":1}", "+{\"b\":1}", "+{\"c\":1}", "+{\"a\":1,\"c\":2}",
          "+{\"b\":1,\"c\":2}", "-{\"a\":1\"b\":2}"}},
        {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"}},"
         "\"additionalProperties\":{\"type\":\"string\"}}",
         {"+{}", "+{\"ab\":1}", "+{\"x\":\"y\"}", "+{\"ab\":1,\"x\":\"y\",\"z\":\"\"}",
          "-{\"ab\":\"1\"}", "-{\"x\":1}", "+{\"a\":\"\"}", "+{\"abc\":\"\"}", "+{\"\":\"\"}",
          "-{\"\\u0061b\":\"x\"}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^s_\":{\"type\":\"string\"},\"^i_\":{"
         "\"type\":\"integer\"}},\"additionalProperties\":false}",
         {"+{}", "+{\"s_a\":\"x\"}", "+{\"i_\":1,\"s_\":\"\"}", "-{\"s_a\":1}", "-{\"x\":1}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"null\"}},"
         "\"additionalProperties\":{\"type\":\"boolean\"}}",
         {"+{\"n\":null}", "+{\"m\":true}", "-{\"n\":true}", "-{\"m\":null}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true},"
         "\"minProperties\":2,\"maxProperties\":2,\"additionalProperties\":false}",
         {"-{}", "-{\"a\":1}", "+{\"a\":1,\"b\":2}", "+{\"b\":1,\"c\":2}",
          "-{\"a\":1,\"b\":2,\"c\":3}"}},
        {"{\"type\":\"object\",\"maxProperties\":2}",
         {"+{}", "+{\"a\":1}", "+{\"a\":1,\"b\":2}", "-{\"a\":1,\"b\":2,\"c\":3}"}},
        {"{\"type\":\"object\",\"minProperties\":1}", {"-{}", "+{\"a\":1}", "+{\"a\":1,\"b\":2}"}},
        {"{\"type\":\"object\",\"required\":[\"x\"]}", {"-{}", "+{\"x\":1}", "+{\"x\":1,\"y\":2}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}}}",
         {"+{}", "+{\"a\":null}", "-{\"b\":1}"}},
        {"{\"properties\":{\"a\":false},\"additionalProperties\":false}", {"+{}", "-{\"a\":1}"}},
        {"{\"properties\":{\"a\":{\"not\":{}},\"b\":{\"not\":false}}}",
         {"+{}", "-{\"a\":1}", "+{\"b\":1}"}},
        // what is beside `if` and `contains` asserts nothing without them
        {"{\"type\":\"null\",\"then\":false,\"else\":false,\"maxContains\":0}", {"+null", "-1"}},
        {"{\"propertyNames\":{\"type\":\"string\"},\"additionalProperties\":{\"type\":\"null\"}}",
         {"+{}", "+{\"a\":null,\"\\n\":null}", "-{\"a\":1}", "-1"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\",1]},"
         "\"additionalProperties\":{"
         "\"type\":\"null\"},\"required\":[\"a\"]}",
         {"+{\"a\":null}", "+{\"a\":null,\"b\":null}", "-{\"b\":null}",
          "-{\"a\":null,\"c\":null}"}},
        {"{\"properties\":{\"ab\":true,\"abc\":true},\"additionalProperties\":true,"
         "\"propertyNames\":{"
         "\"$ref\":\"#/$defs/"
         "name\"},\"$defs\":{\"name\":{\"pattern\":\"^a\",\"allOf\":[{\"maxLength\":2}]}}}",
         {"+{}", "+{\"ab\":1}", "-{\"abc\":1}", "+{\"a\":1}", "-{\"b\":1}", "-{\"axx\":1}",
          "+{\"a\\\"\":1}"}},
        {"{\"propertyNames\":false}", {"+{}", "-{\"a\":1}"}},
        // a listed name, and a required one, that match patterns
        {"{\"properties\":{\"foo\":{\"type\":\"integer\"}},\"patternProperties\":{\"^f\":{"
         "\"minimum\":3}},"
         "\"required\":[\"fa\"],\"additionalProperties\":false}",
         {"+{\"foo\":3,\"fa\":4.5}", "-{\"foo\":2,\"fa\":4}", "-{\"fa\":2}", "-{\"foo\":3}",
          "+{\"fa\":3,\"fx\":9}", "-{\"fa\":3,\"fx\":1}"}},
        {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":-20,\"maximum\":30}",
         {"+21", "+-14", "+0", "-22", "-35", "--21", "-7.0"}},
        {"{\"type\":\"number\",\"multipleOf\":0.05,\"minimum\":1}",
         {"+1.25", "+1.5", "+7", "-1.26", "-0.05", "-1.255", "-1e2"}},
        {"{\"multipleOf\":0.01}", {"+0.07", "+-3.1", "+12", "-0.005", "-1e1"}},
        {"{\"enum\":[9007199254740992,0.1,1e21]}",
         {"+9007199254740992", "-9.00719925474099e+15", "+0.1", "+1e+21"}},
        {"{\"$defs\":{\"v\":{\"enum\":[{\"$anchor\":\"t\"}]},\"s\":{\"$anchor\":\"t\",\"type\":"
         "\"null\"}},"
         "\"$ref\":\"#t\"}",
         {"+null", "-1"}},
        {"{\"format\":\"duration\"}",
         {"+\"P1Y2M3DT4H5M6S\"", "-\"P1Y2D\"", "-\"PT1H2S\"", "+\"P2W\"", "-\"P\"", "-\"PT\""}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
         {"+[]", "+[1]", "+[1,2, 3]", "+[ 1 ]", "-[\"a\"]", "-[1,]", "-[,1]", "-[1 2]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2,\"maxItems\":3}",
         {"-[]", "-[null]", "+[null,null]", "+[null,null,null]", "-[null,null,null,null]"}},
        {"{\"type\":\"array\",\"items\":true,\"maxItems\":0}", {"+[]", "+[ ]", "-[1]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],"
         "\"items\":false}",
         {"+[]", "+[1]", "+[1,\"a\"]", "-[1,\"a\",1]", "-[\"a\"]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":"
         "\"null\"},\"minItems\":2}",
         {"-[1]", "+[1,null]", "+[1,null,null]", "-[1,1]"}},
        {"{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{"
         "\"type\":\"integer\"},\"next\":{\"$ref\":\"#/$defs/n\"}},\"required\":[\"v\"],"
         "\"additionalProperties\":false}}}",
         {"+{\"v\":1}", "+{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3}}}", "-{\"next\":{\"v\":1}}",
          "-{\"v\":1,\"next\":{}}"}},
        {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", {"+[]", "+[[],[[]]]", "-[1]", "-[["}},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
         {"+1", "+\"a\"", "-\"ab\"", "-null"}},
        {"{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"}},\"required\":[\"k\"],"
         "\"anyOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]},{"
         "\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}]}",
         {"+{\"k\":\"\",\"a\":null}", "-{\"k\":\"\"}", "-{\"a\":null}"}},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"a\"},\"x\":{\"type\":"
         "\"integer\"}},\"required\":[\"t\",\"x\"],\"additionalProperties\":false},{\"type\":"
         "\"object\",\"properties\":{\"t\":{\"const\":\"b\"}},\"required\":[\"t\"],"
         "\"additionalProperties\":false}]}",
         {"+{\"t\":\"a\",\"x\":1}", "+{\"t\":\"b\"}", "-{\"t\":\"a\"}", "-{\"t\":\"b\",\"x\":1}"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":"
         "2}},\"required\":[\"a\"]},{\"properties\":{\"a\":{\"maximum\":4},\"b\":{\"type\":"
         "\"null\"}}}]}",
         {"+{\"a\":2}", "+{\"a\":4,\"b\":null}", "-{\"a\":1}", "-{\"a\":5}", "-{}"}},
        {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}],\"$defs\":{\"a\":{"
         "\"type\":\"integer\",\"minimum\":3},\"b\":{\"maximum\":5}}}",
         {"-2", "+3", "+5", "-6"}},
        {"{\"$ref\":\"#/$defs/"
         "s\",\"maxLength\":2,\"$defs\":{\"s\":{\"type\":\"string\",\"pattern\":"
         "\"^x\"}}}",
         {"+\"x\"", "+\"xy\"", "-\"y\"", "-\"xyz\""}},
        {"{\"type\":\"object\",\"properties\":{\"a/b~c\":{\"type\":\"null\"},\"q\\\"\":{\"$ref\":"
         "\"#/properties/a~1b~0c\"}}}",
         {"+{\"a/b~c\":null}", "+{\"q\\\"\":null}", "-{\"q\\\"\":1}"}},
        {"{\"$anchor\":\"top\",\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"items\":{"
         "\"$ref\":\"#top\"}}]}",
         {"+null", "+[null,[]]", "-1"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(GRAMMAR_JSON_SCHEMA, &rows[i]);
}

// Ten objects in one another, each or null: the depth that OpenAI's structured outputs allow.
static void deep_schemas(void **state) {
    char text[2048] = "{\"type\":\"null\"}", outer[sizeof text], most[256] = "null",
         more[sizeof most];
    for (int i = 0; i < 10; i++) {
        int n = snprintf(outer, sizeof outer,
                         "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":%s},\"required\":"
                         "[\"a\"],\"additionalProperties\":false},{\"type\":\"null\"}]}",
                         text);
        assert_true(n < (int)sizeof outer);
        memcpy(text, outer, sizeof text);
        snprintf(more, sizeof more, "{\"a\":%.200s}", most);
        memcpy(most, more, sizeof most);
    }
    snprintf(more, sizeof more, "+%.200s", most);
    snprintf(outer, sizeof outer, "-{\"a\":%.200s}", most);
    const struct row row = {text, {more, "+null", "+{\"a\":null}", outer}};
    check(GRAMMAR_JSON_SCHEMA, &row);
}

static void schemas_that_are_refused(void **state) {
    static const struct {
        const char *text;
        int code;
        const char *word;
    } rows[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{\"format\":\"uri\"}}}}",
         E_UNSUPPORTED, "#/properties/a/not"},
        {"{\"propertyNames\":{\"oneOf\":[{}]}}", E_UNSUPPORTED, "#/propertyNames"},
        {"{\"propertyNames\":{\"maxLength\":1},\"required\":[\"ab\"]}", E_INVAL,
         "no finite answer"},
        {"{\"multipleOf\":0}", E_INVAL, "#/multipleOf"},
        {"{\"multipleOf\":1e-9}", E_UNSUPPORTED, "#/multipleOf"},
        {"{\"multipleOf\":20000}", E_INVAL, "#/multipleOf"},
        {"{\"if\":{\"format\":\"uri\"},\"then\":{}}", E_UNSUPPORTED, "#/if"},
        {"{\"$dynamicRef\":\"#a\"}", E_UNSUPPORTED, "#/$dynamicRef"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", E_UNSUPPORTED, "#/uniqueItems"},
        {"{\"type\":\"string\",\"pattern\":\"^(?=a)?b\"}", E_UNSUPPORTED, "look-ahead"},
        {"{\"type\":\"string\",\"pattern\":\"^((?=a)b)+c\"}", E_UNSUPPORTED, "look-ahead"},
        {"{\"type\":\"string\",\"pattern\":\"a(?<=b)\"}", E_UNSUPPORTED, "look-behind"},
        {"{\"type\":\"string\",\"pattern\":\"^(?=a)b$\"}", E_INVAL, "no finite"},
        {"{\"type\":\"string\",\"pattern\":\"(a\"}", E_INVAL, "#/pattern"},
        {"{\"type\":\"text\"}", E_INVAL, "#/type"},
        {"{\"type\":\"array\",\"items\":{\"type\":\"array\",\"maxItems\":1000000000}}",
         E_UNSUPPORTED, "#/items/maxItems"},
        {"{\"type\":\"array\",\"maxItems\":-1}", E_INVAL, "#/maxItems"},
        {"{\"$ref\":\"#/$defs/none\"}", E_INVAL, "#/$ref"},
        {"{\"$ref\":\"https://example.com/a\"}", E_UNSUPPORTED, "#/$ref"},
        {"{\"$ref\":\"#\"}", E_INVAL, "no finite answer"},
        {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", E_INVAL, "left recursion"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         E_INVAL, "no finite answer"},
        {"false", E_INVAL, "no finite answer"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", E_UNSUPPORTED, "#/oneOf"},
        {"{\"type\":\"object\",\"minProperties\":3}", E_UNSUPPORTED, "#/minProperties"},
        {"{\"type\":", E_INVAL, "not JSON"},
        {"7", E_INVAL, "no schema"},
        {"{\"type\":\"string\",\"pattern\":\"(((((a{9999}){9999}){9999}){9999}){9999}){9999}\","
         "\"maxLength\":9}",
         E_INVAL, "no finite answer"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused(GRAMMAR_JSON_SCHEMA, rows[i].text, rows[i].code, rows[i].word);
}

// --- GBNF, regular expressions, choices ----------------------------------------------------------

static void gbnf(void **state) {
    static const struct row rows[] = {
        {"root ::= \"a\" | \"b\" \"c\"*", {"+a", "+b", "+bcc", "-c", "-ac", "-"}},
        {"# comment\nroot ::= (\n  x |\n  y\n)+ # more\nx ::= [0-9a-f]{2}\ny ::= [^0-9a-f\\n]",
         {"+0f", "+zz", "+0fz", "-0", "-\n"}},
        {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= \"(\" expr \")\" | [0-9]+",
         {"+1", "+1+23", "+((1)+2)", "-1+", "-(1", "-"}},
        {"root ::= \"\\x41\\u00e9\\n\\\"\\\\\" .?",
         {"+A\xc3\xa9\n\"\\", "+A\xc3\xa9\n\"\\!", "-A"}},
        {"root ::= \"a\"{2,3} \"b\"{,2} \"c\"{1,}",
         {"+aac", "+aaabbcc", "-ac", "-aaaac", "-aabbbc", "-aa"}},
        {"root ::= \"(\" root \")\" | \"\"", {"+", "+()", "+(())", "-(", "-)("}},
        {"root ::= a\na ::= \"x\" a | \"x\"", {"+x", "+xxx", "-"}},
        {"root ::= [\\]\\-a-c] \"\xe2\x82\xac\"",
         {"+]\xe2\x82\xac", "+-\xe2\x82\xac", "-d\xe2\x82\xac"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(GRAMMAR_GBNF, &rows[i]);
    refused(GRAMMAR_GBNF, "root ::= root \"a\" | \"a\"", E_INVAL, "left recursion");
    refused(GRAMMAR_GBNF, "root ::= a? root | \"x\"\na ::= \"\"", E_INVAL, "left recursion");
    refused(GRAMMAR_GBNF, "root ::= a", E_INVAL, "line 1 of the grammar: the rule a");
    refused(GRAMMAR_GBNF, "a ::= \"a\"", E_INVAL, "no rule named root");
    refused(GRAMMAR_GBNF, "root ::= \"a\n", E_INVAL, "has no end");
    refused(GRAMMAR_GBNF, "\n\nroot = \"a\"", E_INVAL, "line 3");
    refused(GRAMMAR_GBNF, "root ::= <think>", E_UNSUPPORTED, "line 1");
    refused(GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", E_INVAL, "twice");
    refused(GRAMMAR_GBNF, "root ::= \"a\"{1000000000}", E_INVAL, "100000");
    refused(GRAMMAR_GBNF, "root ::= \"a\" root", E_INVAL, "no finite answer");
}

static void regexes(void **state) {
    static const struct row rows[] = {
        {"a|bc", {"+a", "+bc", "-b", "-abc"}},
        {"^[a-c]{2,}$", {"+ab", "+abcabc", "-a", "-abd"}},
        {"(?:x(y|z)?)+\\d", {"+x1", "+xyxz9", "-y1", "-x"}},
        {"(?<year>\\d{4})-\\w+?", {"+2024-x", "-2024-"}},
        {"[^\\s\"]*", {"+", "+ab\xc3\xa9", "-a b", "-\""}},
        {"a.c",
         {"+abc",
          "+a\xf0\x9f\x98\x80"
          "c",
          "-a\nc", "-ac"}},
        {"\\u00e9\\x41[\\u{1F600}-\\u{1F64F}]",
         {"+\xc3\xa9"
          "A\xf0\x9f\x98\x80",
          "-\xc3\xa9"
          "A"}},
        {"(a{2}){3}", {"+aaaaaa", "-aaaa", "-aaaaaaaa"}},
        {"\\D\\W\\S", {"+a!b", "-1!b", "-aab", "-a! "}},
        {"[a\\-z\\]]+", {"+a-z]", "-b"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(GRAMMAR_REGEX, &rows[i]);
    refused(GRAMMAR_REGEX, "(a", E_INVAL, "')' is missing");
    refused(GRAMMAR_REGEX, "a)", E_INVAL, "too many");
    refused(GRAMMAR_REGEX, "*a", E_INVAL, "character 1");
    refused(GRAMMAR_REGEX, "[z-a]", E_INVAL, "range");
    refused(GRAMMAR_REGEX, "(a)\\1", E_UNSUPPORTED, "back-reference");
    refused(GRAMMAR_REGEX, "\\bx", E_UNSUPPORTED, "\\b");
    refused(GRAMMAR_REGEX, "\\p{Script=Han}", E_UNSUPPORTED, "\\p");
    refused(GRAMMAR_REGEX, "(?!\\p{L}).", E_UNSUPPORTED, "\\p");
    refused(GRAMMAR_REGEX, "a^b", E_UNSUPPORTED, "^ or $");
    refused(GRAMMAR_REGEX, "a{3,2}", E_INVAL, "below");
}

static void choices(void **state) {
    static const struct row row = {"[\"yes\",\"no\",\"yesterday\",\"\xc3\xa9\"]",
                                   {"+yes", "+no", "+yesterday", "+\xc3\xa9", "-yest", "-", "-y"}};
    check(GRAMMAR_CHOICE, &row);
    refused(GRAMMAR_CHOICE, "[]", E_INVAL, "list of strings");
    refused(GRAMMAR_CHOICE, "[1]", E_INVAL, "entry 0");
    refused(GRAMMAR_CHOICE, "{}", E_INVAL, "list of strings");
}

// After collecting, a configuration in the midst of nested arrays goes on as before.
static void collecting_keeps_roots(void **state) {
    static const char text[] = "[[1,[\"a";
    struct net n;
    struct machine m;
    struct machine_root r;
    struct err err = {0};
    net_init(&n);
    assert_int_equal(grammar_compile(&n, GRAMMAR_JSON_SCHEMA, "true", 4, NULL, &err), 0);
    assert_int_equal(machine_init(&m, &n, &err), 0);
    int32_t at = machine_start(&m);
    for (const char *p = text; *p; p++) at = machine_step(&m, at, (uint8_t)*p);
    int32_t least = m.configs[at].least;
    machine_hold(&m, &r, at);
    assert_int_equal(machine_collect(&m), 0);
    assert_int_equal(m.n_configs, 1);
    assert_int_equal(m.configs[r.config].least, least);
    at = r.config;
    for (const char *p = "\"],{}]]"; *p; p++) at = machine_step(&m, at, (uint8_t)*p);
    assert_true(at >= 0 && m.configs[at].accepts);
    machine_drop(&m, &r);
    machine_release(&m);
    net_release(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas),
        cmocka_unit_test(deep_schemas),
        cmocka_unit_test(schemas_that_are_refused),
        cmocka_unit_test(gbnf),
        cmocka_unit_test(regexes),
        cmocka_unit_test(choices),
        cmocka_unit_test(collecting_keeps_roots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
