// Requests of Anthropic's protocol: which are read, into which neutral conversation, and with which
// sentence the others are refused.
#include "tests/cmocka.h"
#include "ws/anthropic/messages_request.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct messages_request got;

static void read_as(enum messages_purpose purpose, const char *body) {
    messages_request_release(&got);
    messages_request_read(&got, purpose, body, strlen(body));
}

#define HEAD "{\"model\":\"m\",\"max_tokens\":9,"
#define USER "{\"role\":\"user\",\"content\":\"hi\"}"

static void expect_messages(const char *members, const char *messages) {
    char body[8192];
    snprintf(body, sizeof body, HEAD "%s}", members);
    read_as(MESSAGES_ANSWER, body);
    if (got.in.failure.status) fail_msg("%s: %s", body, got.in.failure.message);
    char *text = cJSON_PrintUnformatted(got.in.request->messages);
    assert_string_equal(text, messages);
    free(text);
}

static void expect_refused(const char *members, const char *sentence) {
    char body[8192];
    snprintf(body, sizeof body, HEAD "%s}", members);
    read_as(MESSAGES_ANSWER, body);
    if (got.in.failure.status != 400 ||
        strncmp(got.in.failure.message, sentence, strlen(sentence)) != 0)
        fail_msg("%s: %d '%s' is not '%s'", body, got.in.failure.status, got.in.failure.message,
                 sentence);
    assert_string_equal(got.in.failure.code, "invalid");
}

static void texts_and_system(void **state) {
    expect_messages("\"messages\":[" USER "]", "[{\"role\":\"user\",\"content\":\"hi\"}]");
    expect_messages("\"system\":\"Be brief.\",\"messages\":[" USER "]",
                    "[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                    "{\"role\":\"user\",\"content\":\"hi\"}]");
    // Blocks and messages that follow each other are lines of one message.
    expect_messages(
        "\"system\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":\"ephemeral\"}},"
        "{\"type\":\"text\",\"text\":\"b\"}],\"messages\":[{\"role\":\"user\",\"content\":[{"
        "\"type\":"
        "\"text\",\"text\":\"c\"},{\"type\":\"text\",\"text\":\"d\"}]}," USER "]",
        "[{\"role\":\"system\",\"content\":\"a\\nb\"},{\"role\":\"user\",\"content\":"
        "\"c\\nd\\nhi\"}]");
    // An answer's blocks are pieces of one text; one that said nothing is quoted so.
    expect_messages("\"messages\":[" USER
                    ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\","
                    "\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}," USER
                    ",{\"role\":\"assistant\",\"content\":[]}," USER "]",
                    "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":"
                    "\"ab\"},{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\","
                    "\"content\":\"\"},{\"role\":\"user\",\"content\":\"hi\"}]");
    expect_messages(
        "\"messages\":[" USER ",{\"role\":\"system\",\"content\":\"s\"}," USER "]",
        "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"system\",\"content\":\"s\"},"
        "{\"role\":\"user\",\"content\":\"hi\"}]");
}

// They are taken over as they are; what clients add to them must not reach the conversation.
static void messages_of_one_text(void **state) {
#define MORE(role, text)                                                                           \
    "{\"name\":\"n\",\"role\":\"" role "\",\"tool_calls\":[1],\"content\":\"" text "\"}"
#define BLOCK(role, text)                                                                          \
    "{\"content\":[{\"cache_control\":{},\"type\":\"text\",\"text\":\"" text                       \
    "\"}],\"role\":\"" role "\"}"
    expect_messages(
        "\"messages\":[" MORE("user", "a") "," MORE("assistant", "b") "," MORE("user", "c") "]",
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
        "\"b\"},{\"role\":\"user\",\"content\":\"c\"}]");
    expect_messages("\"messages\":[" BLOCK("user", "a") "," BLOCK("assistant", "") "," BLOCK(
                        "user", "") "," BLOCK("user", "c") "," USER "]",
                    "[{\"content\":\"a\",\"role\":\"user\"},{\"content\":\"\",\"role\":"
                    "\"assistant\"},{\"role\":\"user\",\"content\":\"\\nc\\nhi\"}]");
    expect_messages("\"messages\":[" BLOCK("user", "a") "," USER
                                                        "," BLOCK("assistant", "b") "," USER "]",
                    "[{\"role\":\"user\",\"content\":\"a\\nhi\"},{\"content\":\"b\",\"role\":"
                    "\"assistant\"},{\"role\":\"user\",\"content\":\"hi\"}]");
    expect_refused("\"messages\":[" USER "," BLOCK("assistant", "b") "]",
                   "messages: the conversation must end with a user message");
#undef MORE
#undef BLOCK
}

#define CALL(id) "{\"type\":\"tool_use\",\"id\":\"" id "\",\"name\":\"f\",\"input\":{\"x\":1}}"
#define RESULT(id, more) "{\"type\":\"tool_result\",\"tool_use_id\":\"" id "\"" more "}"
#define ASSISTANT(blocks) "{\"role\":\"assistant\",\"content\":[" blocks "]}"
#define SAYS(blocks) "{\"role\":\"user\",\"content\":[" blocks "]}"

static void calls_and_their_results(void **state) {
    expect_messages(
        "\"messages\":[" USER
        "," ASSISTANT("{\"type\":\"text\",\"text\":\"I look.\"}," CALL("a") "," CALL("b")) "," SAYS(
            RESULT("b", ",\"content\":\"two\"") "," RESULT("a",
                                                           ",\"is_error\":true,\"content\":[{"
                                                           "\"type\":\"text\",\"text\":\"none\"}"
                                                           "]") ","
                                                                "{\"type\":\"text\",\"text\":"
                                                                "\"Go on.\"}") "]",
        "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"I look.\","
        "\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{\"x\":1}}},{\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":"
        "\"f\","
        "\"arguments\":{\"x\":1}}}]},{\"role\":\"tool\",\"content\":\"two\",\"tool_call_id\":\"b\","
        "\"name\":\"f\"},{\"role\":\"tool\",\"content\":\"Error: none\",\"tool_call_id\":\"a\","
        "\"name\":\"f\"},{\"role\":\"user\",\"content\":\"Go on.\"}]");
    // A result without content; a call without words.
    expect_messages(
        "\"messages\":[" USER "," ASSISTANT(CALL("a")) "," SAYS(RESULT("a", "")) "]",
        "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":null,"
        "\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{\"x\":1}}}]},{\"role\":\"tool\",\"content\":\"\","
        "\"tool_call_id\":\"a\",\"name\":\"f\"}]");
    expect_refused("\"messages\":[" USER "," ASSISTANT(CALL("a")) "," USER "]",
                   "messages.2: `tool_use` ids were found without `tool_result` blocks immediately "
                   "after: a. ");
    expect_refused("\"messages\":[" USER "," ASSISTANT(CALL("a") "," CALL("b")) "," SAYS(
                       RESULT("a", "")) "," ASSISTANT("") "," USER "]",
                   "messages.3: `tool_use` ids were found without `tool_result` blocks immediately "
                   "after: b. ");
    expect_refused(
        "\"messages\":[" SAYS(RESULT("a", "")) "]",
        "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a");
    expect_refused("\"messages\":[" USER
                   "," ASSISTANT(CALL("a")) "," SAYS(RESULT("a", "") "," RESULT("a", "")) "]",
                   "messages.2.content.1: `a` has two `tool_result` blocks");
    expect_refused("\"messages\":[" USER "," ASSISTANT(CALL("a") "," CALL("a")) "]",
                   "messages.1.content.1.id: two calls have the id 'a'");
    expect_refused(
        "\"messages\":[" USER ","
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":"
        "\"f\",\"input\":\"{}\"}]}]",
        "messages.1.content.0.input: must be an object");
    expect_refused("\"messages\":[" USER "," ASSISTANT(CALL("a")) "," SAYS(
                       RESULT("a", ",\"content\":[{\"type\":\"image\"}]")) "]",
                   "messages.2.content.0.content.0.type: 'image' is not served here");
}

// The thinking is kept, whichever server signed it.
static void thinking_of_any_server(void **state) {
    static const char *const signatures[] = {"AbCdEfGhIjKlMnOpQrStUvWx", "",
                                             "EqQBCkYIBRgCKkB4pzZ9pkf7"};
    for (int i = 0; i < 3; i++) {
        char body[1024];
        snprintf(body, sizeof body,
                 "\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":[{\"type\":"
                 "\"thinking\",\"thinking\":\"Hm.\",\"signature\":\"%s\"},{\"type\":"
                 "\"redacted_thinking\",\"data\":\"x\"},{\"type\":\"text\",\"text\":\"a\"}]}," USER
                 "]",
                 signatures[i]);
        expect_messages(body, "[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\","
                              "\"content\":\"a\",\"reasoning_content\":\"Hm.\"},{\"role\":\"user\","
                              "\"content\":\"hi\"}]");
    }
    expect_refused("\"messages\":[" USER
                   ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\","
                   "\"thinking\":\"x\"}]}," USER "]",
                   "messages.1.content.0.signature: Field required");
    expect_refused("\"messages\":[" SAYS("{\"type\":\"thinking\",\"thinking\":\"x\"}") "]",
                   "messages.0.content.0.type: 'thinking' is not served here");
}

static void what_is_missing_or_of_the_wrong_kind(void **state) {
    expect_refused("\"messages\":[]", "messages: at least one message is required");
    expect_refused("\"x\":1", "messages: Field required");
    expect_refused("\"messages\":\"hi\"", "messages: must be a list");
    expect_refused("\"messages\":[{\"role\":\"user\",\"content\":5}]",
                   "messages.0.content: must be a string or a list of blocks");
    expect_refused("\"messages\":[1]", "messages.0.role: must be 'user' or 'assistant'");
    expect_refused("\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]", "messages.0.role: must");
    expect_refused("\"messages\":[{\"role\":\"user\"}]",
                   "messages.0: all messages must have non-empty content");
    expect_refused("\"messages\":[{\"role\":\"user\",\"content\":\"\"}]",
                   "messages.0: all messages");
    expect_refused("\"messages\":[{\"role\":\"user\",\"content\":[]}]", "messages.0: all messages");
    expect_refused("\"messages\":[" SAYS("{\"type\":\"image\",\"source\":{}}") "]",
                   "messages.0.content.0.type: 'image' is not served here: the models");
    expect_refused("\"messages\":[" SAYS("{\"type\":\"text\"}") "]",
                   "messages.0.content.0.text: Field required");
    expect_refused("\"messages\":[" SAYS("{}") "]", "messages.0.content.0.type: Field required");
    expect_refused("\"messages\":[" SAYS("7") "]", "messages.0.content.0.type: Field required");
    expect_refused("\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"I\"}]",
                   "messages: the conversation must end with a user message");
    expect_refused("\"system\":7,\"messages\":[" USER "]", "system: must be a string or an array");
    expect_refused("\"system\":[{\"type\":\"image\"}],\"messages\":[" USER "]",
                   "system.0.type: 'image' is not served here");
    expect_refused("\"stream\":1,\"messages\":[" USER "]", "stream: must be true or false");
    expect_refused("\"mcp_servers\":[{}],\"messages\":[" USER "]", "mcp_servers: are not served");
    expect_refused("\"container\":\"c\",\"messages\":[" USER "]", "container: is not served");
    expect_refused("\"context_management\":{\"edits\":[{\"type\":\"clear_tool_uses_20250919\"}]},"
                   "\"messages\":[" USER "]",
                   "context_management: is not served here");
    expect_refused("\"metadata\":{\"user_id\":7},\"messages\":[" USER "]", "metadata: must be");
    expect_refused("\"stop_sequences\":[\"\"],\"messages\":[" USER "]",
                   "stop_sequences.0: must be");
    expect_refused("\"temperature\":\"hot\",\"messages\":[" USER "]",
                   "temperature: must be a number");
    expect_refused("\"top_p\":2,\"messages\":[" USER "]", "");
    read_as(MESSAGES_ANSWER, "{\"model\":\"m\",\"messages\":[" USER "]}");
    assert_string_equal(got.in.failure.message, "max_tokens: Field required");
    read_as(MESSAGES_ANSWER, "{\"max_tokens\":1,\"messages\":[" USER "]}");
    assert_int_equal(got.in.failure.status, 0);
    assert_string_equal(got.model, ""); // the server's one
    read_as(MESSAGES_ANSWER, "{\"model\":3,\"max_tokens\":1,\"messages\":[" USER "]}");
    assert_string_equal(got.in.failure.message,
                        "model: must be the name of a model; GET /v1/models lists them");
    read_as(MESSAGES_ANSWER, "{\"model\":\"m\",\"max_tokens\":-1,\"messages\":[" USER "]}");
    assert_string_equal(got.in.failure.message, "max_tokens: must be at least 0");
    read_as(MESSAGES_ANSWER, "[]");
    assert_string_equal(got.in.failure.message, "the body must be a JSON object");
    read_as(MESSAGES_ANSWER, "{");
    assert_int_equal(got.in.failure.status, 400);
}

static void parameters(void **state) {
    read_as(MESSAGES_ANSWER,
            "{\"model\":\"m\",\"max_tokens\":2000,\"temperature\":0.5,\"top_p\":0.9,\"top_k\":4,"
            "\"stop_sequences\":[\"a\",\"b\"],\"seed\":7,\"n\":3,\"metadata\":{\"user_id\":\"u\"},"
            "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},\"stream\":true,"
            "\"context_management\":{\"edits\":[{\"type\":\"clear_thinking_20251015\",\"keep\":"
            "\"all\"}]},"
            "\"output_config\":{\"effort\":\"max\",\"format\":{\"type\":\"json_schema\",\"schema\":"
            "{\"type\":\"object\"}}},\"service_tier\":\"auto\",\"messages\":[" USER "]}");
    assert_int_equal(got.in.failure.status, 0);
    assert_string_equal(got.model, "m");
    assert_true(got.in.stream);
    const struct sampling_params *p = &got.in.request->sampling->params;
    assert_int_equal(p->max_tokens, 2000);
    assert_true(p->temperature == 0.5f && p->top_p == 0.9f && p->top_k == 4 && p->seed == 7);
    assert_int_equal(p->stop.n_texts, 2);
    assert_int_equal(p->n, 1); // not Anthropic's
    assert_int_equal(got.in.request->thinking, THINKING_ON);
    assert_int_equal(got.in.request->thinking_budget, 1024);
    char *format = cJSON_PrintUnformatted(got.in.request->format);
    assert_string_equal(format, "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"answer\","
                                "\"strict\":true,\"schema\":{\"type\":\"object\"}}}");
    free(format);
    char *args = cJSON_PrintUnformatted(got.in.request->template_args);
    assert_string_equal(args, "{\"reasoning_effort\":\"high\"}");
    free(args);

    expect_messages("\"messages\":[" USER "]", "[{\"role\":\"user\",\"content\":\"hi\"}]");
    assert_int_equal(got.in.request->thinking, THINKING_OFF);
    expect_messages("\"thinking\":{\"type\":\"adaptive\"},\"messages\":[" USER "]",
                    "[{\"role\":\"user\",\"content\":\"hi\"}]");
    assert_int_equal(got.in.request->thinking, THINKING_ON);
    assert_int_equal(got.in.request->thinking_budget, -1);
    expect_refused("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":9},\"messages\":[" USER
                   "]",
                   "thinking.enabled.budget_tokens: must be less than max_tokens (9)");
    expect_refused("\"thinking\":{\"type\":\"enabled\"},\"messages\":[" USER "]",
                   "thinking.enabled.budget_tokens: must be an integer");
    expect_refused("\"thinking\":{\"type\":\"x\"},\"messages\":[" USER "]",
                   "thinking.type: must be");
    expect_refused(
        "\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"},\"messages\":[" USER "]",
        "thinking.display: 'omitted' is not served");
    read_as(MESSAGES_COUNT, "{\"model\":\"m\",\"messages\":[" USER "]}"); // needs no max_tokens
    assert_int_equal(got.in.failure.status, 0);
    assert_null(got.in.request->sampling);
}

#define TOOL(name)                                                                                 \
    "{\"name\":\"" name "\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}"

static void tools(void **state) {
    expect_messages(
        "\"tools\":[" TOOL("f") "," TOOL(
            "g") "],\"tool_choice\":{\"type\":\"tool\","
                 "\"name\":\"g\",\"disable_parallel_tool_use\":true},\"messages\":[" USER "]",
        "[{\"role\":\"user\",\"content\":\"hi\"}]");
    char *text = cJSON_PrintUnformatted(cJSON_GetArrayItem(got.in.request->tools, 0));
    assert_string_equal(text,
                        "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
                        "\"parameters\":{\"type\":\"object\"}}}");
    free(text);
    assert_int_equal(got.in.request->tool_choice, TOOLS_NAMED);
    assert_string_equal(got.in.request->tool_name, "g");
    assert_true(got.in.request->no_parallel_tool_calls);
    static const struct {
        const char *word;
        enum tool_choice choice;
    } words[] = {{"auto", TOOLS_AUTO}, {"any", TOOLS_REQUIRED}, {"none", TOOLS_NONE}};
    for (int i = 0; i < 3; i++) {
        char members[512];
        snprintf(members, sizeof members,
                 "\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"%s\"},\"messages\":[" USER
                                         "]",
                 words[i].word);
        expect_messages(members, "[{\"role\":\"user\",\"content\":\"hi\"}]");
        assert_int_equal(got.in.request->tool_choice, words[i].choice);
        assert_false(got.in.request->no_parallel_tool_calls);
    }
    expect_messages("\"tools\":[],\"messages\":[" USER "]",
                    "[{\"role\":\"user\",\"content\":\"hi\"}]");
    assert_null(got.in.request->tools);
    for (int len = 128; len <= 129; len++) {
        char members[512], name[130];
        memset(name, 'n', sizeof name);
        snprintf(members, sizeof members,
                 "\"tools\":[{\"name\":\"%.*s\",\"input_schema\":{}}],\"messages\":[" USER "]", len,
                 name);
        if (len == 128)
            expect_messages(members, "[{\"role\":\"user\",\"content\":\"hi\"}]");
        else
            expect_refused(members, "tools.0.name: must be 1 to 128");
    }
    static const char *const refused[][2] = {
        {"\"tools\":7", "tools: must be an array"},
        {"\"tools\":[7]", "tools.0: must be an object"},
        {"\"tools\":[{\"name\":\"f\"}]", "tools.0.input_schema: must be a JSON Schema"},
        {"\"tools\":[{\"name\":\"a b\",\"input_schema\":{}}]", "tools.0.name: must be 1 to 128"},
        {"\"tools\":[" TOOL("f") "," TOOL("f") "]", "tools.1.name: two tools are called 'f'"},
        {"\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]",
         "tools.0.type: 'web_search_20250305' is not served here"},
        {"\"tool_choice\":{\"type\":\"any\"}", "tool_choice: 'any' needs tools"},
        {"\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"tool\"}",
         "tool_choice.tool.name: Field required"},
        {"\"tools\":[" TOOL("f") "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\"}",
         "tool_choice.tool.name: tools has no 'g'"},
        {"\"tool_choice\":\"auto\"", "tool_choice.type: must be auto, any, tool or none"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char members[1024];
        snprintf(members, sizeof members, "%s,\"messages\":[" USER "]", refused[i][0]);
        expect_refused(members, refused[i][1]);
    }
}

static int teardown(void **state) {
    messages_request_release(&got);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(texts_and_system, teardown),
        cmocka_unit_test_teardown(messages_of_one_text, teardown),
        cmocka_unit_test_teardown(calls_and_their_results, teardown),
        cmocka_unit_test_teardown(thinking_of_any_server, teardown),
        cmocka_unit_test_teardown(what_is_missing_or_of_the_wrong_kind, teardown),
        cmocka_unit_test_teardown(parameters, teardown),
        cmocka_unit_test_teardown(tools, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
