// Turns whose last client is lost: they finish, or end after the session's time without a client.
#include "tests/unit/sessions_fixture.h"

static int setup(void **state) {
    fx_setup_memory();
    fake.default_tokens = 100;
    return 0;
}

static int teardown(void **state) {
    fx_teardown();
    return 0;
}

static void open_with(uint64_t client, const char *id, int64_t cancel_after_ms) {
    struct request r = fx_request(client, "open");
    struct ask_open o = {.id = id, .sink_len = -1, .cancel_after_ms = cancel_after_ms};
    fx_follower(client, id);
    ask_open(fx.ss, &r, &o);
    fx_settle();
}

static void talk(void) {
    fx_start(1, "s", "hello");
    for (int i = 0; i < 5; i++) fx_step();
}

static const char *finish(int turn) {
    return fx_session("s")->turns[turn]->rec.finish_reason;
}

static void it_finishes_by_default(void **state) {
    open_with(1, "s", 0);
    talk();
    sessions_client_gone(fx.ss, 1);
    fx_advance(100000000000);
    fx_run();
    assert_string_equal(finish(0), "eos");
}

static void it_ends_after_its_time(void **state) {
    open_with(1, "s", 500);
    talk();
    fx_start_with(1, "s", "and then", NULL, true, NULL);
    fx_settle();
    sessions_client_gone(fx.ss, 1);
    fx_advance(499000);
    fx_step();
    assert_string_equal(finish(0), "");
    assert_in_range(sessions_poll(fx.ss), 1, 1000); // the loop wakes for it
    fx_advance(1000);
    size_t said = fx_session("s")->turns[0]->out.n;
    fx_step(); // within one step
    assert_string_equal(finish(0), "cancelled");
    assert_string_equal(finish(1), "cancelled");
    assert_string_equal(fx_session("s")->turns[0]->rec.error_code, "client_lost");
    assert_in_range(fx_session("s")->turns[0]->out.n, said, said + 1);
    fx_attach(2, "s", 0); // the text so far is kept, and so is the cache
    fx_run();
    assert_string_equal(fx_follower(2, "s")->turns[0].error, "client_lost");
    fx_turn(2, "s", "again");
    assert_int_equal(fx_follower(2, "s")->turns[2].numbers.source, CACHE_KEPT);
    assert_string_equal(fx_follower(2, "s")->turns[2].error, "");
}

static void who_comes_back_in_time_keeps_it(void **state) {
    open_with(1, "s", 500);
    talk();
    fx_attach(2, "s", 0);
    sessions_client_gone(fx.ss, 1); // another one is there still
    fx_advance(600000);
    assert_string_equal(finish(0), "");
    sessions_client_gone(fx.ss, 2);
    fx_advance(400000);
    fx_attach(3, "s", 0);
    fx_advance(10000000);
    assert_string_equal(finish(0), "");
    sessions_client_gone(fx.ss, 3);
    fx_advance(400000);
    fx_start_with(4, "s", "not attached, but here", NULL, true, NULL);
    fx_advance(400000);
    fx_run();
    assert_string_equal(finish(0), "eos");
    assert_string_equal(finish(1), "eos");
}

// Detaching is not a loss; a turn that ends by itself leaves no clock running for the next one.
static void who_detaches_is_not_lost(void **state) {
    open_with(1, "s", 500);
    talk();
    struct request r = fx_request(1, "detach");
    ask_for(fx.ss, &r, REQUEST_DETACH, "s", TURN_HEAD);
    fx_advance(10000000);
    assert_string_equal(finish(0), "");
    fx_attach(1, "s", 0);
    sessions_client_gone(fx.ss, 1);
    fx_advance(100000);
    fx_run();
    assert_string_equal(finish(0), "eos");
    fx_start(5, "s", "more");
    fx_advance(600000);
    fx_run();
    assert_string_equal(finish(1), "eos");
}

static void a_turn_whose_caller_left_before_it_began(void **state) {
    open_with(1, "s", 500);
    fx_turn(1, "s", "one");
    sessions_client_gone(fx.ss, 1);
    fx.ss->o.max_resident_sessions = 0;
    fx_advance(60000000);
    fx_step();
    fx_settle();
    assert_null(fx_session("s")); // it has to be read first
    fx.ss->o.max_resident_sessions = 100;
    fx_start(2, "s", "two");
    sessions_client_gone(fx.ss, 2);
    fx_settle();
    fx_step();
    fx_advance(499000);
    fx_step();
    assert_string_equal(finish(1), "");
    fx_advance(2000);
    fx_attach(3, "s", 0);
    fx_run();
    assert_string_equal(finish(1), "cancelled");
}

// A turn's author counts while its connection lasts, attached or not, even if other clients leave.
static void an_author_need_not_attach(void **state) {
    struct request r = fx_request(2, "detach");
    open_with(1, "s", 500);
    fx_turn(1, "s", "one");
    sessions_client_gone(fx.ss, 1);
    fx_start(2, "s", "two");
    fx_step();
    fx_advance(10000000); // it is there
    fx_attach(3, "s", 0);
    sessions_client_gone(fx.ss, 3); // an onlooker leaves: the author is still connected
    fx_advance(10000000);
    assert_string_equal(finish(1), "");
    sessions_client_gone(fx.ss, 2);
    fx_advance(499000);
    fx_step();
    assert_string_equal(finish(1), "");
    fx_advance(1000);
    fx_run();
    assert_string_equal(finish(1), "cancelled");
    assert_string_equal(fx_session("s")->turns[1]->rec.error_code, "client_lost");
    // A client that repeats its request counts again, one that detaches does not count, and an
    // ended turn keeps no client.
    fx_start_with(2, "s", "three", NULL, false, "q3");
    fx_step();
    sessions_client_gone(fx.ss, 2);
    fx_advance(400000);
    fx_start_with(4, "s", "three", NULL, false, "q3");
    fx_advance(10000000);
    fx_run();
    assert_string_equal(finish(2), "eos");
    assert_int_equal(fx_session("s")->author, CLIENT_GONE);
    fx_start(2, "s", "four");
    fx_step();
    ask_for(fx.ss, &r, REQUEST_DETACH, "s", TURN_HEAD);
    fx_settle();
    sessions_client_gone(fx.ss, 2);
    fx_advance(10000000);
    fx_run();
    assert_string_equal(finish(3), "eos");
    fx_start(2, "s", "five"); // deleted under it
    struct request d = fx_request(4, "delete");
    ask_close(fx.ss, &d, "s", true);
    fx_run();
    assert_null(fx_session("s"));
    sessions_client_gone(fx.ss, 2);
    fx_settle();
}

static void it_is_a_setting_of_the_session(void **state) {
    struct request r = fx_request(1, "set");
    open_with(1, "s", 0);
    ask_update(fx.ss, &r, "s", NULL, NULL, 700);
    fx_settle();
    assert_int_equal(fx_session("s")->rec.cancel_after_ms, 700);
    ask_update(fx.ss, &r, "s", "Title", NULL, -1);
    fx_settle();
    assert_int_equal(fx_session("s")->rec.cancel_after_ms, 700);
    ask_update(fx.ss, &r, "s", NULL, NULL, SESSION_CANCEL_AFTER_MAX_MS + 1);
    fx_settle();
    fx_expect_error("invalid");
    // Through the database and back.
    sessions_client_gone(fx.ss, 1);
    fx.ss->o.max_resident_sessions = 0;
    fx_settle();
    fx_advance(1000000);
    assert_null(fx_session("s"));
    fx.ss->o.max_resident_sessions = 100;
    fx_attach(2, "s", 0);
    assert_int_equal(fx_session("s")->rec.cancel_after_ms, 700);
    ask_update(fx.ss, &r, "s", NULL, NULL, 0);
    fx_settle();
    assert_int_equal(fx_session("s")->rec.cancel_after_ms, 0);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(it_finishes_by_default),
        T(it_ends_after_its_time),
        T(who_comes_back_in_time_keeps_it),
        T(who_detaches_is_not_lost),
        T(a_turn_whose_caller_left_before_it_began),
        T(an_author_need_not_attach),
        T(it_is_a_setting_of_the_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
