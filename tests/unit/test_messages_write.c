// Neutral events in Anthropic's form, streamed and whole; errors.
#include "tests/cmocka.h"
#include "ws/anthropic/messages_write.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t key[2] = {3, 4};
static struct message_writer writer;
static struct buf out;

static void begin(bool stream) {
    message_writer_init(&writer, 1 << 20);
    buf_init(&out, 1 << 20);
    writer.model = "m";
    writer.key = key;
    writer.max_tokens = 9;
    writer.stream = stream;
}

static int end(void **state) {
    message_writer_release(&writer);
    buf_release(&out);
    return 0;
}

static void take(struct completion_event e) {
    if (e.text) e.text_len = strlen(e.text);
    message_write_event(&writer, &e, &out);
}

static void start(void) {
    take((struct completion_event){.kind = COMPLETION_STARTED,
                                   .session = "s1",
                                   .turn = 2,
                                   .usage = {.prompt_tokens = 10, .cached_tokens = 7}});
}

static void text(enum completion_event_kind kind, const char *s) {
    take((struct completion_event){.kind = kind, .text = s});
}

static void call(const char *id, const char *name) {
    take(
        (struct completion_event){.kind = COMPLETION_TOOL_BEGIN, .tool_id = id, .tool_name = name});
}

static void finish(enum completion_finish why, const char *sequence, int64_t n_tokens) {
    take((struct completion_event){
        .kind = COMPLETION_ANSWER, .finish = why, .stop_sequence = sequence});
    take((struct completion_event){
        .kind = COMPLETION_DONE,
        .usage = {.prompt_tokens = 10, .cached_tokens = 7, .completion_tokens = n_tokens}});
}

static void say_everything(void) {
    start();
    text(COMPLETION_THINKING, "Hm");
    text(COMPLETION_THINKING, "\"m\n");
    text(COMPLETION_TEXT, "A");
    text(COMPLETION_TEXT, "");
    text(COMPLETION_TEXT, "B");
    call("t1", "f");
    text(COMPLETION_TOOL_ARGUMENTS, "{\"x\"");
    text(COMPLETION_TOOL_ARGUMENTS, ":1}");
    text(COMPLETION_TOOL_END, NULL);
    call("t2", "g");
    text(COMPLETION_TOOL_END, NULL);
    finish(COMPLETION_TOOL_CALLS, NULL, 5);
}

// The signature of "Hm\"m\n".
static const char *signature(void) {
    static char s[THINKING_SIGNATURE_LEN + 1];
    struct thinking_seal seal = {0};
    thinking_seal_begin(&seal);
    thinking_seal_update(&seal, "Hm\"m\n", 5);
    thinking_seal_finish(&seal, key, s);
    assert_int_equal(strlen(s), THINKING_SIGNATURE_LEN);
    return s;
}

#define NO_DETAILS "\"stop_details\":null,\"container\":null"
#define USAGE(n)                                                                                   \
    "\"usage\":{\"input_tokens\":3,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":" \
    "7,\"output_tokens\":" n ",\"output_tokens_details\":{\"thinking_tokens\":0},"                 \
    "\"server_tool_use\":null,\"service_tier\":\"standard\"}"
#define EVENT(type, more) "event: " type "\ndata: {\"type\":\"" type "\"" more "}\n\n"
#define START(i, block)                                                                            \
    EVENT("content_block_start", ",\"index\":" i ",\"content_block\":{" block "}")
#define DELTA(i, delta) EVENT("content_block_delta", ",\"index\":" i ",\"delta\":{" delta "}")
#define STOP(i) EVENT("content_block_stop", ",\"index\":" i)

static void a_stream_has_every_event(void **state) {
    static const char *const events[] = {
        EVENT(
            "message_start",
            ",\"message\":{\"id\":\"msg_s1-2\",\"type\":\"message\",\"role\":\"assistant\","
            "\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null," NO_DETAILS
            "," USAGE("0") "}"),
        START("0", "\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\""),
        DELTA("0", "\"type\":\"thinking_delta\",\"thinking\":\"Hm\""),
        DELTA("0", "\"type\":\"thinking_delta\",\"thinking\":\"\\\"m\\n\""),
        NULL, // the signature
        STOP("0"),
        START("1", "\"type\":\"text\",\"text\":\"\""),
        DELTA("1", "\"type\":\"text_delta\",\"text\":\"A\""),
        DELTA("1", "\"type\":\"text_delta\",\"text\":\"B\""),
        STOP("1"),
        START("2", "\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{}"),
        DELTA("2", "\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"x\\\"\""),
        DELTA("2", "\"type\":\"input_json_delta\",\"partial_json\":\":1}\""),
        STOP("2"),
        START("3", "\"type\":\"tool_use\",\"id\":\"t2\",\"name\":\"g\",\"input\":{}"),
        STOP("3"),
        EVENT("message_delta",
              ",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null," NO_DETAILS
              "}," USAGE("5")),
        EVENT("message_stop", ""),
    };
    struct buf want;
    begin(true);
    say_everything();
    buf_init(&want, 8192);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            buf_addz(&want, events[i]);
        else
            buf_addf(&want, DELTA("0", "\"type\":\"signature_delta\",\"signature\":\"%s\""),
                     signature());
    assert_string_equal(buf_z(&out), buf_z(&want));
    buf_release(&want);
}

static void expect_whole(const char *content, const char *stop, const char *usage) {
    char want[4096];
    buf_reset(&out);
    message_write_whole(&writer, &out);
    snprintf(want, sizeof want,
             "{\"id\":\"msg_s1-2\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\","
             "\"content\":[%s],%s,%s}",
             content, stop, usage);
    assert_int_equal(out.error, 0);
    assert_string_equal(buf_z(&out), want);
    end(NULL);
}

static void a_whole_message_has_the_same_blocks(void **state) {
    char content[1024];
    begin(false);
    say_everything();
    assert_int_equal(out.len, 0);
    snprintf(content, sizeof content,
             "{\"type\":\"thinking\",\"thinking\":\"Hm\\\"m\\n\",\"signature\":\"%s\"},"
             "{\"type\":\"text\",\"text\":\"AB\"},"
             "{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{\"x\":1}},"
             "{\"type\":\"tool_use\",\"id\":\"t2\",\"name\":\"g\",\"input\":{}}",
             signature());
    expect_whole(content, "\"stop_reason\":\"tool_use\",\"stop_sequence\":null," NO_DETAILS,
                 USAGE("5"));
}

static void why_an_answer_ended(void **state) {
    static const struct {
        enum completion_finish why;
        const char *sequence;
        int64_t n_tokens;
        const char *stop, *usage;
    } ends[] = {
        {COMPLETION_STOP, NULL, 2,
         "\"stop_reason\":\"end_turn\",\"stop_sequence\":null," NO_DETAILS, USAGE("2")},
        {COMPLETION_STOP_SEQUENCE, "x\"", 2,
         "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"x\\\"\"," NO_DETAILS, USAGE("2")},
        {COMPLETION_LENGTH, NULL, 9,
         "\"stop_reason\":\"max_tokens\",\"stop_sequence\":null," NO_DETAILS, USAGE("9")},
        {COMPLETION_LENGTH, NULL, 8,
         "\"stop_reason\":\"model_context_window_exceeded\",\"stop_sequence\":null," NO_DETAILS,
         USAGE("8")},
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        begin(false);
        start();
        text(COMPLETION_TEXT, "a");
        finish(ends[i].why, ends[i].sequence, ends[i].n_tokens);
        expect_whole("{\"type\":\"text\",\"text\":\"a\"}", ends[i].stop, ends[i].usage);
    }
    begin(false); // nothing was said
    start();
    finish(COMPLETION_STOP, NULL, 1);
    expect_whole("", "\"stop_reason\":\"end_turn\",\"stop_sequence\":null," NO_DETAILS, USAGE("1"));
}

// A call that the model had no room to finish: its text, and valid JSON.
static void arguments_cut_short(void **state) {
    begin(false);
    start();
    call("t1", "f");
    text(COMPLETION_TOOL_ARGUMENTS, "{\"x\":[1,");
    finish(COMPLETION_LENGTH, NULL, 9);
    expect_whole("{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{\"INVALID_JSON\":"
                 "\"{\\\"x\\\":[1,\"}}",
                 "\"stop_reason\":\"max_tokens\",\"stop_sequence\":null," NO_DETAILS, USAGE("9"));
}

static void other_answers_are_not_ours(void **state) {
    begin(false);
    start();
    take((struct completion_event){.kind = COMPLETION_TEXT, .answer = 1, .text = "no"});
    text(COMPLETION_TEXT, "yes");
    finish(COMPLETION_STOP, NULL, 1);
    expect_whole("{\"type\":\"text\",\"text\":\"yes\"}",
                 "\"stop_reason\":\"end_turn\",\"stop_sequence\":null," NO_DETAILS, USAGE("1"));
}

static void errors(void **state) {
    static const struct {
        int status;
        const char *type;
    } types[] = {{400, "invalid_request_error"}, {401, "authentication_error"},
                 {403, "permission_error"},      {404, "not_found_error"},
                 {409, "conflict_error"},        {413, "request_too_large"},
                 {429, "rate_limit_error"},      {500, "api_error"},
                 {529, "overloaded_error"}};
    char want[256];
    begin(true);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        buf_reset(&out);
        message_write_error(&out, types[i].status, "invalid", "why\n", "req_1");
        snprintf(want, sizeof want,
                 "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"why\\n\"},"
                 "\"request_id\":\"req_1\"}",
                 types[i].type);
        assert_string_equal(buf_z(&out), want);
    }
    buf_reset(&out);
    message_write_error(&out, 400, MESSAGES_NO_THREADS, "no", "req_1");
    assert_string_equal(
        buf_z(&out),
        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
        "\"no\",\"details\":{\"error_code\":\"thread_unsupported_request\",\"unsupported\":["
        "\"thread\"]}},\"request_id\":\"req_1\"}");
    buf_reset(&out);
    message_write_stream_error(&out, 529, "overloaded", "full", "req_1");
    assert_string_equal(buf_z(&out),
                        EVENT("error", ",\"error\":{\"type\":\"overloaded_error\",\"message\":"
                                       "\"full\"},\"request_id\":\"req_1\""));
    buf_reset(&out);
    message_write_count(&out, 7);
    assert_string_equal(buf_z(&out), "{\"input_tokens\":7}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_stream_has_every_event, end),
        cmocka_unit_test(a_whole_message_has_the_same_blocks),
        cmocka_unit_test(why_an_answer_ended),
        cmocka_unit_test(arguments_cut_short),
        cmocka_unit_test(other_answers_are_not_ours),
        cmocka_unit_test_teardown(errors, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
