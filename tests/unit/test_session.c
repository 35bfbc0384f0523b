// Quick first life of a session; see test_sessions.c for the rules.
#include "tests/unit/sessions_fixture.h"

static void test_open_turn_events_restart(void **state) {
    fx_setup_file();
    fx_open_session(1, "s1");
    struct follower *f = fx_follower(1, "s1");
    assert_int_equal(f->last, 1);
    fx_start_with(1, "s1", "My name is Zora", NULL, false, "r1");
    fx_run();
    assert_int_equal(f->count[EVENT_STARTED], 1);
    assert_int_equal(f->count[EVENT_DONE], 1);
    assert_int_equal(f->turns[0].n_ids, 6);
    assert_string_equal(f->turns[0].finish, "eos");
    char text[8192];
    strcpy(text, f->turns[0].text);
    int64_t last = f->last;
    fx_restart();
    const struct seen_answer *a = fx_get(2, "s1");
    assert_int_equal(a->kind, ANSWER_STATE);
    assert_int_equal(a->n_turns, 1);
    assert_string_equal(a->turns[0].text, text);
    assert_string_equal(a->title, "My name is Zora");
    fx_attach(2, "s1", 0);
    struct follower *g = fx_follower(2, "s1");
    assert_int_equal(g->last, last);
    assert_string_equal(g->turns[0].text, text);
    fx_start(2, "s1", "again");
    fx_run();
    assert_int_equal(g->turns[1].numbers.source, CACHE_RECOMPUTED);
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_open_turn_events_restart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
