// START in a session of its own, new or a fork: what becomes of the session when the turn is refused.
#include "tests/unit/sessions_fixture.h"

static void start_first(uint64_t client, const char *id) {
    fx_start_in(client, id, START_IN_NEW, TURN_HEAD, "hello");
}

static void start_given(uint64_t client, const char *id, const struct given_answer *given) {
    struct request r = fx_request(client, "start"), start = ask_as(&r, REQUEST_START, id);
    start.turn = TURN_NONE;
    start.input = ask_content("hello");
    start.start.given = given;
    start.attach = true;
    sessions_submit(fx.ss, &start);
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

// The refusal comes before anything is written, so the client may ask again at once.
static void a_refused_turn_leaves_no_session(void **state) {
    fx_setup_file();
    fake.submit_rc = E_BUSY;
    start_first(1, "s");
    assert_null(fx_session("s"));
    fx_settle();
    expect_refused_once(1, "overloaded");
    assert_int_equal(n_stored(), 0);
    fake.submit_rc = 0;
    start_first(1, "s");
    fx_run();
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    fx_teardown();
}

// While the store cannot write, the engine already draws tokens. No client hears of the session or the turn before the
// commit that has both.
static void a_session_and_its_turn_are_one_commit(void **state) {
    fx_setup_file();
    int lock = fx_hold_write_lock();
    start_first(1, "s");
    const struct follower *f = fx_follower(1, "s");
    for (int i = 0; i < 3; i++) {
        sessions_poll(fx.ss);
        fake_step();
    }
    assert_int_equal(fake.n_submitted, 1);
    assert_true(fx_session("s")->turns[0]->out.n > 0);
    assert_int_equal(f->n_events, 0);
    assert_int_equal(fx.n_answers, 0);
    close(lock);
    fx_settle();
    assert_int_equal(fx_answer_to("start")->kind, ANSWER_ACCEPTED);
    assert_int_equal(f->count[EVENT_OPENED], 1);
    assert_true(f->turns[0].started);
    fx_run();
    assert_true(f->turns[0].done);
    fx_restart();
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    fx_teardown();
}

// A client hears of a turn's end after the commit, too.
static void a_turn_may_end_before_its_session_is_committed(void **state) {
    fx_setup_file();
    int lock = fx_hold_write_lock();
    start_first(1, "s");
    for (int i = 0; i < 20; i++) {
        sessions_poll(fx.ss);
        fake_step();
    }
    sessions_poll(fx.ss);
    assert_int_equal(fx_session("s")->turns[0]->state, TURN_DONE);
    assert_int_equal(fx_follower(1, "s")->n_events, 0);
    close(lock);
    fx_run();
    assert_true(fx_follower(1, "s")->turns[0].done);
    fx_restart();
    assert_string_equal(fx_get(1, "s")->turns[0].finish, "eos");
    fx_teardown();
}

static void a_server_that_ends_before_the_commit_interrupts_the_turn(void **state) {
    fx_setup_file();
    int lock = fx_hold_write_lock();
    start_first(1, "s");
    sessions_poll(fx.ss);
    fake_step();
    close(lock);
    fx_restart();
    assert_string_equal(fx_get(1, "s")->turns[0].finish, "interrupted");
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

// The engine draws before the commit is refused: its turn must not replace the snapshot of the session on disk.
static void a_refused_new_session_keeps_the_snapshot_of_the_one_on_disk(void **state) {
    char lasting[SESSION_LASTING_BYTES];
    fx_setup_file();
    start_first(1, "s");
    assert_true(fake.names_snapshot);
    fx_run();
    fx_restart();
    session_lasting_name("local", "s", lasting);
    fake.files[0] = lasting;
    start_first(2, "s");
    assert_false(fake.names_snapshot);
    fx_run();
    expect_refused_once(2, "session_exists");
    assert_string_equal(fake.files[0], lasting);
    fx_turn(3, "s", "again");
    assert_true(fake.names_snapshot);
    fx_teardown();
}

static void a_session_that_cannot_be_opened_is_refused_once(void **state) {
    fx_setup_file();
    fx_disk_full(true);
    start_first(1, "s");
    assert_int_equal(fake.n_submitted, 1);
    fx_settle();
    expect_refused_once(1, "store_failed");
    fx_disk_full(false);
    fx_run(); // the engine gives the undone turn up
    assert_int_equal(sessions_n_running(fx.ss), 0);
    assert_int_equal(fake_n_running(), 0);
    assert_int_equal(fake.n_asked, 1);
    assert_int_equal(n_stored(), 0);
    start_first(1, "s");
    fx_run();
    fx_restart();
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
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
    fx_start_in(2, "s", START_HERE, 0, "hello");
    fx_settle();
    fx_expect_error("session_busy");
    fx_start_in(2, "s", START_OR_FORK, 0, "hello");
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
    fx_start_in(2, "s", START_OR_FORK, 0, "hello");
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
    fx_start_in(2, "s", START_OR_FORK, 0, "hello");
    fx_run();
    assert_string_equal(fx_answer_to("start")->session_id, "s");
    assert_int_equal(n_stored(), 1);
    assert_int_equal(fx_get(2, "s")->n_turns, 2);
    fx_teardown();
}

static void a_refused_turn_leaves_no_fork(void **state) {
    setup_busy();
    fake.submit_rc = E_BUSY;
    fx_start_in(2, "s", START_OR_FORK, 0, "hello");
    fx_settle();
    fx_expect_error("overloaded");
    assert_int_equal(n_stored(), 1);
    assert_int_equal(fake.n_forked, 1);
    assert_int_equal(fake.n_released, 1);
    fake.submit_rc = 0;
    fx_run();
    fx_teardown();
}

static void a_fork_and_its_turn_are_one_commit(void **state) {
    setup_busy();
    int lock = fx_hold_write_lock(), n = fake.n_submitted;
    fx_start_in(2, "s", START_OR_FORK, 0, "hello");
    sessions_poll(fx.ss);
    assert_int_equal(fake.n_submitted, n + 1);
    assert_int_equal(fx.followers[2][0].n_events, 0);
    close(lock);
    fx_run();
    assert_int_equal(n_stored(), 2);
    char fork[80];
    snprintf(fork, sizeof fork, "%s", fx_answer_to("start")->session_id);
    fx_restart();
    assert_int_equal(fx_get(2, fork)->n_turns, 2);
    fx_teardown();
}

// Opens a session, and asks for a turn in it whose words do not fit.
static void open_and_be_refused(uint64_t client, const char *id) {
    char words[5000];
    memset(words, 'a', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    fx_open_session(client, id);
    fx_start_in(client, id, START_HERE, TURN_HEAD, words);
    fx_settle();
    fx_expect_error("session_full");
}

// A turn in session "s" is there after the next start.
static void expect_later_turn_kept(uint64_t client) {
    fx_turn(client, "s", "hello");
    fx_restart();
    const struct seen_answer *a = fx_get(client, "s");
    assert_int_equal(a->kind, ANSWER_STATE);
    assert_int_equal(a->n_turns, 1);
}

// If the session left memory, it would be temporary when it is read again, and the next start would remove it with its
// later turns.
static void a_session_whose_only_turn_was_refused_stays_in_memory(void **state) {
    fx_setup_file();
    open_and_be_refused(1, "s");
    fx.ss->o.max_resident_sessions = 1;
    fx_open_session(2, "a");
    fx_open_session(2, "b");
    expect_later_turn_kept(1);
    fx_teardown();
}

// A session that a full disk refused to delete stays, and is not temporary any more.
static void a_session_that_could_not_be_deleted_keeps_its_later_turns(void **state) {
    fx_setup_file();
    open_and_be_refused(1, "s");
    fx_disk_full(true);
    sessions_client_gone(fx.ss, 1);
    fx_settle();
    assert_false(sessions_store_ok(fx.ss, NULL));
    fx_disk_full(false);
    fx_advance(2100000);
    expect_later_turn_kept(2);
    fx_teardown();
}

// A session that its client opened and whose only turn is refused for its input: the next start removes it, and no other.
static void a_session_whose_only_turn_was_refused_goes_at_the_next_start(void **state) {
    fx_setup_file();
    fx_open_session(1, "empty");
    open_and_be_refused(2, "refused");
    open_and_be_refused(3, "late");
    fx_turn(3, "late", "hello");
    assert_int_equal(n_stored(), 3);
    fx_restart();
    assert_int_equal(n_stored(), 2);
    assert_int_equal(fx_get(1, "empty")->n_turns, 0);
    assert_int_equal(fx_get(1, "late")->n_turns, 1);
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
    start_given(1, "s", &given);
    fx_settle();
    fx_expect_error("overloaded");
    assert_int_equal(fx_session("s")->n_turns, 1);
    assert_int_equal(fx_session("s")->head, 0);
    fake.submit_rc = 0;
    start_given(1, "s", &given);
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
    fx_start_in(1, "s", START_HERE, TURN_HEAD, "hello");
    fx_settle();
    fx_expect_error("overloaded");
    leave(1);
    assert_int_equal(n_stored(), 1);
    fx_attach(2, "s", 0);
    fx_settle();
    sessions_drain(fx.ss);
    fx_start_in(2, "s", START_HERE, TURN_HEAD, "hello");
    fx_settle();
    fx_expect_error("shutting_down");
    leave(2);
    fx_restart();
    assert_int_equal(n_stored(), 1);
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_turn_leaves_no_session),
        cmocka_unit_test(a_session_and_its_turn_are_one_commit),
        cmocka_unit_test(a_turn_may_end_before_its_session_is_committed),
        cmocka_unit_test(a_server_that_ends_before_the_commit_interrupts_the_turn),
        cmocka_unit_test(a_session_stays_with_its_turn),
        cmocka_unit_test(a_new_session_that_there_is_already_is_refused_once),
        cmocka_unit_test(a_refused_new_session_keeps_the_snapshot_of_the_one_on_disk),
        cmocka_unit_test(a_session_that_cannot_be_opened_is_refused_once),
        cmocka_unit_test(a_busy_session_is_forked),
        cmocka_unit_test(a_closed_session_is_forked),
        cmocka_unit_test(a_session_that_is_free_is_not_forked),
        cmocka_unit_test(a_refused_turn_leaves_no_fork),
        cmocka_unit_test(a_fork_and_its_turn_are_one_commit),
        cmocka_unit_test(a_session_whose_only_turn_was_refused_stays_in_memory),
        cmocka_unit_test(a_session_that_could_not_be_deleted_keeps_its_later_turns),
        cmocka_unit_test(a_session_whose_only_turn_was_refused_goes_at_the_next_start),
        cmocka_unit_test(a_refused_turn_takes_the_given_answer_back),
        cmocka_unit_test(a_turn_that_is_refused_for_the_moment_leaves_its_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
