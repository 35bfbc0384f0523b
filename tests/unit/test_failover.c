// Turns whose instance fails or is drained while they run: they go on elsewhere with the same tokens and
// the same text, whenever that happens. The fake engine holds text back, as the real one does.
#include "tests/unit/instances_fixture.h"

#define N_TOKENS 12

static void lose(struct engine *e) {
    fake_use(e);
    fake_lose();
    fx_settle();
}
static void start(uint64_t client, const char *id) {
    fx_start_with(client, id, "tell", "{\"seed\":\"5\",\"max_tokens\":12}", false, NULL);
    fx_settle();
}
static struct turn *running(const char *id) {
    struct session *s = fx_session(id);
    return session_turn(s, s->running);
}
// The lost instance's engine has started again.
static void reopen(const char *name) {
    fake_use(at(name)->engine);
    fake.lost = false;
    fake.reopened = true;
    fx_settle();
    assert_string_equal(instance_state_name(at(name)->state), "serving");
    fake_use(at(name)->engine);
    fake.reopened = false;
}

// What the turn says where nothing happens.
static struct seen_turn whole;
static void tell_whole(void) {
    fx_setup_memory();
    fx_open_session(1, "s");
    start(1, "s");
    run_all();
    whole = fx_follower(1, "s")->turns[0];
    assert_int_equal(whole.n_ids, N_TOKENS);
    fx_teardown();
}
static void expect_whole(uint64_t client, const char *id) {
    const struct seen_turn *t = &fx_follower(client, id)->turns[0];
    assert_string_equal(t->finish, whole.finish);
    assert_int_equal(t->n_ids, whole.n_ids);
    assert_memory_equal(t->ids, whole.ids, whole.n_ids * sizeof *t->ids);
    assert_memory_equal(t->logprobs, whole.logprobs, whole.n_ids * sizeof *t->logprobs);
    assert_string_equal(t->text, whole.text);
}

static void a_turn_goes_on_wherever_it_is(void **state) {
    tell_whole();
    for (int after = 0; after <= N_TOKENS + 1; after++) {
        setup_pair();
        fx_open_session(1, "s");
        start(1, "s");
        assert_int_equal(running("s")->state, TURN_SUBMITTED);
        steps(after);
        if (after > 0)
            assert_int_equal(fx_session("s")->turns[0]->state,
                             after > N_TOKENS ? TURN_DONE : TURN_RUNNING);
        lose(A);
        // The other instance has it in its queue. A turn that the lost one had not begun is no suspect.
        if (after <= N_TOKENS) assert_int_equal(running("s")->state, TURN_SUBMITTED);
        if (after <= N_TOKENS) assert_int_equal(running("s")->n_lost, after > 0);
        run_all();
        expect_whole(1, "s");
        bool ended = after > N_TOKENS;
        assert_int_equal(fx.n_moved, !ended);
        assert_int_equal(submitted(B), !ended);
        if (!ended) assert_ptr_equal(fx_session("s")->instance, at("b"));
        if (ended) {
            sessions_lose_instance(fx.ss, "");
            fx_advance(30000);
            assert_string_equal(fx_follower(1, "s")->last_reason, "lost");
        }
        assert_string_equal(instance_state_name(at("")->state), "lost");
        start(1, "s");
        run_all();
        assert_int_equal(fx_follower(1, "s")->turns[1].n_ids, N_TOKENS);
        fx_teardown();
    }
}

// Its end is an error already, so another instance would only compute what is dropped.
static void a_turn_that_memory_ran_out_for_does_not_go_on(void **state) {
    setup_pair();
    fx_open_session(1, "s");
    start(1, "s");
    steps(3);
    turn_stop(running("s"), STOP_NO_MEMORY);
    turn_stop(running("s"), STOP_CANCEL); // a weaker reason does not replace it
    assert_int_equal(running("s")->stop, STOP_NO_MEMORY);
    lose(A);
    run_all();
    assert_int_equal(submitted(B), 0);
    assert_int_equal(fx.n_moved, 0);
    assert_string_equal(fx_follower(1, "s")->turns[0].finish, "error");
    fx_teardown();
}

static void the_only_instance_comes_back(void **state) {
    tell_whole();
    fx_setup_memory();
    fx_open_session(1, "s");
    fx_open_session(1, "idle");
    start(1, "idle");
    run_all();
    start(1, "s");
    steps(5);
    at("")->reopens = true;
    lose(A);
    steps(5);
    assert_int_equal(fx.n_moved, 1);
    assert_int_equal(sessions_n_running(fx.ss), 1);
    assert_int_equal(fx_session("idle")->cache, PLACE_NONE);
    at("")->reopens = false;
    fx_start(1, "idle", "refused: the server does not open it again");
    fx_settle();
    fx_expect_error("overloaded");
    at("")->reopens = true;
    start(1, "idle");
    steps(2);
    assert_true(fx_follower(1, "idle")->turns[1].queued);
    int before = submitted(A);
    reopen("");
    run_all();
    expect_whole(1, "s");
    assert_int_equal(submitted(A), before + 2);
    assert_int_equal(fx_follower(1, "idle")->turns[1].n_ids, N_TOKENS);
    fx_teardown();
}

static void without_another_instance_a_turn_ends_with_the_error(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    start(1, "s");
    steps(4);
    lose(A);
    fx_advance(30000);
    const struct seen_turn *t = &fx_follower(1, "s")->turns[0];
    assert_string_equal(t->finish, "error");
    assert_string_equal(t->error, "internal");
    assert_int_equal(t->n_ids, 3);
    assert_int_equal(fx.n_moved, 0);
    assert_int_equal(sessions_n_running(fx.ss), 0);
    fx_teardown();
}

// An engine's process that is gone can give no reason.
static void an_error_has_a_sentence_in_any_case(void **state) {
    for (int is_gone = 0; is_gone < 2; is_gone++) {
        fx_setup_memory();
        fake.is_gone = is_gone;
        fx_open_session(1, "s");
        start(1, "s");
        steps(4);
        lose(A);
        fx_advance(30000);
        assert_string_equal(fx_follower(1, "s")->turns[0].finish, "error");
        assert_string_equal(fx_session("s")->turns[0]->rec.error_message,
                            is_gone ? "the instance that ran this turn failed, and no other one of "
                                      "its model can go on with it"
                                    : "the fake device failed");
        fx_teardown();
    }
}

static void a_waiting_turn_can_be_cancelled(void **state) {
    fx_setup_memory();
    at("")->reopens = true;
    fx_open_session(1, "s");
    start(1, "s");
    steps(4);
    lose(A);
    fx_cancel(1, "s", -1);
    fx_advance(30000);
    assert_string_equal(fx_follower(1, "s")->turns[0].finish, "cancelled");
    assert_int_equal(fx_follower(1, "s")->turns[0].n_ids, 3);
    assert_int_equal(sessions_n_running(fx.ss), 0);
    fx_open_session(1, "t"); // and one that is closed
    reopen("");
    start(1, "t");
    steps(4);
    lose(A);
    fx_close(1, "t", true);
    fx_advance(30000);
    assert_true(fx_follower(1, "t")->deleted);
    assert_null(fx.ss->awaiting);
    fx_teardown();
}

static void a_request_that_kills_twice_is_poisoned(void **state) {
    tell_whole();
    setup_pair();
    fx_open_session(1, "s");
    fx_open_session(2, "t");
    start(1, "s");
    start(2, "t"); // the other instance
    steps(4);
    lose(A);
    steps(1); // it has begun
    at("b")->reopens = true;
    lose(B);
    fx_advance(30000);
    const struct seen_turn *t = &fx_follower(1, "s")->turns[0];
    assert_string_equal(t->finish, "error");
    assert_string_equal(t->error, "poisoned");
    assert_int_equal(t->n_ids, 3);
    assert_int_equal(sessions_n_running(fx.ss), 1);
    reopen("b");
    run_all();
    expect_whole(2, "t");
    fx_teardown();
}

static void progress_between_failures_clears_a_turn(void **state) {
    tell_whole();
    setup_pair();
    fx_open_session(1, "s");
    start(1, "s");
    steps(4);
    lose(A);
    steps(4);
    at("")->reopens = true;
    lose(B);
    reopen("");
    run_all();
    expect_whole(1, "s");
    assert_int_equal(fx.n_moved, 2);
    fx_teardown();
}

// Steps until no turn runs, with the pauses between attempts.
static void run_patiently(void) {
    for (int i = 0; i < 1000 && sessions_n_running(fx.ss); i++) {
        steps(1);
        fx_advance(100000);
    }
    fx_advance(30000);
    assert_int_equal(sessions_n_running(fx.ss), 0);
}

static void a_turn_waits_for_memory(void **state) {
    tell_whole();
    fx_setup_memory();
    fx_open_session(1, "s");
    fakes[0].n_short = 4;
    start(1, "s");
    run_patiently();
    expect_whole(1, "s");
    assert_int_equal(submitted(A), 5);
    fakes[0].fail_after = 5; // tokens, then there is no memory, again and again
    fakes[0].fail_code = E_NOMEM;
    fx_open_session(1, "t");
    start(1, "t");
    run_patiently();
    expect_whole(1, "t");
    assert_int_equal(submitted(A), 5 + 3);
    assert_string_equal(instance_state_name(at("")->state), "serving");
    fx_teardown();
}

static void a_turn_whose_memory_cannot_be_had_is_refused(void **state) {
    setup_pair();
    fx_open_session(1, "s");
    fakes[0].n_short = fakes[1].n_short = 100;
    start(1, "s");
    run_patiently();
    const struct seen_turn *t = &fx_follower(1, "s")->turns[0];
    assert_string_equal(t->finish, "error");
    assert_string_equal(t->error, "overloaded");
    assert_int_equal(200 - fakes[0].n_short - fakes[1].n_short, 5);
    fakes[0].n_short = fakes[1].n_short = 0;
    start(1, "s");
    run_patiently();
    assert_int_equal(fx_follower(1, "s")->turns[1].n_ids, N_TOKENS);
    fx_teardown();
}

static void suspects_go_on_one_after_another(void **state) {
    tell_whole();
    setup_pair();
    instance_set(at("b"), INSTANCE_LOST); // all on one
    for (uint64_t i = 1; i <= 3; i++) {
        char id[8];
        snprintf(id, sizeof id, "s%d", (int)i);
        fx_open_session(i, id);
        start(i, id);
    }
    steps(4);
    instance_set(at("b"), INSTANCE_SERVING);
    lose(A);
    assert_int_equal(submitted(B), 1);
    steps(1); // begun
    assert_int_equal(submitted(B), 1);
    steps(1); // a token
    assert_int_equal(submitted(B), 2);
    run_all();
    for (uint64_t i = 1; i <= 3; i++) {
        char id[8];
        snprintf(id, sizeof id, "s%d", (int)i);
        expect_whole(i, id);
    }
    fx_teardown();
}

static void a_drained_instance_gives_its_turns_back(void **state) {
    tell_whole();
    for (int after = 0; after < N_TOKENS; after++) {
        struct err err = {0};
        setup_pair();
        fx_open_session(1, "s");
        start(1, "s");
        steps(after);
        assert_int_equal(sessions_drain_instance(fx.ss, "", false, &err), 0);
        fx_settle();
        run_all();
        expect_whole(1, "s");
        steps(2);
        assert_int_equal(submitted(B), 1);
        assert_int_equal(fx.n_moved, 1);
        assert_string_equal(instance_state_name(at("")->state), "drained");
        assert_int_equal(fakes[0].n_exported, after > 0); // its cache went along
        assert_int_equal(fx_follower(1, "s")->count[EVENT_PARKED], 0);
        fx_teardown();
    }
}

static void a_full_instance_takes_no_running_turn(void **state) {
    struct err err = {0};
    setup_pair();
    at("b")->max_sequences = 1;
    fx_open_session(1, "s");
    fx_open_session(2, "t");
    start(1, "s");
    start(2, "t");
    assert_int_equal(sessions_drain_instance(fx.ss, "", false, &err), 0);
    run_all();
    assert_int_equal(fx.n_moved, 0);
    fx_teardown();
}

static void a_cancelled_turn_is_not_given_back(void **state) {
    struct err err = {0};
    setup_pair();
    fx_open_session(1, "s");
    start(1, "s");
    steps(4);
    assert_int_equal(sessions_drain_instance(fx.ss, "", false, &err), 0);
    fx_settle();
    fx_cancel(1, "s", -1);
    run_all();
    assert_string_equal(fx_follower(1, "s")->turns[0].finish, "cancelled");
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turn_goes_on_wherever_it_is),
        cmocka_unit_test(a_turn_that_memory_ran_out_for_does_not_go_on),
        cmocka_unit_test(the_only_instance_comes_back),
        cmocka_unit_test(without_another_instance_a_turn_ends_with_the_error),
        cmocka_unit_test(an_error_has_a_sentence_in_any_case),
        cmocka_unit_test(a_waiting_turn_can_be_cancelled),
        cmocka_unit_test(a_request_that_kills_twice_is_poisoned),
        cmocka_unit_test(progress_between_failures_clears_a_turn),
        cmocka_unit_test(a_turn_waits_for_memory),
        cmocka_unit_test(a_turn_whose_memory_cannot_be_had_is_refused),
        cmocka_unit_test(suspects_go_on_one_after_another),
        cmocka_unit_test(a_drained_instance_gives_its_turns_back),
        cmocka_unit_test(a_full_instance_takes_no_running_turn),
        cmocka_unit_test(a_cancelled_turn_is_not_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
