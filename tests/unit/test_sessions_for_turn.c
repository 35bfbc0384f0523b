// Sessions that a protocol opens or forks for one turn: what becomes of them when that turn is refused.
#include "tests/unit/sessions_fixture.h"

static void open_for_turn(uint64_t client, const char *id) {
    struct request r = fx_request(client, "open"), open = ask_as(&r, REQUEST_OPEN, id);
    open.open.sink_len = -1;
    open.for_turn = true;
    fx_follower(client, id);
    sessions_submit(fx.ss, &open);
}

static void start_given(uint64_t client, const char *id, const struct given_answer *given,
                        int64_t after, bool for_turn) {
    struct request r = fx_request(client, "start"), start = ask_as(&r, REQUEST_START, id);
    start.turn = after;
    start.input = ask_content("hello");
    start.for_turn = for_turn;
    start.start.given = given;
    start.attach = true;
    sessions_submit(fx.ss, &start);
}

static void start_first(uint64_t client, const char *id) {
    start_given(client, id, NULL, TURN_HEAD, true);
}

static void leave(uint64_t client) {
    sessions_client_gone(fx.ss, client);
    fx_settle();
}

static size_t n_stored(void) {
    return fx_list(NULL, 0, NULL)->n_sessions;
}

static void a_session_goes_with_its_refused_turn(void **state) {
    fx_setup_file();
    fake.submit_rc = E_BUSY;
    open_for_turn(1, "s");
    start_first(1, "s");
    fx_settle();
    fx_expect_error("overloaded");
    assert_int_equal(n_stored(), 1); // its client may ask again
    leave(1);
    assert_null(fx_session("s"));
    assert_int_equal(n_stored(), 0);
    assert_int_equal(fx.n_removed, 1);
    fake.submit_rc = 0;
    open_for_turn(2, "s"); // the turn never comes
    fx_settle();
    leave(2);
    assert_int_equal(n_stored(), 0);
    fx_teardown();
}

static void a_session_stays_with_its_turn(void **state) {
    fx_setup_file();
    open_for_turn(1, "s");
    start_first(1, "s");
    fx_run();
    leave(1);
    assert_int_equal(n_stored(), 1);
    fx_open_session(2, "t"); // not for a turn
    leave(2);
    assert_int_equal(n_stored(), 2);
    fx_teardown();
}

static void a_session_stays_while_another_client_follows_it(void **state) {
    fx_setup_file();
    open_for_turn(1, "s");
    fx_settle();
    fx_attach(2, "s", 0);
    leave(1);
    assert_int_equal(n_stored(), 1);
    leave(2);
    assert_int_equal(n_stored(), 0);
    fx_teardown();
}

static void a_turn_starts_only_where_its_client_opened_the_session(void **state) {
    fx_setup_file();
    open_for_turn(1, "s");
    open_for_turn(2, "s");
    start_first(2, "s");
    fx_settle();
    assert_string_equal(fx_answer_to("open")->code, "session_exists");
    assert_string_equal(fx_answer_to("start")->code, "session_exists");
    assert_int_equal(fx_get(1, "s")->n_turns, 0);
    fx_teardown();
}

static void a_fork_goes_with_its_refused_turn(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "old");
    struct request r = fx_request(2, "fork"), fork = ask_as(&r, REQUEST_FORK, "s");
    fork.turn = 0;
    fork.fork.new_session = "copy";
    fork.for_turn = true;
    fx_follower(2, "copy");
    sessions_submit(fx.ss, &fork);
    fake.submit_rc = E_BUSY;
    start_first(2, "copy");
    fx_settle();
    fx_expect_error("overloaded");
    leave(2);
    assert_null(fx_session("copy"));
    assert_int_equal(n_stored(), 1);
    fx_teardown();
}

// Opens "s" for a turn whose commit fails; then the disk works again.
static void first_turn_is_not_saved(void) {
    fx_setup_file();
    open_for_turn(1, "s");
    fx_settle();
    fx_disk_full(true);
    start_first(1, "s");
    fx_settle();
    fx_expect_error("store_failed");
    fx_disk_full(false);
}

static void a_session_goes_whose_first_turn_was_not_saved(void **state) {
    first_turn_is_not_saved();
    leave(1);
    fx_run(); // the engine gives the undone turn up
    assert_int_equal(n_stored(), 0);
    fx_teardown();
}

// The process ends between the opening and the first turn: the next start removes the session, and no other.
static void a_session_without_its_turn_goes_at_the_next_start(void **state) {
    fx_setup_file();
    fx_open_session(1, "explicit");
    open_for_turn(2, "used");
    start_first(2, "used");
    fx_run();
    open_for_turn(3, "refused");
    fx_settle();
    fake.submit_rc = E_BUSY;
    start_first(3, "refused");
    fx_settle();
    fx_expect_error("overloaded");
    fake.submit_rc = 0;
    open_for_turn(4, "unused");
    fx_settle();
    assert_int_equal(n_stored(), 4);
    fx_restart();
    assert_int_equal(n_stored(), 2);
    assert_int_equal(fx_get(1, "explicit")->n_turns, 0);
    assert_int_equal(fx_get(1, "used")->n_turns, 1);
    fx_teardown();
}

// The first turn's commit fails and is taken back; a later one is accepted.
static void a_session_that_got_its_turn_late_stays(void **state) {
    first_turn_is_not_saved();
    fx_run();
    start_first(1, "s");
    fx_run();
    fx_restart();
    assert_int_equal(n_stored(), 1);
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    fx_teardown();
}

static void a_refused_turn_takes_the_given_answer_back(void **state) {
    int32_t ids[] = {5, 6, 7};
    struct given_answer given = {.of = 0,
                                 .question = "old",
                                 .answer = "new words",
                                 .input = ids,
                                 .output = ids,
                                 .n_input = 3,
                                 .n_output = 3,
                                 .told = NULL,
                                 .shown = "{}"};
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "old");
    fake.submit_rc = E_BUSY;
    start_given(1, "s", &given, TURN_NONE, false);
    fx_settle();
    fx_expect_error("overloaded");
    assert_int_equal(fx_session("s")->n_turns, 1);
    assert_int_equal(fx_session("s")->head, 0);
    fake.submit_rc = 0;
    start_given(1, "s", &given, TURN_NONE, false);
    fx_run();
    assert_int_equal(fx_session("s")->n_turns, 3);
    assert_int_equal(fx_session("s")->head, 2);
    fx_restart();
    assert_int_equal(fx_get(1, "s")->n_turns, 2); // of the path
    fx_teardown();
}

// An untitled session that a client opened for itself: its client comes again with the turn.
static void a_turn_that_is_refused_for_the_moment_leaves_its_session(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fake.submit_rc = E_BUSY;
    start_given(1, "s", NULL, TURN_HEAD, false);
    fx_settle();
    fx_expect_error("overloaded");
    leave(1);
    assert_int_equal(n_stored(), 1);
    fx_attach(2, "s", 0);
    fx_settle();
    sessions_drain(fx.ss);
    start_given(2, "s", NULL, TURN_HEAD, false);
    fx_settle();
    fx_expect_error("shutting_down");
    leave(2);
    fx_restart();
    assert_int_equal(n_stored(), 1);
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_goes_with_its_refused_turn),
        cmocka_unit_test(a_session_stays_with_its_turn),
        cmocka_unit_test(a_session_stays_while_another_client_follows_it),
        cmocka_unit_test(a_turn_starts_only_where_its_client_opened_the_session),
        cmocka_unit_test(a_fork_goes_with_its_refused_turn),
        cmocka_unit_test(a_session_goes_whose_first_turn_was_not_saved),
        cmocka_unit_test(a_session_without_its_turn_goes_at_the_next_start),
        cmocka_unit_test(a_session_that_got_its_turn_late_stays),
        cmocka_unit_test(a_turn_that_is_refused_for_the_moment_leaves_its_session),
        cmocka_unit_test(a_refused_turn_takes_the_given_answer_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
