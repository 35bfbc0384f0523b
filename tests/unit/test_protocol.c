// parley.v1: what is taken as a message, and how events and answers are written.
#include "sessions/replay/debug.h"
#include "tests/cmocka.h"
#include "ws/parley/protocol.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct message m;
static struct err err;
static const char *code;

static int decode(const char *text) {
    message_release(&m);
    memset(&err, 0, sizeof(err));
    return message_decode(&m, text, strlen(text), &json_limits_message, 1000, &code, &err);
}

static void refused(const char *text, const char *expected_code, const char *named) {
    assert_true(decode(text) < 0);
    assert_string_equal(code, expected_code);
    if (named && !strstr(err.text, named)) fail_msg("'%s' does not name %s", err.text, named);
}

// An archive travels as a JSON string, so its text is not changed.
static void files_in_and_out(void **state) {
    struct buf out;
    assert_int_equal(decode("{\"type\":\"session.export\",\"session\":\"a\"}"), 0);
    assert_int_equal(m.type, MESSAGE_REQUEST);
    assert_int_equal(m.request.kind, REQUEST_EXPORT);
    refused("{\"type\":\"session.export\"}", "bad_message", "session");
    assert_int_equal(decode("{\"type\":\"session.import\",\"archive\":\"{\\\"a\\\": 1e5 }\\n\"}"),
                     0);
    assert_int_equal(m.request.kind, REQUEST_IMPORT);
    assert_string_equal(m.request.import.archive, "{\"a\": 1e5 }\n");
    assert_int_equal(m.request.import.archive_len, 12);
    refused("{\"type\":\"session.import\"}", "bad_message", "archive");
    refused("{\"type\":\"session.import\",\"archive\":{}}", "bad_message", "archive");
    buf_init(&out, 1 << 16);
    struct session_answer a = {.kind = ANSWER_EXPORTED,
                               .request_id = "r",
                               .session_id = "s",
                               .first = true,
                               .archive = "{\"x\":1}rest",
                               .archive_len = 4};
    protocol_write_answer(&out, NULL, &a);
    a.first = false;
    a.last = true;
    a.archive += 4;
    a.archive_len = 3;
    protocol_write_answer(&out, NULL, &a);
    assert_string_equal(buf_z(&out), "{\"type\":\"session.exported\",\"request_id\":\"r\","
                                     "\"session\":\"s\",\"archive\":\"{\\\"x\\\":1}\"}");
    buf_reset(&out);
    a.archive_len = 0;
    a.code = "session_not_found";
    a.message = "it was deleted";
    protocol_write_answer(&out, NULL, &a);
    assert_string_equal(
        buf_z(&out),
        "\",\"error\":{\"code\":\"session_not_found\",\"message\":\"it was deleted\"}}");
    buf_release(&out);
}

static void a_list_in_pieces_is_one_message(void **state) {
    struct session_view v[3] = {{.rec.id = "a", .rec.model = "m", .below = -1},
                                {.rec.id = "b", .rec.model = "m", .below = -1},
                                {.rec.id = "c", .rec.model = "m", .below = -1}};
    struct session_answer a = {.kind = ANSWER_LIST,
                               .request_id = "r",
                               .sessions = v,
                               .n_sessions = 3,
                               .cursor = "1-2",
                               .first = true,
                               .last = true};
    struct buf whole, out;
    buf_init(&whole, 1 << 16);
    buf_init(&out, 1 << 16);
    protocol_write_answer(&whole, NULL, &a);
    a.n_sessions = 2;
    a.last = false;
    protocol_write_answer(&out, NULL, &a);
    a.first = false;
    a.n_sessions = 1;
    a.sessions = &v[2];
    protocol_write_answer(&out, NULL, &a);
    a.n_sessions = 0;
    a.last = true;
    protocol_write_answer(&out, NULL, &a);
    assert_string_equal(buf_z(&out), buf_z(&whole));
    buf_release(&whole);
    buf_release(&out);
}

static void every_type_with_its_keys(void **state) {
    assert_int_equal(decode("{\"type\":\"hello\",\"token\":\"t\"}"), 0);
    assert_int_equal(m.type, MESSAGE_HELLO);
    assert_string_equal(m.token, "t");
    assert_int_equal(decode("{\"type\":\"hello\"}"), 0);
    assert_null(m.token);
    assert_int_equal(decode("{\"type\":\"session.open\"}"), 0);
    assert_null(m.request.session);
    assert_int_equal(m.request.open.memory_len, 0);
    assert_int_equal(m.request.open.sink_len, -1);
    assert_int_equal(
        decode("{\"type\":\"session.open\",\"session\":\"a-B_9\",\"session_len\":100,\"memory_"
               "len\":50,"
               "\"sink_len\":0,\"system\":\"s\",\"title\":\"t\",\"model\":\"m\",\"sampling\":{}}"),
        0);
    assert_string_equal(m.request.session, "a-B_9");
    assert_int_equal(m.request.open.session_len, 100);
    assert_int_equal(m.request.open.sink_len, 0);
    assert_int_equal(m.request.sampling->set, 0);
    assert_int_equal(decode("{\"type\":\"session.attach\",\"session\":\"a\"}"), 0);
    assert_int_equal(m.request.after, -1);
    assert_int_equal(decode("{\"type\":\"session.attach\",\"session\":\"a\",\"after\":0}"), 0);
    assert_int_equal(m.request.after, 0);
    assert_int_equal(decode("{\"type\":\"session.get\",\"session\":\"a\",\"attach\":true}"), 0);
    assert_true(m.request.attach && m.request.last == 0 && m.request.before == -1);
    assert_int_equal(decode("{\"type\":\"session.get\",\"session\":\"a\",\"before\":0}"), 0);
    assert_true(!m.request.attach && m.request.before == 0);
    assert_int_equal(
        decode("{\"type\":\"session.list\",\"query\":\"q\",\"limit\":200,\"cursor\":\"c\"}"), 0);
    assert_int_equal(m.request.limit, 200);
    assert_int_equal(decode("{\"type\":\"session.update\",\"session\":\"a\",\"title\":\"\"}"), 0);
    assert_string_equal(m.request.title, "");
    assert_null(m.request.sampling);
    assert_null(m.request.folder);
    assert_int_equal(decode("{\"type\":\"session.update\",\"session\":\"a\",\"folder\":\"F\"}"), 0);
    assert_string_equal(m.request.folder, "F");
    assert_int_equal(decode("{\"type\":\"session.close\",\"session\":\"a\",\"delete\":true}"), 0);
    assert_true(m.request.close.delete_it);
    assert_int_equal(decode("{\"type\":\"session.open\",\"on_disconnect\":\"finish\"}"), 0);
    assert_int_equal(m.request.cancel_after_ms, 0);
    assert_int_equal(decode("{\"type\":\"session.update\",\"session\":\"a\",\"on_disconnect\":"
                            "{\"cancel_after_ms\":250}}"),
                     0);
    assert_int_equal(m.request.cancel_after_ms, 250);
    assert_int_equal(decode("{\"type\":\"session.update\",\"session\":\"a\"}"), 0);
    assert_int_equal(m.request.cancel_after_ms, -1);
    refused("{\"type\":\"session.open\",\"on_disconnect\":\"die\"}", "invalid", "on_disconnect");
    refused("{\"type\":\"session.open\",\"on_disconnect\":5}", "bad_message", "on_disconnect");
    refused("{\"type\":\"session.open\",\"on_disconnect\":{}}", "bad_message", "on_disconnect");
    refused("{\"type\":\"session.open\",\"on_disconnect\":{\"cancel_after_ms\":0}}", "invalid",
            "cancel_after_ms");
    assert_int_equal(decode("{\"type\":\"turn.cancel\",\"session\":\"a\"}"), 0);
    assert_int_equal(decode("{\"type\":\"turn.get\",\"session\":\"a\",\"turn\":4}"), 0);
    assert_int_equal(m.request.turn, 4);
    assert_int_equal(decode("{\"type\":\"turn.replay\",\"session\":\"a\",\"turn\":0}"), 0);
    refused("{\"type\":\"turn.replay\",\"session\":\"a\"}", "bad_message", "turn");
    refused("{\"type\":\"turn.get\",\"turn\":0}", "bad_message", "session");
    assert_int_equal(decode("{\"type\":\"session.events\",\"session\":\"a\",\"before\":9}"), 0);
    assert_int_equal(m.request.before, 9);
    refused("{\"type\":\"session.events\",\"session\":\"a\",\"last\":1001}", "invalid", "last");
    assert_int_equal(m.request.turn, TURN_HEAD);
    assert_int_equal(decode("{\"type\":\"sessions.watch\",\"request_id\":\"r\"}"), 0);
    assert_string_equal(m.request.request_id, "r");
    message_release(&m);
}

static void the_three_inputs(void **state) {
    assert_int_equal(decode("{\"type\":\"turn.start\",\"session\":\"a\",\"input\":{\"content\":"
                            "\"hi\"},\"queue\":true}"),
                     0);
    assert_int_equal(m.request.input.kind, INPUT_CONTENT);
    assert_int_equal(m.request.input.text_len, 2);
    assert_true(m.request.start.queue);
    assert_null(m.request.start.given); // no other kind's defaults
    assert_int_equal(m.request.start.n_expected, 0);
    struct request *copy = request_copy(&m.request);
    assert_string_equal(copy->session, m.request.session);
    assert_ptr_not_equal(copy->session, m.request.session);
    assert_true(copy->start.queue);
    request_free(copy);
    assert_int_equal(
        decode("{\"type\":\"turn.start\",\"session\":\"a\",\"input\":{\"text\":\"\"}}"), 0);
    assert_int_equal(m.request.input.kind, INPUT_TEXT);
    assert_int_equal(
        decode("{\"type\":\"turn.start\",\"session\":\"a\",\"input\":{\"ids\":[0,7,2147483647]}}"),
        0);
    assert_int_equal(m.request.input.n_ids, 3);
    assert_int_equal(m.request.input.ids[2], INT32_MAX);
    refused("{\"type\":\"turn.start\",\"session\":\"a\",\"input\":{\"ids\":[2147483648]}}",
            "invalid", "ids");
    refused("{\"type\":\"turn.start\",\"session\":\"a\",\"input\":{\"ids\":[1.5]}}", "invalid",
            "ids");
    refused("{\"type\":\"turn.start\",\"session\":\"a\",\"input\":{\"ids\":[null]}}", "bad_message",
            "ids");
    refused("{\"type\":\"turn.start\",\"session\":\"a\",\"input\":\"x\"}", "bad_message", "input");
    message_release(&m);
}

static void wrong_messages_are_named(void **state) {
    refused("{\"type\":\"ping\"", "bad_json", NULL);
    refused("7", "bad_message", "object");
    refused("{\"type\":\"no.such\"}", "unknown_type", "no.such");
    refused("{\"type\":\"session.attach\",\"session\":\"\"}", "invalid", "session");
    refused("{\"type\":\"session.attach\",\"session\":\"..\"}", "invalid", "session");
    refused("{\"type\":\"session.list\",\"limit\":201}", "invalid", "limit");
    refused("{\"type\":\"session.get\",\"session\":\"a\",\"before\":-1}", "invalid", "before");
    refused("{\"type\":\"session.get\",\"session\":\"a\",\"before\":3,\"attach\":true}",
            "bad_message", "before");
    refused("{\"type\":\"session.get\",\"session\":\"a\",\"before\":0,\"attach\":true}",
            "bad_message", "before");
    refused("{\"type\":\"session.list\",\"limit\":\"5\"}", "bad_message", "limit");
    refused("{\"type\":\"session.open\",\"memory_len\":0}", "invalid", "memory_len");
    refused("{\"type\":\"session.open\",\"session_len\":4294967297}", "invalid", "session_len");
    // The request_id is known even where the rest is wrong.
    refused("{\"request_id\":\"r\",\"type\":1}", "bad_message", "type");
    assert_string_equal(m.request.request_id, "r");
    message_release(&m);
}

// The decoder reads the sampling object itself: the parameters, and which of them were given.
static void sampling_is_read_by_the_decoder(void **state) {
    struct buf out;
    buf_init(&out, 4096);
    assert_int_equal(
        decode("{ \"x\" : {\"sampling\":{\"top_k\":1}} , \"y\":\"\\\"sampling\\\":{}\","
               "\"s\\u0061mpling\" : {\"seed\":\"18446744073709551615\",\"stop\":[\"}\"],"
               "\"logit_bias\":{\"1\":0.50},\"unknown\":1,\"top_k\":null} ,"
               "\"type\":\"session.open\"}"),
        0);
    const struct turn_sampling *given = m.request.sampling;
    assert_true(given->params.seed == UINT64_MAX && given->params.has_seed);
    assert_int_equal(sampling_json_write(&out, given, given->set), 0);
    assert_string_equal(buf_z(&out), "{\"seed\":\"18446744073709551615\",\"stop\":[\"}\"],"
                                     "\"logit_bias\":{\"1\":0.5}}");
    refused("{\"type\":\"session.open\",\"sampling\":[]}", "bad_message", "sampling");
    refused("{\"type\":\"session.open\",\"sampling\":{\"top_k\":-1}}", "invalid", "top_k");
    refused("{\"type\":\"session.open\",\"sampling\":{\"top_k\":\"x\"}}", "invalid", "top_k");
    refused("{\"type\":\"session.update\",\"session\":\"s\",\"sampling\":{\"temperature\":-2}}",
            "invalid", "temperature");
    refused("{\"type\":\"session.update\",\"session\":\"s\",\"folder\":7}", "bad_message",
            "folder");
    refused("{\"type\":\"session.open\",\"sampling\":{\"logit_bias\":{\"1000\":1}}}", "invalid",
            "1000"); // the model's number of tokens
    message_release(&m);
    buf_release(&out);
}

static char *written(struct buf *b) {
    return b->data ? b->data : (char *)"";
}

static void errors_and_small_messages(void **state) {
    struct buf b;
    buf_init(&b, 4096);
    protocol_write_error(&b, "overloaded", "no \"room\"", "r", "s", 250, NULL);
    assert_string_equal(
        written(&b),
        "{\"type\":\"error\",\"request_id\":\"r\",\"code\":\"overloaded\",\"message\":\"no "
        "\\\"room\\\"\",\"session\":\"s\",\"retry_after_ms\":250}");
    buf_reset(&b);
    struct err_facts facts = {.key = "input", .need = 24, .left = 0, .most = 23, .at_least = true};
    protocol_write_error(&b, "session_full", "no", "", NULL, 0, &facts);
    assert_string_equal(
        written(&b),
        "{\"type\":\"error\",\"code\":\"session_full\",\"message\":\"no\",\"key\":\"input\","
        "\"room\":{\"need\":24,\"at_least\":true,\"left\":0,\"most\":23}}");
    buf_reset(&b);
    protocol_write_plain(&b, "pong", "");
    assert_string_equal(written(&b), "{\"type\":\"pong\"}");
    buf_reset(&b);
    protocol_write_progress(&b, "s", 2, 512, 2048);
    assert_string_equal(
        written(&b),
        "{\"type\":\"turn.progress\",\"session\":\"s\",\"turn\":2,\"done\":512,\"total\":2048}");
    buf_reset(&b);
    struct session_view v = {.rec.id = "s"};
    protocol_write_changed(&b, &v, true);
    assert_string_equal(written(&b), "{\"type\":\"session.removed\",\"session\":\"s\"}");
    buf_release(&b);
}

static void a_dropped_message_is_glanced_at(void **state) {
    char id[SESSION_REQUEST_ID_MAX + 1], text[PROTOCOL_GLANCE_BYTES + 200];
    static const char *const none[] = {"", "{", "[1]", "{\"request_id\":7}", "{\"type\":\"ping\"}"};
    const char *good = "{\"type\":\"ping\",\"request_id\":\"r1\"}";
    message_glance(good, strlen(good), id);
    assert_string_equal(id, "r1");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        message_glance(none[i], strlen(none[i]), id);
        assert_string_equal(id, "");
    }
    int n = snprintf(text, sizeof text, "{\"request_id\":\"%0*d\"}", SESSION_REQUEST_ID_MAX + 1, 0);
    message_glance(text, (size_t)n, id);
    assert_string_equal(id, "");
    n = snprintf(text, sizeof text, "{\"request_id\":\"r\",\"x\":\"%0*d\"}", PROTOCOL_GLANCE_BYTES,
                 0);
    message_glance(text, (size_t)n, id); // too long to be looked at
    assert_string_equal(id, "");
}

static void a_turn_that_waits(void **state) {
    struct buf b;
    buf_init(&b, 4096);
    struct session_event ev = {.kind = EVENT_QUEUED, .seq = 4, .first_seq = 4};
    ev.turn.turn = 1;
    ev.turn.parent = 0;
    ev.turn.input = (struct turn_input){.kind = INPUT_CONTENT, .text = "hi", .text_len = 2};
    protocol_write_event(&b, NULL, &ev, "s", NULL);
    assert_string_equal(written(&b), "{\"type\":\"turn.queued\",\"session\":\"s\",\"seq\":4,"
                                     "\"turn\":1,\"parent\":0,\"input\":{\"content\":\"hi\"}}");
    buf_reset(&b);
    ev.turn.parent = TURN_NONE;
    ev.turn.input = (struct turn_input){.kind = INPUT_CONTINUE};
    protocol_write_event(&b, NULL, &ev, "s", NULL);
    assert_string_equal(written(&b), "{\"type\":\"turn.queued\",\"session\":\"s\",\"seq\":4,"
                                     "\"turn\":1,\"parent\":null,\"input\":{\"continue\":true}}");
    buf_release(&b);
}

static void a_rewind(void **state) {
    struct buf b;
    buf_init(&b, 4096);
    struct session_view v = {
        .rec.id = "s", .rec.model = "m", .turn = -1, .rec.head = 4, .rec.forked_from = "t"};
    v.rec.seq = v.rec.forked_turn = 3;
    v.below = 1;
    struct session_event ev = {.kind = EVENT_REWOUND, .seq = 3, .first_seq = 3, .session = v};
    ev.head = 4;
    protocol_write_event(&b, NULL, &ev, "s", NULL);
    assert_non_null(strstr(written(&b), "{\"type\":\"session.rewound\",\"session\":{\"id\":\"s\""));
    assert_non_null(strstr(written(&b), "\"turn\":null,\"head\":4,\"below\":true,\"forked_from\":"
                                        "{\"session\":\"t\",\"turn\":3}},\"seq\":3,\"head\":4}"));
    buf_reset(&b);
    v.rec.head = TURN_NONE;
    v.below = 0;
    v.rec.forked_from = NULL;
    struct session_answer a = {.kind = ANSWER_REWOUND, .request_id = "r", .session = v};
    protocol_write_answer(&b, NULL, &a); // the head was there already: no event, no number
    assert_non_null(
        strstr(written(&b), "\"head\":null,\"below\":false,\"forked_from\":null},\"head\":null}"));
    a.seq = 3;
    buf_reset(&b);
    protocol_write_answer(&b, NULL, &a);
    assert_non_null(strstr(written(&b), "},\"seq\":3,\"head\":null}"));
    buf_release(&b);
}

// decoded: the turn that was read from the message.
static int64_t decode_turn(const char *text, int64_t after) {
    struct message got;
    struct err why = {0};
    const char *says;
    if (message_decode(&got, text, strlen(text), &json_limits_message, 1000, &says, &why) < 0)
        fail_msg("%s: %s", text, why.text);
    int64_t turn = got.request.turn;
    if (after != TURN_HEAD) assert_int_equal(got.request.input.kind, INPUT_CONTINUE);
    message_release(&got);
    return turn;
}

static void where_a_message_branches(void **state) {
#define SAY(type, rest) "{\"type\":\"" type "\",\"session\":\"s\"" rest "}"
    assert_int_equal(decode_turn(SAY("session.rewind", ",\"turn\":null"), TURN_HEAD), TURN_NONE);
    assert_int_equal(decode_turn(SAY("session.rewind", ",\"turn\":7"), TURN_HEAD), 7);
    assert_int_equal(decode_turn(SAY("session.fork", ""), TURN_HEAD), TURN_HEAD);
    assert_int_equal(decode_turn(SAY("session.fork", ",\"turn\":null"), TURN_HEAD), TURN_NONE);
    assert_int_equal(decode_turn(SAY("turn.regenerate", ""), TURN_HEAD), TURN_HEAD);
    assert_int_equal(decode_turn(SAY("turn.regenerate", ",\"turn\":2"), TURN_HEAD), 2);
    assert_int_equal(decode_turn(SAY("turn.start", ",\"input\":{\"content\":\"x\"}"), TURN_HEAD),
                     TURN_HEAD);
    assert_int_equal(
        decode_turn(SAY("turn.start", ",\"after\":null,\"input\":{\"continue\":true}"), 0),
        TURN_NONE);
    static const struct {
        const char *text, *code;
    } bad[] = {
        {SAY("session.rewind", ""), "bad_message"},
        {SAY("session.rewind", ",\"turn\":-1"), "invalid"},
        {SAY("session.rewind", ",\"turn\":\"2\""), "bad_message"},
        {SAY("session.rewind", ",\"turn\":1,\"leaf\":1"), "bad_message"},
        {SAY("turn.regenerate", ",\"turn\":null"), "bad_message"},
        {SAY("turn.start", ",\"input\":{\"continue\":false}"), "bad_message"},
        {SAY("turn.start", ",\"input\":{\"continue\":true,\"text\":\"x\"}"), "bad_message"},
        {SAY("turn.start", ",\"input\":{\"continue\":1}"), "bad_message"},
        {SAY("session.fork", ",\"new_session\":\"a b\""), "invalid"},
        {SAY("session.fork", ",\"title\":7"), "bad_message"},
        {"{\"type\":\"session.fork\"}", "bad_message"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct message got;
        struct err why = {0};
        const char *says;
        int rc = message_decode(&got, bad[i].text, strlen(bad[i].text), &json_limits_message, 1000,
                                &says, &why);
        if (rc >= 0 || strcmp(says, bad[i].code)) fail_msg("%s: %d %s", bad[i].text, rc, says);
        message_release(&got);
    }
}

static void a_delta(void **state) {
    struct buf b;
    buf_init(&b, 4096);
    int32_t ids[] = {311, 7};
    float logprobs[] = {-0.5f, -1.25f};
    struct session_event ev = {.kind = EVENT_DELTA,
                               .seq = 12,
                               .first_seq = 11,
                               .delta_turn = 2,
                               .text = "a\n",
                               .text_len = 2,
                               .ids = ids,
                               .n_ids = 2};
    protocol_write_event(&b, NULL, &ev, "s", NULL);
    assert_string_equal(written(&b), "{\"type\":\"turn.delta\",\"session\":\"s\",\"seq\":12,"
                                     "\"first_seq\":11,\"turn\":2,\"text\":\"a\\n\","
                                     "\"ids\":[311,7]}");
    buf_reset(&b);
    ev.logprobs = logprobs;
    protocol_write_event(&b, NULL, &ev, "s", NULL);
    assert_non_null(strstr(written(&b), "\"logprobs\":[-0.5,-1.25]}"));
    buf_release(&b);
}

static void the_end_of_a_turn(void **state) {
    struct buf b;
    buf_init(&b, 4096);
    struct session_event ev = {.kind = EVENT_DONE, .seq = 9, .first_seq = 9};
    ev.turn = (struct turn_view){.turn = 1,
                                 .finish_reason = "eos",
                                 .text = "!",
                                 .text_len = 1,
                                 .numbers = {.input_tokens = 14,
                                             .output_tokens = 9,
                                             .log_tokens = 435,
                                             .kept_tokens = 411,
                                             .computed_tokens = 15,
                                             .queue_us = 100,
                                             .prefill_us = 4200,
                                             .first_token_us = 5000,
                                             .decode_us = 8000,
                                             .paused_us = 2500,
                                             .source = CACHE_KEPT}};
    protocol_write_event(&b, NULL, &ev, "s", NULL);
    assert_string_equal(written(&b),
                        "{\"type\":\"turn.done\",\"session\":\"s\",\"seq\":9,\"turn\":1,\"finish_"
                        "reason\":\"eos\",\"text\":\"!\",\"usage\":{\"input_tokens\":14,"
                        "\"output_tokens\":9,\"log_tokens\":435},\"timings\":{\"queue_ms\":0.1,"
                        "\"prefill_ms\":4.2,\"first_token_ms\":5,"
                        "\"decode_ms\":8,\"paused_ms\":2.5,\"tokens_per_second\":1000},"
                        "\"cache\":{\"source\":"
                        "\"kept\",\"kept_tokens\":411,\"computed_tokens\":15,\"resume_ms\":0}}");
    buf_reset(&b);
    ev.turn.error_code = "internal";
    ev.turn.error_message = "why";
    ev.turn.text_len = 0;
    protocol_write_event(&b, NULL, &ev, "s", NULL);
    assert_non_null(strstr(written(&b), "\"error\":{\"code\":\"internal\",\"message\":\"why\"}}"));
    assert_null(strstr(written(&b), "\"text\""));
    buf_release(&b);
}

// An answer too long for the buffer leaves out its oldest turns and says so.
static void a_state_that_does_not_fit(void **state) {
    struct buf b;
    struct turn_view turns[64];
    char *text = malloc(1001);
    memset(text, 'x', 1000);
    text[1000] = '\0';
    for (int i = 0; i < 64; i++)
        turns[i] = (struct turn_view){.turn = i,
                                      .state = TURN_DONE,
                                      .text = text,
                                      .text_len = 1000,
                                      .input = {.text = "", .kind = INPUT_TEXT}};
    struct session_answer a = {.kind = ANSWER_STATE,
                               .request_id = "r",
                               .session_id = "s",
                               .session = {.rec.id = "s"},
                               .before = -1,
                               .turns = turns,
                               .n_turns = 64};
    buf_init(&b, 1 << 20);
    protocol_write_answer(&b, NULL, &a);
    cJSON *json = json_parse(b.data, b.len, &json_limits_message, &err);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "turns")), 64);
    assert_false(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "more")));
    cJSON_Delete(json);
    buf_release(&b);
    buf_init(&b, 30000);
    protocol_write_answer(&b, NULL, &a);
    assert_int_equal(b.error, 0);
    json = json_parse(b.data, b.len, &json_limits_message, &err);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "turns");
    int n = cJSON_GetArraySize(list);
    assert_true(n > 5 && n < 30);
    int64_t last;
    json_get_int(cJSON_GetArrayItem(list, n - 1), "turn", 0, 100, &last, &err);
    assert_int_equal(last, 63);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "more")));
    cJSON_Delete(json);
    buf_release(&b);
    free(text);
}

// Joins the pieces of an answer to one message. before_end: an error replaces that piece.
static cJSON *join_pieces(struct session_answer *a, int before_end, int *n_pieces) {
    struct answer_position at = {0};
    struct buf all, piece;
    buf_init(&all, 1 << 24);
    buf_init(&piece, 1 << 24);
    a->position = &at;
    *n_pieces = 0;
    do {
        a->first = !at.more;
        at.more = false;
        a->code = *n_pieces == before_end ? "session_not_found" : NULL;
        a->message = a->code;
        buf_reset(&piece);
        protocol_write_answer(&piece, NULL, a);
        assert_int_equal(piece.error, 0);
        assert_in_range(piece.len, 1, 3 * PROTOCOL_PIECE_BYTES);
        buf_add(&all, piece.data, piece.len);
        ++*n_pieces;
    } while (at.more);
    struct err e = {0};
    cJSON *json = json_parse(all.data, all.len, &json_limits_file, &e);
    if (!json) fail_msg("%s: ...%s", e.text, all.data + (all.len < 200 ? 0 : all.len - 200));
    buf_release(&piece);
    buf_release(&all);
    return json;
}

// 20,000 tokens with an alternative each, and texts of 300 KB.
static void a_record_in_pieces_is_one_message(void **state) {
    enum { N = 20000, TEXT = 300000 };
    struct turn_record rec = {.n_alternatives = 1, .log_first = 0, .n_input_ids = N};
    int32_t *ids = malloc(N * sizeof *ids); // -1: no model is here to give ids their text
    float *logprobs = calloc(N, sizeof *logprobs);
    struct engine_alternative *top = malloc(N * sizeof *top);
    char *text = malloc(TEXT + 1);
    for (int i = 0; i < N; i++) ids[i] = top[i].id = -1;
    for (int i = 0; i < TEXT; i++) text[i] = "\xc3\xbc\"x"[i % 4];
    text[TEXT] = '\0';
    rec.input_ids = ids;
    struct turn_detail d = {.turn = {.state = TURN_DONE,
                                     .input = {.kind = INPUT_TEXT, .text = text, .text_len = TEXT},
                                     .text = text,
                                     .text_len = TEXT,
                                     .finish_reason = "eos"},
                            .rec = &rec,
                            .ids = ids,
                            .logprobs = logprobs,
                            .n_ids = N,
                            .alternatives = top};
    struct session_answer a = {
        .kind = ANSWER_TURN, .request_id = "r", .session_id = "s", .detail = &d};
    int n = 0, short_n;
    cJSON *json = join_pieces(&a, -1, &n);
    assert_in_range(n, 20, 60);
    const cJSON *turn = cJSON_GetObjectItemCaseSensitive(json, "turn");
    const char *got = NULL;
    json_get_string(cJSON_GetObjectItemCaseSensitive(turn, "input"), "text", &got, &err);
    assert_string_equal(got, text);
    json_get_string(turn, "text", &got, &err);
    assert_string_equal(got, text);
    static const char *const arrays[] = {"input_ids", "input_tokens", "tokens"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, arrays[i])), N);
    cJSON_Delete(json);
    for (int i = 1; i < n; i++) { // the record is freed before the last piece
        json = join_pieces(&a, i, &short_n);
        assert_int_equal(short_n, i + 1);
        json_get_string(cJSON_GetObjectItemCaseSensitive(json, "error"), "code", &got, &err);
        assert_string_equal(got, "session_not_found");
        cJSON_Delete(json);
    }
    free(ids);
    free(logprobs);
    free(top);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_with_its_keys),
        cmocka_unit_test(files_in_and_out),
        cmocka_unit_test(a_list_in_pieces_is_one_message),
        cmocka_unit_test(the_three_inputs),
        cmocka_unit_test(wrong_messages_are_named),
        cmocka_unit_test(sampling_is_read_by_the_decoder),
        cmocka_unit_test(errors_and_small_messages),
        cmocka_unit_test(a_dropped_message_is_glanced_at),
        cmocka_unit_test(a_turn_that_waits),
        cmocka_unit_test(a_rewind),
        cmocka_unit_test(where_a_message_branches),
        cmocka_unit_test(a_delta),
        cmocka_unit_test(a_record_in_pieces_is_one_message),
        cmocka_unit_test(the_end_of_a_turn),
        cmocka_unit_test(a_state_that_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
