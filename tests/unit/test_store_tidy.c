// What deletions leave behind: words in old segments of the index and pages of the log. They go
// soon, in small steps that no request waits for.
#include "sessions/store/words.h"
#include "tests/unit/sessions_fixture.h"

static bool on_disk(const char *word) {
    static const char *const suffixes[] = {"", "-wal"};
    bool found = false;
    for (int i = 0; i < 2; i++) {
        char path[300];
        struct buf b;
        snprintf(path, sizeof path, "%s%s", fx.path, suffixes[i]);
        if (access(path, F_OK) < 0) continue;
        assert_int_equal(buf_read_file(&b, path, 1 << 28, NULL), 0);
        found |= b.len && memmem(b.data, b.len, word, strlen(word));
        buf_release(&b);
    }
    return found;
}

// Seconds until the word is gone from the disk, or -1 if that takes too long.
static double gone_after(const char *word) {
    int64_t start = clock_mono_us(&clock_system);
    while (on_disk(word)) {
        if (clock_mono_us(&clock_system) - start > 120000000) return -1;
        usleep(20000);
    }
    return (double)(clock_mono_us(&clock_system) - start) / 1e6;
}

static void deleted_words_leave_the_disk_soon(void **state) {
    fx_setup_file();
    fx_open_session(1, "s");
    fx_open_session(1, "keep");
    fx_turn(1, "s", "quetzalcoatl");
    fx_turn(1, "keep", "popocatepetl");
    assert_true(on_disk("quetzal"));
    fx_close(3, "s", true);
    assert_int_equal(fx_list("quetz", 0, NULL)->n_sessions, 0); // at once
    assert_true(gone_after("quetzal") >= 0);
    assert_int_equal(fx_list("popo", 0, NULL)->n_sessions, 1);
    fx_teardown();
}

// A running read keeps the log from being emptied. The store continues and finishes after the read.
static void a_foreign_reader_delays_nobody(void **state) {
    char id[16];
    sqlite3 *db;
    fx_setup_file();
    int64_t begun = clock_mono_us(&clock_system);
    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_open_session(1, id);
        fx_turn(1, id, "quetzalcoatl");
    }
    int64_t made = clock_mono_us(&clock_system) - begun; // on this machine, now
    assert_int_equal(sqlite3_open_v2(fx.path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM sessions", NULL, NULL, NULL),
                     SQLITE_OK);
    int64_t start = clock_mono_us(&clock_system);
    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_close(1, id, true);
        fx_open_session(2, id);
        usleep(50000); // the store tends its log between the groups
    }
    // Once it waited 2 s for each of 3.
    assert_true(clock_mono_us(&clock_system) - start < 5000000 + 10 * made);
    assert_true(on_disk("quetzal"));
    sqlite3_close(db);
    assert_true(gone_after("quetzal") >= 0);
    fx_teardown();
}

static void fill_index(int n_rows) {
    sqlite3 *db;
    char sql[512];
    assert_int_equal(sqlite3_open(fx.path, &db), SQLITE_OK);
    assert_int_equal(store_words_register(db), SQLITE_OK);
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
             "INSERT INTO search (rowid, words) SELECT 1000000 + i,"
             " owner_tag('x') || hex(randomblob(16)) || ' ' || hex(randomblob(16)) || ' ' ||"
             " hex(randomblob(16)) FROM n",
             n_rows);
    for (int i = 0; i < 4; i++) { // segments
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(
            sqlite3_exec(db, "UPDATE search_content SET id = id WHERE 0", NULL, NULL, NULL),
            SQLITE_OK);
        snprintf(sql, sizeof sql,
                 "INSERT INTO search (rowid, words) SELECT rowid + %d, words || ' x'"
                 " FROM search WHERE rowid > 1000000 LIMIT %d",
                 (i + 2) * 1000000, n_rows);
    }
    sqlite3_close(db);
}

// However large the index is, a deletion and the requests after it are answered before it has been
// merged.
static void a_large_index_is_merged_behind_the_answers(void **state) {
    struct err err = {0};
    struct store_db db;
    int64_t due = 0;
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "quetzalcoatl");
    sessions_close(fx.ss);
    fx.ss = NULL;
    fill_index(20000);
    fx_open();
    fx_close(1, "s", true);
    fx_open_session(1, "next");
    fx_turn(1, "next", "words");
    assert_int_equal(store_db_open_reader(&db, fx.path, &err), 0);
    assert_int_equal(
        store_db_int(&db, "SELECT count(*) FROM state WHERE name = 'unmerged'", &due, &err), 0);
    store_db_close(&db, false);
    assert_int_equal(due, 1);
    fx_restart(); // the next run finishes what this one left undone
    assert_true(gone_after("quetzal") >= 0);
    assert_int_equal(fx_list("words", 0, NULL)->n_sessions, 1);
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deleted_words_leave_the_disk_soon),
        cmocka_unit_test(a_foreign_reader_delays_nobody),
        cmocka_unit_test(a_large_index_is_merged_behind_the_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
