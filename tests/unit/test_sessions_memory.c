// Memory runs out at any one allocation: the request is refused with a sentence, no delivered event
// is lost, and the service continues.
#include "sessions/requests/history.h"
#include "tests/unit/alloc_faults.h"
#define fake_realloc __real_realloc
#include "tests/unit/sessions_fixture.h"

static int n_requests;
static int64_t fault; // which allocation fails, for messages

static struct request ask(uint64_t client) {
    char id[16];
    snprintf(id, sizeof id, "q%d", n_requests++);
    return fx_request(client, id);
}

// One of every kind of request, on a session of this process and on one that must be read first.
static void a_bit_of_everything(void) {
    struct ask_open o = {.id = "new", .sink_len = -1, .system = "Be brief.", .title = "T"};
    struct turn_input hello = {.kind = INPUT_CONTENT, .text = "hello", .text_len = 5};
    int32_t ids[] = {5, 6, 7};
    struct turn_input raw = {.kind = INPUT_IDS, .ids = ids, .n_ids = 3};
    struct request r = ask(1);
    ask_open(fx.ss, &r, &o);
    fx_settle();
    ask_attach(fx.ss, (r = ask(1), &r), "old", -1);
    ask_get(fx.ss, (r = ask(2), &r), "old", true, 0, -1);
    fx_settle();
    ask_update(fx.ss, (r = ask(1), &r), "old", "Renamed", "{\"top_k\":3}", -1);
    ask_start(fx.ss, (r = ask(1), &r), "old", TURN_HEAD, &hello, "{\"logprobs\":true}", false);
    ask_start(fx.ss, (r = ask(2), &r), "old", TURN_HEAD, &raw, NULL, true);
    ask_list(fx.ss, (r = ask(1), &r), "hel", NULL, 10, NULL);
    fx_run();
    ask_for(fx.ss, (r = ask(2), &r), REQUEST_CANCEL, "old", -1);
    ask_for(fx.ss, (r = ask(2), &r), REQUEST_DETACH, "old", TURN_HEAD);
    ask_close(fx.ss, (r = ask(1), &r), "new", true);
    fx_run();
}

static void set_up(void) {
    fx_setup_file();
    fx_open_session(1, "old");
    fx_turn(1, "old", "before");
    fx_restart();
    memset(fx.answered, 0, sizeof fx.answered);
    n_requests = 0;
    fx_follower(1, "old"), fx_follower(2, "old"), fx_follower(1, "new");
    // They attach to live events only
    fx_follower(1, "old")->last = fx_follower(2, "old")->last = -1;
}

static void check(void) {
    for (int i = 0; i < n_requests; i++)
        if (fx.answered[i] != 1)
            fail_msg("fault %d: request %d was answered %d times", (int)fault, i, fx.answered[i]);
    for (int i = 0; i < fx.n_answers; i++)
        if (fx.answers[i].kind == ANSWER_ERROR) assert_true(fx.answers[i].message[0] != 0);
    assert_int_equal(sessions_n_running(fx.ss), 0);
    int64_t n_turns = fx_get(3, "old")->n_turns_total;
    assert_in_range(n_turns, 1, 3);
    fx_open_session(3, "after");
    fx_turn(3, "after", "all is well");
    assert_string_equal(fx_follower(3, "after")->turns[0].finish, "eos");
    fx_restart();
    const struct seen_answer *old = fx_get(1, "old");
    assert_int_equal(old->kind, ANSWER_STATE);
    assert_int_equal(old->n_turns_total, n_turns); // what was shown is on disk
    assert_string_equal(old->turns[0].input, "before");
    assert_string_equal(old->turns[0].finish, "eos");
}

static int64_t sweep(bool others, int64_t n_failing, int64_t stride) {
    int64_t n_points = 0;
    for (int64_t n = 0;; n += stride) {
        fault = n;
        set_up();
        faults_arm(n, n_failing, others);
        a_bit_of_everything();
        bool reached = faults_disarm() > 0;
        fx_advance(10000000); // saves that were put off
        check();
        fx_teardown();
        if (!reached) break;
        n_points++;
    }
    return n_points;
}

static void one_allocation_of_the_net_thread_fails(void **state) {
    assert_in_range(sweep(false, 1, 1), 50, 5000);
}

static void a_run_of_them_fails(void **state) {
    assert_in_range(sweep(false, 7, 3), 20, 5000);
}

static void one_allocation_of_the_store_fails(void **state) {
    assert_in_range(sweep(true, 1, 1), 20, 5000);
}

// Pages of turns that must be read: the answer is the whole page or an error, never a page with
// gaps.
static void reading_older_turns_without_memory(void **state) {
    char id[16];
    fx_settings(":memory:");
    fake.default_tokens = 1;
    fx_open();
    fx_open_session(1, "s");
    for (int i = 0; i < HISTORY_TURNS + 20; i++) {
        fx.n_answers = 0;
        fx_turn(1, "s", "words");
    }
    int n_asked = 0;
    for (int others = 0; others < 2; others++) {
        bool reached = true;
        for (int n = 0; reached; n++) {
            snprintf(id, sizeof id, "q%d", n_asked);
            fx.n_answers = 0;
            fx.answered[n_asked] = 0;
            struct request r = fx_request(1, id), after = fx_request(2, "after");
            faults_arm(n, 1, others);
            ask_get(fx.ss, &r, "s", false, 10, 15);
            ask_get(fx.ss, &after, "s", false, 3, -1); // waits, or is refused as well
            fx_settle();
            reached = faults_disarm() > 0;
            assert_int_equal(fx.answered[n_asked++], 1);
            const struct seen_answer *a = fx_answer_to(id);
            if (a->kind == ANSWER_ERROR) {
                assert_string_equal(a->code, "overloaded");
            } else {
                assert_int_equal(a->n_turns, 10);
                for (int i = 0; i < 10; i++) assert_string_equal(a->turns[i].input, "words");
            }
            fx_answer_to("after");
        }
    }
    assert_true(n_asked > 20);
    fx_turn(1, "s", "and on");
    assert_string_equal(fx_follower(1, "s")->turns[(HISTORY_TURNS + 20) % SEEN_TURNS].finish,
                        "eos");
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_allocation_of_the_net_thread_fails),
        cmocka_unit_test(a_run_of_them_fails),
        cmocka_unit_test(one_allocation_of_the_store_fails),
        cmocka_unit_test(reading_older_turns_without_memory),
    };
    // Several hundred databases: where files are memory, their syncing costs nothing.
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
