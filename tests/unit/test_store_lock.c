// Which process may have a database: one server, whatever name it knows the file by.
#include "sessions/store/db.h"
#include "tests/unit/sessions_fixture.h"
#include <signal.h>
#include <sys/wait.h>

static void a_second_server_is_refused(void **state) {
    struct sessions *first;
    fx_setup_file();
    first = fx.ss;
    char words[64];
    snprintf(words, sizeof words, "in use by another Parley (process %ld)", (long)getpid());
    struct metrics *kept = fx.metrics; // the first server's counters stay in use
    fx.metrics = NULL;
    fx_expect_refused(E_BUSY, words);
    metrics_free(fx.metrics);
    fx.metrics = kept;
    fx.ss = first;
    fx_turn(1, "none", "x"); // the first server still works
    fx_teardown();
}

// SQLite's log of a link is beside the file; lock and tail must be where everybody finds them.
static void a_link_to_the_database_is_the_database(void **state) {
    char file[sizeof fx.path], link[sizeof fx.path], path[340];
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "hello");
    snprintf(file, sizeof file, "%s", fx.path);
    snprintf(link, sizeof link, "%.240s.link", file);
    assert_int_equal(symlink(file, link), 0);
    struct sessions *first = fx.ss;
    struct metrics *kept = fx.metrics;
    struct err err = {0};
    fx.metrics = NULL;
    snprintf(fx.path, sizeof fx.path, "%s", link);
    assert_int_equal(fx_try_open(&err), E_BUSY);
    metrics_free(fx.metrics);
    fx.metrics = kept;
    sessions_close(first);
    fx.ss = NULL;
    fx_forget_clients();
    fx.o.durable = DURABLE_DELTA;
    fx_open();
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    static const char *const beside[] = {".lock", ".tail", "-wal"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", file, beside[i]);
        assert_int_equal(access(path, F_OK), 0);
        snprintf(path, sizeof path, "%s%s", link, beside[i]);
        assert_int_equal(access(path, F_OK), -1);
    }
    unlink(link);
    snprintf(fx.path, sizeof fx.path, "%s", file);
    fx_teardown();
}

// A link to a file that does not exist yet: the file made there is readable by its owner only, too.
static void a_link_to_no_file_makes_a_private_one(void **state) {
    char file[sizeof fx.path], link[sizeof fx.path];
    struct stat st;
    fx_start_closed();
    snprintf(file, sizeof file, "%s", fx.path);
    snprintf(link, sizeof link, "%.240s.link", file);
    fx_remove_files();
    assert_int_equal(symlink(file, link), 0);
    snprintf(fx.path, sizeof fx.path, "%s", link);
    fx_open();
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    unlink(link);
    snprintf(fx.path, sizeof fx.path, "%s", file);
    fx_teardown();
}

// With a hard link or another lock file there would be two of SQLite's logs.
static void a_second_lock_opens_no_second_server(void **state) {
    char file[sizeof fx.path], path[340];
    fx_setup_file();
    struct sessions *first = fx.ss;
    struct metrics *kept = fx.metrics;
    fx.metrics = NULL;
    snprintf(file, sizeof file, "%s", fx.path);
    snprintf(path, sizeof path, "%s.lock", file);
    unlink(path);
    fx_expect_refused(E_DENIED, "in use by another Parley");
    snprintf(fx.path, sizeof fx.path, "%.240s.hard", file);
    assert_int_equal(link(file, fx.path), 0);
    fx_expect_refused(E_DENIED, "in use by another Parley");
    fx_remove_files();
    metrics_free(fx.metrics);
    fx.metrics = kept;
    fx.ss = first;
    snprintf(fx.path, sizeof fx.path, "%s", file);
    fx_open_session(1, "s"); // the first server still works
    fx_teardown();
}

static void the_lock_goes_with_the_process(void **state) {
    int ready[2], status;
    char c = 0;
    fx_start_closed();
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        fx_open();
        if (write(ready[1], "x", 1) == 1) pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    fx_expect_refused(E_BUSY, "in use by another Parley");
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(ready[0]), close(ready[1]);
    fx_open();
    assert_int_equal(fx_get(1, "s")->n_turns, 1);
    fx_teardown();
}

static void another_program_holding_the_database_is_named(void **state) {
    sqlite3 *db;
    fx_start_closed();
    assert_int_equal(sqlite3_open(fx.path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;", NULL, NULL, NULL),
        SQLITE_OK);
    fx_expect_refused(E_BUSY, "locked by another process");
    sqlite3_close(db);
    fx_end_closed();
}

// The files that root makes beside the database of a service are the service's, or it could not start
// again: `parley sessions rm` before the server has run once. A file that was there keeps its owner.
static void what_root_makes_belongs_to_the_owner_of_the_database(void **state) {
    enum { SERVICE = 1234 };
    if (geteuid() != 0) skip(); // only root gives files away
    static const char *const made[] = {".lock", ".tail", "-wal", "-shm"};
    char path[340];
    struct stat st;
    fx_start_closed();
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", fx.path, made[i]);
        unlink(path);
    }
    assert_int_equal(chown(fx.path, SERVICE, SERVICE), 0);
    fx.o.durable = DURABLE_DELTA;
    fx_open();
    fx_turn(1, "s", "again");
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", fx.path, made[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_uid, SERVICE);
        assert_int_equal(st.st_gid, SERVICE);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    fx_shut_down();
    snprintf(path, sizeof path, "%s.lock", fx.path);
    assert_int_equal(chown(path, 0, 0), 0);
    fx_open();
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, 0);
    fx_shut_down();
    fx_end_closed();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_server_is_refused),
        cmocka_unit_test(a_link_to_the_database_is_the_database),
        cmocka_unit_test(a_link_to_no_file_makes_a_private_one),
        cmocka_unit_test(a_second_lock_opens_no_second_server),
        cmocka_unit_test(the_lock_goes_with_the_process),
        cmocka_unit_test(another_program_holding_the_database_is_named),
        cmocka_unit_test(what_root_makes_belongs_to_the_owner_of_the_database),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
