// Closing and deleting: the running turn, the texts that stay or go, the events for clients, and
// requests that come meanwhile.
#include "tests/unit/sessions_fixture.h"

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
    // A slow reader still gets its last events. After that its pointer is no longer valid.
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

// A client that moves on before it took the event with its answer gets an answer nevertheless.
static void what_jumps_over_an_event_does_not_lose_its_answer(void **state) {
    for (int how = 0; how < 3; how++) {
        fx_setup_memory();
        fx.by_hand = true;
        struct ask_open o = {.id = "s", .sink_len = -1};
        struct request r = fx_request(1, "q1"), behind = fx_request(1, "q2");
        ask_open(fx.ss, &r, &o);
        if (how == 0) ask_for(fx.ss, &behind, REQUEST_DETACH, "s", TURN_HEAD);
        if (how == 1) ask_attach(fx.ss, &behind, "s", -1);
        if (how == 2) ask_get(fx.ss, &behind, "s", true, 0, -1);
        fx_settle();
        assert_int_equal(fx.answered[1], 1);
        assert_int_equal(fx_answer_to("q1")->kind, ANSWER_OPENED);
        assert_int_equal(fx.answered[2], 1);
        // The same with an update whose event was committed and announced but not taken.
        fx_attach(1, "s", -1);
        r = fx_request(1, "q3"), behind = fx_request(1, "q4");
        ask_update(fx.ss, &r, "s", "title", NULL, -1);
        fx_settle();
        assert_int_equal(fx.answered[3], 0);
        if (how == 0) ask_for(fx.ss, &behind, REQUEST_DETACH, "s", TURN_HEAD);
        if (how == 1) ask_attach(fx.ss, &behind, "s", -1);
        if (how == 2) ask_get(fx.ss, &behind, "s", true, 0, -1);
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
            struct request r = fx_request(closes[i].client, closes[i].request_id);
            ask_close(fx.ss, &r, "s", delete_it && i > 0);
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
    struct request r = fx_request(2, "delete");
    ask_close(fx.ss, &r, "s", true); // its save is running
    fx_start_with(3, "s", "too late", NULL, true, "start");
    r = fx_request(3, "get");
    ask_get(fx.ss, &r, "s", false, 0, -1);
    r = fx_request(4, "open");
    struct ask_open o = {.id = "s", .sink_len = -1};
    fx_follower(4, "s");
    ask_open(fx.ss, &r, &o);
    r = fx_request(5, "get2");
    ask_get(fx.ss, &r, "s", false, 0, -1);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_ends_the_turn_and_keeps_the_words),
        cmocka_unit_test(deleting_takes_all_traces),
        cmocka_unit_test(what_jumps_over_an_event_does_not_lose_its_answer),
        cmocka_unit_test(every_close_is_answered),
        cmocka_unit_test(what_comes_while_a_session_is_deleted_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
