// A session's note: what a protocol keeps with a session. Through changes, restarts, forks, archives, full disks.
#include "sessions/archive/archive.h"
#include "tests/unit/sessions_fixture.h"

static const struct seen_answer *ask_note(enum request_kind kind, const char *id, const char *note,
                                          const char *old) {
    struct request r = fx_request(1, "note");
    r.kind = kind;
    r.session = id;
    r.open.sink_len = -1;
    r.cancel_after_ms = -1;
    r.note = note;
    r.update.old_note = old;
    sessions_submit(fx.ss, &r);
    fx_settle();
    return fx_last_answer();
}

static void has_note(const char *id, const char *note) {
    const char *now = fx_session(id)->rec.note;
    if (note)
        assert_string_equal(now, note);
    else
        assert_null(now);
}

static void a_note_is_kept_and_changed(void **state) {
    fx_setup_file();
    ask_note(REQUEST_OPEN, "s", "one", NULL);
    has_note("s", "one");
    int64_t bytes = fx_session("s")->rec.stored_bytes;
    fx_turn(1, "s", "hello");
    ask_note(REQUEST_UPDATE, "s", "two and more", "one");
    has_note("s", "two and more");
    assert_true(fx_session("s")->rec.stored_bytes >= bytes + 9);
    ask_note(REQUEST_UPDATE, "s", "late", "one");
    assert_string_equal(fx_answer_to("note")->code, "session_busy");
    struct request r = fx_request(1, "update");
    ask_update(fx.ss, &r, "s", "Title", NULL, -1); // what is not named stays
    fx_settle();
    fx_restart();
    fx_attach(1, "s", 0);
    has_note("s", "two and more");
    fx_open_session(1, "plain");
    has_note("plain", NULL);
    ask_note(REQUEST_UPDATE, "plain", "first", "");
    has_note("plain", "first");
    fx_restart();
    fx_attach(1, "plain", 0);
    has_note("plain", "first");
    fx_teardown();
}

static void a_refused_change_is_undone(void **state) {
    fx_setup_file();
    ask_note(REQUEST_OPEN, "s", "one", NULL);
    int64_t bytes = fx_session("s")->rec.stored_bytes;
    fx_disk_full(true);
    ask_note(REQUEST_UPDATE, "s", "a longer note", "one");
    assert_string_equal(fx_answer_to("note")->code, "store_failed");
    has_note("s", "one");
    assert_true(fx_session("s")->rec.stored_bytes == bytes);
    fx_disk_full(false);
    fx_advance(6000000);
    ask_note(REQUEST_UPDATE, "s", "two", "one");
    fx_restart();
    fx_attach(1, "s", 0);
    has_note("s", "two");
    fx_teardown();
}

static void one_that_is_too_long_is_refused(void **state) {
    fx_setup_memory();
    char *note = malloc(SESSION_NOTE_BYTES + 2);
    memset(note, 'x', SESSION_NOTE_BYTES + 1);
    note[SESSION_NOTE_BYTES + 1] = '\0';
    ask_note(REQUEST_OPEN, "s", note, NULL);
    assert_string_equal(fx_answer_to("note")->code, "invalid");
    note[SESSION_NOTE_BYTES] = '\0';
    ask_note(REQUEST_OPEN, "t", note, NULL);
    has_note("t", note);
    note[SESSION_NOTE_BYTES] = 'x';
    ask_note(REQUEST_UPDATE, "t", note, NULL);
    assert_string_equal(fx_answer_to("note")->code, "limit_reached");
    free(note);
    fx_teardown();
}

static void a_fork_has_none_and_an_archive_has_it(void **state) {
    struct archive *a;
    struct stored_session *s, *back;
    struct buf text;
    struct err err = {0};
    fx_setup_file();
    ask_note(REQUEST_OPEN, "s", "kept \"so\"", NULL);
    fx_turn(1, "s", "hello");
    struct request r = fx_request(1, "fork");
    ask_fork(fx.ss, &r, "s", TURN_HEAD, "copy", NULL);
    fx_settle();
    has_note("copy", NULL);
    has_note("s", "kept \"so\"");
    fx_shut_down();
    if (archive_open(&a, fx.path, &err) < 0 || archive_load(a, NULL, "s", &s, &err) < 0)
        fail_msg("%s", err.text);
    archive_close(a);
    buf_init(&text, 1 << 20);
    assert_int_equal(archive_export(s, &text), 0);
    if (archive_read(&back, buf_z(&text), text.len, 1, &err) < 0) fail_msg("%s", err.text);
    assert_string_equal(back->rec.note, "kept \"so\"");
    buf_release(&text);
    stored_session_free(s);
    stored_session_free(back);
    fx_open();
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_note_is_kept_and_changed),
        cmocka_unit_test(a_refused_change_is_undone),
        cmocka_unit_test(one_that_is_too_long_is_refused),
        cmocka_unit_test(a_fork_has_none_and_an_archive_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
