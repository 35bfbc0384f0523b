// The rules of sessions/README.md that concern turns: what enters the log, idempotence, the queue,
// refusals, cancelling, ends, and what a restart finds.
#include "sessions/requests/settle.h"
#include "tests/unit/sessions_fixture.h"

static void the_log_is_what_the_template_made_of_each_turn(void **state) {
    fx_setup_memory();
    struct request r = fx_request(1, "x");
    struct ask_open o = {.id = "s", .sink_len = -1, .system = "S"};
    fx_follower(1, "s");
    ask_open(fx.ss, &r, &o);
    fx_settle();
    // Raw text first: the system prompt comes with the first chat turn all the same
    fx_start_text(1, "s", "ab");
    fx_run();
    fx_turn(1, "s", "U");
    fx_turn(1, "s", "V");
    const struct session *s = fx_session("s");
    const struct turn_record *t1 = &s->turns[1]->rec, *t2 = &s->turns[2]->rec;
    const int32_t first[] = {2, 3, 100 + 'S', 2, 4, 100 + 'U', 2, 5},
                  second[] = {2, 4, 100 + 'V', 2, 5};
    assert_int_equal(s->log[0], 100 + 'a');
    assert_int_equal(t1->log_first, 8);
    assert_int_equal(t1->n_input, 8);
    assert_memory_equal(s->log + t1->log_first, first, sizeof first);
    assert_memory_equal(s->log + t2->log_first, second, sizeof second);
    // Each generated token follows from the log before it: what the client saw is what is in the
    // log.
    const struct seen_turn *seen = &fx_follower(1, "s")->turns[2];
    int64_t at = t2->log_first + t2->n_input;
    for (size_t i = 0; i < seen->n_ids; i++) {
        assert_int_equal(seen->ids[i], s->log[at + (int64_t)i]);
        assert_int_equal(seen->ids[i],
                         fake_token(s->log[at + (int64_t)i - 1], at + (int64_t)i, t2->seed));
    }
    // The whole log goes to the engine
    assert_int_equal(fake.last_n_ids, t2->log_first + t2->n_input);
    assert_int_equal(seen->numbers.kept_tokens, 21);    // all but the pending token
    assert_int_equal(seen->numbers.computed_tokens, 6); // that one and the input
    fx_teardown();
}

static void seeds_are_drawn_and_recorded(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_turn(1, "s", "a");
    fx_turn(1, "s", "a");
    fx_start_with(1, "s", "a", "{\"seed\":\"12345678901234567890\"}", false, NULL);
    fx_run();
    struct follower *f = fx_follower(1, "s");
    assert_true(f->turns[0].seed != f->turns[1].seed);
    assert_true(f->turns[2].seed == 12345678901234567890u);
    assert_non_null(
        strstr(fx_session("s")->turns[2]->rec.sampling, "\"seed\":\"12345678901234567890\""));
    assert_non_null(strstr(fx_session("s")->turns[0]->rec.sampling, "\"temperature\":1"));
    fx_teardown();
}

static void a_turns_sampling_goes_over_the_sessions(void **state) {
    fx_setup_memory();
    struct request r = fx_request(1, "x");
    struct ask_open o = {.id = "s", .sink_len = -1, .sampling = "{\"top_k\":7,\"min_p\":0.5}"};
    fx_follower(1, "s");
    ask_open(fx.ss, &r, &o);
    fx_settle();
    fx_start_with(1, "s", "a", "{\"top_k\":9}", false, NULL);
    fx_run();
    struct turn_sampling t = {0};
    assert_int_equal(
        sampling_json_apply(&t, fx_session("s")->turns[0]->rec.sampling, FAKE_VOCAB, NULL), 0);
    assert_int_equal(t.params.top_k, 9);
    assert_true(t.params.min_p == 0.5f && t.params.temperature == 1);
    fx_teardown();
}

static void starting_again_is_the_same_turn(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_start_with(1, "s", "hello", NULL, false, "r");
    fx_start_with(2, "s", "hello", NULL, false, "r"); // before the first has been committed
    fx_settle();
    assert_int_equal(fx.n_answers, 2);
    fx_step();
    fx_start_with(3, "s", "hello", NULL, false, "r"); // while it runs
    fx_run();
    fx_start_with(3, "s", "other words", NULL, false, "r"); // after it
    fx_settle();
    assert_int_equal(fx.n_answers, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fx.answers[i].kind, ANSWER_ACCEPTED);
        assert_int_equal(fx.answers[i].turn, 0);
    }
    assert_int_equal(fake.n_submitted, 1);
    fx_restart();
    fx_start_with(1, "s", "hello", NULL, false, "r");
    fx_settle();
    assert_int_equal(fx_last_answer()->kind, ANSWER_ACCEPTED);
    assert_int_equal(fake.n_submitted, 0);
    for (int i = 0; i < 64; i++) fx_turn(1, "s", "x"); // the request_id is forgotten after 64 turns
    fx_start_with(1, "s", "hello", NULL, false, "r");
    fx_settle();
    assert_int_equal(fx_last_answer()->turn, 65);
    fx_run();
    fx_teardown();
}

static void one_turn_at_a_time_others_wait_if_asked(void **state) {
    char id[16];
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_start_with(1, "s", "0", NULL, false, NULL);
    fx_start_with(1, "s", "x", NULL, false, "busy");
    fx_settle();
    assert_string_equal(fx_answer_to("busy")->code, "session_busy");
    for (int i = 1; i <= 4; i++) {
        snprintf(id, sizeof id, "%d", i);
        fx_start_with(1, "s", id, NULL, true, NULL);
    }
    fx_settle();
    fx_start_with(1, "s", "5", NULL, true, NULL);
    fx_settle();
    fx_expect_error("session_busy");
    struct follower *f = fx_follower(1, "s");
    assert_int_equal(f->count[EVENT_QUEUED], 4);
    assert_int_equal(f->count[EVENT_STARTED], 1);
    assert_int_equal(sessions_n_running(fx.ss), 5);
    fx_run();
    assert_int_equal(f->count[EVENT_DONE], 5);
    const struct session *s = fx_session("s");
    for (int i = 1; i < 5; i++)
        assert_true(s->turns[i]->rec.log_first > s->turns[i - 1]->rec.log_first);
    assert_int_equal(f->turns[4].numbers.source, CACHE_KEPT);
    fx_teardown();
}

static void a_full_session_refuses_with_the_numbers(void **state) {
    char text[400];
    fx_setup_memory();
    struct request r = fx_request(1, "x");
    struct ask_open o = {.id = "s", .sink_len = -1, .session_len = 40};
    fx_follower(1, "s");
    ask_open(fx.ss, &r, &o);
    fx_settle();
    fx_turn(1, "s", "hello"); // 8 + 6
    memset(text, 'x', 25), text[25] = 0;
    int64_t seq = fx_follower(1, "s")->last;
    fx_start(1, "s", text); // 25 + 4 would make 43
    fx_settle();
    fx_expect_error("session_full");
    assert_non_null(strstr(fx_last_answer()->message, "25 left"));
    assert_non_null(strstr(fx_last_answer()->message, "29"));
    assert_int_equal(fx_session("s")->n_log, 14);
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    assert_int_equal(fx_follower(1, "s")->last, seq);
    fx_start_with(1, "s", "y", "{\"max_tokens\":100}", false, NULL); // 19: room for 21
    fx_start_with(1, "s", "x", NULL, true, NULL); // fits now, but no longer when its time comes
    fx_run();
    struct follower *f = fx_follower(1, "s");
    assert_string_equal(f->turns[1].finish, "length");
    assert_int_equal(f->turns[1].n_ids, 21);
    assert_string_equal(f->turns[2].finish, "error");
    assert_string_equal(f->turns[2].error, "session_full");
    assert_int_equal(fx_session("s")->n_log, 40);
    fx_teardown();
}

static void bad_inputs_are_refused(void **state) {
    const int32_t bad_ids[] = {5, FAKE_VOCAB}, negative[] = {-1}, good[] = {5, 6};
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_start(1, "s", "");
    fx_settle();
    fx_expect_error("invalid");
    fx_start_ids(1, "s", bad_ids, 2);
    fx_settle();
    fx_expect_error("invalid");
    fx_start_ids(1, "s", negative, 1);
    fx_settle();
    fx_expect_error("invalid");
    fx_start_ids(1, "s", good, 0);
    fx_settle();
    fx_expect_error("invalid");
    struct request r = fx_request(1, NULL);
    struct turn_input nul = {.kind = INPUT_CONTENT, .text = "a\0b", .text_len = 3};
    ask_start(fx.ss, &r, "s", TURN_HEAD, &nul, NULL, false);
    fx_settle();
    fx_expect_error("invalid");
    fake.info.chat_template = NULL;
    fake.info.template_error = "no template fits";
    fx_start(1, "s", "a");
    fx_settle();
    fx_expect_error("unsupported");
    assert_string_equal(fx_last_answer()->message, "no template fits");
    fake.info.tokenizer = NULL;
    fx_start_text(1, "s", "a");
    fx_settle();
    fx_expect_error("unsupported");
    assert_int_equal(fx_follower(1, "s")->last, 1);
    assert_int_equal(sessions_n_running(fx.ss), 0);
    fx_start_ids(1, "s", good, 2); // ids need neither
    fx_run();
    assert_int_equal(fx_follower(1, "s")->turns[0].n_ids, 6);
    fake.info.fingerprint = "f-2";
    fx.ss->placement.models_version++; // as when models come and go
    fx_start_ids(1, "s", good, 2);
    fx_settle();
    fx_expect_error("unsupported"); // its ids mean other texts in that model
    fx_teardown();
}

// A token reaches clients without a look at what only a change of state concerns.
static void tokens_settle_tokens(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_start(1, "s", "a");
    fx_settle();
    struct session *s = fx_session("s");
    s->marks |= MARK_WATCHERS;
    service_enter(fx.ss);
    service_touch_tokens(s);
    service_leave(fx.ss);
    assert_true(s->marks & MARK_WATCHERS);
    assert_null(fx.ss->touched);
    service_enter(fx.ss);
    service_touch(s);
    service_touch_tokens(s); // a state that has changed is not forgotten
    service_leave(fx.ss);
    assert_false(s->marks & MARK_WATCHERS);
    fx_run();
    fx_teardown();
}

static void a_full_engine_is_asked_again_or_says_when(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fake.submit_rc = E_BUSY;
    fake.retry_us = 1230001; // the engine's time, rounded up to milliseconds
    fx_start(1, "s", "a");
    fx_settle();
    fx_expect_error("overloaded");
    assert_int_equal(fx_last_answer()->retry_after_ms, 1231);
    assert_int_equal(fx_follower(1, "s")->last, 1);
    assert_int_equal(fx_session("s")->n_log, 0);
    fake.submit_rc = 0;
    fx_start(1, "s", "a");
    fx_start_with(1, "s", "b", NULL, true, NULL);
    fx_settle();
    fake.submit_rc = E_BUSY;
    for (int i = 0; i < 10; i++) fx_step();
    struct follower *f = fx_follower(1, "s");
    assert_true(f->turns[0].done && !f->turns[1].started);
    fake.submit_rc = 0;
    assert_in_range(sessions_poll(fx.ss), 1, 1000000);
    fx_advance(1000000);
    assert_true(f->turns[1].started);
    fx_run();
    fake.submit_rc = E_NOMEM; // never fits
    fx_start(1, "s", "a");
    fx_settle();
    fx_expect_error("invalid");
    fx_teardown();
}

// By the clock alone it would start after ROOM_RETRY_US, and the clock stands still here.
static void a_turn_without_room_starts_when_another_turn_ends(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_open_session(1, "t");
    fx_advance(1);
    fx_start_with(1, "t", "a", "{\"max_tokens\":100}", false, NULL);
    fx_start(1, "s", "a");
    fx_start_with(1, "s", "b", NULL, true, NULL);
    fx_settle();
    fake.submit_rc = E_BUSY;
    struct follower *s = fx_follower(1, "s"), *t = fx_follower(1, "t");
    for (int i = 0; i < 10; i++) fx_step();
    assert_true(s->turns[0].done && !s->turns[1].started && !t->turns[0].done);
    fake.submit_rc = 0;
    fx_step();
    assert_false(s->turns[1].started); // no place has become free
    fx_cancel(1, "t", -1);
    for (int i = 0; i < 3; i++) fx_step();
    assert_true(t->turns[0].done);
    assert_true(s->turns[1].started);
    fx_run();
    fx_teardown();
}

static void cancelling(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_cancel(1, "s", -1); // nothing runs: fine
    assert_int_equal(fx_last_answer()->kind, ANSWER_CANCELLING);
    fx_start_with(1, "s", "a", "{\"max_tokens\":100}", false, NULL);
    fx_start_with(1, "s", "b", NULL, true, NULL);
    fx_start_with(1, "s", "c", NULL, true, NULL);
    fx_start_with(1, "s", "d", NULL, true, NULL);
    fx_settle();
    fx_step(), fx_step(), fx_step();
    fx_cancel(1, "s", 2);
    struct follower *f = fx_follower(1, "s");
    assert_string_equal(f->turns[2].finish, "cancelled");
    assert_false(f->turns[0].done);
    fx_cancel(1, "s", 0);
    fx_step();
    assert_string_equal(f->turns[0].finish, "cancelled");
    assert_int_equal(f->turns[0].n_ids, 2);
    fx_step();
    assert_true(f->turns[1].started);
    fx_cancel(2, "s", -1);
    fx_run();
    assert_string_equal(f->turns[1].finish, "cancelled");
    assert_string_equal(f->turns[3].finish, "cancelled");
    assert_int_equal(fx_session("s")->turns[3]->rec.log_first, -1);
    fx_turn(1, "s", "e");
    assert_string_equal(f->turns[4].finish, "eos");
    assert_int_equal(f->turns[4].numbers.source, CACHE_KEPT);
    fx_start(1, "s", "f");
    // Cancelled before its first step: the cache and the idle clock stay as they were
    fx_cancel(1, "s", -1);
    fx_run();
    assert_string_equal(f->turns[5].finish, "cancelled");
    assert_int_equal(fx_get(1, "s")->state, SESSION_IDLE);
    fx_advance(61000000);
    assert_int_equal(f->count[EVENT_EVICTED], 1);
    fx_teardown();
}

static void an_engines_error_ends_the_turn_alone(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fake.fail_after = 3;
    fx_turn(1, "s", "a");
    struct follower *f = fx_follower(1, "s");
    assert_string_equal(f->turns[0].finish, "error");
    assert_string_equal(f->turns[0].error, "internal");
    assert_int_equal(f->turns[0].n_ids, 3);
    assert_string_equal(fx_session("s")->turns[0]->rec.error_message, "the fake device failed");
    fake.fail_after = 0;
    fx_turn(1, "s", "b");
    assert_string_equal(f->turns[1].finish, "eos");
    fx_restart();
    fx_attach(1, "s", 0);
    assert_string_equal(fx_follower(1, "s")->turns[0].error, "internal");
    fx_teardown();
}

static void state_and_events_fit_together(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_start_with(1, "s", "hello", "{\"max_tokens\":50,\"top_logprobs\":3}", false, NULL);
    for (int i = 0; i < 20; i++) {
        fx_step();
        struct request r = fx_request(2, "get");
        fx_forget_clients();
        ask_get(fx.ss, &r, "s", true, 0, -1);
        const struct seen_answer *a = fx_answer_to("get");
        assert_int_equal(a->turns[0].state, TURN_RUNNING);
        struct follower *f = fx_follower(2, "s");
        f->last = a->seq;
        strcpy(f->turns[0].text, a->turns[0].text);
        f->turns[0].text_len = strlen(f->turns[0].text);
        if (i == 10) break;
    }
    fx_run();
    struct follower *f = fx_follower(2, "s");
    assert_string_equal(f->turns[0].text, fx_get(1, "s")->turns[0].text);
    assert_int_equal(f->turns[0].numbers.output_tokens, 50);
    fx_teardown();
}

static void long_prefills_say_how_far_they_are(void **state) {
    char text[200];
    fx_setup_memory();
    fx_open_session(1, "s");
    memset(text, 'x', 199), text[199] = 0;
    fx_turn(1, "s", text);
    assert_int_equal(fx.n_progress, 1);
    fx_teardown();
}

static void draining_lets_what_runs_end(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_start(1, "s", "a");
    fx_start_with(1, "s", "b", NULL, true, NULL);
    fx_settle();
    sessions_drain(fx.ss);
    fx_start_with(1, "s", "c", NULL, true, NULL);
    fx_settle();
    fx_expect_error("shutting_down");
    fx_open_session(1, "t");
    fx_expect_error("shutting_down");
    fx_run();
    assert_true(fx_follower(1, "s")->turns[1].done);
    assert_int_equal(sessions_n_running(fx.ss), 0);
    fx_teardown();
}

// Between a turn's end and its commit nothing runs, but the client has not been told: too early to
// hang up.
static void settled_means_that_the_end_has_been_told(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    assert_true(sessions_settled(fx.ss));
    fx_start(1, "s", "a");
    fx_settle();
    assert_false(sessions_settled(fx.ss));
    while (sessions_n_running(fx.ss)) {
        fake_step();
        sessions_poll(fx.ss);
    }
    assert_false(sessions_settled(fx.ss));
    fx_settle();
    assert_true(sessions_settled(fx.ss));
    assert_true(fx_follower(1, "s")->turns[0].done);
    fx_teardown();
}

static void closing_the_service_interrupts_and_keeps(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_start_with(1, "s", "hello", "{\"max_tokens\":50}", false, NULL);
    fx_start_with(1, "s", "waits", NULL, true, NULL);
    fx_settle();
    for (int i = 0; i < 11; i++) fx_step();
    fake_step(); // one more token that the service has not been told of yet
    struct seen_turn before = fx_follower(1, "s")->turns[0];
    int64_t last = fx_follower(1, "s")->last;
    fx_restart();
    fx_attach(1, "s", 0);
    struct follower *f = fx_follower(1, "s");
    assert_string_equal(f->turns[0].finish, "interrupted");
    assert_string_equal(f->turns[1].finish, "interrupted");
    assert_int_equal(f->turns[0].n_ids, before.n_ids + 1);
    assert_memory_equal(f->turns[0].ids, before.ids, before.n_ids * sizeof(int32_t));
    assert_int_equal(f->last, last + 3); // the token and two ends: nothing was lost
    assert_int_equal(f->n_lost, 0);
    fx_turn(1, "s", "go on");
    assert_string_equal(f->turns[2].finish, "eos");
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_is_what_the_template_made_of_each_turn),
        cmocka_unit_test(seeds_are_drawn_and_recorded),
        cmocka_unit_test(a_turns_sampling_goes_over_the_sessions),
        cmocka_unit_test(starting_again_is_the_same_turn),
        cmocka_unit_test(one_turn_at_a_time_others_wait_if_asked),
        cmocka_unit_test(a_full_session_refuses_with_the_numbers),
        cmocka_unit_test(bad_inputs_are_refused),
        cmocka_unit_test(tokens_settle_tokens),
        cmocka_unit_test(a_full_engine_is_asked_again_or_says_when),
        cmocka_unit_test(a_turn_without_room_starts_when_another_turn_ends),
        cmocka_unit_test(cancelling),
        cmocka_unit_test(an_engines_error_ends_the_turn_alone),
        cmocka_unit_test(state_and_events_fit_together),
        cmocka_unit_test(long_prefills_say_how_far_they_are),
        cmocka_unit_test(draining_lets_what_runs_end),
        cmocka_unit_test(settled_means_that_the_end_has_been_told),
        cmocka_unit_test(closing_the_service_interrupts_and_keeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
