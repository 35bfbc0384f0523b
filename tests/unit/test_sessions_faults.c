// Disks that refuse and processes that die: acknowledged changes are there, refused ones are not,
// and facts that only memory has are kept while the process lives.
#include "tests/unit/sessions_fixture.h"
#include <sys/wait.h>

// Everything of 4 KiB or more would fit into the log's pages that exist already: keep it from being
// used again.
static void setup_full_disk(void) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "before");
    fx_disk_full(true);
}

static void opening_on_a_full_disk_leaves_nothing(void **state) {
    const char *reason;
    setup_full_disk();
    fx_open_session(2, "t");
    fx_expect_error("store_failed");
    assert_null(fx_session("t"));
    assert_false(sessions_store_ok(fx.ss, &reason));
    assert_true(reason[0]);
    assert_null(strstr(reason, fx.path));
    assert_int_equal(fx_follower(2, "t")->n_events, 0);
    fx_disk_full(false);
    fx_open_session(2, "t");
    assert_int_equal(fx_follower(2, "t")->count[EVENT_OPENED], 1);
    assert_true(sessions_store_ok(fx.ss, &reason));
    fx_teardown();
}

// What is logged between log_begin and log_end goes into a file.
static FILE *log_file;
static int log_before;
static void log_begin(void) {
    log_set_level(LOG_INFO);
    log_file = tmpfile();
    assert_non_null(log_file);
    fflush(stderr);
    log_before = dup(2);
    dup2(fileno(log_file), 2);
}
static void log_end(void) {
    log_set_level(LOG_OFF);
    fflush(stderr);
    dup2(log_before, 2);
    close(log_before);
}
static int log_count(const char *event) {
    char line[1024];
    int n = 0;
    rewind(log_file);
    while (fgets(line, sizeof line, log_file)) n += strstr(line, event) != NULL;
    return n;
}

static void a_disk_that_refuses_now_and_then_is_logged_once(void **state) {
    char id[] = "a";
    fx_setup_file();
    log_begin();
    for (int i = 0; i < 5; i++, id[0]++) {
        fx_disk_full(true);
        fx_open_session(1, id);
        fx_disk_full(false);
        fx_open_session(2, id);
        fx_advance(1000000);
    }
    log_end();
    assert_int_equal(log_count("event=store.failed"), 1);
    assert_int_equal(log_count("event=store.works"), 0);
    log_begin();
    fx_advance(11000000);
    fx_open_session(1, "after");
    log_end();
    assert_int_equal(log_count("event=store.failed"), 0);
    assert_int_equal(log_count("event=store.works"), 1);
    fx_teardown();
}

static void saves_that_are_retried_are_logged_once(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_open_session(1, "t");
    fx_start_with(1, "s", "long", "{\"max_tokens\":30}", false, NULL);
    fx_start_with(1, "t", "long", "{\"max_tokens\":30}", false, NULL);
    fx_settle();
    for (int i = 0; i < 5; i++) fx_step();
    log_begin();
    fx_disk_full(true);
    for (int i = 0; i < 60; i++) {
        fx_step();
        fx_advance(500000);
    }
    assert_true(fx_session("s")->n_failures > 3);
    assert_true(fx_session("t")->n_failures > 3);
    fx_disk_full(false);
    fx_advance(16000000);
    fx_advance(16000000);
    log_end();
    assert_int_equal(fx_session("s")->n_failures, 0);
    assert_int_equal(log_count("event=store.failed"), 1);
    assert_int_equal(log_count("event=store.works"), 1);
    assert_int_equal(log_count("sessions=2 "), 1);
    assert_int_equal(log_count("event=session.save"), 0);
    fx_teardown();
}

static void a_turn_on_a_full_disk_is_taken_back(void **state) {
    setup_full_disk();
    struct follower *f = fx_follower(1, "s");
    int64_t last = f->last;
    size_t n_log = fx_session("s")->n_log;
    fx_start_with(1, "s", "refused", NULL, false, "r");
    fx_start_with(1, "s", "refused too", NULL, true, "q");
    fx_settle();
    assert_string_equal(fx_answer_to("r")->code, "store_failed");
    assert_string_equal(fx_answer_to("q")->code, "store_failed");
    assert_int_equal(fx_session("s")->n_log, n_log);
    assert_int_equal(sessions_n_running(fx.ss), 0);
    fx_run(); // the engine gives its turn up
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    assert_int_equal(f->last, last);
    fx_disk_full(false);
    fx_start_with(1, "s", "kept", NULL, false, "r"); // the same request is a new one
    fx_run();
    assert_int_equal(fx_answer_to("r")->turn, 1);
    assert_string_equal(f->turns[1].finish, "eos");
    fx_restart();
    const struct seen_answer *a = fx_get(1, "s");
    assert_int_equal(a->n_turns, 2);
    assert_string_equal(a->turns[1].input, "kept");
    fx_teardown();
}

static void a_running_turn_goes_on_in_memory(void **state) {
    char text[4096];
    fx_setup_file();
    fx_open_session(1, "s");
    fx_start_with(1, "s", "long", "{\"max_tokens\":60}", false, NULL);
    fx_settle();
    for (int i = 0; i < 5; i++) fx_step();
    fx_disk_full(true);
    struct follower *f = fx_follower(1, "s");
    for (int i = 0; i < 60; i++) {
        clock_fake_advance(&fx.clock, 10000);
        fx_step();
        if (f->turns[0].n_ids < 60) assert_int_equal(fx.n_stalled, 0); // no delta was held back
    }
    assert_int_equal(f->turns[0].n_ids, 60); // deltas are sent, because their numbers are reserved
    assert_false(f->turns[0].done);          // the end is not sent before it is on disk
    assert_true(fx.n_stalled > 0);           // and waiting clients get the reason
    assert_memory_equal(fx.stalled, "s: ", 3);
    assert_true(fx.stalled[3]);
    assert_int_equal(sessions_n_running(fx.ss), 0);
    assert_int_equal(fx_get(1, "s")->turns[0].state, TURN_RUNNING);
    fx_attach(2, "s", 0); // a client that attaches later gets it too
    fx.n_stalled = 0;
    fx_advance(6000000);
    assert_true(fx.n_stalled >= 2);
    assert_in_range(fx.stalled_us, 1000000, 7000000); // since the first refusal
    fx_start_with(1, "s", "more", NULL, false, "more");
    fx_settle();
    assert_string_equal(fx_answer_to("more")->code, "store_failed");
    fx_update(1, "s", "New title", "{\"top_k\":5}");
    assert_string_equal(fx_answer_to("update")->code, "store_failed");
    assert_string_equal(fx_session("s")->rec.title, "long");
    assert_string_equal(fx_session("s")->rec.sampling, "{}");
    fx_close(1, "s", false);
    assert_string_equal(fx_answer_to("close")->code, "store_failed");
    fx_run();
    assert_int_equal(fx_session("s")->n_turns, 1);
    fx_disk_full(false);
    fx_advance(2000001); // without a request it tries again when the next attempt is due
    assert_true(f->turns[0].done);
    assert_true(sessions_store_ok(fx.ss, NULL));
    fx.n_stalled = 0;
    fx_advance(6000000);
    assert_int_equal(fx.n_stalled, 0);
    strcpy(text, f->turns[0].text);
    fx_restart();
    fx_attach(1, "s", 0);
    assert_string_equal(fx_follower(1, "s")->turns[0].text, text);
    assert_string_equal(fx_follower(1, "s")->turns[0].finish, "length");
    fx_teardown();
}

static void what_is_refused_between_facts_leaves_no_gap(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_start_with(1, "s", "long", "{\"max_tokens\":30}", false, NULL);
    fx_settle();
    for (int i = 0; i < 5; i++) fx_step();
    fx_disk_full(true);
    struct request r = fx_request(1, "u");
    ask_update(fx.ss, &r, "s", "Other", NULL, -1); // takes a number; the save is on its way
    fake_step();
    fx_start_with(1, "s", "queued", NULL, true, "q");
    for (int i = 0; i < 40; i++) fx_step();
    struct follower *f = fx_follower(1, "s");
    assert_string_equal(fx_answer_to("u")->code, "store_failed");
    assert_string_equal(fx_answer_to("q")->code, "store_failed");
    fx_disk_full(false);
    fx_run();
    fx_advance(6000000);
    assert_true(f->turns[0].done);
    assert_int_equal(f->last, 33); // opened, started, 30, done
    fx_restart();
    fx_attach(1, "s", 0);
    assert_int_equal(fx_follower(1, "s")->last, 33);
    fx_teardown();
}

static void a_delete_that_fails_can_be_asked_again(void **state) {
    setup_full_disk();
    fx_close(1, "s", true);
    assert_string_equal(fx_answer_to("close")->code, "store_failed");
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    fx_disk_full(false);
    fx_advance(2100000); // the probe finds that the disk works
    assert_true(sessions_store_ok(fx.ss, NULL));
    fx_close(1, "s", true);
    assert_true(fx_follower(1, "s")->deleted);
    fx_teardown();
}

// --- crashes -----------------------------------------------------------------

// The child tells its parent at once that something has been acknowledged.
struct ack {
    char what; // 'o'pened, 'a'ccepted, 'd'elta, 'e'nd
    int32_t session, turn;
    int64_t seq, n_ids;
    char text[200]; // the turn's text so far
    char finish[16];
};

static void child_acks(int fd, int session, struct ack *said) {
    char id[16];
    snprintf(id, sizeof id, "s%d", session);
    struct follower *f = fx_follower(1, id);
    for (int i = 0; i < SEEN_TURNS; i++) {
        struct seen_turn *t = &f->turns[i];
        char what = t->done ? 'e' : t->n_ids ? 'd' : t->started ? 'a' : 0;
        if (!what || (said[i].what == what && said[i].n_ids == (int64_t)t->n_ids)) continue;
        said[i] = (struct ack){.what = what,
                               .session = session,
                               .turn = i,
                               .seq = f->last,
                               .n_ids = (int64_t)t->n_ids};
        snprintf(said[i].text, sizeof said[i].text, "%.199s", t->text);
        snprintf(said[i].finish, sizeof said[i].finish, "%s", t->finish);
        if (write(fd, &said[i], sizeof said[i]) != sizeof said[i]) _exit(9);
    }
}

static void child_works(int fd, unsigned seed) {
    static struct ack said[2][SEEN_TURNS];
    alarm(20);
    srandom(seed);
    fx_open();
    int n = 20 + (int)(random() % 120);
    for (int i = 0; i < 2; i++) {
        char id[16];
        snprintf(id, sizeof id, "s%d", i);
        fx_open_session(1, id);
        if (fx_follower(1, id)->count[EVENT_OPENED] == 0)
            fx_attach(1, id, 0); // from an earlier life
    }
    while (n-- > 0) {
        char id[16];
        snprintf(id, sizeof id, "s%d", (int)(random() % 2));
        if (random() % 8 == 0)
            fx_start_with(1, id, "some words", "{\"max_tokens\":20}", random() % 2, NULL);
        if (random() % 20 == 0) fx_cancel(1, id, -1);
        fx.n_answers = 0;
        clock_fake_advance(&fx.clock, random() % 30000);
        fake_step();
        sessions_poll(fx.ss); // the store may be at work: it is not waited for
        for (int s = 0; s < 2; s++) child_acks(fd, s, said[s]);
    }
    _exit(7); // with everything that is running
}

// Compares what one process acknowledged with what the next one finds.
static void check_acks(const struct ack *acks, int n, const struct seen_answer *found,
                       int session) {
    for (int i = 0; i < n; i++) {
        const struct ack *a = &acks[i];
        if (a->session != session) continue;
        assert_true(a->turn < (int)found->n_turns);
        assert_int_equal(found->turns[a->turn].state, TURN_DONE);
        assert_true(found->turns[a->turn].finish[0]);
        if (a->what != 'e') continue;
        assert_string_equal(found->turns[a->turn].finish, a->finish);
        assert_int_equal(strncmp(found->turns[a->turn].text, a->text, strlen(a->text)), 0);
        assert_int_equal(found->turns[a->turn].numbers.output_tokens, a->n_ids);
    }
}

static void check_after_crash(const struct ack *acks, int n) {
    for (int session = 0; session < 2; session++) {
        char id[16];
        snprintf(id, sizeof id, "s%d", session);
        int64_t seen = 0;
        for (int i = 0; i < n; i++)
            if (acks[i].session == session && acks[i].seq > seen) seen = acks[i].seq;
        const struct seen_answer *a = fx_get(2, id);
        if (a->kind == ANSWER_ERROR) {
            assert_int_equal(seen, 0);
            continue;
        }
        assert_true(a->seq >= seen); // no number that a client has seen comes again
        check_acks(acks, n, a, session);
        fx_attach(2, id, 0); // the follower checks that there is no gap
        struct follower *f = fx_follower(2, id);
        assert_int_equal(f->last, a->seq);
        for (size_t t = 0; t < a->n_turns; t++)
            assert_string_equal(f->turns[t].text, a->turns[t].text);
        if (seen > 0 && seen < a->seq) { // a client that was there goes on, or gets a reset
            fx_forget_clients();
            struct request r = fx_request(3, "again");
            fx_follower(3, id)->last = seen;
            ask_attach(fx.ss, &r, id, seen);
            fx_settle();
            if (!fx_answer_to("again")->reset) assert_int_equal(fx_follower(3, id)->last, a->seq);
        }
        fx_forget_clients();
    }
}

static void crashes_lose_nothing_that_was_acknowledged(void **state) {
    static struct ack acks[20000];
    int lost_runs = 0;
    fx_setup_file();
    for (unsigned round = 0; round < 40; round++) {
        int pipe_fds[2], status, n = 0;
        sessions_close(fx.ss);
        fx.ss = NULL;
        fx_forget_clients();
        fake_reset();
        assert_int_equal(pipe(pipe_fds), 0);
        pid_t child = fork();
        if (child == 0) child_works(pipe_fds[1], round + 1);
        close(pipe_fds[1]);
        while (n < 20000 && read(pipe_fds[0], &acks[n], sizeof *acks) == sizeof *acks) n++;
        close(pipe_fds[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 7);
        fx_open();
        check_after_crash(acks, n);
        struct session *s = fx_session("s0");
        for (size_t i = 0; s && i < s->events.n; i++)
            lost_runs += s->events.entries[i].rec.kind == EVENT_LOST;
        if (round % 4 == 3) { // a new file from time to time
            sessions_close(fx.ss);
            fx_remove_files();
            fx_open();
        }
    }
    assert_true(lost_runs > 0); // the walk met this case
    fx_teardown();
}

// Events that only this client has.
static void deltas_told_before_a_crash_are_not_told_twice(void **state) {
    int pipe_fds[2], status;
    int64_t told = 0;
    fx_setup_file();
    sessions_close(fx.ss);
    fx.ss = NULL;
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t child = fork();
    if (child == 0) {
        fx_open();
        fx_open_session(1, "s");
        fx_start_with(1, "s", "a", "{\"max_tokens\":100}", false, NULL);
        fx_settle();
        for (int i = 0; i < 10; i++)
            fake_step(), sessions_poll(fx.ss); // time stands still: none is committed
        int64_t last = fx_follower(1, "s")->last;
        _exit(write(pipe_fds[1], &last, sizeof last) == sizeof last ? 7 : 9);
    }
    assert_int_equal(read(pipe_fds[0], &told, sizeof told), sizeof told);
    close(pipe_fds[0]), close(pipe_fds[1]);
    waitpid(child, &status, 0);
    assert_int_equal(told, 11);
    fake_reset();
    fx_open();
    const struct seen_answer *a = fx_get(2, "s");
    assert_int_equal(a->seq, 2 + RESERVE_EVENTS + 1);
    assert_string_equal(a->turns[0].finish, "interrupted");
    fx_attach(2, "s", 0);
    assert_int_equal(fx_follower(2, "s")->n_lost, 1);
    const struct event_log *l = &fx_session("s")->events;
    assert_true(event_log_find(l, 20)->rec.at_ms >= event_log_find(l, 1)->rec.at_ms);
    fx_attach(3, "s", 2);
    assert_false(fx_answer_to("attach")->reset); // it had what was committed
    fx_attach(4, "s", told);
    assert_true(fx_answer_to("attach")->reset); // it has events that the server lost
    fx_follower(4, "s")->last = fx_answer_to("attach")->seq;
    fx_turn(2, "s", "go on");
    assert_int_equal(fx_follower(2, "s")->turns[1].n_ids, 6);
    fx_restart(); // the restarted server knows it from the record
    fx_attach(2, "s", 0);
    assert_int_equal(fx_follower(2, "s")->n_lost, 1);
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_on_a_full_disk_leaves_nothing),
        cmocka_unit_test(a_disk_that_refuses_now_and_then_is_logged_once),
        cmocka_unit_test(saves_that_are_retried_are_logged_once),
        cmocka_unit_test(a_turn_on_a_full_disk_is_taken_back),
        cmocka_unit_test(a_running_turn_goes_on_in_memory),
        cmocka_unit_test(what_is_refused_between_facts_leaves_no_gap),
        cmocka_unit_test(a_delete_that_fails_can_be_asked_again),
        cmocka_unit_test(deltas_told_before_a_crash_are_not_told_twice),
        cmocka_unit_test(crashes_lose_nothing_that_was_acknowledged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
