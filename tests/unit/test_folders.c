// A session's folder: names, lists, forks, restarts, and a disk that is full.
#include "tests/unit/sessions_fixture.h"

static void begin_move(const char *folder) {
    struct request r = fx_request(1, "move");
    r.kind = REQUEST_UPDATE;
    r.session = "s";
    r.cancel_after_ms = -1;
    r.folder = folder;
    sessions_submit(fx.ss, &r);
}

static void move_to(const char *folder) {
    begin_move(folder);
    fx_settle();
}

static size_t listed(enum record_flag in_folder) {
    struct request r = fx_request(1, "list");
    r.kind = REQUEST_LIST;
    r.in_folder = in_folder;
    sessions_submit(fx.ss, &r);
    fx_settle();
    assert_int_equal(fx_last_answer()->kind, ANSWER_LIST);
    return fx_last_answer()->n_sessions;
}

static void names_have_a_length_and_show_something(void **state) {
    char name[4 * SESSION_FOLDER_CHARS + 5] = "";
    for (int i = 0; i < SESSION_FOLDER_CHARS; i++) strcat(name, "\xf0\x9f\x98\x80");
    assert_true(session_folder_valid(name));
    strcat(name, "a");
    assert_false(session_folder_valid(name));
    static const char *const good[] = {"a",
                                       " / ",
                                       "\xe5\x8c\x97\xe4\xba\xac",
                                       "\xd9\x85\xdb\x8c\xe2\x80\x8c\xd8\xb1",
                                       "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb",
                                       "\xe2\x9d\xa4\xef\xb8\x8f"};
    static const char *const bad[] = {
        "", "a\n", "\x1f", "\x7f", "\xc2\x80", "\xc2\x9f", "\xff", "a\xe5\x8c",
        // nothing is seen of it
        " ", "   ", "\xc2\xa0", "\xc2\xad", "\xe2\x80\x8b", " \xe2\x80\x8d\xe2\x80\x83",
        "\xe2\x81\xa0", "\xe3\x80\x80", "\xe3\x85\xa4", "\xef\xbb\xbf",
        // line ends, and what turns the text behind it
        "a\xe2\x80\xa8"
        "b",
        "a\xe2\x80\xae"
        "b",
        "a\xe2\x81\xa7"
        "b"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(session_folder_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(session_folder_valid(bad[i]));
}

static void a_folder_lasts_and_is_not_copied(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    fx_open_session(1, "t");
    move_to("Work");
    fx_restart();
    fx_attach(1, "s", 0);
    assert_string_equal(fx_session("s")->rec.folder, "Work");
    assert_int_equal(listed(FLAG_ON), 1);
    assert_int_equal(listed(FLAG_OFF), 1);
    assert_int_equal(listed(FLAG_ANY), 2);
    struct request r = fx_request(1, "fork");
    r.kind = REQUEST_FORK;
    r.session = "s";
    r.turn = TURN_HEAD;
    r.fork.new_session = "f";
    sessions_submit(fx.ss, &r);
    fx_settle();
    assert_null(fx_session("f")->rec.folder);
    move_to("a\n");
    assert_string_equal(fx_answer_to("move")->code, "invalid");
    assert_string_equal(fx_session("s")->rec.folder, "Work");
    move_to("");
    fx_restart();
    fx_attach(1, "s", 0);
    assert_null(fx_session("s")->rec.folder);
    assert_int_equal(listed(FLAG_ON), 0);
    fx_teardown();
}

// A session that is not in memory is read first. Meanwhile the client's message is freed.
static void a_move_waits_for_its_session(void **state) {
    char folder[] = "Work";
    fx_setup_file();
    fx_open_session(1, "s");
    fx_restart();
    begin_move(folder);
    memset(folder, 'x', 4);
    fx_settle();
    fx_attach(1, "s", 0);
    assert_string_equal(fx_session("s")->rec.folder, "Work");
    fx_teardown();
}

static void a_refused_move_is_undone(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_disk_full(true);
    move_to("Work");
    assert_string_equal(fx_answer_to("move")->code, "store_failed");
    assert_null(fx_session("s")->rec.folder);
    fx_disk_full(false);
    fx_advance(6000000);
    move_to("Work");
    fx_disk_full(true);
    move_to("");
    assert_string_equal(fx_session("s")->rec.folder, "Work");
    move_to("Home");
    assert_string_equal(fx_session("s")->rec.folder, "Work");
    fx_disk_full(false);
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_a_length_and_show_something),
        cmocka_unit_test(a_folder_lasts_and_is_not_copied),
        cmocka_unit_test(a_move_waits_for_its_session),
        cmocka_unit_test(a_refused_move_is_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
