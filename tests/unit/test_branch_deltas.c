// The other answers of a turn reach the clients that follow while it runs: each piece once and in order,
// before the turn's end, also where an instance is lost or a client is slow; and go from memory then.
#include "tests/unit/sessions_fixture.h"

#define B fake_engine(1)
#define N_TOKENS 12
#define SAMPLING "{\"seed\":\"5\",\"max_tokens\":12,\"n\":3}"

static void start(void) {
    fx_start_with(1, "s", "tell", SAMPLING, false, NULL);
    fx_settle();
}
static void step_all(int n) {
    while (n-- > 0) {
        clock_fake_advance(&fx.clock, 1000);
        for (size_t i = 0; i < 2; i++) {
            fake_use(fake_engine(i));
            fx_step();
        }
    }
}
static void run_all(void) {
    for (int i = 0; i < 1000 && sessions_n_running(fx.ss); i++) step_all(1);
    fx_advance(30000);
    assert_int_equal(sessions_n_running(fx.ss), 0);
}

// What they say where nothing happens.
static char whole[2][2048];
static void tell_whole(void) {
    fx_setup_memory();
    fx_open_session(1, "s");
    start();
    run_all();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fx_follower(1, "s")->samples[i].n, N_TOKENS);
        strcpy(whole[i], fx_follower(1, "s")->samples[i].text);
    }
    assert_string_not_equal(whole[0], whole[1]);
    assert_int_equal(fx_session("s")->sampled_from, TURN_NONE);
    fx_teardown();
}
static void expect_whole(uint64_t client) {
    for (int i = 0; i < 2; i++)
        assert_string_equal(fx_follower(client, "s")->samples[i].text, whole[i]);
    assert_true(fx_follower(client, "s")->turns[0].done);
}

static void they_come_as_they_are_drawn(void **state) {
    tell_whole();
    fx_setup_memory();
    fx_open_session(1, "s");
    start();
    step_all(5);
    const struct follower *f = fx_follower(1, "s");
    assert_true(f->samples[0].n >= 3 && f->samples[0].n < N_TOKENS);
    assert_int_equal(f->samples[0].n, f->samples[1].n);
    fx_follower(2, "s")->last = -1;
    fx_attach(2, "s", -1); // while it runs: from their first token
    run_all();
    expect_whole(1);
    for (int i = 0; i < 2; i++) assert_string_equal(fx_follower(2, "s")->samples[i].text, whole[i]);
    fx_attach(3, "s", 0); // afterwards: not at all
    fx_settle();
    assert_true(fx_follower(3, "s")->turns[0].done);
    assert_int_equal(fx_follower(3, "s")->samples[0].n, 0);
    fx_teardown();
}

static void a_slow_client_gets_them_before_the_end(void **state) {
    tell_whole();
    for (size_t max_text = 1; max_text < 10000; max_text *= 10) {
        fx_setup_memory();
        fx_open_session(1, "s");
        fx.by_hand = true;
        start();
        run_all();
        struct follower *f = fx_follower(1, "s");
        f->last = 1;
        fx.max_text = max_text;
        assert_int_equal(fx_session("s")->sampled_from, 0);
        fx_take(1, f);
        expect_whole(1);
        fx_settle();
        assert_int_equal(fx_session("s")->sampled_from, TURN_NONE);
        fx_teardown();
    }
}

static void a_client_that_leaves_frees_them(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    fx.by_hand = true;
    start();
    run_all();
    assert_int_equal(fx_session("s")->sampled_from, 0);
    sessions_client_gone(fx.ss, 1);
    fx_settle();
    assert_int_equal(fx_session("s")->sampled_from, TURN_NONE);
    fx_teardown();
}

static void they_go_on_with_another_instance(void **state) {
    tell_whole();
    for (int after = 0; after < N_TOKENS; after++) {
        struct err err = {0};
        fx_setup_memory();
        if (fx_add_instance("b", B, &err) < 0) fail_msg("%s", err.text);
        fx_open_session(1, "s");
        start();
        step_all(after);
        fake_use(fake_engine(0));
        fake_lose();
        fx_settle();
        run_all();
        expect_whole(1);
        fx_teardown();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_come_as_they_are_drawn),
        cmocka_unit_test(a_slow_client_gets_them_before_the_end),
        cmocka_unit_test(a_client_that_leaves_frees_them),
        cmocka_unit_test(they_go_on_with_another_instance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
