// Long conversations: pages of older turns, and a memory that does not grow with them.
#include "sessions/requests/history.h"
#include "tests/unit/sessions_fixture.h"

static void say(const char *id, int from, int to) {
    char text[32];
    for (int i = from; i < to; i++) {
        fx.n_answers = 0;
        snprintf(text, sizeof text, "turn %d", i);
        fx_turn(1, id, text);
    }
}

static const struct seen_answer *page(const char *id, int64_t last, int64_t before) {
    struct request r = fx_request(2, "page");
    fx.n_answers = 0;
    ask_get(fx.ss, &r, id, false, last, before);
    fx_settle();
    return fx_last_answer();
}

static void check_page(const struct seen_answer *a, int64_t first, int64_t n, bool more) {
    char text[32];
    assert_int_equal(a->kind, ANSWER_STATE);
    assert_int_equal(a->n_turns, n);
    assert_int_equal(a->more, more);
    for (int64_t i = 0; i < n && i < SEEN_TURNS; i++) {
        snprintf(text, sizeof text, "turn %d", (int)(first + i));
        assert_int_equal(a->turns[i].turn, first + i);
        assert_string_equal(a->turns[i].input, text);
        assert_string_equal(a->turns[i].finish, "eos");
        assert_true(a->turns[i].text[0] != 0);
    }
}

static void pages_lead_to_the_beginning(void **state) {
    fx_setup_memory();
    fx_open_session(1, "s");
    say("s", 0, 12);
    check_page(page("s", 5, -1), 7, 5, true);
    check_page(page("s", 5, 7), 2, 5, true);
    check_page(page("s", 5, 2), 0, 2, false);
    check_page(page("s", 5, 0), 0, 0, false);
    check_page(page("s", 3, 1000), 9, 3, true); // there is nothing behind the end
    fx_teardown();
}

static size_t n_full(const struct session *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_turns; i++) n += s->turns[i]->storage != TURN_SLIM;
    return n;
}

#define MANY 3000

// The fake engine's sessions are longer here than by default.
static void set_up_long(void) {
    fx_settings(":memory:");
    fake.info.max_session_len = 1000000;
    fake.default_tokens = 2;
    fx.max_text = 4096;
    fx_open();
    fx_open_session(1, "s");
}

static void check_all_pages(void) {
    int64_t before = -1;
    for (int64_t first = MANY - 50; first >= 0; first -= 50, before = first + 50)
        check_page(page("s", 50, before), first, 50, first > 0);
}

static void many_turns_do_not_stay_in_memory(void **state) {
    set_up_long();
    say("s", 0, MANY);
    struct session *s = fx_session("s");
    assert_int_equal(s->n_turns, MANY);
    assert_in_range(n_full(s), HISTORY_TURNS, HISTORY_TURNS + 2);
    check_all_pages();
    const struct seen_answer *a = page("s", 1000, 2500); // the test looks at SEEN_TURNS of them
    check_page(a, 1500, 1000, true);
    fx_settle();
    // Turns read for a page have left memory again
    assert_in_range(n_full(s), HISTORY_TURNS, HISTORY_TURNS + 2);
    // Its first words are its title still.
    fx_update(1, "s", "Mine", NULL);
    fx_update(1, "s", "", NULL);
    assert_string_equal(s->rec.title, "turn 0");
    fx_teardown();
}

// Everything since the beginning, once and in order: the follower checks the numbers.
static void who_attaches_with_an_old_number_gets_all_of_it(void **state) {
    set_up_long();
    say("s", 0, 400);
    fx.by_hand = true;
    fx_attach(2, "s", 0);
    fx_attach(3, "s", fx_session("s")->turns[390]->rec.seq_last);
    struct request r = fx_request(2, "again"); // while the first one reads
    ask_attach(fx.ss, &r, "s", 1);
    r = fx_request(2, "behind");
    ask_get(fx.ss, &r, "s", false, 3, 200);
    fx_start(1, "s", "meanwhile");
    fx_run();
    check_page(fx_answer_to("behind"), 197, 3, true);
    struct follower *f = fx_follower(2, "s");
    f->last = 1;                                    // set back to what the second attach asked for
    assert_int_equal(n_full(fx_session("s")), 401); // it has yet to be told
    fx_take(2, f);
    assert_int_equal(f->last, event_log_seq(&fx_session("s")->events));
    assert_int_equal(f->count[EVENT_DONE], 401);
    fx_take(3, fx_follower(3, "s"));
    fx_take(1, fx_follower(1, "s"));
    fx_update(1, "s", "settled", NULL);
    fx_take(1, fx_follower(1, "s"));
    assert_in_range(n_full(fx_session("s")), HISTORY_TURNS, HISTORY_TURNS + 2);
    fx_teardown();
}

static void what_comes_from_the_disk_is_what_was_said(void **state) {
    fx_setup_file();
    fake.default_tokens = 2;
    fx_open_session(1, "s");
    say("s", 0, HISTORY_TURNS + 30);
    struct seen_answer *now = malloc(sizeof *now);
    *now = *page("s", 20, 20);
    fx_restart();
    say("s", HISTORY_TURNS + 30, HISTORY_TURNS + 32);
    assert_int_equal(fx_session("s")->turns[0]->storage, TURN_SLIM);
    const struct seen_answer *then = page("s", 20, 20);
    assert_int_equal(then->n_turns, 20);
    for (int i = 0; i < 20; i++) {
        assert_string_equal(then->turns[i].text, now->turns[i].text);
        assert_string_equal(then->turns[i].input, now->turns[i].input);
        assert_int_equal(then->turns[i].seq_last, now->turns[i].seq_last);
    }
    free(now);
    // A deletion asked for while older turns are being read.
    struct request r = fx_request(2, "page");
    ask_get(fx.ss, &r, "s", false, 5, 10);
    fx_close(3, "s", true);
    fx_settle();
    check_page(fx_answer_to("page"), 5, 5, true);
    assert_null(fx_session("s"));
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_lead_to_the_beginning),
        cmocka_unit_test(many_turns_do_not_stay_in_memory),
        cmocka_unit_test(who_attaches_with_an_old_number_gets_all_of_it),
        cmocka_unit_test(what_comes_from_the_disk_is_what_was_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
