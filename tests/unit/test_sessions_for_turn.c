// START in a session of its own, new or a fork: what becomes of the session when the turn is refused.
#include "tests/unit/sessions_fixture.h"

static void open_for_turn(uint64_t client, const char *id) {
    struct request r = fx_request(client, "open"), open = ask_as(&r, REQUEST_OPEN, id);
    open.open.sink_len = -1;
    open.for_turn = true;
    fx_follower(client, id);
    sessions_submit(fx.ss, &open);
}

static void start_in(uint64_t client, const char *id, enum start_in in, int64_t after,
                     const struct given_answer *given) {
    struct request r = fx_request(client, "start"), start = ask_as(&r, REQUEST_START, id);
    start.turn = after;
    start.input = ask_content("hello");
    start.start.in = in;
    start.start.given = given;
    start.attach = true;
    if (in == START_IN_NEW) fx_follower(client, id);
    sessions_submit(fx.ss, &start);
}

static void start_first(uint64_t client, const char *id) {
    start_in(client, id, START_IN_NEW, TURN_HEAD, NULL);
}

static void expect_refused_once(uint64_t client, const char *code) {
    const struct seen_answer *refused = NULL;
    for (int i = 0; i < fx.n_answers; i++) {
        if (fx.answers[i].client != client) continue;
        assert_null(refused);
        refused = &fx.answers[i];
    }
    assert_non_null(refused);
    assert_string_equal(refused->code, code);
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
    start_first(1, "s");
    fx_run();
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
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

// Also where the session is on disk alone, which its commit finds out.
static void a_new_session_that_there_is_already_is_refused_once(void **state) {
    fx_setup_file();
    start_first(1, "s");
    start_first(2, "s");
    fx_run();
    expect_refused_once(2, "session_exists");
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    fx_restart();
    start_first(2, "s");
    fx_run();
    expect_refused_once(2, "session_exists");
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    fx_teardown();
}

static void a_session_that_cannot_be_opened_is_refused_once(void **state) {
    fx_setup_file();
    fx_disk_full(true);
    start_first(1, "s");
    fx_settle();
    expect_refused_once(1, "store_failed");
    fx_disk_full(false);
    assert_int_equal(n_stored(), 0);
    fx_teardown();
}

// "s" has two turns, and runs the second one.
static void setup_busy(void) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "old");
    fx_start(1, "s", "runs");
    fx_settle();
}

static void a_busy_session_is_forked(void **state) {
    setup_busy();
    start_in(2, "s", START_HERE, 0, NULL);
    fx_settle();
    fx_expect_error("session_busy");
    start_in(2, "s", START_OR_FORK, 0, NULL);
    fx_run();
    const struct seen_answer *a = fx_answer_to("start");
    assert_int_equal(a->kind, ANSWER_ACCEPTED);
    assert_string_not_equal(a->session_id, "s");
    assert_int_equal(n_stored(), 2);
    assert_int_equal(fx_get(2, "s")->n_turns, 2);
    fx_teardown();
}

static void a_closed_session_is_forked(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "old");
    struct request r = fx_request(1, "close"), close = ask_as(&r, REQUEST_CLOSE, "s");
    sessions_submit(fx.ss, &close);
    fx_settle();
    start_in(2, "s", START_OR_FORK, 0, NULL);
    fx_run();
    assert_int_equal(fx_answer_to("start")->kind, ANSWER_ACCEPTED);
    assert_int_equal(n_stored(), 2);
    fx_teardown();
}

static void a_session_that_is_free_is_not_forked(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "old");
    fx_follower(2, "s")->last = -1;
    start_in(2, "s", START_OR_FORK, 0, NULL);
    fx_run();
    assert_string_equal(fx_answer_to("start")->session_id, "s");
    assert_int_equal(n_stored(), 1);
    assert_int_equal(fx_get(2, "s")->n_turns, 2);
    fx_teardown();
}

static void a_fork_goes_with_its_refused_turn(void **state) {
    setup_busy();
    fake.submit_rc = E_BUSY;
    start_in(2, "s", START_OR_FORK, 0, NULL);
    fx_settle();
    fx_expect_error("overloaded");
    leave(2);
    fake.submit_rc = 0;
    fx_run();
    assert_int_equal(n_stored(), 1);
    fx_teardown();
}

// Opens "s" for a turn whose commit fails; then the disk works again.
static void first_turn_is_not_saved(void) {
    fx_setup_file();
    open_for_turn(1, "s");
    fx_settle();
    fx_disk_full(true);
    start_in(1, "s", START_IN_OPENED, TURN_HEAD, NULL);
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
    start_first(2, "used");
    fx_run();
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
    start_in(1, "s", START_IN_OPENED, TURN_HEAD, NULL);
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
    start_in(1, "s", START_HERE, TURN_NONE, &given);
    fx_settle();
    fx_expect_error("overloaded");
    assert_int_equal(fx_session("s")->n_turns, 1);
    assert_int_equal(fx_session("s")->head, 0);
    fake.submit_rc = 0;
    start_in(1, "s", START_HERE, TURN_NONE, &given);
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
    start_in(1, "s", START_HERE, TURN_HEAD, NULL);
    fx_settle();
    fx_expect_error("overloaded");
    leave(1);
    assert_int_equal(n_stored(), 1);
    fx_attach(2, "s", 0);
    fx_settle();
    sessions_drain(fx.ss);
    start_in(2, "s", START_HERE, TURN_HEAD, NULL);
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
        cmocka_unit_test(a_new_session_that_there_is_already_is_refused_once),
        cmocka_unit_test(a_session_that_cannot_be_opened_is_refused_once),
        cmocka_unit_test(a_busy_session_is_forked),
        cmocka_unit_test(a_closed_session_is_forked),
        cmocka_unit_test(a_session_that_is_free_is_not_forked),
        cmocka_unit_test(a_fork_goes_with_its_refused_turn),
        cmocka_unit_test(a_session_goes_whose_first_turn_was_not_saved),
        cmocka_unit_test(a_session_without_its_turn_goes_at_the_next_start),
        cmocka_unit_test(a_session_that_got_its_turn_late_stays),
        cmocka_unit_test(a_turn_that_is_refused_for_the_moment_leaves_its_session),
        cmocka_unit_test(a_refused_turn_takes_the_given_answer_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
