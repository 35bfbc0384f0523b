// Old sessions are removed: by age, and by number for each owner; never one with a client or a
// turn.
#include "tests/unit/sessions_fixture.h"

#define HOUR 3600

static void open_as(const char *owner, const char *id) {
    struct request r = fx_request(1, "open");
    struct ask_open o = {.id = id, .sink_len = -1};
    r.owner = owner;
    fx_follower(1, id);
    ask_open(fx.ss, &r, &o);
    fx_settle();
}

static void leave(void) {
    sessions_client_gone(fx.ss, 1);
    fx_clear_followers();
    fx_settle();
}

static void set_up(int64_t age_s, int64_t number) {
    fx_setup_file();
    fx_shut_down();
    fx.o.max_session_age = age_s;
    fx.o.max_sessions = number;
    fx_open();
}

static bool there(const char *owner, const char *id) {
    struct request r = fx_request(7, "get");
    r.owner = owner;
    ask_get(fx.ss, &r, id, false, 0, -1);
    fx_settle();
    return fx_last_answer()->kind == ANSWER_STATE;
}

// Several looks for old sessions, and what each removes.
static void look(void) {
    for (int i = 0; i < 8; i++) fx_advance(61 * INT64_C(1000000));
}

static void one_that_is_not_used_goes(void **state) {
    set_up(HOUR, 0);
    open_as("local", "old");
    fx_turn(1, "old", "quetzalcoatl");
    open_as("local", "unread");
    leave();
    fx_advance(INT64_C(1800) * 1000000);
    open_as("local", "new");
    leave();
    look();
    assert_true(there("local", "old") && there("local", "unread") && there("local", "new"));
    fx_restart(); // none is in memory now
    fx_get(1, "old");
    fx.n_removed = 0;
    fx_advance(INT64_C(1700) * 1000000);
    look();
    assert_false(there("local", "old"));    // was in memory
    assert_false(there("local", "unread")); // was not
    assert_true(there("local", "new"));
    assert_int_equal(fx.n_removed, 2); // watchers get both removals
    assert_int_equal(fx_list("quetzalcoatl", 0, NULL)->n_sessions, 0);
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 1);
    fx_teardown();
}

static void one_with_a_client_or_a_turn_stays(void **state) {
    set_up(HOUR, 0);
    open_as("local", "watched");
    fx_open_session(2, "busy");
    fake.default_tokens = 500;
    fx_start(2, "busy", "go on");
    fx_settle();
    sessions_client_gone(fx.ss, 2);
    fx_advance(INT64_C(7200) * 1000000);
    look();
    assert_true(there("local", "watched"));
    assert_true(there("local", "busy"));
    fx_run(); // its turn ends: it was used
    leave();
    look();
    assert_false(there("local", "watched"));
    assert_true(there("local", "busy"));
    fx_advance(INT64_C(7200) * 1000000);
    look();
    assert_false(there("local", "busy"));
    fx_teardown();
}

static void each_owner_keeps_the_newest(void **state) {
    char id[16];
    set_up(0, 3);
    for (int i = 0; i < 20; i++) { // more than a look removes
        snprintf(id, sizeof id, "s%d", i);
        open_as("local", id);
        leave();
        fx_advance(1000);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof id, "s%d", i);
        open_as("other", id);
        leave();
        fx_advance(1000);
    }
    open_as("local", "s3x");
    open_as("local", "s4x"); // of 22 the newest are s4x, s3x, s19
    look();
    look();
    for (int i = 0; i < 19; i++) {
        snprintf(id, sizeof id, "s%d", i);
        assert_false(there("local", id));
    }
    assert_true(there("local", "s19") && there("local", "s3x") && there("local", "s4x"));
    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof id, "s%d", i);
        assert_true(there("other", id));
    }
    fx_teardown();
}

static void by_default_none_goes(void **state) {
    set_up(0, 0);
    for (int i = 0; i < 5; i++) {
        char id[16];
        snprintf(id, sizeof id, "s%d", i);
        open_as("local", id);
        leave();
    }
    fx_advance(INT64_C(100000000) * 1000000);
    look();
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 5);
    fx_teardown();
}

// What the disk refuses to delete is deleted later.
static void a_full_disk_delays_it(void **state) {
    set_up(HOUR, 0);
    open_as("local", "memory");
    leave();
    fx_restart();
    open_as("local", "also");
    leave();
    fx_disk_full(true);
    fx_advance(INT64_C(7200) * 1000000);
    look();
    fx_disk_full(false);
    fx_advance(5000000);
    assert_true(there("local", "also") && there("local", "memory"));
    look();
    assert_false(there("local", "also"));
    assert_false(there("local", "memory"));
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_not_used_goes),
        cmocka_unit_test(one_with_a_client_or_a_turn_stays),
        cmocka_unit_test(each_owner_keeps_the_newest),
        cmocka_unit_test(by_default_none_goes),
        cmocka_unit_test(a_full_disk_delays_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
