// Responses: their ids, the items that clients send, and the items and events that a completion's
// events become.
#include "base/err.h"
#include "tests/cmocka.h"
#include "ws/openai/responses_items.h"
#include "ws/openai/responses_output.h"
#include <stdlib.h>
#include <string.h>

// --- ids -------------------------------------------------------------------

static void an_id_leads_to_its_session_and_turn(void **state) {
    static const char *const sessions[] = {"a", "my-own_session-7", "0123456789abcdef", "x-1-2"};
    char text[RESPONSES_ID_MAX];
    struct responses_id id;
    for (size_t i = 0; i < sizeof sessions / sizeof *sessions; i++) {
        responses_id_response(text, sessions[i], 41);
        assert_true(responses_id_parse(text, &id));
        assert_string_equal(id.session, sessions[i]);
        assert_true(id.turn == 41 && id.index == -1);
        responses_id_item(text, "msg", sessions[i], 3, 12, i % 2 == 0);
        assert_true(responses_id_parse_item(text, &id));
        assert_string_equal(id.session, sessions[i]);
        assert_true(id.turn == 3 && id.index == 12 && id.input == (i % 2 == 0) && !id.added);
        responses_id_added(text, "msg", sessions[i], 7);
        assert_true(responses_id_parse_item(text, &id));
        assert_string_equal(id.session, sessions[i]);
        assert_true(id.turn == TURN_NONE && id.index == 7 && id.added && !id.input);
        responses_id_conversation(text, sessions[i]);
        assert_true(responses_id_parse_conversation(text, id.session));
        assert_string_equal(id.session, sessions[i]);
    }
}

static void other_texts_are_no_ids(void **state) {
    static const char *const wrong[] = {
        "",
        "resp_",
        "resp_a",
        "resp_a-",
        "resp_-1",
        "resp_a-x",
        "resp_a-01",
        "resp_a b-1",
        "resp_a-1-",
        "resp_a-i1",
        "rsp_a-1",
        "resp_a--",
        "resp_é-1",
        "resp_a-99999999999999999999",
        "resp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-1"};
    struct responses_id id;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(responses_id_parse(wrong[i], &id));
        assert_false(responses_id_parse_item(wrong[i], &id));
    }
    assert_false(responses_id_parse_item("msg_a-1", &id));
    assert_false(responses_id_parse_item("resp_a-1-2", &id));
    assert_false(responses_id_parse_item("_a-1-2", &id));
    assert_false(responses_id_parse_item("msg_a-1-c2-3", &id));
    assert_false(responses_id_parse_conversation("conv_", id.session));
    assert_false(responses_id_parse_conversation("conv_a b", id.session));
    assert_false(responses_id_parse_conversation("resp_a", id.session));
}

// --- items that come -------------------------------------------------------

static cJSON *parse(const char *text) {
    struct err err = {0};
    cJSON *json = json_parse(text, strlen(text), &json_limits_message, &err);
    if (!json) fail_msg("%s: %s", err.text, text);
    return json;
}

static void check_messages(const char *input, const char *expected) {
    struct completion_failure f = {0};
    cJSON *json = parse(input), *messages = cJSON_CreateArray();
    assert_int_equal(responses_items_read(messages, json, "input", &f), 0);
    char *text = cJSON_PrintUnformatted(messages);
    assert_string_equal(text, expected);
    cJSON_free(text);
    cJSON_Delete(messages);
    cJSON_Delete(json);
}

static void items_are_messages(void **state) {
    check_messages("\"Hi\"", "[{\"role\":\"user\",\"content\":\"Hi\"}]");
    check_messages(
        "[{\"role\":\"developer\",\"content\":\"Be "
        "brief\"},{\"type\":\"message\",\"role\":\"user\","
        "\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_text\",\"text\":"
        "\"b\"}]},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"c\","
        "\"annotations\":[]},"
        "{\"type\":\"refusal\",\"refusal\":\"no\"}],\"id\":\"msg_x\",\"status\":\"completed\"}]",
        "[{\"role\":\"system\",\"content\":\"Be brief\"},{\"role\":\"user\",\"content\":\"ab\"},"
        "{\"role\":\"assistant\",\"content\":\"cno\"}]");
    check_messages(
        "[{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"content\":[{\"type\":"
        "\"reasoning_text\",\"text\":\"hm\"}]},"
        "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"add\",\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"3\"}]",
        "[{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":null},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":"
        "\"function\","
        "\"function\":{\"name\":\"add\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"3\"}]");
    // Thinking: as a summary, or as encrypted content ("hm"), which counts where a client leaves out the rest.
    static const char thought[] =
        "[{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":null}]";
    check_messages(
        "[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}]}]",
        thought);
    check_messages(
        "[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"x\"}],"
        "\"encrypted_content\":\"parley:aG0=\"}]",
        thought);
    check_messages(
        "[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}],"
        "\"encrypted_content\":\"gAAAAABo\"}]",
        thought); // another server's
    check_messages("[{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"parley:aG\"}]",
                   "[]");
    check_messages(
        "[{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"parley:/w==\"}]", "[]");
    check_messages("[{\"type\":\"reasoning\",\"summary\":[]}]", "[]");
}

static void a_wrong_item_is_named(void **state) {
    static const struct {
        const char *input, *param, *code;
    } cases[] = {
        {"3", "input", "invalid_value"},
        {"[3]", "input[0]", "invalid_value"},
        {"[{}]", "input[0].type", "invalid_value"},
        {"[\"a\"]", "input[0]", "invalid_value"},
        {"[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"hologram_call\"}]", "input[1].type",
         "unsupported"},
        {"[{\"role\":\"bot\",\"content\":\"a\"}]", "input[0].role", "invalid_value"},
        {"[{\"role\":\"user\"}]", "input[0].content", "invalid_value"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]", "input[0].content[0]",
         "unsupported"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}]", "input[0].content[0]",
         "invalid_value"},
        {"[{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\"}]", "input[0].call_id",
         "invalid_value"},
        {"[{\"type\":\"function_call\",\"call_id\":\"f\",\"arguments\":\"{}\"}]", "input[0].name",
         "invalid_value"},
        {"[{\"type\":\"function_call\",\"call_id\":\"f\",\"name\":\"f\",\"arguments\":{}}]",
         "input[0].arguments", "invalid_value"},
        {"[{\"type\":\"function_call_output\",\"call_id\":\"f\"}]", "input[0].output",
         "invalid_value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct completion_failure f = {0};
        cJSON *json = parse(cases[i].input), *messages = cJSON_CreateArray();
        assert_int_equal(responses_items_read(messages, json, "input", &f), E_INVAL);
        assert_string_equal(f.param, cases[i].param);
        assert_string_equal(f.code, cases[i].code);
        assert_non_null(strstr(f.message, cases[i].param));
        cJSON_Delete(messages);
        cJSON_Delete(json);
    }
}

// Calls of hosted tools, which an older conversation may have, are left out.
static void items_of_hosted_tools_are_left_out(void **state) {
    struct completion_failure f = {0};
    cJSON *json = parse("[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"web_search_call\"}]");
    cJSON *messages = cJSON_CreateArray();
    assert_int_equal(responses_items_read(messages, json, "input", &f), 0);
    assert_int_equal(cJSON_GetArraySize(messages), 1);
    cJSON_Delete(messages);
    cJSON_Delete(json);
}

// --- items and events that go ----------------------------------------------

struct log {
    struct buf types;
    char *last;
    int64_t number; // of the last event
};

static void note(void *ctx, const char *type, const struct buf *json) {
    struct log *l = ctx;
    cJSON *e = parse(buf_z(json)); // each is JSON by itself
    int64_t number = (int64_t)cJSON_GetObjectItem(e, "sequence_number")->valuedouble;
    assert_string_equal(cJSON_GetObjectItem(e, "type")->valuestring, type);
    assert_true(number == l->number + 1);
    l->number = number;
    buf_addf(&l->types, "%s%s", l->types.len ? " " : "", type + strlen("response."));
    free(l->last);
    l->last = strdup(buf_z(json));
    cJSON_Delete(e);
}

static void log_init(struct log *l, int64_t after) {
    *l = (struct log){.number = after};
    buf_init(&l->types, 1 << 20);
}

static void log_release(struct log *l) {
    buf_release(&l->types);
    free(l->last);
}

static void say(struct responses_output *o, enum completion_event_kind kind, const char *text) {
    struct completion_event e = {
        .kind = kind, .session = "abc", .turn = 4, .tool_name = "add", .text = text};
    e.text_len = text ? strlen(text) : 0;
    e.usage = (struct completion_usage){
        .prompt_tokens = 20, .cached_tokens = 12, .completion_tokens = 7, .reasoning_tokens = 2};
    responses_output_take(o, &e);
}

static void play_all(struct responses_output *o) {
    say(o, COMPLETION_STARTED, NULL);
    say(o, COMPLETION_THINKING, "Let me ");
    say(o, COMPLETION_THINKING, "see");
    say(o, COMPLETION_TEXT, "I add");
    say(o, COMPLETION_TOOL_BEGIN, NULL);
    say(o, COMPLETION_TOOL_ARGUMENTS, "{\"a\":");
    say(o, COMPLETION_TOOL_ARGUMENTS, "1}");
    say(o, COMPLETION_TOOL_END, NULL);
    say(o, COMPLETION_ANSWER, NULL);
    say(o, COMPLETION_DONE, NULL);
}

static void items_come_in_order(void **state) {
    struct log l;
    struct responses_output o;
    log_init(&l, -1);
    responses_output_init(&o, "\"model\":\"m\"", note, &l);
    play_all(&o);
    assert_string_equal(
        buf_z(&l.types),
        "created in_progress output_item.added content_part.added reasoning_text.delta "
        "reasoning_text.delta reasoning_text.done content_part.done output_item.done "
        "output_item.added content_part.added output_text.delta output_text.done "
        "content_part.done output_item.done output_item.added function_call_arguments.delta "
        "function_call_arguments.delta function_call_arguments.done output_item.done completed");
    cJSON *end = parse(l.last), *r = cJSON_GetObjectItem(end, "response");
    cJSON *output = cJSON_GetObjectItem(r, "output"), *call = cJSON_GetArrayItem(output, 2);
    assert_string_equal(cJSON_GetObjectItem(r, "id")->valuestring, "resp_abc-4");
    assert_string_equal(cJSON_GetObjectItem(r, "status")->valuestring, "completed");
    assert_int_equal(cJSON_GetArraySize(output), 3);
    assert_string_equal(cJSON_GetObjectItem(call, "id")->valuestring, "fc_abc-4-2");
    assert_string_equal(cJSON_GetObjectItem(call, "call_id")->valuestring, "call_abc-4-2");
    assert_string_equal(cJSON_GetObjectItem(call, "arguments")->valuestring, "{\"a\":1}");
    cJSON *usage = cJSON_GetObjectItem(r, "usage");
    assert_int_equal(cJSON_GetObjectItem(usage, "total_tokens")->valueint, 27);
    cJSON_Delete(end);
    responses_output_release(&o);
    log_release(&l);
}

static void thinking_is_a_summary_where_asked(void **state) {
    struct log l;
    struct responses_output o;
    log_init(&l, -1);
    responses_output_init(&o, "\"model\":\"m\"", note, &l);
    o.thinking = (struct responses_thinking){.summary = true, .encrypted = true};
    play_all(&o);
    static const char events[] =
        "created in_progress output_item.added reasoning_summary_part.added "
        "reasoning_summary_text.delta reasoning_summary_text.delta reasoning_summary_text.done "
        "reasoning_summary_part.done output_item.done output_item.added content_part.added ";
    assert_memory_equal(buf_z(&l.types), events, sizeof events - 1);
    cJSON *end = parse(l.last), *r = cJSON_GetObjectItem(end, "response");
    cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItem(r, "output"), 0);
    cJSON *summary = cJSON_GetArrayItem(cJSON_GetObjectItem(item, "summary"), 0);
    assert_string_equal(cJSON_GetObjectItem(item, "type")->valuestring, "reasoning");
    assert_string_equal(cJSON_GetObjectItem(summary, "type")->valuestring, "summary_text");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(item, "content")), 0);
    // Sent back without its summary, it is still the same thinking.
    cJSON *messages = cJSON_CreateArray(), *items = cJSON_CreateArray();
    struct completion_failure f = {0};
    char *words = strdup(cJSON_GetObjectItem(summary, "text")->valuestring);
    cJSON_ReplaceItemInObjectCaseSensitive(item, "summary", cJSON_CreateArray());
    cJSON_AddItemReferenceToArray(items, item);
    assert_int_equal(responses_items_read(messages, items, "input", &f), 0);
    cJSON *sent = cJSON_GetObjectItem(cJSON_GetArrayItem(messages, 0), "reasoning_content");
    assert_string_equal(sent->valuestring, words);
    free(words);
    cJSON_Delete(messages);
    cJSON_Delete(items);
    cJSON_Delete(end);
    responses_output_release(&o);
    log_release(&l);
}

// From any event on, a stream that is made again has the rest with the same numbers and words.
static void a_stream_is_made_again(void **state) {
    struct log whole;
    struct responses_output o;
    log_init(&whole, -1);
    responses_output_init(&o, "\"model\":\"m\"", note, &whole);
    play_all(&o);
    for (int64_t after = -1; after < o.sequence - 1; after++) {
        struct log rest;
        struct responses_output again;
        log_init(&rest, after);
        responses_output_init(&again, "\"model\":\"m\"", note, &rest);
        again.after = after;
        again.completed_s = o.completed_s;
        play_all(&again);
        assert_true(whole.types.len >= rest.types.len);
        assert_string_equal(buf_z(&whole.types) + whole.types.len - rest.types.len,
                            buf_z(&rest.types));
        assert_string_equal(rest.last, whole.last);
        responses_output_release(&again);
        log_release(&rest);
    }
    responses_output_release(&o);
    log_release(&whole);
}

static void an_answer_that_is_cut_is_incomplete(void **state) {
    struct completion_failure failure = {.code = "error", .message = "the device is gone"};
    struct completion_event cut = {.kind = COMPLETION_ANSWER, .finish = COMPLETION_LENGTH};
    struct completion_event failed = {.kind = COMPLETION_FAILED, .failure = &failure};
    for (int i = 0; i < 2; i++) {
        struct log l;
        struct responses_output o;
        log_init(&l, -1);
        responses_output_init(&o, "\"model\":\"m\"", note, &l);
        say(&o, COMPLETION_STARTED, NULL);
        say(&o, COMPLETION_TEXT, "Once");
        responses_output_take(&o, i ? &failed : &cut);
        if (!i) say(&o, COMPLETION_DONE, NULL);
        assert_non_null(strstr(l.last, i ? "\"type\":\"response.failed\""
                                         : "\"type\":\"response.incomplete\""));
        assert_non_null(
            strstr(l.last, i ? "the device is gone" : "\"reason\":\"max_output_tokens\""));
        assert_non_null(strstr(l.last, "\"status\":\"incomplete\",\"role\":\"assistant\""));
        responses_output_release(&o);
        log_release(&l);
    }
}

static void an_answer_without_words_is_a_message(void **state) {
    struct log l;
    struct responses_output o;
    log_init(&l, -1);
    responses_output_init(&o, "\"model\":\"m\"", note, &l);
    say(&o, COMPLETION_STARTED, NULL);
    say(&o, COMPLETION_DONE, NULL);
    assert_int_equal(o.n_items, 1);
    assert_true(o.status == RESPONSES_COMPLETED && o.items[0].kind == ITEM_MESSAGE);
    responses_output_release(&o);
    log_release(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_leads_to_its_session_and_turn),
        cmocka_unit_test(other_texts_are_no_ids),
        cmocka_unit_test(items_are_messages),
        cmocka_unit_test(a_wrong_item_is_named),
        cmocka_unit_test(items_of_hosted_tools_are_left_out),
        cmocka_unit_test(items_come_in_order),
        cmocka_unit_test(thinking_is_a_summary_where_asked),
        cmocka_unit_test(a_stream_is_made_again),
        cmocka_unit_test(an_answer_that_is_cut_is_incomplete),
        cmocka_unit_test(an_answer_without_words_is_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
