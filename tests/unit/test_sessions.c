// The rules of sessions/README.md that concern sessions: opening, attaching, states, eviction,
// memory, closing, lists. Turns are in test_sessions_turns.c, a failing disk and crashes in
// test_sessions_faults.c.
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
    struct sessions_request r = fx_request(1, "x");
    struct session_open o = {
        .sink_len = -1, .title = "T", .system = "S", .sampling = "{\"top_k\":2}"};
    sessions_open_session(fx.ss, &r, &o);
    sessions_open_session(fx.ss, &r, &o);
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
    const struct session_open bad[] = {
        {.id = "a/b", .sink_len = -1},
        {.id = "", .sink_len = -1},
        {.id = long_id, .sink_len = -1},
        {.sink_len = -1, .memory_len = 1025},
        {.sink_len = -1, .memory_len = -3},
        {.sink_len = 5, .memory_len = 5},
        {.sink_len = -1, .session_len = 4097},
        {.sink_len = -1, .session_len = 1},
        {.sink_len = -1, .model = "other"},
        {.sink_len = -1, .title = long_title},
        {.sink_len = -1, .sampling = "{\"top_k\":-1}"},
    };
    fx_setup_memory();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sessions_request r = fx_request(1, "x");
        sessions_open_session(fx.ss, &r, &bad[i]);
        fx_settle();
        assert_int_equal(fx.n_answers, (int)i + 1);
        fx_expect_error("invalid");
    }
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 0);
    fx_teardown();
}

static void a_small_memory_takes_the_default_sinks_down(void **state) {
    fx_setup_memory();
    struct sessions_request r = fx_request(1, "x");
    struct session_open o = {.id = "s", .sink_len = -1, .memory_len = 2};
    sessions_open_session(fx.ss, &r, &o);
    fx_settle();
    assert_int_equal(fx_session("s")->rec.sink_len, 1);
    fx_teardown();
}

static void another_owner_finds_nothing(void **state) {
    fx_setup_file();
    fx_open_session(1, "mine");
    fx_turn(1, "mine", "secret words");
    struct sessions_request r = fx_request(2, "x");
    struct turn_input in = {.kind = INPUT_TEXT, .text = "t", .text_len = 1};
    r.owner = "eve";
    for (int loaded = 0; loaded < 2; loaded++) {
        int n = fx.n_answers;
        sessions_attach(fx.ss, &r, "mine", 0);
        sessions_detach(fx.ss, &r, "mine");
        sessions_get(fx.ss, &r, "mine", true, 0, -1);
        sessions_update(fx.ss, &r, "mine", "t", NULL, -1);
        sessions_close_session(fx.ss, &r, "mine", true);
        sessions_start_turn(fx.ss, &r, "mine", &in, NULL, true);
        sessions_cancel_turn(fx.ss, &r, "mine", -1);
        fx_settle();
        assert_int_equal(fx.n_answers, n + 7);
        for (int i = n; i < n + 7; i++)
            assert_string_equal(fx.answers[i].code, "session_not_found");
        sessions_list(fx.ss, &r, "secret", 0, NULL);
        fx_settle();
        assert_int_equal(fx_last_answer()->n_sessions, 0);
        if (!loaded) fx_restart(); // and the same when it has to be read first
    }
    sessions_get(fx.ss, &r, "never-was", false, 0, -1);
    sessions_get(fx.ss, &r, "../../etc", false, 0, -1);
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
    assert_true(f->ready); // told once
    fx.max_text = 10000;
    fx_take(1, f);
    assert_int_equal(f->n_deltas, 1);
    assert_int_equal(f->turns[0].n_ids, 40);
    for (int i = 0; i < 40; i++)
        assert_true(f->turns[0].logprobs[i] == -(float)f->turns[0].ids[i] / 256);
    const char *text = fx_get(1, "s")->turns[0].text;
    assert_string_equal(text, f->turns[0].text);
    fx_attach(2, "s", 0);
    fx.max_text = 1; // at least a token each
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
    struct sessions_request r = fx_request(2, "d");
    sessions_detach(fx.ss, &r, "s");
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
    fx_update(1, "s", NULL, "{\"temperature\":-2}");
    fx_expect_error("invalid");
    fx_teardown();
}

static void idle_sessions_lose_their_cache_and_come_back(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    struct follower *f = fx_follower(1, "s");
    fx_turn(1, "s", "hello");
    assert_int_equal(fx_get(1, "s")->state, SESSION_IDLE);
    fx_advance(59000000);
    assert_int_equal(f->count[EVENT_EVICTED], 0);
    fx_start_with(1, "s", "longer", "{\"max_tokens\":50}", false, NULL);
    for (int i = 0; i < 10; i++) fx_step();
    fx_advance(200000000); // a running turn is never evicted
    assert_int_equal(fake.n_asked, 0);
    assert_int_equal(fx_get(1, "s")->state, SESSION_ACTIVE);
    fx_run();
    assert_int_equal(f->turns[1].numbers.source, CACHE_KEPT);
    fx_advance(59900000); // from the end of the turn
    assert_int_equal(f->count[EVENT_EVICTED], 0);
    assert_true(sessions_poll(fx.ss) <= 100000); // and poll says when
    fx_advance(100000);
    assert_int_equal(f->count[EVENT_EVICTED], 1);
    assert_string_equal(f->last_reason, "idle");
    assert_int_equal(fx_get(1, "s")->state, SESSION_COLD);
    fx_turn(1, "s", "and back");
    assert_int_equal(f->turns[2].numbers.source, CACHE_RECOMPUTED);
    assert_int_equal(fx_get(1, "s")->state, SESSION_IDLE);
    fx_teardown();
}

static void pressure_evicts_too(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_turn(1, "s", "hello");
    assert_true(fake_pressure((uint64_t)fx_session("s")->rec.key));
    fx_settle();
    struct follower *f = fx_follower(1, "s");
    assert_string_equal(f->last_reason, "pressure");
    assert_int_equal(fx_get(1, "s")->state, SESSION_COLD);
    fx_advance(100000000);
    assert_int_equal(f->count[EVENT_EVICTED], 1); // not a second time when its time is up
    fx_teardown();
}

static void unused_sessions_leave_memory_and_are_read_again(void **state) {
    char id[16];
    fx_settings("x");
    fx_setup_file();
    sessions_close(fx.ss);
    fx.o.max_resident_sessions = 3;
    fx_open();
    for (int i = 0; i < 8; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_open_session(1, id);
        fx_turn(1, id, id);
        sessions_client_gone(fx.ss, 1);
        fx_forget_clients();
        fx_settle();
    }
    assert_int_equal(HASH_CNT(by_id, fx.ss->by_id), 3);
    assert_null(fx_session("s0"));
    assert_non_null(fx_session("s7"));
    fx_get(1, "s5"); // used: s6 goes first
    fx_get(1, "s0");
    fx_settle();
    assert_null(fx_session("s6"));
    assert_non_null(fx_session("s5"));
    // Requests that come while a session is read wait in their order.
    struct sessions_request r = fx_request(1, "a");
    int n = fx.n_answers;
    fx_follower(1, "s1")->last = 10; // opened, started, six tokens, done, evicted to leave memory
    sessions_attach(fx.ss, &r, "s1", -1);
    fx_start_with(1, "s1", "more", NULL, false, "b");
    r = fx_request(1, "c");
    sessions_get(fx.ss, &r, "s1", false, 0, -1);
    fx_settle();
    assert_int_equal(fx.n_answers, n + 3);
    assert_string_equal(fx.answers[n].request_id, "a");
    assert_int_equal(fx_answer_to("b")->kind, ANSWER_ACCEPTED);
    fx_run();
    assert_int_equal(HASH_CNT(by_id, fx.ss->by_id), 4); // one in use, three kept
    fx_teardown();
}

// Two tabs: an event carries the id of the request that it answers, and for its caller alone.
static void an_event_answers_its_own_request(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_attach(2, "s", 0);
    assert_string_equal(fx_follower(2, "s")->last_request_id, "");
    fx.by_hand = true;
    struct sessions_request r = fx_request(2, "theirs");
    sessions_update(fx.ss, &r, "s", "one", NULL, -1);
    r = fx_request(1, "mine");
    sessions_update(fx.ss, &r, "s", "two", NULL, -1);
    fx_settle();
    struct session_event e;
    assert_int_equal(session_next_event(fx_session("s"), 1, 64, &e), 1);
    assert_string_equal(e.request_id, "");
    assert_int_equal(session_next_event(fx_session("s"), 1, 64, &e), 1);
    assert_string_equal(e.request_id, "mine");
    assert_int_equal(session_next_event(fx_session("s"), 2, 64, &e), 1);
    assert_string_equal(e.request_id, "theirs");
    sessions_client_gone(fx.ss, 2);
    fx_close(2, "s", true); // by one who is not attached
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
    struct sessions_request r = fx_request(2, "attach");
    sessions_attach(fx.ss, &r, "s", 0);
    r = fx_request(3, "get");
    sessions_get(fx.ss, &r, "s", true, 0, -1);
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

// The id is on disk already: the opener is told so, the others are not told that there is nothing.
static void what_waits_for_a_refused_opening_finds_the_older_session(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "words");
    fx_restart();
    struct sessions_request r = fx_request(1, "open");
    struct session_open o = {.id = "s", .sink_len = -1};
    sessions_open_session(fx.ss, &r, &o);
    r = fx_request(2, "get");
    sessions_get(fx.ss, &r, "s", false, 0, -1);
    r = fx_request(3, "get2");
    sessions_get(fx.ss, &r, "s", false, 0, -1);
    fx_settle();
    assert_string_equal(fx_answer_to("open")->code, "session_exists");
    assert_int_equal(fx_answer_to("get")->kind, ANSWER_STATE);
    assert_int_equal(fx_answer_to("get2")->n_turns, 1);
    fx_teardown();
}

static void leaving_memory_costs_no_other_session_its_cache(void **state) {
    char id[16];
    fx_setup_file();
    sessions_close(fx.ss);
    fx.o.max_resident_sessions = 3;
    fx_open();
    for (int i = 0; i < 4; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_open_session(1, id);
        fx_turn(1, id, id);
        sessions_client_gone(fx.ss, 1);
        fx_forget_clients();
        fx_settle();
    }
    assert_null(fx_session("s0"));
    for (int i = 1; i < 4; i++) {
        snprintf(id, sizeof id, "s%d", i);
        assert_int_equal(session_state(fx_session(id)), SESSION_IDLE);
    }
    fx_teardown();
}

static void closing_ends_the_turn_and_keeps_the_words(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_start_with(1, "s", "hello", "{\"max_tokens\":100}", false, NULL);
    fx_start_with(1, "s", "waits", NULL, true, NULL);
    fx_settle();
    for (int i = 0; i < 5; i++) fx_step();
    fx_close(1, "s", false);
    struct follower *f = fx_follower(1, "s");
    assert_false(f->closed); // not before the turn has ended
    fx_run();
    assert_true(f->closed && !f->deleted);
    assert_string_equal(f->last_request_id, "close");
    assert_string_equal(f->turns[0].finish, "cancelled");
    assert_string_equal(f->turns[1].finish, "cancelled");
    assert_int_equal(f->turns[0].n_ids, 4);
    assert_int_equal(fake.n_released, 1);
    assert_int_equal(f->count[EVENT_EVICTED], 0);
    fx_restart();
    const struct seen_answer *a = fx_get(2, "s");
    assert_int_equal(a->state, SESSION_CLOSED);
    assert_int_equal(a->n_turns, 2);
    fx_start(2, "s", "more");
    fx_settle();
    fx_expect_error("session_closed");
    fx_close(2, "s", false);
    fx_expect_error("session_closed");
    fx_open_session(2, "s");
    fx_expect_error("session_exists");
    fx_teardown();
}

static void deleting_takes_all_traces(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_open_session(1, "keep");
    fx_turn(1, "s", "quetzalcoatl");
    fx_turn(1, "keep", "popocatepetl");
    fx_attach(2, "s", 0);
    assert_int_equal(fx_list("quetz", 0, NULL)->n_sessions, 1);
    fx.by_hand = true;
    fx_start(1, "s", "more");
    fx_settle();
    fx_step();
    fx_close(3, "s", true);
    fx_run();
    assert_int_equal(fx_answer_to("close")->kind, ANSWER_CLOSED);
    assert_null(fx_session("s"));
    assert_int_equal(fx.n_removed, 1);
    // A slow reader still gets its last events, then the pointer is void.
    struct follower *f = fx_follower(1, "s"), *g = fx_follower(2, "s");
    assert_false(f->gone);
    fx_take(1, f);
    assert_true(f->closed && f->deleted);
    sessions_client_gone(fx.ss, 2);
    fx_settle();
    assert_true(f->gone && !g->gone);
    assert_int_equal(fx_list("quetz", 0, NULL)->n_sessions, 0);
    fx_get(1, "s");
    fx_expect_error("session_not_found");
    fx.by_hand = false;
    fx_open_session(4, "s"); // the id is free again
    assert_int_equal(fx_follower(4, "s")->last, 1);
    fx_teardown(); // the words on the disk: test_store_tidy.c
}

// Who goes on without having taken the event that answers it is answered all the same.
static void what_jumps_over_an_event_does_not_lose_its_answer(void **state) {
    for (int how = 0; how < 3; how++) {
        fx_setup_memory();
        fx.by_hand = true;
        struct session_open o = {.id = "s", .sink_len = -1};
        struct sessions_request r = fx_request(1, "q1"), behind = fx_request(1, "q2");
        sessions_open_session(fx.ss, &r, &o);
        if (how == 0) sessions_detach(fx.ss, &behind, "s");
        if (how == 1) sessions_attach(fx.ss, &behind, "s", -1);
        if (how == 2) sessions_get(fx.ss, &behind, "s", true, 0, -1);
        fx_settle();
        assert_int_equal(fx.answered[1], 1);
        assert_int_equal(fx_answer_to("q1")->kind, ANSWER_OPENED);
        assert_int_equal(fx.answered[2], 1);
        // The same with an update, which is committed and told, and not taken.
        fx_attach(1, "s", -1);
        r = fx_request(1, "q3"), behind = fx_request(1, "q4");
        sessions_update(fx.ss, &r, "s", "title", NULL, -1);
        fx_settle();
        assert_int_equal(fx.answered[3], 0);
        if (how == 0) sessions_detach(fx.ss, &behind, "s");
        if (how == 1) sessions_attach(fx.ss, &behind, "s", -1);
        if (how == 2) sessions_get(fx.ss, &behind, "s", true, 0, -1);
        fx_settle();
        assert_int_equal(fx.answered[3], 1);
        assert_int_equal(fx_answer_to("q3")->kind, ANSWER_UPDATED);
        assert_int_equal(fx.answered[4], 1);
        fx_teardown();
    }
}

// One event cannot carry two request ids.
static void every_close_is_answered(void **state) {
    for (int delete_it = 0; delete_it < 2; delete_it++) {
        fx_setup_memory();
        fx_open_session(1, "s");
        fx_attach(2, "s", 0);
        fx_start(1, "s", "hello");
        fx_settle();
        static const struct {
            uint64_t client;
            const char *request_id;
        } closes[] = {{1, "q1"}, {1, "q2"}, {2, "q3"}, {3, "q4"}};
        for (int i = 0; i < 4; i++) {
            struct sessions_request r = fx_request(closes[i].client, closes[i].request_id);
            sessions_close_session(fx.ss, &r, "s", delete_it && i > 0);
        }
        fx_run();
        for (int i = 1; i <= 4; i++) assert_int_equal(fx.answered[i], 1);
        assert_int_equal(fx_follower(1, "s")->count[EVENT_CLOSED], 1);
        fx_teardown();
    }
}

static void what_comes_while_a_session_is_deleted_waits(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "old words");
    struct sessions_request r = fx_request(2, "delete");
    sessions_close_session(fx.ss, &r, "s", true); // on its way
    fx_start_with(3, "s", "too late", NULL, true, "start");
    r = fx_request(3, "get");
    sessions_get(fx.ss, &r, "s", false, 0, -1);
    r = fx_request(4, "open");
    struct session_open o = {.id = "s", .sink_len = -1};
    fx_follower(4, "s");
    sessions_open_session(fx.ss, &r, &o);
    r = fx_request(5, "get2");
    sessions_get(fx.ss, &r, "s", false, 0, -1);
    fx_settle();
    assert_int_equal(fx_answer_to("delete")->kind, ANSWER_CLOSED);
    assert_string_equal(fx_answer_to("start")->code, "session_not_found");
    assert_string_equal(fx_answer_to("get")->code, "session_not_found");
    assert_int_equal(fx_follower(4, "s")->count[EVENT_OPENED], 1); // a new one under the same id
    assert_int_equal(fx_answer_to("get2")->n_turns, 0);
    assert_true(fx_follower(1, "s")->deleted);
    fx_turn(4, "s", "new words");
    assert_int_equal(fx_list("old", 0, NULL)->n_sessions, 0);
    assert_int_equal(fx_list("new", 0, NULL)->n_sessions, 1);
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
    assert_string_equal(a->ids[0], "s1");
    assert_string_equal(a->ids[1], "s4");
    assert_int_equal(a->states[1], SESSION_IDLE); // what is in memory is shown as it is
    strcpy(cursor, a->cursor);
    a = fx_list(NULL, 3, cursor);
    assert_int_equal(a->n_sessions, 3);
    assert_string_equal(a->ids[0], "s3");
    assert_string_equal(a->ids[2], "s0");
    assert_string_equal(a->cursor, "");
    assert_int_equal(fx_list("green", 0, NULL)->n_sessions, 3);
    assert_int_equal(fx_list("cafe tod", 0, NULL)->n_sessions,
                     2); // without accents, last word as a prefix
    assert_int_equal(fx_list("caf today", 0, NULL)->n_sessions, 0); // only the last one
    assert_int_equal(fx_list("apples GREEN", 0, NULL)->n_sessions, 3);
    assert_int_equal(fx_list("weather open", 0, NULL)->n_sessions, 1); // title and words together
    assert_int_equal(fx_list("\"op*n\" OR NEAR( - !", 0, NULL)->n_sessions,
                     0); // nothing is an operator
    assert_int_equal(fx_list("  ?! ", 0, NULL)->n_sessions, 5);
    char said[16];
    snprintf(said, sizeof said, "w%d", fx_follower(1, "s0")->turns[0].ids[0]);
    if (fx_follower(1, "s0")->turns[0].ids[0] % 7)
        assert_true(fx_list(said, 0, NULL)->n_sessions > 0); // answers too
    struct sessions_request r = fx_request(1, "bad");
    sessions_list(fx.ss, &r, NULL, 0, "12;DROP");
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

// Of caches: a session that is closed or deleted has none any more, also where it happened while no
// server could remove it.
static void files_go_with_their_sessions(void **state) {
    static const char *const ids[] = {"live", "closed", "deleted"};
    fx_setup_file();
    for (int i = 0; i < 3; i++) {
        fx_open_session(1, ids[i]);
        fx_turn(1, ids[i], "hello");
    }
    assert_int_equal(fake.n_forgotten, 0);
    fx_close(1, "closed", false);
    fx_run();
    assert_int_equal(fake.n_forgotten, 1);
    fx_close(1, "deleted", true);
    fx_run();
    assert_int_equal(fake.n_forgotten, 2);
    sessions_close(fx.ss);
    fx.ss = NULL;
    fx_forget_clients();
    fake_reset();
    for (int i = 0; i < 3; i++) fake.files[i] = ids[i];
    fake.files[3] = "never";
    fx_open();
    assert_string_equal(fake.files[0], "live");
    for (int i = 1; i < 4; i++) assert_string_equal(fake.files[i], "");
    fx_teardown();
}

// A cold session's turn is prepared for, not more than once in 5 s; nobody else's.
static void typing_prepares_a_cold_session(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "hello");
    fx_restart();
    struct sessions_request r = fx_request(1, "");
    sessions_typing(fx.ss, &r, "s"); // not in memory
    assert_int_equal(fake.n_prepared, 0);
    assert_int_equal(fx_get(1, "s")->state, SESSION_COLD);
    for (int i = 0; i < 3; i++) {
        sessions_typing(fx.ss, &r, "s");
        sessions_typing(fx.ss, &r, "s");
        assert_int_equal(fake.n_prepared, i + 1);
        fx_advance(5000000);
    }
    r.owner = "somebody else";
    sessions_typing(fx.ss, &r, "s");
    assert_int_equal(fake.n_prepared, 3);
    fx_turn(1, "s", "more"); // it has its cache now
    r = fx_request(1, "");
    sessions_typing(fx.ss, &r, "s");
    assert_int_equal(fake.n_prepared, 3);
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_gives_seq_one_and_attaches),
        cmocka_unit_test(drawn_ids_are_long_and_different),
        cmocka_unit_test(bad_openings_are_refused_and_leave_nothing),
        cmocka_unit_test(a_small_memory_takes_the_default_sinks_down),
        cmocka_unit_test(another_owner_finds_nothing),
        cmocka_unit_test(attaching_gives_what_was_missed_once),
        cmocka_unit_test(a_slow_reader_gets_joined_deltas),
        cmocka_unit_test(gone_clients_are_forgotten_and_turns_go_on),
        cmocka_unit_test(titles_come_from_the_first_words),
        cmocka_unit_test(idle_sessions_lose_their_cache_and_come_back),
        cmocka_unit_test(pressure_evicts_too),
        cmocka_unit_test(unused_sessions_leave_memory_and_are_read_again),
        cmocka_unit_test(an_event_answers_its_own_request),
        cmocka_unit_test(who_left_meanwhile_is_not_attached),
        cmocka_unit_test(what_waits_for_a_refused_opening_finds_the_older_session),
        cmocka_unit_test(leaving_memory_costs_no_other_session_its_cache),
        cmocka_unit_test(closing_ends_the_turn_and_keeps_the_words),
        cmocka_unit_test(deleting_takes_all_traces),
        cmocka_unit_test(what_jumps_over_an_event_does_not_lose_its_answer),
        cmocka_unit_test(every_close_is_answered),
        cmocka_unit_test(what_comes_while_a_session_is_deleted_waits),
        cmocka_unit_test(lists_are_newest_first_in_pages_and_searched),
        cmocka_unit_test(metrics_follow),
        cmocka_unit_test(files_go_with_their_sessions),
        cmocka_unit_test(typing_prepares_a_cold_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
