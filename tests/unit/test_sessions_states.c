// The rules of sessions/README.md for unused sessions: eviction when idle and under pressure,
// leaving memory and being read again, preparation while a user types.
#include "tests/unit/sessions_fixture.h"

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
    assert_true(sessions_poll(fx.ss) <= 100000); // poll returns when it is due
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

// The engine has paused the turn for another owner's and needs its blocks: no event tears the turn.
static void the_cache_of_a_paused_turn_leaves_unseen(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    struct follower *f = fx_follower(1, "s");
    fx_start_with(1, "s", "long", "{\"max_tokens\":50}", false, NULL);
    for (int i = 0; i < 10; i++) fx_step();
    for (int kind = ENGINE_PARKED; kind <= ENGINE_RELEASED; kind++) {
        struct engine_event *e = fake_event((enum engine_event_kind)kind, NULL);
        e->sequence = (uint64_t)fx_session("s")->rec.key;
        e->why = RELEASE_PRESSURE;
        fx_settle();
        assert_int_equal(fx_get(1, "s")->state, SESSION_ACTIVE);
    }
    fx_run();
    assert_int_equal(f->count[EVENT_EVICTED] + f->count[EVENT_PARKED], 0);
    assert_int_equal(f->turns[0].numbers.output_tokens, 50);
    assert_int_equal(fx_get(1, "s")->state, SESSION_IDLE);
    fx_teardown();
}

// Sessions s0, s1 .. with a turn each, whose clients leave; three may stay in memory.
static void three_stay_of(int n) {
    char id[16];
    sessions_close(fx.ss);
    fx.o.max_resident_sessions = 3;
    fx_open();
    for (int i = 0; i < n; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_open_session(1, id);
        fx_turn(1, id, id);
        sessions_client_gone(fx.ss, 1);
        fx_forget_clients();
        fx_settle();
    }
}

static void unused_sessions_leave_memory_and_are_read_again(void **state) {
    fx_settings("x");
    fx_setup_file();
    three_stay_of(8);
    assert_int_equal(HASH_CNT(by_name, fx.ss->by_name), 3);
    assert_null(fx_session("s0"));
    assert_non_null(fx_session("s7"));
    fx_get(1, "s5"); // s5 is used now, so s6 is evicted first
    fx_get(1, "s0");
    fx_settle();
    assert_null(fx_session("s6"));
    assert_non_null(fx_session("s5"));
    // Requests that come while a session is read wait in their order.
    struct request r = fx_request(1, "a");
    int n = fx.n_answers;
    fx_follower(1, "s1")->last = 10; // opened, started, six tokens, done, evicted to leave memory
    ask_attach(fx.ss, &r, "s1", -1);
    fx_start_with(1, "s1", "more", NULL, false, "b");
    r = fx_request(1, "c");
    ask_get(fx.ss, &r, "s1", false, 0, -1);
    fx_settle();
    assert_int_equal(fx.n_answers, n + 3);
    assert_string_equal(fx.answers[n].request_id, "a");
    assert_int_equal(fx_answer_to("b")->kind, ANSWER_ACCEPTED);
    fx_run();
    assert_int_equal(HASH_CNT(by_name, fx.ss->by_name), 3);
    fx_teardown();
}

// A socket takes the last events outside of any call, and nothing else happens: a poll is asked for.
static void the_reader_of_the_last_event_lets_a_session_leave(void **state) {
    char id[16];
    fx_settings("x");
    fx_setup_file();
    three_stay_of(0);
    fx.by_hand = true;
    for (int i = 0; i < 6; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_open_session(1 + i / 3, id);
    }
    fx_settle();
    assert_int_equal(HASH_CNT(by_key, fx.ss->by_key), 6); // they wait for their reader
    assert_false(sessions_touched(fx.ss));
    for (int i = 0; i < 6; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_take((uint64_t)(1 + i / 3), fx_follower((uint64_t)(1 + i / 3), id));
    }
    assert_true(sessions_touched(fx.ss));
    fx_settle();
    assert_int_equal(HASH_CNT(by_key, fx.ss->by_key), 3);
    assert_false(sessions_touched(fx.ss));
    fx_teardown();
}

// Two clients follow s0 .. s7. Both get the events that come, and keep their cursors.
static void followed_sessions_leave_memory_too(void **state) {
    char id[16];
    fx_settings("x");
    fx_setup_file();
    three_stay_of(0);
    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_open_session(1, id);
        fx_turn(1, id, id);
        fx_attach(2, id, 0);
    }
    fx.ss->o.max_resident_sessions = 1;
    fx_advance(1000000);
    assert_int_equal(HASH_CNT(by_key, fx.ss->by_key), 1);
    assert_int_equal(fx_session("s0")->life, LIFE_UNLOADED);
    assert_null(fx_session("s0")->turns);
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 3);
    int n_done = fx_follower(2, "s0")->count[EVENT_DONE];
    assert_int_equal(fx_follower(1, "s0")->count[EVENT_EVICTED], 1); // to leave memory
    fx_turn(1, "s0", "more"); // the fixture checks that no event is missing or comes twice
    assert_int_equal(fx_follower(1, "s0")->turns[1].done, true);
    assert_int_equal(fx_follower(2, "s0")->count[EVENT_DONE], n_done + 1);
    assert_string_equal(fx_follower(2, "s0")->turns[1].text, fx_follower(1, "s0")->turns[1].text);
    // The last client takes the entry along.
    fx_advance(1000000);
    fx_turn(1, "s2", "more");
    fx_advance(1000000);
    assert_int_equal(fx_session("s0")->life, LIFE_UNLOADED);
    sessions_client_gone(fx.ss, 1);
    fx_settle();
    assert_non_null(fx_session("s0"));
    sessions_client_gone(fx.ss, 2);
    fx_settle();
    assert_null(fx_session("s0"));
    // Deleted by a client that does not follow it.
    fx_forget_clients();
    fx_attach(1, "s1", 0);
    fx_attach(1, "s2", 0);
    fx_advance(1000000);
    assert_int_equal(fx_session("s1")->life, LIFE_UNLOADED);
    fx_close(3, "s1", true);
    assert_true(fx_follower(1, "s1")->deleted && fx_follower(1, "s1")->gone);
    assert_null(fx_session("s1"));
    fx_teardown();
}

static void leaving_memory_costs_no_other_session_its_cache(void **state) {
    char id[16];
    fx_setup_file();
    three_stay_of(4);
    assert_null(fx_session("s0"));
    for (int i = 1; i < 4; i++) {
        snprintf(id, sizeof id, "s%d", i);
        assert_int_equal(session_state(fx_session(id)), SESSION_IDLE);
    }
    fx_teardown();
}

// A closed or deleted session has no cache file: what no server removed then, the next start
// removes.
static void files_go_with_their_sessions(void **state) {
    static const char *const ids[] = {"live", "closed", "deleted"};
    static char names[3][SESSION_LASTING_BYTES];
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
    for (int i = 0; i < 3; i++) {
        session_lasting_name("local", ids[i], names[i]);
        fake.files[i] = names[i];
    }
    fake.files[3] = "never";
    fx_open();
    assert_string_equal(fake.files[0], names[0]);
    for (int i = 1; i < 4; i++) assert_string_equal(fake.files[i], "");
    fx_teardown();
}

// A hint reaches the engine once in 5 s, for a cold session of the client's own.
static void typing_prepares_a_cold_session(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "hello");
    fx_restart();
    struct request r = fx_request(1, "");
    ask_for(fx.ss, &r, REQUEST_TYPING, "s", TURN_HEAD); // not in memory
    assert_int_equal(fake.n_prepared, 0);
    assert_int_equal(fx_get(1, "s")->state, SESSION_COLD);
    for (int i = 0; i < 3; i++) {
        ask_for(fx.ss, &r, REQUEST_TYPING, "s", TURN_HEAD);
        ask_for(fx.ss, &r, REQUEST_TYPING, "s", TURN_HEAD);
        assert_int_equal(fake.n_prepared, i + 1);
        fx_advance(5000000);
    }
    r.owner = "somebody else";
    ask_for(fx.ss, &r, REQUEST_TYPING, "s", TURN_HEAD);
    assert_int_equal(fake.n_prepared, 3);
    fx_turn(1, "s", "more"); // it has its cache now
    r = fx_request(1, "");
    ask_for(fx.ss, &r, REQUEST_TYPING, "s", TURN_HEAD);
    assert_int_equal(fake.n_prepared, 3);
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_sessions_lose_their_cache_and_come_back),
        cmocka_unit_test(pressure_evicts_too),
        cmocka_unit_test(the_cache_of_a_paused_turn_leaves_unseen),
        cmocka_unit_test(unused_sessions_leave_memory_and_are_read_again),
        cmocka_unit_test(the_reader_of_the_last_event_lets_a_session_leave),
        cmocka_unit_test(followed_sessions_leave_memory_too),
        cmocka_unit_test(leaving_memory_costs_no_other_session_its_cache),
        cmocka_unit_test(files_go_with_their_sessions),
        cmocka_unit_test(typing_prepares_a_cold_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
