// The rules of sessions/README.md that concern sessions: opening, attaching, titles, answers,
// lists. Eviction is in test_sessions_states.c, the end in test_sessions_close.c, turns in
// test_sessions_turns.c, a failing disk and crashes in test_sessions_faults.c.
#include "tests/unit/sessions_fixture.h"

static void opening_gives_seq_one_and_attaches(void **state) {
    fx_setup_memory();
    fx_open_session(1, "abc_-9");
    struct follower *f = fx_follower(1, "abc_-9");
    assert_int_equal(f->count[EVENT_OPENED], 1);
    assert_int_equal(f->last, 1);
    assert_string_equal(f->last_request_id, "open");
    assert_int_equal(fx.n_answers, 0); // the event is the answer
    assert_true(fx.n_changed >= 1);
    fx_open_session(2, "abc_-9");
    fx_expect_error("session_exists");
    fx_teardown();
}

static void drawn_ids_are_long_and_different(void **state) {
    fx_setup_memory();
    struct request r = fx_request(1, "x");
    struct ask_open o = {.sink_len = -1, .title = "T", .system = "S", .sampling = "{\"top_k\":2}"};
    ask_open(fx.ss, &r, &o);
    ask_open(fx.ss, &r, &o);
    fx_settle();
    const struct seen_answer *a = fx_list(NULL, 0, NULL);
    assert_int_equal(a->n_sessions, 2);
    assert_int_equal(strlen(a->ids[0]), 32);
    assert_string_not_equal(a->ids[0], a->ids[1]);
    assert_string_equal(a->titles[0], "T");
    fx_teardown();
}

static void bad_openings_are_refused_and_leave_nothing(void **state) {
    char long_id[80], long_title[300];
    memset(long_id, 'x', 65), long_id[65] = 0;
    memset(long_title, 'x', 201), long_title[201] = 0;
    const struct ask_open bad[] = {
        {.id = "a/b", .sink_len = -1},         {.id = "", .sink_len = -1},
        {.id = long_id, .sink_len = -1},       {.sink_len = -1, .memory_len = 1025},
        {.sink_len = -1, .memory_len = -3},    {.sink_len = 5, .memory_len = 5},
        {.sink_len = -1, .session_len = 4097}, {.sink_len = -1, .session_len = 1},
        {.sink_len = -1, .model = "other"},    {.sink_len = -1, .title = long_title},
    };
    fx_setup_memory();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct request r = fx_request(1, "x");
        ask_open(fx.ss, &r, &bad[i]);
        fx_settle();
        assert_int_equal(fx.n_answers, (int)i + 1);
        fx_expect_error("invalid");
    }
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 0);
    fx_teardown();
}

// The service checks the ranges of parameters itself: a decoder may let them pass.
static void bad_sampling_is_refused_wherever_it_comes(void **state) {
    static struct turn_sampling bad;
    static const enum request_kind kinds[] = {REQUEST_OPEN, REQUEST_UPDATE, REQUEST_START};
    turn_sampling_init(&bad);
    bad.set = SAMPLING_EVERY_KEY;
    bad.params.top_k = -1;
    fx_setup_memory();
    fx_open_session(1, "s");
    for (int i = 0; i < 3; i++) {
        struct request from = fx_request(1, "x"), r = ask_as(&from, kinds[i], i ? "s" : NULL);
        r.sampling = &bad;
        r.input = ask_content("hello");
        sessions_submit(fx.ss, &r);
        fx_settle();
        fx_expect_error("invalid");
        assert_non_null(strstr(fx_last_answer()->message, "top_k"));
    }
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 1);
    assert_int_equal(fx_session("s")->n_turns, 0);
    fx_teardown();
}

static void a_small_memory_takes_the_default_sinks_down(void **state) {
    fx_setup_memory();
    struct request r = fx_request(1, "x");
    struct ask_open o = {.id = "s", .sink_len = -1, .memory_len = 2};
    ask_open(fx.ss, &r, &o);
    fx_settle();
    assert_int_equal(fx_session("s")->rec.sink_len, 1);
    fx_teardown();
}

static void another_owner_finds_nothing(void **state) {
    fx_setup_file();
    fx_open_session(1, "mine");
    fx_turn(1, "mine", "secret words");
    struct request r = fx_request(2, "x");
    struct turn_input in = {.kind = INPUT_TEXT, .text = "t", .text_len = 1};
    r.owner = "eve";
    for (int loaded = 0; loaded < 2; loaded++) {
        int n = fx.n_answers;
        ask_attach(fx.ss, &r, "mine", 0);
        ask_for(fx.ss, &r, REQUEST_DETACH, "mine", TURN_HEAD);
        ask_get(fx.ss, &r, "mine", true, 0, -1);
        ask_update(fx.ss, &r, "mine", "t", NULL, -1);
        ask_close(fx.ss, &r, "mine", true);
        ask_start(fx.ss, &r, "mine", TURN_HEAD, &in, NULL, true);
        ask_for(fx.ss, &r, REQUEST_CANCEL, "mine", -1);
        fx_settle();
        assert_int_equal(fx.n_answers, n + 7);
        for (int i = n; i < n + 7; i++)
            assert_string_equal(fx.answers[i].code, "session_not_found");
        ask_list(fx.ss, &r, "secret", NULL, 0, NULL);
        fx_settle();
        assert_int_equal(fx_last_answer()->n_sessions, 0);
        if (!loaded) fx_restart(); // and the same when it has to be read first
    }
    ask_get(fx.ss, &r, "never-was", false, 0, -1);
    ask_get(fx.ss, &r, "../../etc", false, 0, -1);
    fx_settle();
    fx_expect_error("session_not_found");
    fx_teardown();
}

static void attaching_gives_what_was_missed_once(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_turn(1, "s", "hello");
    struct follower *f = fx_follower(1, "s");
    for (int64_t after = 0; after <= f->last; after++) {
        fx_forget_clients();
        fx_attach(2, "s", after);
        assert_false(fx_answer_to("attach")->reset);
        assert_int_equal(fx_follower(2, "s")->last, 9); // opened, started, six deltas, done
    }
    fx_forget_clients();
    fx_attach(3, "s", -1);
    assert_int_equal(fx_follower(3, "s")->n_events, 0);
    fx_follower(3, "s")->last = fx_answer_to("attach")->seq;
    fx_attach(4, "s", 10);
    assert_true(fx_answer_to("attach")->reset);
    fx_follower(4, "s")->last = fx_answer_to("attach")->seq;
    fx_turn(5, "s", "again"); // its starter is not attached
    assert_int_equal(fx_follower(3, "s")->count[EVENT_DONE], 1);
    assert_int_equal(fx_follower(4, "s")->count[EVENT_DONE], 1);
    assert_int_equal(fx_follower(5, "s")->n_events, 0);
    fx_teardown();
}

static void a_slow_reader_gets_joined_deltas(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx.by_hand = true;
    fx_start_with(1, "s", "hello", "{\"max_tokens\":40,\"logprobs\":true}", false, NULL);
    fx_run();
    struct follower *f = fx_follower(1, "s");
    f->last = 1;
    assert_true(f->ready); // the ready event comes once
    fx.max_text = 10000;
    fx_take(1, f);
    assert_int_equal(f->n_deltas, 1);
    assert_int_equal(f->turns[0].n_ids, 40);
    for (int i = 0; i < 40; i++)
        assert_true(f->turns[0].logprobs[i] == -(float)f->turns[0].ids[i] / 256);
    const char *text = fx_get(1, "s")->turns[0].text;
    assert_string_equal(text, f->turns[0].text);
    fx_attach(2, "s", 0);
    fx.max_text = 1; // each text has at least one token
    struct follower *g = fx_follower(2, "s");
    fx_take(2, g);
    assert_true(g->n_deltas > 25);
    assert_string_equal(text, g->turns[0].text);
    fx_teardown();
}

static void gone_clients_are_forgotten_and_turns_go_on(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_open_session(1, "t");
    fx_start(1, "s", "hello");
    fx_step();
    sessions_client_gone(fx.ss, 1);
    assert_null(fx.ss->clients);
    fx_run();
    assert_string_equal(fx_get(2, "s")->turns[0].finish, "eos");
    struct request r = fx_request(2, "d");
    ask_for(fx.ss, &r, REQUEST_DETACH, "s", TURN_HEAD);
    fx_settle();
    assert_int_equal(fx_last_answer()->kind, ANSWER_DETACHED);
    fx_teardown();
}

static void titles_come_from_the_first_words(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s",
            "  My name\n is\tZora and I like very long sentences which do not end before the line "
            "does");
    const struct seen_answer *a = fx_get(1, "s");
    assert_string_equal(a->title,
                        "My name is Zora and I like very long sentences which do\xe2\x80\xa6");
    fx_turn(1, "s", "something else");
    assert_string_equal(fx_get(1, "s")->title, a->title);
    fx_update(2, "s", "Mine", NULL);
    assert_int_equal(fx_last_answer()->kind, ANSWER_UPDATED); // not attached
    assert_string_equal(fx_last_answer()->title, "Mine");
    assert_string_equal(fx_follower(1, "s")->title, "Mine"); // attached: by event
    fx_restart();
    assert_string_equal(fx_get(1, "s")->title, "Mine");
    fx_update(1, "s", "", NULL);
    assert_string_equal(fx_get(1, "s")->title,
                        "My name is Zora and I like very long sentences which do\xe2\x80\xa6");
    fx_update(1, "s", NULL, "{\"temperature\":2,\"x\":1}");
    assert_string_equal(fx_session("s")->rec.sampling, "{\"temperature\":2}");
    fx_teardown();
}

// Two tabs: an event carries the id of the request that it answers, and for its caller alone.
static void an_event_answers_its_own_request(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_attach(2, "s", 0);
    assert_string_equal(fx_follower(2, "s")->last_request_id, "");
    fx.by_hand = true;
    struct request r = fx_request(2, "theirs");
    ask_update(fx.ss, &r, "s", "one", NULL, -1);
    r = fx_request(1, "mine");
    ask_update(fx.ss, &r, "s", "two", NULL, -1);
    fx_settle();
    struct session_event e;
    assert_int_equal(session_next_event(fx_session("s"), 1, 64, &e), 1);
    assert_string_equal(e.request_id, "");
    assert_int_equal(session_next_event(fx_session("s"), 1, 64, &e), 1);
    assert_string_equal(e.request_id, "mine");
    assert_int_equal(session_next_event(fx_session("s"), 2, 64, &e), 1);
    assert_string_equal(e.request_id, "theirs");
    sessions_client_gone(fx.ss, 2);
    fx_close(2, "s", true); // by a client that is not attached
    assert_int_equal(fx_last_answer()->kind, ANSWER_CLOSED);
    assert_true(fx_last_answer()->deleted);
    fx_teardown();
}

// A page that is reloaded while its session is being read from the disk.
static void who_left_meanwhile_is_not_attached(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "words");
    fx_restart();
    struct request r = fx_request(2, "attach");
    ask_attach(fx.ss, &r, "s", 0);
    r = fx_request(3, "get");
    ask_get(fx.ss, &r, "s", true, 0, -1);
    sessions_client_gone(fx.ss, 2);
    fx_settle();
    assert_int_equal(fx_answer_to("get")->n_turns, 1);
    assert_int_equal(fx_session("s")->attachments->client, 3);
    assert_null(fx_session("s")->attachments->next);
    sessions_client_gone(fx.ss, 3);
    assert_null(fx_session("s")->attachments);
    assert_null(fx.ss->clients);
    fx_teardown();
}

// The id is on disk already: the opener gets session_exists, and the waiting requests find that
// session.
static void what_waits_for_a_refused_opening_finds_the_older_session(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "words");
    fx_restart();
    struct request r = fx_request(1, "open");
    struct ask_open o = {.id = "s", .sink_len = -1};
    ask_open(fx.ss, &r, &o);
    r = fx_request(2, "get");
    ask_get(fx.ss, &r, "s", false, 0, -1);
    r = fx_request(3, "get2");
    ask_get(fx.ss, &r, "s", false, 0, -1);
    fx_settle();
    assert_string_equal(fx_answer_to("open")->code, "session_exists");
    assert_int_equal(fx_answer_to("get")->kind, ANSWER_STATE);
    assert_int_equal(fx_answer_to("get2")->n_turns, 1);
    fx_teardown();
}

static void lists_are_newest_first_in_pages_and_searched(void **state) {
    char id[16], cursor[64];
    fx_setup_memory();
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_open_session(1, id);
        fx_turn(1, id, i % 2 ? "the caf\xc3\xa9 is \"open\" today" : "green apples");
        fx_advance(1000000);
    }
    fx_update(1, "s1", "Weather report", NULL);
    const struct seen_answer *a = fx_list(NULL, 2, NULL);
    assert_int_equal(a->n_sessions, 2);
    assert_string_equal(a->ids[0], "s4"); // a new title does not move a session
    assert_string_equal(a->ids[1], "s3");
    assert_int_equal(a->states[1], SESSION_IDLE); // what is in memory is shown as it is
    strcpy(cursor, a->cursor);
    a = fx_list(NULL, 3, cursor);
    assert_int_equal(a->n_sessions, 3);
    assert_string_equal(a->ids[0], "s2");
    assert_string_equal(a->ids[2], "s0");
    assert_string_equal(a->cursor, "");
    assert_int_equal(fx_list("green", 0, NULL)->n_sessions, 3);
    // Without accents, last word as a prefix
    assert_int_equal(fx_list("cafe tod", 0, NULL)->n_sessions, 2);
    // Only the last word may be a prefix
    assert_int_equal(fx_list("caf today", 0, NULL)->n_sessions, 0);
    assert_int_equal(fx_list("apples GREEN", 0, NULL)->n_sessions, 3);
    assert_int_equal(fx_list("weather open", 0, NULL)->n_sessions, 1); // title and words together
    assert_int_equal(fx_list("\"op*n\" OR NEAR( - !", 0, NULL)->n_sessions,
                     0); // nothing is an operator
    assert_int_equal(fx_list("  ?! ", 0, NULL)->n_sessions, 5);
    char said[16];
    snprintf(said, sizeof said, "w%d", fx_follower(1, "s0")->turns[0].ids[0]);
    if (fx_follower(1, "s0")->turns[0].ids[0] % 7)
        assert_true(fx_list(said, 0, NULL)->n_sessions > 0); // answers too
    struct request r = fx_request(1, "bad");
    ask_list(fx.ss, &r, NULL, NULL, 0, "12;DROP");
    fx_settle();
    fx_expect_error("invalid");
    fx_teardown();
}

static void metrics_follow(void **state) {
    struct buf page;
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "hello");
    fx_turn(1, "s", "again");
    fx_advance(61000000);
    buf_init(&page, 1 << 20);
    metrics_write(fx.metrics, &page);
    assert_non_null(strstr(page.data, "parley_sessions_resident{state=\"cold\"} 1\n"));
    assert_non_null(strstr(page.data, "parley_sessions_resident{state=\"active\"} 0\n"));
    assert_non_null(strstr(page.data, "parley_sessions_evictions_total{reason=\"idle\"} 1\n"));
    assert_non_null(strstr(page.data, "parley_sessions_resumes_total{source=\"kept\"} 1\n"));
    assert_non_null(strstr(page.data, "parley_sessions_turns_total{finish=\"eos\"} 2\n"));
    assert_non_null(strstr(page.data, "parley_store_errors_total 0\n"));
    assert_non_null(strstr(page.data, "parley_store_commit_seconds_count"));
    buf_release(&page);
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_gives_seq_one_and_attaches),
        cmocka_unit_test(drawn_ids_are_long_and_different),
        cmocka_unit_test(bad_openings_are_refused_and_leave_nothing),
        cmocka_unit_test(bad_sampling_is_refused_wherever_it_comes),
        cmocka_unit_test(a_small_memory_takes_the_default_sinks_down),
        cmocka_unit_test(another_owner_finds_nothing),
        cmocka_unit_test(attaching_gives_what_was_missed_once),
        cmocka_unit_test(a_slow_reader_gets_joined_deltas),
        cmocka_unit_test(gone_clients_are_forgotten_and_turns_go_on),
        cmocka_unit_test(titles_come_from_the_first_words),
        cmocka_unit_test(an_event_answers_its_own_request),
        cmocka_unit_test(who_left_meanwhile_is_not_attached),
        cmocka_unit_test(what_waits_for_a_refused_opening_finds_the_older_session),
        cmocka_unit_test(lists_are_newest_first_in_pages_and_searched),
        cmocka_unit_test(metrics_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
