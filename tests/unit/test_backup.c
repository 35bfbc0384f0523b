// A copy of a database that is in use: one moment of it, whole or not there.
#include "sessions/archive/archive.h"
#include "sessions/archive/backup.h"
#include "sessions/store/db.h"
#include "tests/unit/sessions_fixture.h"
#include <pthread.h>
#include <sys/stat.h>

static char copy[300];

static void setup(void) {
    fx_setup_file();
    snprintf(copy, sizeof copy, "%s.copy", fx.path);
    unlink(copy);
}

static void teardown(void) {
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    char path[320];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", copy, suffixes[i]);
        unlink(path);
    }
    fx_teardown();
}

static bool part_is_left(void) {
    static const char *const suffixes[] = {".part", ".part-wal", ".part-shm", ".part-journal"};
    char path[320];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", copy, suffixes[i]);
        if (access(path, F_OK) == 0) return true;
    }
    return false;
}

static void take(void *ctx, int64_t done, int64_t total) {
    int64_t *last = ctx;
    assert_true(done >= *last && done <= total);
    *last = done;
}

static void serve_the_copy(void) {
    sessions_close(fx.ss);
    fx.ss = NULL;
    fx_forget_clients();
    fx_remove_files();
    assert_int_equal(rename(copy, fx.path), 0);
    fx_open();
}

static void a_copy_beside_a_server_has_all_that_was_committed(void **state) {
    struct err err = {0};
    struct stat st;
    int64_t pages = 0;
    setup();
    fx_open_session(1, "s");
    for (int i = 0; i < 5; i++) fx_turn(1, "s", "zebra"); // in the log, not yet in the file
    if (backup_database(fx.path, copy, take, &pages, &err) < 0) fail_msg("%s", err.text);
    assert_true(pages > 5);
    assert_int_equal(stat(copy, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_false(part_is_left());
    fx_turn(1, "s", "only in the first");
    serve_the_copy();
    assert_int_equal(fx_get(1, "s")->n_turns, 5);
    assert_int_equal(fx_list("zebra", 0, NULL)->n_sessions, 1);
    fx_attach(2, "s", 0);
    fx_turn(2, "s", "and it goes on");
    assert_true(fx_follower(2, "s")->turns[5].done);
    teardown();
}

static void a_turn_that_ran_is_interrupted_in_the_copy(void **state) {
    struct err err = {0};
    setup();
    fx_open_session(1, "s");
    fake.default_tokens = 40;
    fx_start(1, "s", "long");
    fx_settle();
    for (int i = 0; i < 10; i++) fx_step(), fx_advance(10000);
    assert_int_equal(backup_database(fx.path, copy, NULL, NULL, &err), 0);
    fx_run();
    serve_the_copy();
    const struct seen_answer *a = fx_get(1, "s");
    assert_string_equal(a->turns[0].finish, "interrupted");
    assert_true(a->turns[0].numbers.output_tokens > 0);
    teardown();
}

// A writer that never stops must neither delay the copy for ever nor tear it: each row of the table
// holds the counter's value of the same transaction.
static volatile bool stop_writing;
static void *write_on(void *arg) {
    sqlite3 *db = arg;
    while (!stop_writing)
        assert_int_equal(sqlite3_exec(db,
                                      "BEGIN IMMEDIATE; UPDATE c SET n = n + 1;"
                                      "INSERT INTO t SELECT n, randomblob(3000) FROM c; COMMIT",
                                      NULL, NULL, NULL),
                         SQLITE_OK);
    return NULL;
}

static int64_t number(const char *path, const char *sql) {
    struct store_db db;
    struct err err = {0};
    int64_t n = -1;
    if (store_db_open_reader(&db, path, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(store_db_int(&db, sql, &n, &err), 0);
    store_db_close(&db, false);
    return n;
}

static void a_busy_writer_neither_starves_nor_tears_it(void **state) {
    struct err err = {0};
    pthread_t thread;
    sqlite3 *db;
    setup();
    assert_int_equal(sqlite3_open(fx.path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    assert_int_equal(
        sqlite3_exec(db,
                     "PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF;"
                     "CREATE TABLE c (n INTEGER); INSERT INTO c VALUES (0);"
                     "CREATE TABLE t (n INTEGER, filler BLOB);"
                     "WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k"
                     " WHERE i < 3000) INSERT INTO t SELECT 0, randomblob(3000) FROM k",
                     NULL, NULL, NULL),
        SQLITE_OK);
    stop_writing = false;
    pthread_create(&thread, NULL, write_on, db);
    for (int i = 0; i < 5; i++) {
        if (backup_database(fx.path, copy, NULL, NULL, &err) < 0) fail_msg("%s", err.text);
        int64_t n = number(copy, "SELECT n FROM c");
        assert_int_equal(number(copy, "SELECT max(n) FROM t"), n);
        assert_int_equal(number(copy, "SELECT count(*) FROM t"), 3000 + n);
        unlink(copy);
    }
    stop_writing = true;
    pthread_join(thread, NULL);
    sqlite3_close(db);
    teardown();
}

static void what_cannot_be_copied_is_named_and_leaves_nothing(void **state) {
    struct err err = {0};
    setup();
    fx_open_session(1, "s");
    assert_int_equal(backup_database("/nowhere/at/all.db", copy, NULL, NULL, &err), E_NOTFOUND);
    assert_int_equal(backup_database("Makefile", copy, NULL, NULL, &err), E_FORMAT);
    assert_int_equal(backup_database(fx.path, "/nowhere/at/all.db", NULL, NULL, &err), E_NOTFOUND);
    assert_int_equal(backup_database(fx.path, copy, NULL, NULL, &err), 0);
    assert_int_equal(backup_database(fx.path, copy, NULL, NULL, &err), E_EXISTS);
    assert_non_null(strstr(err.text, copy));
    assert_int_equal(number(copy, "SELECT count(*) FROM sessions"), 1); // and is as it was
    assert_int_equal(backup_database(fx.path, fx.path, NULL, NULL, &err), E_EXISTS);
    if (access("/dev/full", F_OK) == 0)
        assert_true(backup_database(fx.path, "/dev/full", NULL, NULL, &err) < 0);
    assert_false(part_is_left());
    unlink(copy);
    sessions_close(fx.ss); // damaged pages are found before the copy gets its name
    FILE *f = fopen(fx.path, "r+b");
    char page[4096];
    memset(page, 0x5a, sizeof page);
    for (long at = 4096; at < 4096 * 20; at += 4096)
        fseek(f, at, SEEK_SET), fwrite(page, 1, sizeof page, f);
    fclose(f);
    assert_true(backup_database(fx.path, copy, NULL, NULL, &err) < 0);
    assert_true(access(copy, F_OK) < 0);
    assert_false(part_is_left());
    fx_remove_files();
    fx_open();
    teardown();
}

static void a_stale_part_is_reused_and_one_in_use_is_not_touched(void **state) {
    struct err err = {0};
    char part[320];
    setup();
    snprintf(part, sizeof part, "%s.part", copy);
    int fd = backup_part(part, &err);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "half", 4), 4);
    // Its writer is at work.
    assert_int_equal(backup_database(fx.path, copy, NULL, NULL, &err), E_BUSY);
    assert_non_null(strstr(err.text, "another command is writing this file"));
    struct stat st;
    assert_int_equal(stat(part, &st), 0);
    assert_int_equal(st.st_size, 4);
    close(fd); // its writer was killed
    if (backup_database(fx.path, copy, NULL, NULL, &err) < 0) fail_msg("%s", err.text);
    assert_false(part_is_left());
    unlink(copy);
    // No link to another file is followed, and no folder is taken for a stale file.
    assert_int_equal(symlink(fx.path, part), 0);
    assert_true(backup_database(fx.path, copy, NULL, NULL, &err) < 0);
    assert_int_equal(unlink(part), 0);
    assert_int_equal(mkdir(part, 0700), 0);
    assert_true(backup_database(fx.path, copy, NULL, NULL, &err) < 0);
    assert_int_equal(rmdir(part), 0);
    teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stale_part_is_reused_and_one_in_use_is_not_touched),
        cmocka_unit_test(a_copy_beside_a_server_has_all_that_was_committed),
        cmocka_unit_test(a_turn_that_ran_is_interrupted_in_the_copy),
        cmocka_unit_test(a_busy_writer_neither_starves_nor_tears_it),
        cmocka_unit_test(what_cannot_be_copied_is_named_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
