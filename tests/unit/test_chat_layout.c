// Conversations that a template refuses in one layout and takes in another; ids of calls; templates for tools.
#include "base/json.h"
#include "tests/unit/chat_fixture.h"
#include <sys/stat.h>

static const char strict[] =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ "
    "raise_exception('System "
    "message must be at the beginning.') }}{% endif %}{{ m.role[0] + ':' + m.content + ';' }}"
    "{% endfor %}";
// As Gemma's: no system role, and the roles take turns.
static const char alternating[] =
    "{% for m in messages %}{% if m.role == 'system' or (m.role == 'user') != (loop.index0 % 2 == "
    "0) "
    "%}{{ raise_exception('No such turn.') }}{% endif %}{{ m.role[0] + ':' + m.content + ';' }}"
    "{% endfor %}";
// Neither the system's nor the user's message may stand behind a tool's.
static const char after_tools[] =
    "{% for m in messages %}{% if loop.previtem and loop.previtem.role == 'tool' and m.role != "
    "'assistant' %}{{ raise_exception('Not behind a tool.') }}{% endif %}{{ m.role[0] + ':' + "
    "m.content + ';' }}{% endfor %}";
#define M(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"

// What the template makes of a conversation; NULL: *err.
static char *rendered(struct chat_template *c, const char *messages, const char *tools,
                      struct err *err) {
    cJSON *m = cJSON_Parse(messages), *t = tools ? cJSON_Parse(tools) : NULL;
    struct chat_conversation conversation = {.messages = m, .tools = t};
    struct chat_rendering *r;
    char *text = NULL;
    size_t len;
    *err = (struct err){0};
    if (chat_rendering_new(c, &conversation, &r, err) == 0) {
        const char *s = chat_rendering_text(r, &len);
        text = strndup(s, len);
        chat_rendering_free(r);
    }
    cJSON_Delete(m);
    cJSON_Delete(t);
    return text;
}

static void test_layouts(void **state) {
    static const struct {
        const char *text, *messages, *want; // NULL: refused
    } rows[] = {
        {strict, "[" M("system", "S") "," M("user", "a") "]", "s:S;u:a;"},
        {strict, "[" M("system", "S") "," M("system", "T") "," M("user", "a") "]", "s:S\n\nT;u:a;"},
        // In its place, so that what is before it stays.
        {strict,
         "[" M("system", "S") "," M("user", "a") "," M("assistant", "b") "," M("system", "T") "," M(
             "user", "c") "]",
         "s:S;u:a;a:b;u:T\n\nc;"},
        {strict, "[" M("user", "a") "," M("system", "T") "]", "u:a\n\nT;"},
        {alternating, "[" M("system", "S") "," M("user", "a") "]", "u:S\n\na;"},
        {alternating, "[" M("user", "a") "," M("user", "b") "]", "u:a\n\nb;"},
        {alternating,
         "[" M("system", "S") "," M("user", "a") "," M("assistant", "b") "," M("user", "c") "," M(
             "system", "T") "]",
         "u:S\n\na;a:b;u:c\n\nT;"},
        {alternating, "[" M("system", "S") "]", "u:S;"},
        {after_tools,
         "[" M("user", "a") "," M("assistant", "b") "," M("tool", "r") "," M("system", "T") "]",
         "s:T;u:a;a:b;t:r;"},
        // What a session has already stays in front.
        {after_tools,
         "[" M("user", "a") ",{\"role\":\"assistant\",\"content\":\"b\",\"fixed\":true}," M(
             "tool", "r") "," M("system", "T") "]",
         NULL},
        {alternating, "[" M("assistant", "a") "," M("user", "b") "]", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_template *c;
        struct err err = {0};
        assert_int_equal(open_own(&c, rows[i].text, demo, &err), 0);
        char *text = rendered(c, rows[i].messages, NULL, &err);
        if (rows[i].want) {
            if (!text) fail_msg("%zu: %s", i, err.text);
            assert_string_equal(text, rows[i].want);
        } else {
            assert_null(text);
            assert_true(strcmp(err.text, "Not behind a tool.") == 0 ||
                        strcmp(err.text, "No such turn.") == 0);
        }
        free(text);
        chat_template_close(c);
    }
}

// A session's first turn too.
static void test_system_without_role(void **state) {
    static const struct chat_message m[] = {{"system", "S"}, {"user", "a"}};
    struct chat_template *c;
    struct err err = {0};
    struct buf text;
    buf_init(&text, 1 << 10);
    assert_int_equal(open_own(&c, alternating, demo, &err), 0);
    assert_int_equal(chat_template_render(c, m, 2, true, false, NULL, &text, &err), 0);
    assert_string_equal(buf_z(&text), "u:S\n\na;");
    buf_release(&text);
    chat_template_close(c);
}

#define CALLED(id)                                                                                 \
    "[" M("user", "a") ",{\"role\":\"assistant\",\"tool_calls\":[{" id                             \
                       "\"function\":{\"name\":\"f\",\"arguments\":{}}}]},"                        \
                       "{\"role\":\"tool\"," RESULT "\"content\":\"r\"}]"

static void test_ids_of_calls(void **state) {
    static const char text[] =
        "{# [TOOL_CALLS] tools #}{% for m in messages %}{% for c in m.tool_calls or [] %}{% if "
        "c.id is "
        "not defined or c.id | length != 9 %}{{ raise_exception('length 9!') }}{% endif %}{{ c.id "
        "+ "
        "' ' }}{% endfor %}{% if m.role == 'tool' %}{{ m.tool_call_id }}{% else %}{{ m.content }}"
        "{% endif %}{{ m.content if m.role == 'tool' }}{% endfor %}";
    struct chat_template *c;
    struct err err = {0};
    assert_int_equal(open_own(&c, text, demo, &err), 0);
#define RESULT "\"tool_call_id\":\"toolu_01AbCdEf\","
    char *a = rendered(c, CALLED("\"id\":\"toolu_01AbCdEf\","), NULL, &err);
    char *again = rendered(c, CALLED("\"id\":\"toolu_01AbCdEf\","), NULL, &err);
    assert_non_null(a);
    assert_int_equal(strlen(a), 1 + 9 + 1 + 9 + 1);
    assert_memory_equal(a + 1, a + 11, 9); // the call's is the result's
    assert_string_equal(a, again);
#undef RESULT
#define RESULT "\"tool_call_id\":\"AbCdEf123\","
    char *own = rendered(c, CALLED("\"id\":\"AbCdEf123\","), NULL, &err);
    assert_string_equal(own, "aAbCdEf123 AbCdEf123r");
#undef RESULT
#define RESULT ""
    char *none = rendered(c, CALLED(""), NULL, &err);
    assert_non_null(none);
    free(a);
    free(again);
    free(own);
    free(none);
    chat_template_close(c);
}

// How calls are written is found by the template's own words.
static void test_syntaxes(void **state) {
    static const struct {
        const char *marks;
        enum tool_syntax tools;
    } cases[] = {
        {"", TOOL_SYNTAX_NONE},
        {"tools", TOOL_SYNTAX_JSON},
        {"tools <tool_call>", TOOL_SYNTAX_HERMES},
        {"tools <tool_call> <function=x>", TOOL_SYNTAX_XML},
        {"tools <tool_call> <arg_key>", TOOL_SYNTAX_GLM},
        {"tools <|tool_call|>", TOOL_SYNTAX_LIST},
        {"tools [TOOL_CALLS]", TOOL_SYNTAX_MISTRAL},
        {"tools <|tool_call_start|>", TOOL_SYNTAX_OTHER},
        {"tools <|START_ACTION|>", TOOL_SYNTAX_OTHER},
        {"<|channel|>final<|message|>", TOOL_SYNTAX_HARMONY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        struct chat_template *c;
        struct err err = {0};
        snprintf(text, sizeof text, "{# %s #}{{ messages[0].content }}", cases[i].marks);
        assert_int_equal(open_own(&c, text, demo, &err), 0);
        if (chat_template_syntax(c).tools != cases[i].tools)
            fail_msg("%s: %d", cases[i].marks, chat_template_syntax(c).tools);
        chat_template_close(c);
    }
}

// gpt-oss: its template has a name of its own for thinking, takes words or thinking beside a call, and asks whether a
// message has calls by the key.
static void test_harmony_messages(void **state) {
    static const char text[] =
        "{# <|channel|><|message|> #}{% for m in messages %}[{{ m.role }}"
        "{% if 'tool_calls' in m %} calls {{ m.tool_calls[0].function.name }}{% endif %}"
        "{% if 'thinking' in m %} thinks {{ m.thinking }}{% endif %}"
        "{% if 'reasoning_content' in m %} no{% endif %} {{ m.content }}]{% endfor %}";
    static const struct {
        const char *answer, *shown;
    } cases[] = {
        {"\"content\":\"A\",\"reasoning_content\":\"t\",\"tool_calls\":[]", " thinks t A"},
        {"\"reasoning_content\":\"t\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]",
         " calls f thinks t "},
        {"\"content\":\"A\",\"reasoning_content\":\"t\",\"tool_calls\":[{\"function\":{\"name\":"
         "\"f\"}}]",
         " calls f A"},
    };
    struct chat_template *c;
    struct err err = {0};
    assert_int_equal(open_own(&c, text, demo, &err), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char messages[400], want[200];
        snprintf(messages, sizeof messages,
                 "[" M("user", "q") ",{\"role\":\"assistant\",%s}," M("user", "r") "]",
                 cases[i].answer);
        snprintf(want, sizeof want, "[user q][assistant%s][user r]", cases[i].shown);
        char *got = rendered(c, messages, NULL, &err);
        assert_string_equal(got, want);
        free(got);
    }
    chat_template_close(c);
}

static void test_template_for_tools(void **state) {
    static const char config[] =
        "{\"chat_template\":[{\"name\":\"default\",\"template\":\"{{ messages[0].content }}\"},"
        "{\"name\":\"tool_use\",\"template\":\"<tool_call>{{ tools | length }}"
        "{{ messages[0].content }}\"}]}";
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";
    struct chat_template *c;
    struct err err = {0};
    struct buf text;
    buf_init(&text, 1 << 10);
    assert_int_equal(open_with_config(&c, config, &text), 0);
    assert_int_equal(chat_template_syntax(c).tools, TOOL_SYNTAX_HERMES);
    char *plain = rendered(c, "[" M("user", "a") "]", NULL, &err);
    char *with = rendered(c, "[" M("user", "a") "]", tools, &err);
    assert_string_equal(plain, "a");
    assert_string_equal(with, "<tool_call>1a");
    free(plain);
    free(with);
    buf_release(&text);
    chat_template_close(c);
    // As transformers stores them since version 4.52.
    char dir[] = "/tmp/parley-chat-XXXXXX", more[64];
    assert_non_null(mkdtemp(dir));
    snprintf(more, sizeof more, "%s/additional_chat_templates", dir);
    assert_int_equal(mkdir(more, 0700), 0);
    text_model_write(dir, "chat_template.jinja", "{{ messages[0].content }}", 25);
    text_model_write(more, "tool_use.jinja", "T{{ messages[0].content }}", 26);
    assert_int_equal(chat_template_open(&c, dir, NULL, demo, &err), 0);
    with = rendered(c, "[" M("user", "a") "]", tools, &err);
    assert_string_equal(with, "Ta");
    free(with);
    chat_template_close(c);
    text_model_remove(more);
    text_model_remove(dir);
}

static void test_errors_name_the_tool(void **state) {
    static const struct {
        const char *text, *tools, *want;
    } rows[] = {
        {"{% for t in tools %}{{ t.function.description + '' }}{% endfor %}",
         "[{\"function\":{\"name\":\"f\",\"description\":\"d\"}},{\"function\":{\"name\":\"look\"}}"
         "]",
         "tool 'look'.function"},
        {"{% for t in tools %}{% for k, v in t.function.parameters.properties.items() %}{{ v.type "
         "+ "
         "'' }}{% endfor %}{% endfor %}",
         "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"city\":{}}}}}]",
         "tool 'f'.function.parameters.properties.city"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_template *c;
        struct err err = {0};
        assert_int_equal(open_own(&c, rows[i].text, demo, &err), 0);
        assert_null(rendered(c, "[" M("user", "a") "]", rows[i].tools, &err));
        if (!strstr(err.text, rows[i].want)) fail_msg("%zu: %s", i, err.text);
        chat_template_close(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_system_without_role),
        cmocka_unit_test(test_ids_of_calls),
        cmocka_unit_test(test_template_for_tools),
        cmocka_unit_test(test_syntaxes),
        cmocka_unit_test(test_harmony_messages),
        cmocka_unit_test(test_errors_name_the_tool),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
