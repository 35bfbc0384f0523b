// Hot instances: their idle sessions go to an instance that has room, with their caches, and none goes to and fro.
#include "tests/unit/instances_fixture.h"

// Looks often, for a while.
static void look(int64_t us) {
    for (int64_t at = 0; at < us; at += 300000) {
        fx_advance(300000);
        step_all();
        fx_settle();
    }
}
// Sessions s0 to s7 with idle caches on the first instance.
static void setup_idle(void) {
    char id[8];
    setup_pair();
    fakes[0].host_blocks = fakes[1].host_blocks = 1000;
    instance_set(at("b"), INSTANCE_LOST);
    for (int i = 0; i < 8; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_open_session(1 + (uint64_t)i / 4, id);
        fx_start(1 + (uint64_t)i / 4, id, "x");
        run_all();
    }
    instance_set(at("b"), INSTANCE_SERVING);
    assert_int_equal(at("")->n_sessions, 8);
}
static void expect_handed(int n) {
    assert_int_equal(fakes[0].n_exported, n);
    assert_int_equal(fakes[1].n_imported, n);
    assert_int_equal(fakes[1].n_exported, 0);
    assert_int_equal(at("")->n_sessions, 8 - n);
    assert_int_equal(at("b")->n_sessions, n);
}

static void a_hot_one_hands_idle_sessions_over(void **state) {
    setup_idle();
    fakes[0].blocks_free = fakes[1].blocks_free =
        fakes[0].info.n_blocks * fakes[0].info.block_tokens;
    look(9000000);
    expect_handed(0);     // neither is hot
    at("")->n_turns += 4; // of 4 places
    look(9000000);
    expect_handed(4);
    assert_int_equal(fx_session("s0")->cache, PLACE_HOST); // idle longest
    assert_int_equal(fx_session("s7")->cache, PLACE_DEVICE);
    assert_int_equal(fx_follower(1, "s0")->count[EVENT_PARKED], 1);
    at("")->n_turns -= 4;
    at("b")->n_turns += 4; // none goes back
    look(9000000);
    expect_handed(4);
    at("b")->n_turns -= 4;
    turn("s0", "y");
    assert_ptr_equal(fx_session("s0")->instance, at("b"));
    assert_string_equal(engine_cache_source_name(fx_session("s0")->turns[1]->rec.numbers.source),
                        "kept");
    fx_teardown();
}

static void a_full_cache_hands_over_what_rests(void **state) {
    setup_idle();
    int32_t all = fakes[0].info.n_blocks * fakes[0].info.block_tokens;
    fakes[0].blocks_free = all / 20;
    fakes[1].blocks_free = all / 4; // not much either
    look(9000000);
    expect_handed(0);
    fakes[1].blocks_free = all / 2;
    fakes[1].host_blocks = 0; // its cache could not travel
    look(9000000);
    expect_handed(0);
    fakes[1].host_blocks = 1000;
    turn("s0", "y"); // it rests no more
    look(300000);
    expect_handed(1);
    assert_ptr_equal(fx_session("s0")->instance, at(""));
    assert_ptr_equal(fx_session("s1")->instance, at("b"));
    fx_teardown();
}

static void a_turn_that_comes_while_its_session_is_handed_over(void **state) {
    setup_idle();
    fx_advance(9000000);
    at("")->n_turns += 4;
    clock_fake_advance(&fx.clock, 300000);
    sessions_poll(fx.ss); // on its way
    assert_int_equal(fx_session("s0")->cache, PLACE_TRAVELS);
    fx_start(1, "s0", "y");
    run_all();
    assert_string_equal(fx_follower(1, "s0")->turns[1].finish, "eos");
    assert_ptr_equal(fx_session("s0")->instance, at(""));
    assert_int_equal(fx_session("s0")->cache, PLACE_DEVICE);
    at("")->n_turns -= 4;
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hot_one_hands_idle_sessions_over),
        cmocka_unit_test(a_full_cache_hands_over_what_rests),
        cmocka_unit_test(a_turn_that_comes_while_its_session_is_handed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
