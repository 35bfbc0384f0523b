// Limits of owners in the session service: what is refused, what waits, and that every count
// returns to zero.
#include "tests/unit/sessions_fixture.h"

static struct owners owners;

static struct owner *limited(const char *name, const struct owner_limits *l) {
    struct owner *o = owners_get(&owners, name);
    owner_set_limits(o, l, clock_mono_us(&fx.clock.clock));
    return o;
}
static struct owner *setup(const struct owner_limits *l) {
    fx_settings(":memory:");
    owners_init(&owners, NULL);
    fx.o.owners = &owners;
    fx_open();
    return limited("local", l);
}
static void teardown(void) {
    fx_teardown();
    owners_release(&owners);
}

static void open_as(const char *owner, const char *id) {
    struct request r = fx_request(strcmp(owner, "local") == 0 ? 1 : 2, "open");
    struct ask_open o = {.id = id, .sink_len = -1};
    r.owner = owner;
    ask_open(fx.ss, &r, &o);
    fx_settle();
}
static void start_as(const char *owner, const char *id, const char *sampling) {
    struct request r = fx_request(strcmp(owner, "local") == 0 ? 1 : 2, NULL);
    struct turn_input in = ask_content("hello");
    r.owner = owner;
    ask_start(fx.ss, &r, id, TURN_HEAD, &in, sampling, false);
    fx_settle();
}
static enum session_state state_of(const char *id) {
    return session_state(fx_session(id));
}
static bool runs(const char *id) {
    return fx_session(id)->running >= 0;
}
static const char ids[][2] = {"a", "b", "c", "d"};

static void turns_beyond_the_limit_wait_in_order(void **state) {
    struct owner *o = setup(&(struct owner_limits){.running_turns = 2});
    for (int i = 0; i < 4; i++) {
        open_as("local", ids[i]);
        start_as("local", ids[i], i == 0 ? "{\"max_tokens\":2}" : "{\"max_tokens\":9}");
        assert_int_equal(fx_last_answer()->kind, ANSWER_ACCEPTED);
    }
    open_as("other", "x");
    start_as("other", "x", NULL);
    assert_int_equal(fake_n_running(), 3); // the other owner's does not wait
    assert_true(runs("a") && runs("b"));
    assert_true(fx_follower(1, "c")->turns[0].queued);
    assert_int_equal(state_of("c"), SESSION_ACTIVE);
    assert_int_equal(o->used[OWNER_RUNNING_TURNS], 2);
    assert_int_equal(o->used[OWNER_OUTSTANDING_JOBS], 4);
    while (runs("a")) fx_step();
    assert_true(runs("c"));
    assert_false(runs("d"));
    fx_run();
    for (int i = 0; i < 4; i++) assert_true(fx_follower(1, ids[i])->turns[0].done);
    assert_int_equal(o->used[OWNER_RUNNING_TURNS], 0);
    assert_int_equal(o->used[OWNER_OUTSTANDING_JOBS], 0);
    teardown();
}

static void a_waiting_turn_that_is_cancelled_lets_the_next_one_pass(void **state) {
    struct owner *o = setup(&(struct owner_limits){.running_turns = 1});
    for (int i = 0; i < 3; i++) {
        open_as("local", ids[i]);
        start_as("local", ids[i], NULL);
    }
    fx_cancel(1, "b", TURN_HEAD);
    assert_string_equal(fx_follower(1, "b")->turns[0].finish, "cancelled");
    fx_close(1, "a", true); // its running turn ends, and the session goes
    fx_run();
    assert_string_equal(fx_follower(1, "c")->turns[0].finish, "eos");
    assert_null(o->waiting);
    start_as("local", "b", NULL);
    start_as("local", "c", NULL);
    fx_close(1, "c", true); // one that waits
    fx_run();
    assert_null(o->waiting);
    assert_int_equal(o->used[OWNER_OUTSTANDING_JOBS], 0);
    teardown();
}

static void a_raised_limit_starts_what_waits(void **state) {
    struct owner *o = setup(&(struct owner_limits){.running_turns = 1});
    for (int i = 0; i < 4; i++) {
        open_as("local", ids[i]);
        start_as("local", ids[i], NULL);
    }
    assert_int_equal(fake_n_running(), 1);
    limited("local", &(struct owner_limits){.running_turns = 3});
    sessions_limits_changed(fx.ss, o);
    fx_settle();
    assert_int_equal(fake_n_running(), 3);
    sessions_cancel_owner(fx.ss, o); // those that run and those that wait
    fx_run();
    for (int i = 0; i < 4; i++)
        assert_string_equal(fx_follower(1, ids[i])->turns[0].finish, "cancelled");
    teardown();
}

static void refused(const char *code, const char *words) {
    const struct seen_answer *a = fx_last_answer();
    assert_int_equal(a->kind, ANSWER_ERROR);
    assert_string_equal(a->code, code);
    if (!strstr(a->message, words)) fail_msg("%s: without %s", a->message, words);
}

static void sessions_are_counted_until_they_are_deleted(void **state) {
    struct owner *o = setup(&(struct owner_limits){.sessions = 2});
    open_as("local", "a");
    open_as("local", "a"); // exists
    refused("session_exists", "a");
    open_as("local", "b");
    open_as("local", "c");
    refused("limit_reached", "your limit is 2 stored sessions");
    struct request r = fx_request(1, "fork");
    ask_fork(fx.ss, &r, "a", TURN_HEAD, "c", NULL);
    fx_settle();
    refused("limit_reached", "your limit is 2 stored sessions");
    open_as("other", "x"); // whose limit it is not
    fx_close(1, "b", true);
    assert_int_equal(o->used[OWNER_SESSIONS], 1);
    open_as("local", "c");
    assert_int_equal(o->used[OWNER_SESSIONS], 2);
    assert_int_equal(o->used[OWNER_RESIDENT_SESSIONS], 2);
    assert_int_equal(o->refused[OWNER_SESSIONS], 2);
    teardown();
}

static struct owner *reopened(const struct owner_limits *l) {
    owners_release(&owners);
    owners_init(&owners, NULL);
    fx_open();
    return limited("local", l);
}

static void what_is_stored_is_counted_over_a_restart(void **state) {
    const struct owner_limits none = {0};
    struct owner *o = setup(&none);
    fx_teardown();
    fx_setup_file();
    fx_shut_down();
    fx.o.owners = &owners;
    o = reopened(&none);
    open_as("local", "a");
    int64_t empty = o->used[OWNER_STORED_BYTES];
    fx_turn(1, "a", "some words of a certain length");
    int64_t one_turn = o->used[OWNER_STORED_BYTES];
    assert_in_range(one_turn - empty, 512 + 30, 2048);
    struct request r = fx_request(1, "fork");
    ask_fork(fx.ss, &r, "a", TURN_HEAD, "b", NULL);
    fx_settle();
    assert_int_equal(o->used[OWNER_STORED_BYTES], 2 * one_turn); // a copy takes as much
    fx_shut_down();
    o = reopened(&none);
    assert_int_equal(o->used[OWNER_SESSIONS], 2);
    assert_int_equal(o->used[OWNER_STORED_BYTES], 2 * one_turn);
    assert_int_equal(o->used[OWNER_RESIDENT_SESSIONS], 0);
    fx_close(1, "a", true);
    assert_int_equal(o->used[OWNER_STORED_BYTES], one_turn);
    limited("local", &(struct owner_limits){.stored_bytes = one_turn});
    fx_start_with(1, "b", "more", NULL, false, "more");
    fx_settle();
    refused("limit_reached", "bytes in storage");
    open_as("local", "c");
    refused("limit_reached", "bytes in storage");
    fx_close(1, "b", true);
    assert_int_equal(o->used[OWNER_STORED_BYTES], 0);
    assert_int_equal(o->used[OWNER_SESSIONS], 0);
    fx_teardown();
    owners_release(&owners);
}

static void sessions_at_rest_beyond_the_limit_leave_memory(void **state) {
    struct owner *o = setup(&(struct owner_limits){.resident_sessions = 2});
    open_as("other", "x");
    for (int i = 0; i < 4; i++) {
        open_as("local", ids[i]);
        start_as("local", ids[i], NULL);
        fx_run();
        fx_forget_clients();
        fx_settle();
        assert_true(o->used[OWNER_RESIDENT_SESSIONS] <= 2);
    }
    assert_true(service_find(fx.ss, "other", "x")); // whose limit it is not
    assert_null(service_find(fx.ss, "local", "a"));
    assert_true(service_find(fx.ss, "local", "c") && service_find(fx.ss, "local", "d"));
    assert_int_equal(o->refused[OWNER_RESIDENT_SESSIONS], 2);
    assert_int_equal(o->used[OWNER_SESSIONS], 4);
    start_as("local", "a", NULL); // comes back, and another one goes
    fx_run();
    fx_forget_clients();
    fx_settle();
    assert_non_null(service_find(fx.ss, "local", "a"));
    assert_null(service_find(fx.ss, "local", "c"));
    teardown();
}

static void jobs_are_bounded(void **state) {
    setup(&(struct owner_limits){.running_turns = 1, .outstanding_jobs = 2});
    fake.retry_us = 70000;
    for (int i = 0; i < 3; i++) {
        open_as("local", ids[i]);
        start_as("local", ids[i], NULL);
    }
    refused("overloaded", "your limit is 2 turns, replays, exports and imports under way");
    assert_int_equal(fx_last_answer()->retry_after_ms, 70);
    fx_run();
    start_as("local", "c", NULL);
    assert_int_equal(fx_last_answer()->kind, ANSWER_ACCEPTED);
    fx_run();
    teardown();
}

static void computed_tokens_are_limited_with_a_time_that_is_true(void **state) {
    struct owner *o = setup(&(struct owner_limits){.tokens_per_minute = 240}); // 60 at once
    open_as("local", "a");
    for (int i = 0; fx.n_answers == 0 || fx_last_answer()->kind == ANSWER_ACCEPTED; i++) {
        assert_in_range(i, 0, 3);
        start_as("local", "a", "{\"max_tokens\":20}");
        fx_run();
    }
    refused("rate_limited", "your limit is 240 tokens a minute");
    assert_true(o->used[OWNER_TOKENS] >= 56);
    int64_t wait_ms = fx_last_answer()->retry_after_ms;
    assert_true(wait_ms > 2);
    fx_advance((wait_ms - 2) * 1000 - 250000); // a token is a quarter of a second
    start_as("local", "a", NULL);
    refused("rate_limited", "tokens");
    fx_advance(252000);
    fx_advance(fx_last_answer()->retry_after_ms * 1000 - 252000);
    start_as("local", "a", NULL);
    assert_int_equal(fx_last_answer()->kind, ANSWER_ACCEPTED);
    fx_run();
    teardown();
}

static void idle_caches_beyond_the_share_are_parked_while_room_is_short(void **state) {
    struct owner *o = setup(&(struct owner_limits){.cache_share = 0.02}); // of 16,384 tokens
    for (int round = 0; round < 2; round++) {
        fake.blocks_free = round ? 1000 : 9000;
        for (int i = 0; i < 3; i++) {
            open_as("local", ids[i]);
            start_as("local", ids[i], "{\"max_tokens\":250}");
            fx_run();
        }
        for (int i = 0; i < 3; i++)
            assert_int_equal(state_of(ids[i]), round && i < 2 ? SESSION_COLD : SESSION_IDLE);
    }
    sessions_count_owner(fx.ss, o);
    assert_in_range(o->used[OWNER_CACHE_SHARE], 250, 256); // memory_len's worth
    teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_beyond_the_limit_wait_in_order),
        cmocka_unit_test(a_waiting_turn_that_is_cancelled_lets_the_next_one_pass),
        cmocka_unit_test(a_raised_limit_starts_what_waits),
        cmocka_unit_test(sessions_are_counted_until_they_are_deleted),
        cmocka_unit_test(what_is_stored_is_counted_over_a_restart),
        cmocka_unit_test(sessions_at_rest_beyond_the_limit_leave_memory),
        cmocka_unit_test(jobs_are_bounded),
        cmocka_unit_test(computed_tokens_are_limited_with_a_time_that_is_true),
        cmocka_unit_test(idle_caches_beyond_the_share_are_parked_while_room_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
