// One poll of the net thread: tokens come first, many sessions are committed together, and their
// answers are taken in pieces. Also the time that a token waited before it was read.
#include "tests/unit/sessions_fixture.h"

#define N 40

static const char *id_of(int i) {
    static char id[4][16];
    static int which;
    which = (which + 1) % 4;
    snprintf(id[which], sizeof id[which], "s%d", i);
    return id[which];
}

// N sessions, each with a turn that runs.
static void start_turns(int64_t commit_interval_us) {
    fx_settings(":memory:");
    fx.o.commit_interval_us = commit_interval_us;
    fx_open();
    fake.default_tokens = 1000;
    for (int i = 0; i < N; i++) {
        fx_open_session(1, id_of(i));
        fx_forget_clients(); // no client follows it
        fx_start(1, id_of(i), "long");
        fx_settle();
    }
    for (int i = 0; i < 3; i++) fx_step();
}

static double n_commits(void) {
    struct buf page;
    buf_init(&page, 1 << 20);
    assert_int_equal(metrics_write(fx.metrics, &page), 0);
    const char *at = strstr(buf_z(&page), "\nparley_store_commit_seconds_count ");
    assert_non_null(at);
    double n = strtod(strchr(at + 1, ' '), NULL);
    buf_release(&page);
    return n;
}

static void tokens_of_many_sessions_are_one_commit(void **state) {
    start_turns(100000);
    clock_fake_advance(&fx.clock, 200000);
    fx_settle();
    for (int round = 0; round < 5; round++) {
        double before = n_commits();
        fx_step();
        clock_fake_advance(&fx.clock, 50000);
        fx_settle();
        assert_true(n_commits() == before); // not yet
        clock_fake_advance(&fx.clock, 50002);
        fx_settle();
        assert_true(n_commits() == before + 1);
        for (int i = 0; i < N; i++) {
            const struct session *s = fx_session(id_of(i));
            assert_int_equal(s->saved_seq, event_log_seq(&s->events));
        }
    }
    fx_teardown();
}

// When all answers of such a commit wait, a token that was drawn meanwhile goes before them.
static void tokens_come_before_the_rest_of_the_answers(void **state) {
    start_turns(100000);
    struct follower *f = fx_follower(2, id_of(0));
    fx_attach(2, id_of(0), 0);
    clock_fake_advance(&fx.clock, 200000);
    fx_settle();
    double before = n_commits();
    fake_step();
    sessions_poll(fx.ss);
    clock_fake_advance(&fx.clock, 100002);
    sessions_poll(fx.ss);
    size_t n = store_n_waiting(fx.ss->store);
    assert_int_equal(n, N);
    for (int ms = 0; n_commits() == before && ms < 60000; ms++) usleep(1000);
    usleep(300000); // and its answers are in the queue, all or some of them on a busy machine
    int polls = 0;
    while (store_n_waiting(fx.ss->store) > 0) {
        int64_t last = f->last;
        fake_step();
        int64_t next = sessions_poll(fx.ss);
        assert_int_equal(f->last, last + 1);
        size_t left = store_n_waiting(fx.ss->store);
        assert_true(n - left <= 8);
        // The next poll is due at once if answers may be left.
        if (n - left == 8) assert_int_equal(next, 0);
        if (n == left) usleep(1000);
        n = left;
        polls++;
    }
    assert_true(polls >= N / 8);
    fx_teardown();
}

// What comes while a save is under way is in the next one. The end of the first confirms the first request alone: the
// second one fails with its own save.
static void a_commit_confirms_what_it_holds(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "before");
    double before = n_commits();
    int fd = fx_hold_write_lock();
    fx_start_with(1, "s", "one", NULL, false, "one");
    sessions_poll(fx.ss);
    assert_int_equal(fx_session("s")->save, SAVE_SENT);
    fx_start_with(1, "s", "two", NULL, true, "two");
    close(fd);
    for (int ms = 0; n_commits() == before; ms++) {
        if (ms == 60000) fail_msg("the store does not write");
        usleep(1000);
    }
    fx_disk_full(true);
    fx_settle();
    assert_int_equal(fx_answer_to("one")->kind, ANSWER_ACCEPTED);
    assert_int_equal(fx_answer_to("two")->kind, ANSWER_ERROR);
    assert_string_equal(fx_answer_to("two")->code, "store_failed");
    assert_int_equal(fx_session("s")->n_turns, 2);
    fx_disk_full(false);
    fx_run();
    fx_teardown();
}

static void a_delta_says_when_its_token_was_drawn(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    struct follower *f = fx_follower(1, "s");
    fake.time_us = clock_mono_us(&fx.clock.clock);
    fake.default_tokens = 100;
    fx_start(1, "s", "long");
    fx_settle();
    for (int i = 0; i < 40; i++) {
        clock_fake_advance(&fx.clock, 1000);
        fx_step();
        if (f->n_deltas > 0) assert_int_equal(f->last_drawn_us, fake.time_us);
    }
    assert_true(f->n_deltas > 20);
    // Tokens drawn before a client attached do not count as its waiting time.
    clock_fake_advance(&fx.clock, 10);
    struct follower *late = fx_follower(2, "s");
    fx_attach(2, "s", 0);
    assert_int_equal(late->turns[0].n_ids, f->turns[0].n_ids);
    assert_int_equal(late->last_drawn_us, 0);
    clock_fake_advance(&fx.clock, 1000);
    fx_step();
    assert_int_equal(late->last_drawn_us, fake.time_us);
    fx_teardown();
}

// A token enters the save and reaches clients. What only other changes can make possible waits for one of those: the mark
// stands for all of it.
static void a_token_settles_tokens_alone(void **state) {
    fx_settings(":memory:");
    fx_open();
    fx_open_session(1, "s");
    fx_start(1, "s", "long");
    fx_settle();
    fx_step();
    struct session *s = fx_session("s");
    const struct follower *f = fx_follower(1, "s");
    for (int i = 0; i < 3; i++) {
        size_t n = f->turns[0].n_ids;
        s->marks |= MARK_WATCHERS;
        fx_step();
        assert_int_equal(f->turns[0].n_ids, n + 1);
        assert_true(s->marks & MARK_WATCHERS);
    }
    int64_t saved = s->saved_seq;
    clock_fake_advance(&fx.clock, fx.o.commit_interval_us + 2);
    fx_settle(); // their commit does
    assert_true(s->saved_seq > saved);
    assert_false(s->marks & MARK_WATCHERS);
    fx_run();
    assert_int_equal(s->saved_seq, event_log_seq(&s->events));
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_of_many_sessions_are_one_commit),
        cmocka_unit_test(tokens_come_before_the_rest_of_the_answers),
        cmocka_unit_test(a_commit_confirms_what_it_holds),
        cmocka_unit_test(a_delta_says_when_its_token_was_drawn),
        cmocka_unit_test(a_token_settles_tokens_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
