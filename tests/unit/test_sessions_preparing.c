// Long inputs and imports that a worker makes. What the worker has made arrives when the test polls
// for it, so every request can come before that.
#include "base/workers.h"
#include "sessions/saving/save.h"
#include "sessions/turns/preparing.h"
#include "tests/unit/sessions_fixture.h"

#define LONG 6000 // bytes; the session has room for two of them, not for three

static struct workers *pool;
static char words[LONG + 1];

static void woken(void *ctx) {}

static void setup_at(const char *path, size_t capacity) {
    struct err err = {0};
    fx_settings(path);
    if (path[0] == '/') fx_remove_files();
    fake.info.max_session_len = 16000;
    if (workers_open(&pool, 2, capacity, woken, NULL, &err) < 0) fail_msg("%s", err.text);
    fx.o.workers = pool;
    fx_open();
    memset(words, 'a', LONG);
    fx_open_session(1, "s");
    fx.n_answers = 0;
}
static void setup_with(size_t capacity) {
    setup_at(":memory:", capacity);
}
static int setup(void **state) {
    setup_with(64);
    return 0;
}
static int setup_file(void **state) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/parley-test-%ld.db", (long)getpid());
    setup_at(path, 64);
    return 0;
}
static int teardown(void **state) {
    if (fx.ss) sessions_close(fx.ss);
    fx.ss = NULL;
    workers_close(pool);
    fx_open();
    fx_teardown();
    assert_int_equal(fake_grammars.n_late, 0); // each would be compiled on the net thread
    assert_int_equal(fake_grammars.n_held, 0);
    memset(&fake_grammars, 0, sizeof fake_grammars);
    return 0;
}

// The workers' results arrive.
static void arrive(void) {
    while (fx.ss->outstanding) {
        workers_poll(pool);
        fx_settle();
    }
    fx_settle();
}
static void say(const char *text, const char *request_id, bool queue) {
    fx_start_with(1, "s", text, "{\"max_tokens\":4}", queue, request_id);
    fx_settle();
}
static const struct seen_turn *turn(int i) {
    return &fx_follower(1, "s")->turns[i];
}

static void the_log_is_the_same_as_without_workers(void **state) {
    say(words, "q1", false);
    assert_int_equal(fake.n_submitted, 0);
    assert_int_equal(fx.n_answers, 0);
    assert_true(session_must_wait(fx_session("s")));
    arrive();
    assert_int_equal(fx_answer_to("q1")->kind, ANSWER_ACCEPTED);
    assert_int_equal(fx_session("s")->n_log, LONG + 3); // user, words, end of turn, answer
    fx_run();
    assert_string_equal(turn(0)->finish, "length");
    say("short", "q2", false); // in the same call
    assert_int_equal(fake.n_submitted, 2);
    fx_run();
}

static void requests_keep_their_order(void **state) {
    fx_attach(2, "s", 0);
    fx.n_answers = 0;
    say(words, "q1", false);
    struct request r = fx_request(2, "q2");
    ask_get(fx.ss, &r, "s", false, 0, -1);
    say("again", "q3", true);
    fx_start_with(2, "s", words, NULL, false, "q1"); // the same request: one turn
    fx_settle();
    assert_int_equal(fx.n_answers, 0);
    arrive();
    fx_run();
    static const char *const order[] = {"q1", "q2", "q3", "q1"};
    int n = 0;
    for (int i = 0; i < fx.n_answers; i++)
        if (fx.answers[i].kind == ANSWER_STATE) assert_int_equal(fx.answers[i].n_turns_total, 0);
    for (int i = 0; i < 4; i++) n += fx_answer_to(order[i])->kind != ANSWER_ERROR;
    assert_int_equal(n, 4);
    assert_int_equal(fx_session("s")->n_turns, 2);
    assert_int_equal(fx_answer_to("q3")->turn, 1);
    assert_int_equal(fx_answer_to("q1")->turn, 0);
}

static void a_queued_turn_is_prepared_when_its_time_comes(void **state) {
    say("hello", "q1", false);
    say(words, "q2", true); // it fits, or it would be refused now
    arrive();
    assert_int_equal(fx_answer_to("q2")->kind, ANSWER_ACCEPTED);
    assert_true(turn(1)->queued);
    for (int i = 0; fx_session("s")->turns[1]->state == TURN_QUEUED && i < 20; i++) fx_step();
    // The log has other last tokens than when the turn was queued.
    assert_int_equal(fx_session("s")->turns[1]->state, TURN_PREPARING);
    assert_int_equal(fx_get(2, "s")->turns[1].state, TURN_QUEUED);
    say("behind it", "q3", true);
    arrive();
    assert_int_equal(fx_session("s")->turns[1]->state, TURN_SUBMITTED);
    fx_run();
    for (int i = 0; i < 3; i++) assert_string_equal(turn(i)->finish, "length");
    assert_int_equal(fx_session("s")->turns[1]->rec.n_input, LONG + 4);
}

static void a_queued_turn_can_be_cancelled_meanwhile(void **state) {
    say("hello", "q1", false);
    say(words, "q2", true);
    arrive();
    for (int i = 0; fx_session("s")->turns[1]->state == TURN_QUEUED && i < 20; i++) fx_step();
    assert_int_equal(fx_session("s")->turns[1]->state, TURN_PREPARING);
    fx_cancel(1, "s", 1);
    assert_string_equal(turn(1)->finish, "cancelled");
    say("next", "q3", false);
    arrive();
    fx_run();
    assert_string_equal(turn(2)->finish, "length");
    assert_int_equal(fx_session("s")->turns[1]->rec.log_first, -1);
}

// --- grammars ------------------------------------------------------------------------------------

#define REGEX "{\"max_tokens\":4,\"regex\":\"a\"}"

static void a_new_grammar_is_compiled_by_a_worker(void **state) {
    fake_grammars.dropped = true;
    fx_start_with(1, "s", "short", REGEX, false, "q1");
    fx_settle();
    assert_int_equal(fake.n_submitted, 0);
    arrive();
    assert_int_equal(fake.n_submitted,
                     1); // with what the worker held for it, though the table dropped it
    assert_int_equal(fake_grammars.n_held, 1);
    fx_run();
    assert_string_equal(turn(0)->finish, "length");
    assert_int_equal(fake_grammars.n_held, 0);
    fake_grammars.dropped = false;
    fx_start_with(1, "s", "short", REGEX, false, "q2"); // found
    fx_settle();
    assert_int_equal(fake.n_submitted, 2);
    fx_run();
    assert_int_equal(fake_grammars.n_compiled, 1);
    fx_start_with(1, "s", words, REGEX, false,
                  "q3"); // the input is made by a worker, which finds the grammar
    fx_settle();
    arrive();
    fx_run();
    assert_string_equal(turn(2)->finish, "length");
}

static void a_queued_turn_holds_no_grammar(void **state) {
    say("hello", "q1", false);
    fx_start_with(1, "s", "short", REGEX, true, "q2");
    fx_settle();
    assert_int_equal(fx_session("s")->turns[1]->state, TURN_QUEUED);
    assert_int_equal(fake_grammars.n_held, 0);
    fake_grammars.dropped = true;
    for (int i = 0; fx_session("s")->turns[1]->state == TURN_QUEUED && i < 20; i++) fx_step();
    assert_int_equal(fx_session("s")->turns[1]->state, TURN_PREPARING);
    arrive();
    fx_run();
    assert_string_equal(turn(1)->finish, "length");
    assert_int_equal(fake_grammars.n_compiled, 1);
}

static void a_turn_that_is_not_started_drops_its_grammar(void **state) {
    fake_grammars.dropped = true;
    fx_start_with(1, "s", "short", REGEX, false, "q1");
    fx_settle();
    fx_cancel(1, "s", TURN_HEAD);
    while (workers_outstanding(pool, (uint64_t)1 << 63 | (uint64_t)fx_session("s")->rec.key))
        workers_poll(pool);
    fx_start_with(1, "s", "short", REGEX, false, "q2");
    fx_settle();
    fake.submit_rc = E_INVAL;
    arrive();
    assert_int_equal(fx_answer_to("q2")->kind, ANSWER_ERROR);
    fake.submit_rc = 0;
}

static void open_with_regex(const char *id, const char *request_id) {
    struct request r = fx_request(1, request_id);
    ask_open(fx.ss, &r, &(struct ask_open){.id = id, .sink_len = -1, .sampling = REGEX});
    fx_settle();
}
static bool was_refused(const char *request_id, const char *sentence) {
    const struct seen_answer *a = fx_answer_to(request_id);
    return a && a->kind == ANSWER_ERROR && strstr(a->message, sentence);
}

static void a_session_with_an_invalid_grammar_is_not_opened(void **state) {
    fake_grammars.dropped = fake_grammars.invalid = true;
    open_with_regex("g", "o1");
    struct request r = fx_request(2, "q1");
    ask_get(fx.ss, &r, "g", false, 0, -1); // waits for the opening
    fx_settle();
    assert_int_equal(fx.n_answers, 0);
    arrive();
    assert_true(was_refused("o1", "regex: invalid"));
    assert_int_equal(fx_answer_to("q1")->kind, ANSWER_ERROR); // there is no such session
    assert_null(fx_session("g"));
    assert_int_equal(fx_session("s")->owner->used[OWNER_SESSIONS], 1);

    fake_grammars.invalid = false;
    open_with_regex("g", "o2");
    r = fx_request(2, "close"); // behind the opening
    ask_close(fx.ss, &r, "g", false);
    arrive();
    assert_int_equal(fx_session("g")->life, LIFE_LIVE);
    assert_int_equal(fx_answer_to("close")->kind, ANSWER_CLOSED);
    assert_int_equal(fx_session("s")->owner->used[OWNER_SESSIONS], 2);
}

static void an_invalid_grammar_does_not_become_the_session_s(void **state) {
    fake_grammars.dropped = fake_grammars.invalid = true;
    fx_update(1, "s", NULL, REGEX);
    say("hello", "q1", false); // behind it
    assert_int_equal(fx.n_answers, 0);
    arrive();
    assert_true(was_refused("update", "regex: invalid"));
    assert_int_equal(fx_answer_to("q1")->kind, ANSWER_ACCEPTED);
    assert_null(strstr(fx_session("s")->rec.sampling, "regex"));
    fake_grammars.invalid = false;
    fx_update(1, "s", NULL, REGEX);
    fx_run();
    arrive();
    assert_non_null(strstr(fx_session("s")->rec.sampling, "regex"));
    fx_update(1, "s", "title", NULL); // needs no worker
    assert_string_equal(fx_session("s")->rec.title, "title");
}

static void a_cancel_does_not_wait_for_an_update(void **state) {
    fake_grammars.dropped = true;
    say("hello", "q1", false);
    fx.n_answers = 0;
    fx_update(1, "s", NULL, REGEX);
    assert_int_equal(fx.n_answers, 0);
    fx_cancel(1, "s", TURN_HEAD);
    assert_int_equal(fx_answer_to("update")->kind, ANSWER_ERROR);
    assert_int_equal(fx_answer_to("cancel")->kind, ANSWER_CANCELLING);
    assert_null(strstr(fx_session("s")->rec.sampling, "regex"));
    arrive();
}

static void a_cancel_does_not_wait_for_the_worker(void **state) {
    struct request eve = fx_request(3, "eve");
    eve.owner = "eve";
    say(words, "q1", false);
    ask_for(fx.ss, &eve, REQUEST_CANCEL, "s", TURN_HEAD); // not hers
    fx_settle();
    assert_non_null(fx_session("s")->preparing);
    fx_cancel(1, "s", TURN_HEAD);
    assert_int_equal(fx_answer_to("eve")->kind, ANSWER_ERROR);
    assert_int_equal(fx_answer_to("q1")->kind, ANSWER_ACCEPTED);
    assert_int_equal(fx_answer_to("cancel")->kind, ANSWER_CANCELLING);
    assert_string_equal(turn(0)->finish, "cancelled");
    assert_int_equal(fake.n_submitted, 0);
    while (workers_outstanding(pool, (uint64_t)1 << 63 | (uint64_t)fx_session("s")->rec.key))
        workers_poll(pool); // the worker's result is dropped: its turn was cancelled
    say("again", "q2", false);
    fx_run();
    assert_string_equal(turn(1)->finish, "length");
}

static void a_cancel_can_come_between_result_and_poll(void **state) {
    say(words, "q1", false);
    while (fx.ss->outstanding) workers_poll(pool);
    fx_cancel(1, "s", TURN_HEAD);
    assert_string_equal(turn(0)->finish, "cancelled");
    assert_null(fx.ss->prepared);
}

static void a_close_ends_it(void **state) {
    say(words, "q1", false);
    fx_close(1, "s", false);
    assert_true(fx_follower(1, "s")->closed);
    assert_string_equal(turn(0)->finish, "cancelled");
    assert_int_equal(fake.n_submitted, 0);
}

static void a_deletion_ends_it(void **state) {
    say(words, "q1", false);
    fx_close(1, "s", true);
    assert_true(fx_follower(1, "s")->deleted);
    assert_null(fx_session("s"));
}

static void a_client_that_left_keeps_its_turn(void **state) {
    say(words, "q1", false);
    sessions_client_gone(fx.ss, 1);
    fx_clear_followers();
    arrive();
    fx_run();
    assert_int_equal(fx_session("s")->n_turns, 1);
    assert_string_equal(fx_session("s")->turns[0]->rec.finish_reason, "length");
    assert_null(fx.ss->clients);
}

// A turn before it was refused.
static void a_client_that_left_keeps_its_second_attempt(void **state) {
    char much[3 * LONG + 1];
    memset(much, 'a', sizeof much - 1);
    much[sizeof much - 1] = '\0';
    fx_start_in(1, "s", START_HERE, TURN_HEAD, much);
    arrive();
    fx_expect_error("session_full");
    fx_start_in(1, "s", START_HERE, TURN_HEAD, words);
    fx_settle();
    sessions_client_gone(fx.ss, 1);
    arrive();
    fx_run();
    const struct seen_answer *a = fx_get(2, "s");
    assert_int_equal(a->kind, ANSWER_STATE);
    assert_int_equal(a->n_turns, 1);
    assert_string_equal(a->turns[0].finish, "eos");
}

// --- a turn in a session of its own ---

static void start_new(void) {
    fx_start_in(2, "new", START_IN_NEW, TURN_HEAD, words);
    fx_settle();
    assert_int_equal(fx_session("new")->life, LIFE_OPENING);
    assert_int_equal(fx_session("new")->save, SAVE_IDLE);
}

static void a_new_session_is_saved_with_its_prepared_turn(void **state) {
    start_new();
    struct request r = fx_request(3, "get");
    ask_get(fx.ss, &r, "new", false, 0, -1); // waits
    fx_settle();
    assert_int_equal(fx.n_answers, 0);
    arrive();
    assert_int_equal(fx_answer_to("start")->kind, ANSWER_ACCEPTED);
    assert_int_equal(fx_answer_to("get")->n_turns, 1);
    fx_run();
    assert_true(fx_follower(2, "new")->turns[0].done);
}

// Its rows are copied before its source may erase them.
static void a_fork_is_saved_before_its_prepared_turn(void **state) {
    say("hello", "q1", false);
    fx_run();
    say("runs", "q2", false);
    fx_start_in(2, "s", START_OR_FORK, 0, words);
    fx_settle();
    assert_int_equal(fx.followers[2][0].count[EVENT_OPENED], 1);
    fx_run();
    struct request r = fx_request(1, "erase");
    ask_for(fx.ss, &r, REQUEST_ERASE, "s", 0);
    arrive();
    fx_run();
    assert_true(turn_was_erased(&fx_session("s")->turns[0]->rec));
    assert_int_equal(fx_answer_to("start")->kind, ANSWER_ACCEPTED);
    char fork[80];
    snprintf(fork, sizeof fork, "%s", fx_answer_to("start")->session_id);
    assert_int_equal(fx_get(2, fork)->n_turns, 2);
    assert_true(fx_session(fork)->turns[1]->state == TURN_DONE);
}

static void a_client_that_left_keeps_no_new_session(void **state) {
    start_new();
    sessions_client_gone(fx.ss, 2);
    arrive();
    assert_null(fx_session("new"));
    assert_int_equal(fx_session("s")->owner->used[OWNER_SESSIONS], 1);
    assert_int_equal(sessions_n_running(fx.ss), 0);
}

static void a_prepared_turn_that_is_refused_leaves_no_new_session(void **state) {
    fake.submit_rc = E_BUSY;
    start_new();
    struct request r = fx_request(3, "get");
    ask_get(fx.ss, &r, "new", false, 0, -1);
    arrive();
    assert_string_equal(fx_answer_to("start")->code, "overloaded");
    assert_string_equal(fx_answer_to("get")->code, "session_not_found");
    assert_null(fx_session("new"));
    fake.submit_rc = 0;
}

// While "s" is only on the disk, a new session of that name is refused with its turn. Requests that waited for the turn find
// the session that there is.
static void requests_behind_a_refused_first_turn_find_the_session_on_disk(void **state) {
    fx_turn(1, "s", "hello");
    fx_shut_down();
    fake.info.max_session_len = 16000;
    fx_open();
    fake.submit_rc = E_BUSY;
    fx_start_in(2, "s", START_IN_NEW, TURN_HEAD, words);
    fx_settle();
    struct request r = fx_request(3, "get");
    ask_get(fx.ss, &r, "s", false, 0, -1);
    arrive();
    assert_string_equal(fx_answer_to("start")->code, "overloaded");
    assert_int_equal(fx_answer_to("get")->kind, ANSWER_STATE);
    assert_int_equal(fx_answer_to("get")->n_turns, 1);
    fake.submit_rc = 0;
}

static void a_fork_that_cannot_be_saved_refuses_its_turn(void **state) {
    say("hello", "q1", false);
    fx_run();
    say("runs", "q2", false);
    fx_disk_full(true);
    fx_start_in(2, "s", START_OR_FORK, 0, words);
    fx_settle();
    arrive();
    fx_disk_full(false);
    assert_string_equal(fx_answer_to("start")->code, "store_failed");
    fx_run();
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 1);
    sessions_client_gone(fx.ss, 2);
    assert_null(fx.ss->clients->hh.next); // client 1 alone
}

static void a_deletion_ends_the_first_turn_of_a_new_session(void **state) {
    start_new();
    fx_close(2, "new", true);
    assert_int_equal(fake.n_submitted, 0);
    assert_int_equal(fx_answer_to("start")->kind, ANSWER_ACCEPTED);
    assert_true(fx_follower(2, "new")->deleted);
    assert_null(fx_session("new"));
}

static void a_model_that_is_unloaded_meanwhile_is_named(void **state) {
    struct placement *p = sessions_placement(fx.ss);
    const struct served_model *m = placement_hold(p, NULL), *old;
    struct request r = fx_request(2, "start"), start = ask_as(&r, REQUEST_START, "new");
    struct err err = {0};
    start.input = ask_content(words);
    start.start.in = START_IN_NEW;
    start.start.open.served = m;
    fx_follower(2, "new");
    sessions_submit(fx.ss, &start);
    assert_int_equal(sessions_drain_instance(fx.ss, "", true, &err), 0);
    fx_settle();
    assert_int_equal(sessions_remove_instance(fx.ss, "", &old, &err), 0);
    placement_drop(old);
    arrive();
    assert_true(was_refused("start", "model: 'fake' was unloaded while the request waited"));
    assert_string_equal(fx_answer_to("start")->code, "overloaded");
    assert_null(fx_session("new"));
    placement_drop(m);
}

static void a_shutdown_saves_no_session_without_its_turn(void **state) {
    start_new();
    assert_false(save_wanted(fx_session("new")));
}

static void a_shutdown_refuses_it(void **state) {
    say(words, "q1", false);
    sessions_drain(fx.ss);
    assert_false(sessions_settled(fx.ss));
    arrive();
    assert_string_equal(fx_answer_to("q1")->code, "shutting_down");
    assert_true(sessions_settled(fx.ss));
}

static void the_service_may_close_before_the_workers(void **state) {
    say(words, "q1", false);
    fx_start_with(1, "s", words, NULL, true, "q2");
    sessions_close(fx.ss);
    fx.ss = NULL;
    fx_forget_clients();
    workers_close(pool); // before the engine, as in a server
    pool = fx.o.workers = NULL;
    fake_reset();
}

static void and_the_workers_before_the_service(void **state) {
    struct err err = {0};
    say(words, "q1", false);
    workers_close(pool);
    fx.ss->o.workers = NULL;
    fx_shut_down();
    if (workers_open(&pool, 1, 4, woken, NULL, &err) < 0) fail_msg("%s", err.text);
}

static void what_cannot_fit_is_refused(void **state) {
    char *huge = malloc(40001);
    memset(huge, 'b', 40000), huge[40000] = '\0';
    say(huge, "q1", false); // refused by the number of tokens that the worker counts
    arrive();
    assert_string_equal(fx_answer_to("q1")->code, "session_full");
    fake.info.longest_token = 2; // refused by its bytes, before a worker gets it
    say(huge, "q2", false);
    assert_string_equal(fx_answer_to("q2")->code, "session_full");
    memset(huge, ' ', 39000); // a template may trim
    say(huge, "q3", false);
    arrive();
    assert_string_equal(fx_answer_to("q3")->code, "session_full");
    assert_int_equal(fx_session("s")->n_turns, 0);
    free(huge);
}

static void an_older_path_stays_read_meanwhile(void **state) {
    for (int i = 0; i < 4; i++) {
        say("short", NULL, false);
        fx_run();
    }
    struct request r = fx_request(1, "edit");
    struct turn_input in = ask_content(words);
    ask_start(fx.ss, &r, "s", 1, &in, "{\"max_tokens\":4}", false);
    fx_settle();
    arrive();
    assert_int_equal(fx_answer_to("edit")->kind, ANSWER_ACCEPTED);
    fx_run();
    assert_int_equal(fx_session("s")->turns[4]->rec.parent, 1);
}

static void too_many_are_refused(void **state) {
    setup_with(1);
    fx_open_session(2, "t");
    say(words, "q1", false);
    fx_start_with(2, "t", words, NULL, false, "q2");
    fx_settle();
    assert_string_equal(fx_answer_to("q2")->code, "overloaded");
    arrive();
    assert_int_equal(fx_answer_to("q1")->kind, ANSWER_ACCEPTED);
    fx_run();
    teardown(state);
}

static void an_import_is_read_by_a_worker(void **state) {
    say("hello", "q1", false);
    fx_run();
    struct request r = fx_request(1, "out");
    ask_for(fx.ss, &r, REQUEST_EXPORT, "s", TURN_HEAD);
    fx_settle();
    char *file = strdup(fx.archive);
    r = fx_request(1, "in");
    ask_import(fx.ss, &r, file, strlen(file));
    r = fx_request(1, "bad");
    ask_import(fx.ss, &r, "{}", 2);
    memset(file, 'x', strlen(file)); // the request must have its own copy
    arrive();
    assert_int_equal(fx_answer_to("in")->kind, ANSWER_IMPORTED);
    assert_string_equal(fx_answer_to("bad")->code, "invalid");
    free(file);
}

int main(void) {
#define PREPARING(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define PREPARING_FILE(test) cmocka_unit_test_setup_teardown(test, setup_file, teardown)
    const struct CMUnitTest tests[] = {
        PREPARING(the_log_is_the_same_as_without_workers),
        PREPARING(requests_keep_their_order),
        PREPARING(a_queued_turn_is_prepared_when_its_time_comes),
        PREPARING(a_queued_turn_can_be_cancelled_meanwhile),
        PREPARING(a_new_grammar_is_compiled_by_a_worker),
        PREPARING(a_queued_turn_holds_no_grammar),
        PREPARING(a_turn_that_is_not_started_drops_its_grammar),
        PREPARING(a_session_with_an_invalid_grammar_is_not_opened),
        PREPARING(an_invalid_grammar_does_not_become_the_session_s),
        PREPARING(a_cancel_does_not_wait_for_an_update),
        PREPARING(a_cancel_does_not_wait_for_the_worker),
        PREPARING(a_cancel_can_come_between_result_and_poll),
        PREPARING(a_close_ends_it),
        PREPARING(a_deletion_ends_it),
        PREPARING(a_client_that_left_keeps_its_turn),
        PREPARING(a_client_that_left_keeps_its_second_attempt),
        PREPARING(a_new_session_is_saved_with_its_prepared_turn),
        PREPARING(a_fork_is_saved_before_its_prepared_turn),
        PREPARING(a_client_that_left_keeps_no_new_session),
        PREPARING(a_prepared_turn_that_is_refused_leaves_no_new_session),
        PREPARING_FILE(requests_behind_a_refused_first_turn_find_the_session_on_disk),
        PREPARING_FILE(a_fork_that_cannot_be_saved_refuses_its_turn),
        PREPARING(a_deletion_ends_the_first_turn_of_a_new_session),
        PREPARING(a_model_that_is_unloaded_meanwhile_is_named),
        PREPARING(a_shutdown_saves_no_session_without_its_turn),
        PREPARING(a_shutdown_refuses_it),
        PREPARING(the_service_may_close_before_the_workers),
        PREPARING(and_the_workers_before_the_service),
        PREPARING(what_cannot_fit_is_refused),
        PREPARING(an_older_path_stays_read_meanwhile),
        cmocka_unit_test(too_many_are_refused),
        PREPARING(an_import_is_read_by_a_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
