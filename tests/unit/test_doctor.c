// The doctor: a sound database has no faults, every kind of damage is found, repaired sessions
// continue, and readable ones can be exported.
#include "base/json.h"
#include "sessions/archive/archive.h"
#include "sessions/archive/doctor.h"
#include "sessions/store/words.h"
#include "tests/unit/sessions_fixture.h"
#include <dirent.h>

static char folder[300];

static void remove_folder(void) {
    char path[700];
    DIR *d = opendir(folder);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (d) closedir(d);
    rmdir(folder);
}

static void sql(const char *text) {
    sqlite3 *db;
    char *message = NULL;
    assert_int_equal(sqlite3_open(fx.path, &db), SQLITE_OK);
    assert_int_equal(store_words_register(db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s: %s", text, message);
    sqlite3_close(db);
}

// Two sessions with turns of every kind; the server has ended.
static void setup(void) {
    fx_setup_file();
    snprintf(folder, sizeof folder, "%s.folder", fx.path);
    remove_folder();
    fx_open_session(1, "good");
    fx_turn(1, "good", "nothing happens to me");
    fx_open_session(1, "s");
    fx_start_with(1, "s", "first", "{\"top_logprobs\":2}", false, "q1");
    fx_run();
    fx_start(1, "s", "second");
    fx_start_with(1, "s", "cancelled", NULL, true, "q2");
    fx_settle();
    fx_cancel(1, "s", 2);
    fx_run();
    fx_advance(70000000);
    fx_turn(1, "s", "last");
    fx_shut_down();
}

static void teardown(void) {
    remove_folder();
    fx_open();
    fx_teardown();
}

static struct doctor_report examined(bool repair, bool to_folder) {
    struct doctor_report r;
    struct err err = {0};
    struct doctor_options o = {.repair = repair, .folder = to_folder ? folder : NULL};
    if (doctor_examine(fx.path, &o, &r, &err) < 0) fail_msg("%s", err.text);
    return r;
}

static void expect_sound(void) {
    struct doctor_report r = examined(false, false);
    if (r.n_faults) fail_msg("%s: %s", r.faults[0].session, r.faults[0].what);
    doctor_report_release(&r);
}

static void a_sound_database_has_no_faults(void **state) {
    setup();
    expect_sound();
    struct doctor_report r = examined(true, true);
    assert_int_equal(r.n_faults, 0);
    assert_int_equal(r.n_sessions, 2);
    assert_int_equal(r.n_exported, 2);
    doctor_report_release(&r);
    expect_sound();
    teardown();
}

static void it_looks_while_a_server_runs_and_repairs_only_without(void **state) {
    struct doctor_report r;
    struct err err = {0};
    struct doctor_options o = {.repair = true};
    setup();
    fx_open();
    fx_attach(1, "s", 0);
    fake.default_tokens = 40;
    fx_start(1, "s", "a long one");
    fx_settle();
    for (int i = 0; i < 10; i++) {
        fx_step();
        fx_advance(20000);
        expect_sound();
    }
    assert_int_equal(doctor_examine(fx.path, &o, &r, &err), E_BUSY);
    doctor_report_release(&r);
    fx_run();
    sessions_close(fx.ss);
    teardown();
}

static const char *const damage[] = {
    "UPDATE turns SET n_output = 5 WHERE session = 2 AND turn = 0",
    "UPDATE turns SET log_first = 3 WHERE session = 2 AND turn = 0",
    "UPDATE turns SET n_input = 1 WHERE session = 2 AND turn = 1",
    "UPDATE turns SET finish_reason = 'bored' WHERE session = 2 AND turn = 1",
    "UPDATE turns SET cache_source = 'moon' WHERE session = 2",
    "UPDATE turns SET input_kind = 'soup' WHERE session = 2 AND turn = 1",
    "UPDATE turns SET input_ids = x'0102' WHERE session = 2 AND turn = 0",
    "UPDATE turns SET input_ids = x'ffffffff' WHERE session = 2 AND turn = 0",
    "UPDATE turns SET sampling = '{' WHERE session = 2 AND turn = 3",
    "UPDATE turns SET n_alternatives = 7 WHERE session = 2 AND turn = 0",
    "UPDATE turns SET n_alternatives = -7 WHERE session = 2 AND turn = 0",
    "UPDATE turns SET queue_us = -1 WHERE session = 2",
    "UPDATE turns SET seq_last = 1 WHERE session = 2 AND turn = 0",
    "UPDATE turns SET turn = 9 WHERE session = 2 AND turn = 3",
    "DELETE FROM turns WHERE session = 2 AND turn = 1",
    "UPDATE tokens SET ids = CAST(x'ffffffff' || substr(ids, 5) AS BLOB) WHERE session = 2 AND "
    "turn = 0",
    "UPDATE tokens SET text_ends = CAST(x'ffffffff' || substr(text_ends, 5) AS BLOB) WHERE session "
    "= 2",
    "UPDATE tokens SET logprobs = x'00' WHERE session = 2 AND turn = 1",
    "UPDATE tokens SET alternatives = NULL WHERE session = 2 AND turn = 0",
    "UPDATE tokens SET text = x'' WHERE session = 2",
    "UPDATE tokens SET first = 4 WHERE session = 2 AND turn = 3",
    "DELETE FROM tokens WHERE session = 2 AND turn = 1",
    "DELETE FROM events WHERE session = 2 AND seq = 2",
    "DELETE FROM events WHERE session = 2",
    "UPDATE events SET kind = 'delta' WHERE session = 2 AND seq = 2",
    "UPDATE events SET kind = 'nonsense' WHERE session = 2 AND kind = 'done'",
    "UPDATE events SET n = 9 WHERE session = 2 AND seq = 1",
    "UPDATE turns SET parent = 3 WHERE session = 2 AND turn = 1",
    "UPDATE turns SET parent = -5 WHERE session = 2 AND turn = 1",
    "UPDATE turns SET parent = -1 WHERE session = 2 AND turn = 2",
    "UPDATE turns SET parent = 0 WHERE session = 2 AND turn = 3",
    "UPDATE sessions SET head = 99 WHERE key = 2",
    "UPDATE sessions SET head = -9 WHERE key = 2",
    "UPDATE sessions SET head = 1 WHERE key = 2",
    "UPDATE sessions SET forked_from = 'a b' WHERE key = 2",
    "UPDATE events SET kind = 'rewound', turn = 1 WHERE session = 2 AND seq = 2",
    "UPDATE events SET turn = 2 WHERE session = 2 AND kind = 'opened'",
    "UPDATE sessions SET seq = 7 WHERE key = 2",
    "UPDATE sessions SET n_turns = 2 WHERE key = 2",
    "UPDATE sessions SET n_tokens = -1 WHERE key = 2",
    "UPDATE sessions SET memory_len = 0 WHERE key = 2",
    "UPDATE sessions SET sink_len = 9999 WHERE key = 2",
    "UPDATE sessions SET session_len = 3 WHERE key = 2",
    "UPDATE sessions SET sampling = '[]' WHERE key = 2",
    "UPDATE sessions SET title = CAST(x'ff' AS TEXT) WHERE key = 2",
    "PRAGMA foreign_keys = OFF; UPDATE sessions SET model = 77 WHERE key = 2",
};

// The damage is found and repaired, and the session continues; the other session is unchanged.
static void damaged_sessions_are_found_and_repaired(void **state) {
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        setup();
        sql(damage[i]);
        struct doctor_report r = examined(false, false);
        if (r.n_faults == 0 || r.n_left != r.n_faults) fail_msg("%s: not found", damage[i]);
        for (size_t k = 0; k < r.n_faults; k++)
            if (r.faults[k].session && strcmp(r.faults[k].session, "s") != 0)
                fail_msg("%s: %s: %s", damage[i], r.faults[k].session, r.faults[k].what);
        doctor_report_release(&r);
        r = examined(true, false);
        if (r.n_left > 0) {
            for (size_t k = 0; k < r.n_faults; k++)
                if (!r.faults[k].repaired) print_error("%s: %s\n", damage[i], r.faults[k].what);
            fail();
        }
        doctor_report_release(&r);
        expect_sound();
        fx_open();
        const struct seen_answer *a = fx_get(1, "s");
        if (a->kind != ANSWER_STATE) fail_msg("%s: %s", damage[i], a->message);
        assert_true(a->n_turns_total >= 3);
        fx_attach(1, "s", 0); // numbered without a gap
        int64_t n = fx_get(1, "s")->n_turns_total;
        // Of an unknown model, or as long as its log: it can be read, not continued.
        bool ends_here = strstr(damage[i], "model = 77") || strstr(damage[i], "session_len = 3");
        fx_turn(1, "s", "it goes on");
        if (!ends_here && !fx_follower(1, "s")->turns[n].done) fail_msg("%s: stuck", damage[i]);
        assert_string_equal(fx_get(1, "good")->turns[0].input, "nothing happens to me");
        sessions_close(fx.ss);
        fx.ss = NULL;
        fx_forget_clients();
        fake_reset();
        expect_sound();
        teardown();
    }
}

// A number that clients have seen gets no other meaning by a repair.
static void no_number_means_two_things(void **state) {
    setup();
    int64_t last = 0;
    struct store_db db;
    assert_int_equal(store_db_open_reader(&db, fx.path, NULL), 0);
    assert_int_equal(store_db_int(&db, "SELECT seq FROM sessions WHERE id = 's'", &last, NULL), 0);
    store_db_close(&db, false);
    sql("DELETE FROM events WHERE session = 2 AND kind = 'started'");
    struct doctor_report r = examined(true, false);
    assert_int_equal(r.n_left, 0);
    doctor_report_release(&r);
    fx_open();
    fx.by_hand = true;
    struct request q = fx_request(1, "attach");
    for (int64_t after = 1; after <= last; after++) {
        ask_attach(fx.ss, &q, "s", after);
        fx_settle();
        bool told_so = fx_last_answer()->reset || after == last || after == 1;
        assert_true(told_so);
        sessions_client_gone(fx.ss, 1);
    }
    sessions_close(fx.ss);
    teardown();
}

static void rows_of_nothing_and_the_index_of_words(void **state) {
    static const char *const rows[] = {
        "DELETE FROM search WHERE rowid = -2",
        "DELETE FROM search WHERE rowid = 3",
        "UPDATE search SET words = 'else' WHERE rowid = 2",
        "INSERT INTO search (rowid, words) VALUES (999, 'ghost')",
        "PRAGMA foreign_keys = OFF; INSERT INTO tokens SELECT 55, turn, first, ids, logprobs, "
        "text_ends, alternatives, text, seq, seq_reserved FROM tokens WHERE session = 1",
        "PRAGMA foreign_keys = OFF; INSERT INTO events VALUES (55, 1, 1, 'opened', -1, '', 0)",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setup();
        sql(rows[i]);
        struct doctor_report r = examined(true, false);
        if (r.n_faults == 0 || r.n_left) fail_msg("%s: %zu, %zu", rows[i], r.n_faults, r.n_left);
        assert_null(r.faults[0].session);
        doctor_report_release(&r);
        expect_sound();
        fx_open();
        assert_int_equal(fx_list("last", 0, NULL)->n_sessions, 1);
        assert_int_equal(fx_list("ghost", 0, NULL)->n_sessions, 0);
        assert_int_equal(fx_list("happens", 0, NULL)->n_sessions, 1);
        sessions_close(fx.ss);
        teardown();
    }
}

static void what_can_be_read_is_taken_out(void **state) {
    struct stored_session *s;
    struct err err = {0};
    char path[400];
    setup();
    sql("UPDATE tokens SET logprobs = x'00' WHERE session = 2 AND turn = 1");
    struct doctor_report r = examined(false, true);
    assert_true(r.n_left > 0);
    assert_int_equal(r.n_exported, 2);
    doctor_report_release(&r);
    for (int i = 0; i < 2; i++) {
        struct buf text;
        snprintf(path, sizeof path, "%s/%s.json", folder, i ? "s" : "good");
        assert_int_equal(buf_read_file(&text, path, 1 << 26, &err), 0);
        if (archive_read(&s, text.data, text.len, 1, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(s->n_turns, i ? 4 : 1);
        if (i) assert_string_equal(s->turns[1].rec.finish_reason, "interrupted");
        if (i) assert_string_equal(s->turns[3].rec.input_text, "last");
        stored_session_free(s);
        buf_release(&text);
    }
    struct doctor_options o = {.folder = folder}; // an existing file is not overwritten
    assert_int_equal(doctor_examine(fx.path, &o, &r, &err), E_EXISTS);
    assert_non_null(strstr(err.text, ".json: there is such a file already"));
    doctor_report_release(&r);
    sql("DELETE FROM sessions WHERE key = 2");
    teardown();
}

// Any page of the file overwritten: found, never a crash, and most of it is read.
static void damaged_pages(void **state) {
    struct buf whole;
    unsigned char page[4096];
    int n_found = 0;
    int64_t n_exported = 0;
    setup();
    assert_int_equal(buf_read_file(&whole, fx.path, 1 << 26, NULL), 0);
    size_t n_pages = whole.len / 4096;
    for (size_t k = 1; k < n_pages; k++) {
        struct doctor_report r;
        struct err err = {0};
        struct doctor_options o = {.repair = true, .folder = folder};
        remove_folder();
        fx_remove_files();
        memset(page, (int)(k * 37), sizeof page);
        FILE *f = fopen(fx.path, "wb");
        fwrite(whole.data, 1, whole.len, f);
        fseek(f, (long)k * 4096, SEEK_SET);
        fwrite(page, 1, sizeof page, f);
        fclose(f);
        int rc = doctor_examine(fx.path, &o, &r, &err);
        if (rc < 0 || r.n_faults > 0) n_found++;
        if (rc < 0) assert_true(err.text[0] != '\0');
        n_exported += r.n_exported;
        doctor_report_release(&r);
    }
    assert_true(n_found > (int)n_pages / 2); // the others are free pages
    assert_true(n_exported > (int64_t)n_pages / 2);
    fx_remove_files();
    buf_release(&whole);
    teardown();
}

// A file that was cut short, as a copy without room or a failing disk leaves it: what is left is
// examined.
static void a_file_cut_short(void **state) {
    struct buf whole;
    int64_t n_exported = 0;
    bool listed = false;
    setup();
    assert_int_equal(buf_read_file(&whole, fx.path, 1 << 26, NULL), 0);
    size_t n_pages = whole.len / 4096;
    for (size_t k = 2; k < n_pages; k++) {
        struct doctor_report r;
        struct err err = {0};
        struct doctor_options o = {.folder = folder};
        remove_folder();
        fx_remove_files();
        FILE *f = fopen(fx.path, "wb");
        fwrite(whole.data, 1, k * 4096 - (k % 3) * 100, f);
        fclose(f);
        int rc = doctor_examine(fx.path, &o, &r, &err);
        // Without the pages that name its tables there is nothing to list. In a file as small as this they reach far.
        if (rc == 0)
            assert_true(r.n_faults > 0);
        else
            assert_true(rc == E_CORRUPT && err.text[0] && !listed);
        listed |= rc == 0;
        n_exported += r.n_exported;
        doctor_report_release(&r);
        o = (struct doctor_options){.repair = true};
        assert_int_equal(doctor_examine(fx.path, &o, &r, &err), E_CORRUPT);
        assert_non_null(strstr(err.text, "--output"));
        doctor_report_release(&r);
    }
    assert_true(listed && n_exported > 0);
    fx_remove_files();
    buf_release(&whole);
    teardown();
}

// A queued turn was cancelled before the turn that it followed ended; then both were deleted.
static void deleted_turns_may_have_ended_in_any_order(void **state) {
    setup();
    fx_open();
    fx_follower(1, "s")->last = -1;
    fx_start(1, "s", "runs");
    fx_start_with(1, "s", "waits", NULL, true, "q3");
    fx_settle();
    fx_cancel(1, "s", 5);
    fx_run();
    struct request r = fx_request(1, "erase");
    ask_for(fx.ss, &r, REQUEST_ERASE, "s", 4);
    fx_settle();
    assert_int_equal(fx_session("s")->head, 3);
    assert_true(turn_was_erased(&fx_session("s")->turns[5]->rec));
    fx_turn(1, "s", "behind them");
    fx_shut_down();
    expect_sound();
    teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_cut_short),
        cmocka_unit_test(a_sound_database_has_no_faults),
        cmocka_unit_test(it_looks_while_a_server_runs_and_repairs_only_without),
        cmocka_unit_test(deleted_turns_may_have_ended_in_any_order),
        cmocka_unit_test(damaged_sessions_are_found_and_repaired),
        cmocka_unit_test(no_number_means_two_things),
        cmocka_unit_test(rows_of_nothing_and_the_index_of_words),
        cmocka_unit_test(what_can_be_read_is_taken_out),
        cmocka_unit_test(damaged_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
