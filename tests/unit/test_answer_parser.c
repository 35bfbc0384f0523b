// What models say, in each syntax, cut at every byte: the parts are the same however the text comes.
#include "engine/text/answer_parser.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

#define THINK "<think>", "</think>"
static const struct chat_syntax plain = {TOOL_SYNTAX_NONE, NULL, NULL},
                                thinking = {TOOL_SYNTAX_NONE, THINK},
                                json = {TOOL_SYNTAX_JSON, NULL, NULL},
                                hermes = {TOOL_SYNTAX_HERMES, THINK},
                                xml = {TOOL_SYNTAX_XML, THINK},
                                llama = {TOOL_SYNTAX_LLAMA, NULL, NULL},
                                mistral = {TOOL_SYNTAX_MISTRAL, NULL, NULL},
                                list = {TOOL_SYNTAX_LIST, NULL, NULL},
                                glm = {TOOL_SYNTAX_GLM, THINK},
                                other = {TOOL_SYNTAX_OTHER, NULL, NULL},
                                harmony = {TOOL_SYNTAX_HARMONY, "<|channel|>analysis<|message|>",
                                           "<|end|>"};
#define ANALYSIS "<|channel|>analysis<|message|>"
#define FINAL "<|channel|>final<|message|>"
#define NEXT "<|end|><|start|>assistant"

struct row {
    const struct chat_syntax *syntax;
    bool thinks;
    const char *said;
    // Parts: ~thinking, 'text, (NAME ARGUMENTS)
    const char *parts;
};
static const struct row rows[] = {
    {&plain, false, " hello <tool_call> there \n", "' hello <tool_call> there \n"},
    {&plain, false, "", ""},
    {&thinking, false, "<think>\n a b \n</think>\n\nyes ", "~a b'yes "},
    {&thinking, true, "\nso\n</think>yes", "~so'yes"},
    {&thinking, true, "cut sho", "~cut sho"},
    {&thinking, false, "<thin ice", "'<thin ice"},
    {&thinking, false, "\n<think></think>\n", ""},
    {&thinking, false, "no <think>x</think>", "'no <think>x</think>"},
    {&hermes, false,
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2]}}\n</tool_call>",
     "(add {\"a\": 1, \"b\": [2]})"},
    {&hermes, false,
     "<think>hm</think>\nLet me see. \n<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n"
     "<tool_call>{\"name\":\"sub\",\"arguments\":{\"s\":\"}\\\"{\"}}</tool_call>",
     "~hm'Let me see.(add {})(sub {\"s\":\"}\\\"{\"})"},
    {&hermes, false, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"add\"}</tool_call> done",
     "(add {\"a\": 1})'done"},
    {&hermes, false, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\": 1", "(add {\"a\": 1)"},
    {&hermes, false, "<tool_call>{\"name\":\"add\",\"arguments\":\"{\\\"a\\\":2}\"}</tool_call>",
     "(add {\"a\":2})"},
    {&hermes, false, "<tool_call>{\"name\":\"now\"}</tool_call>", "(now {})"},
    // A line end in a string, as it is: JSON wants an escape.
    {&hermes, false,
     "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\":\n\"x\ny\tz\"}}</tool_call>",
     "(add {\"a\":\n\"x\\ny\\tz\"})"},
    {&hermes, false, "<tool_call>{\"arguments\": {\"a\": \"x\ny\"}, \"name\": \"add\"}</tool_call>",
     "(add {\"a\": \"x\\ny\"})"},
    {&hermes, false, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"x\\\ny\001",
     "(add {\"a\": \"x\\ny\\u0001)"},
    {&hermes, false, "<tool_call>nonsense</tool_call>", "'<tool_call>nonsense</tool_call>"},
    {&hermes, false, "<tool_call>{\"name\": \"ad", "'<tool_call>{\"name\": \"ad"},
    {&hermes, false, "a < b <tool", "'a < b <tool"},
    {&xml, false,
     "I look.\n<tool_call>\n<function=find>\n<parameter=what>\n12\n</parameter>\n<parameter=n>\n3\n"
     "</parameter>\n</function>\n</tool_call>",
     "'I look.(find {\"what\": \"12\", \"n\": 3})"},
    {&xml, false, "<function=now></function>", "(now {})"},
    {&xml, false, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1}}</tool_call>",
     "(add {\"a\":1})"},
    {&llama, false, "{\"name\": \"add\", \"parameters\": {\"a\": \"x\"}}", "(add {\"a\": \"x\"})"},
    {&llama, false, "<|python_tag|>{\"name\": \"add\", \"parameters\": {}}", "(add {})"},
    {&llama, false,
     "{\"name\": \"add\", \"parameters\": {}}; {\"name\": \"sub\", \"parameters\": {}}",
     "(add {})(sub {})"},
    {&llama, false, "{\"answer\": 42}", "'{\"answer\": 42}"},
    {&llama, false, "{\"name\": \"Bob\", \"parameters\": {}}",
     "'{\"name\": \"Bob\", \"parameters\": {}}"},
    {&json, false, "{\"name\":\"add\",\"arguments\":{\"a\":{}}}", "(add {\"a\":{}})"},
    {&json, false, "so {\"name\":\"add\",\"arguments\":{}}",
     "'so {\"name\":\"add\",\"arguments\":{}}"},
    // A call without its model's marker, as a forced one is; of no tool, it is text.
    {&hermes, false, " {\"name\":\"add\",\"arguments\":{\"a\":1}}", "(add {\"a\":1})"},
    {&xml, false, "{\"name\": \"sub\", \"arguments\": {}}\n", "(sub {})"},
    {&mistral, false, "{\"name\":\"add\",\"arguments\":{}}", "(add {})"},
    {&hermes, false, "{\"name\":\"mul\",\"arguments\":{}}", "'{\"name\":\"mul\",\"arguments\":{}}"},
    {&hermes, false,
     "{\"name\":\"add\",\"arguments\":{}}\n<tool_call>{\"name\":\"sub\",\"arguments\":{}}",
     "(add {})(sub {})"},
    {&mistral, false, "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}}]",
     "(add {\"a\": 1})"},
    {&mistral, false,
     "Well. [TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {}, \"id\": \"x]}\"}, "
     "{\"name\": \"sub\", \"arguments\": {\"b\": []}}]",
     "'Well.(add {})(sub {\"b\": []})"},
    {&list, false,
     "Well.\n<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"sub\", "
     "\"arguments\": {}}]<|/tool_call|>",
     "'Well.(add {\"a\": 1})(sub {})"},
    {&list, false, "<|tool_call|> [{\"name\":\"add\",\"arguments\":{}}] so", "(add {})'so"},
    {&list, false, "<|tool_call|>add {}", "'<|tool_call|>add {}"},
    {&glm, false,
     "<think>hm</think>\nI "
     "look.\n<tool_call>find\n<arg_key>what</arg_key>\n<arg_value>12</arg_value>\n"
     "<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>add</tool_call>",
     "~hm'I look.(find {\"what\": \"12\", \"n\": 3})(add {})"},
    {&glm, false, "<tool_call>find<arg_key>what</arg_key><arg_value>a\nb</arg_value></tool_call>so",
     "(find {\"what\": \"a\\nb\"})'so"},
    {&glm, false, "<tool_call>add what</tool_call>", "'<tool_call>add what</tool_call>"},
    {&glm, false, "<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>", "(add {})"},
    {&glm, false, "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1",
     "(add {})'<arg_key>a</arg_key>\n<arg_value>1"},
    // A call that ends the thinking, and nothing behind it: the model takes it for its answer.
    {&hermes, false,
     "<think>I add. <tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1}}</tool_call>",
     "~I add. <tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1}}</tool_call>(add {\"a\":1})"},
    {&hermes, true,
     "a<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"sub\","
     "\"arguments\":{}}\n</tool_call>\n</think>\n\n",
     "~a<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"sub\","
     "\"arguments\":{}}\n</tool_call>(add {})(sub {})"},
    {&xml, true, "<tool_call> is how. <function=now></function>",
     "~<tool_call> is how. <function=now></function>"}, // no such tool
    {&xml, true, "<tool_call> is how. <function=add></function>",
     "~<tool_call> is how. <function=add></function>(add {})"},
    {&glm, true, "<tool_call>add</tool_call></think>", "~<tool_call>add</tool_call>(add {})"},
    {&hermes, true, "<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>? No.",
     "~<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>? No."},
    {&hermes, true, "<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call></think>Or no.",
     "~<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>'Or no."},
    {&hermes, true, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":",
     "~<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":"},
    {&other, false, "<tool_call>{\"name\":\"add\",\"arguments\":{}}",
     "'<tool_call>{\"name\":\"add\",\"arguments\":{}}"},
    {&harmony, false, ANALYSIS "Two and two. " NEXT FINAL "Four.", "~Two and two.'Four."},
    {&harmony, false, FINAL "a < b <|en", "'a < b <|en"},
    {&harmony, false, FINAL "Four.<|return|>", "'Four."},
    {&harmony, false, ANALYSIS "cut sho", "~cut sho"},
    {&harmony, true, "opened before" NEXT FINAL "yes", "~opened before'yes"},
    {&harmony, false,
     ANALYSIS "hm" NEXT
              "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": "
              "{\"b\": \"}<|end|>\"}}<|call|>",
     "~hm(add {\"a\": {\"b\": \"}<|end|>\"}})"},
    {&harmony, false, " to=functions.sub<|channel|>commentary json<|message|>{}<|call|>",
     "(sub {})"},
    {&harmony, false, "<|channel|>commentary to=functions.add<|message|><|call|>", "(add {})"},
    {&harmony, false,
     "<|channel|>commentary<|message|>I look. " NEXT
     "<|channel|>commentary to=functions.add json<|message|>{\"a\": 1",
     "'I look.(add {\"a\": 1)"},
    {&harmony, false,
     "<|channel|>commentary to=functions.add json<|message|>{}<|call|><|start|>assistant<|channel|>"
     "commentary to=functions.sub json<|message|>{\"s\": 2}<|call|>",
     "(add {})(sub {\"s\": 2})"},
    {&harmony, false, "no channel at all", "'no channel at all"},
    {&harmony, false, "<|channel|>analy", ""},
    {&harmony, false, "{\"name\":\"add\",\"arguments\":{\"a\":1}}", "(add {\"a\":1})"}, // forced
    {&mistral, false, "[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]sub{\"b\": 2}",
     "(add {\"a\": 1})(sub {\"b\": 2})"},
    {&mistral, false, "[TOOL_CALLS]{\"name\": \"add\", \"arguments\": {\"a\": 1}}",
     "(add {\"a\": 1})"},
    {&mistral, false,
     "[TOOL_CALLS]{\"name\": \"add\", \"arguments\": {\"a\": 1}}[TOOL_CALLS]sub{\"b\": 2}",
     "(add {\"a\": 1})(sub {\"b\": 2})"},
};

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"add\"}},{\"type\":\"function\",\"function\":{"
    "\"name\":\"sub\"}},{\"type\":\"function\",\"function\":{\"name\":\"find\",\"parameters\":{"
    "\"properties\":{\"what\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}}}}}]";
static cJSON *tools;

static int make_tools(void **state) {
    tools = cJSON_Parse(tools_text);
    return tools ? 0 : -1;
}
static int free_tools(void **state) {
    cJSON_Delete(tools);
    return 0;
}

// Joins pieces of one kind.
static void take(struct answer_parser *p, struct buf *out, int *last) {
    static const char mark[] = {'~', '\'', '(', ' ', ')'};
    struct answer_piece piece;
    int rc;
    while ((rc = answer_parser_next(p, &piece)) == 1) {
        if (*last != (int)piece.kind || piece.kind == PIECE_TOOL_BEGIN)
            buf_add(out, &mark[piece.kind], 1);
        *last = (int)piece.kind;
        buf_add(out, piece.text, piece.len);
    }
    assert_int_equal(rc, 0);
}

// Fed in pieces of `first`, then of `each` bytes.
static void check(const struct row *row, size_t first, size_t each) {
    struct answer_parser p;
    struct buf out;
    int last = -1;
    size_t len = strlen(row->said);
    buf_init(&out, 1 << 16);
    answer_parser_init(&p, *row->syntax, tools, row->thinks);
    for (size_t at = 0, n = first; at < len; at += n, n = each) {
        if (n > len - at) n = len - at;
        answer_parser_feed(&p, row->said + at, n);
        take(&p, &out, &last);
    }
    answer_parser_end(&p);
    take(&p, &out, &last);
    if (strcmp(buf_z(&out), row->parts) != 0)
        fail_msg("%s\ncut at %zu, each %zu: %s\nwanted: %s", row->said, first, each, buf_z(&out),
                 row->parts);
    buf_release(&out);
    answer_parser_release(&p);
}

static void test_every_cut(void **state) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t cut = 1; cut <= strlen(rows[i].said) + 1; cut++) check(&rows[i], cut, SIZE_MAX);
        for (size_t each = 1; each < 4; each++) check(&rows[i], each, each);
    }
}

// Without tools nothing is looked for.
static void test_without_tools(void **state) {
    struct answer_parser p;
    struct answer_piece piece;
    static const char said[] = "<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>";
    answer_parser_init(&p, hermes, NULL, false);
    answer_parser_feed(&p, said, strlen(said));
    assert_int_equal(answer_parser_next(&p, &piece), 1);
    assert_int_equal(piece.kind, PIECE_TEXT);
    assert_int_equal(piece.len, strlen(said));
    assert_int_equal(answer_parser_next(&p, &piece), 0);
    answer_parser_release(&p);
}

// allowed_tools: in every syntax, a call of another tool is text.
static void test_strict(void **state) {
    static const struct {
        const struct chat_syntax *syntax;
        const char *said, *parts;
    } cases[] = {
        {&hermes, "A. <tool_call>{\"name\":\"mul\",\"arguments\":{\"a\":1}}</tool_call>",
         "'A.<tool_call>{\"name\":\"mul\",\"arguments\":{\"a\":1}}</tool_call>"},
        {&hermes, "<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>", "(add {})"},
        {&xml, "<tool_call><function=mul><parameter=a>1</parameter></function></tool_call>",
         "'<tool_call><function=mul><parameter=a>1</parameter></function></tool_call>"},
        {&mistral, "[TOOL_CALLS]mul{\"a\":1}", "'[TOOL_CALLS]mul{\"a\":1}"},
        {&mistral, "[TOOL_CALLS]add{\"a\":1}", "(add {\"a\":1})"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer_parser p;
        struct buf out;
        int last = -1;
        buf_init(&out, 1 << 16);
        answer_parser_init(&p, *cases[i].syntax, tools, false);
        p.strict = true;
        for (const char *c = cases[i].said; *c; c++) {
            answer_parser_feed(&p, c, 1);
            take(&p, &out, &last);
        }
        answer_parser_end(&p);
        take(&p, &out, &last);
        assert_string_equal(buf_z(&out), cases[i].parts);
        buf_release(&out);
        answer_parser_release(&p);
    }
}

// parallel_tool_calls: false.
static void test_a_single_call(void **state) {
    struct answer_parser p;
    struct buf out;
    int last = -1;
    static const char said[] = "Well. <tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n"
                               "<tool_call>{\"name\":\"sub\",\"arguments\":{}}</tool_call>So.";
    buf_init(&out, 1 << 16);
    answer_parser_init(&p, hermes, tools, false);
    p.single = true;
    for (const char *c = said; *c; c++) {
        answer_parser_feed(&p, c, 1);
        take(&p, &out, &last);
    }
    answer_parser_end(&p);
    take(&p, &out, &last);
    assert_string_equal(buf_z(&out), "'Well.(add {})'So.");
    buf_release(&out);
    answer_parser_release(&p);
}

// Random bytes of the syntaxes' own words: no parser hangs, reads beyond its text or loses text that is
// no call.
static void test_noise(void **state) {
    static const char *const words[] = {"<tool_call>",
                                        "</tool_call>",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        "\"",
                                        "\"name\"",
                                        ":",
                                        "\"add\"",
                                        "\"arguments\"",
                                        ",",
                                        "\\",
                                        "<function=",
                                        "add>",
                                        "<parameter=x>",
                                        "</parameter>",
                                        "</function>",
                                        "[TOOL_CALLS]",
                                        "[ARGS]",
                                        "<think>",
                                        "</think>",
                                        " ",
                                        "\n",
                                        "x",
                                        "<|python_tag|>",
                                        "<|tool_call|>",
                                        "<arg_key>",
                                        "</arg_key>",
                                        "<arg_value>",
                                        "</arg_value>",
                                        "<|channel|>",
                                        "final",
                                        "analysis",
                                        "to=functions.add",
                                        "<|message|>",
                                        "<|end|>",
                                        "<|start|>",
                                        ";"};
    const struct chat_syntax *all[] = {&json,    &hermes, &xml,     &llama,
                                       &mistral, &list,   &harmony, &glm};
    enum { N_ALL = sizeof all / sizeof *all };
    uint32_t random = 1;
    for (int i = 0; i < 20000; i++) {
        struct answer_parser p;
        struct answer_piece piece;
        answer_parser_init(&p, *all[i % N_ALL], tools, i % 11 == 0);
        for (int k = 0; k < 24; k++) {
            random = random * 1664525u + 1013904223u;
            const char *word = words[(random >> 16) % (sizeof words / sizeof *words)];
            answer_parser_feed(&p, word, strlen(word));
            while (answer_parser_next(&p, &piece) == 1) assert_non_null(piece.text);
        }
        answer_parser_end(&p);
        int n = 0;
        while (answer_parser_next(&p, &piece) == 1) assert_in_range(++n, 0, 1000);
        assert_int_equal(p.from, p.in.len);
        answer_parser_release(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut), cmocka_unit_test(test_without_tools),
        cmocka_unit_test(test_strict),    cmocka_unit_test(test_a_single_call),
        cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, make_tools, free_tools);
}
