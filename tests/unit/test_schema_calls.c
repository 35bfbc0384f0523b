// Tool calls under a grammar, written in one form: JSON between a template's words, and arguments each on their own.
#include "tests/unit/grammar_walk.h"

#define ADD                                                                                        \
    "{\"properties\":{\"name\":{\"const\":\"add\"},\"arguments\":{\"type\":\"object\","            \
    "\"properties\":{\"a\":{\"type\":\"integer\",\"maximum\":9,\"minimum\":0},"                    \
    "\"s\":{\"type\":\"string\"},\"l\":{\"type\":\"array\",\"items\":{\"enum\":[1,2]}}},"          \
    "\"required\":[\"a\"]}}}"
#define NOW                                                                                        \
    "{\"properties\":{\"name\":{\"const\":\"now\"},\"arguments\":{\"type\":\"object\","            \
    "\"properties\":{}}}}"
#define CALLS(form) "{\"anyOf\":[" ADD "," NOW "],\"$written\":{" form "}}"
#define JSON_FORM                                                                                  \
    "\"open\":[\"<c>{n: \"],\"arguments\":\", a: \",\"close\":\"}</c>\",\"comma\":\", \","         \
    "\"colon\":\": \""
#define MEMBERS                                                                                    \
    "\"open\":[\"\\n<c>\",\"<c>\"],\"first\":\":<k>\",\"value\":\"=\",\"next\":\"</v>,<k>\","      \
    "\"last\":\"</v>;\",\"empty\":\"!\",\"stop\":\"</v>\",\"close\":\"</c>\",\"comma\":\", \","    \
    "\"colon\":\": \",\"between\":\"</c>+<c>\""

static const struct row rows[] = {
    {CALLS(JSON_FORM),
     {"+<c>{n: add, a: {\"a\": 1}}</c>", "+<c>{n: add, a: {\"a\": 1, \"s\": \"x \\n\\\"é\"}}</c>",
      "+<c>{n: add, a: {\"a\": 1, \"l\": [1, 2]}}</c>", "+<c>{n: now, a: {}}</c>",
      "-<c>{n: add, a: {\"a\":1}}</c>", "-<c>{n: add, a: { \"a\": 1}}</c>",
      "-<c>{n: add, a: {\"a\": 1,\"s\": \"x\"}}</c>",
      "-<c>{n: add, a: {\"a\": 1, \"l\": [1,2]}}</c>",
      "-<c>{n: add, a: {\"a\": 1, \"s\": \"\\u00e9\"}}</c>",
      "-<c>{n: add, a: {\"a\": 1, \"s\": \"\\/\"}}</c>", "-<c>{n: add, a: {}}</c>",
      "-<c>{n: now, a: {}}</c><c>{n: now, a: {}}</c>", "-<c>{n: sub, a: {}}</c>",
      "-<c>{n: now, a: {}}", NULL}},
    {CALLS(JSON_FORM ",\"between\":\"}, {n: \""),
     {"+<c>{n: now, a: {}}, {n: add, a: {\"a\": 2}}, {n: now, a: {}}</c>",
      "+<c>{n: now, a: {}}</c>", "-<c>{n: now, a: {}}, </c>", NULL}},
    {CALLS(MEMBERS),
     {"+<c>now!</c>", "+\n<c>now!</c>", "+<c>add:<k>a=3</v>;</c>",
      "+<c>add:<k>a=3</v>,<k>s=x \"\\n < </v </ é</v>;</c>", "+<c>add:<k>a=3</v>,<k>s=</v>;</c>",
      "+<c>add:<k>a=3</v>,<k>s=<</</v>,<k>l=[1, 2]</v>;</c>", "+<c>now!</c>+<c>add:<k>a=0</v>;</c>",
      "-<c>add!</c>", "-<c>add:<k>s=x</v>;</c>", "-<c>add:<k>a=3</v>,<k>s=a</v>b</v>;</c>",
      "-<c>add:<k>a=10</v>;</c>", "-<c>add:<k>l=[1]</v>,<k>a=3</v>;</c>", "-<c>now!</c>+</c>",
      NULL}},
};

static void forms(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(GRAMMAR_JSON_SCHEMA, &rows[i]);
}

static void refuses_what_is_no_form(void **state) {
    static const char *const texts[] = {
        CALLS("\"open\":[\"a\"]"),
        CALLS("\"close\":\"\",\"comma\":\",\",\"colon\":\":\""),
        CALLS("\"close\":\"\",\"comma\":\",\",\"colon\":\":\",\"first\":\"\",\"next\":\"\","
              "\"empty\":\"\",\"last\":\"\",\"value\":\"\",\"stop\":\"\""),
        CALLS("\"close\":\"\",\"comma\":\",\",\"colon\":\":\",\"first\":\"\",\"next\":\"\","
              "\"empty\":\"\",\"last\":\"\",\"value\":\"\",\"stop\":\"\xc3\xa9\""),
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        refused(GRAMMAR_JSON_SCHEMA, texts[i], E_INVAL, "$written");
    refused(GRAMMAR_JSON_SCHEMA, "{\"anyOf\":[{\"properties\":{}}],\"$written\":{" JSON_FORM "}}",
            E_INVAL, "a name and arguments");
    refused(GRAMMAR_JSON_SCHEMA, "{\"anyOf\":[],\"$written\":{" JSON_FORM "}}", E_INVAL, "match");
    refused(GRAMMAR_JSON_SCHEMA, "{\"anyOf\":[" NOW "],\"$written\":7}", E_INVAL, "$written");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(refuses_what_is_no_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
