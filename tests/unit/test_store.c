// The store: which files it opens and which it refuses, its settings, group commit, and the order
// of answers.
#include "sessions/archive/archive.h"
#include "sessions/store/read.h"
#include "sessions/store/schema.h"
#include "tests/unit/sessions_fixture.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>

static void with_sql(const char *sql) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(fx.path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void write_file(const char *bytes, size_t len) {
    int fd = open(fx.path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    close(fd);
}

static void the_file_is_private_and_set_up(void **state) {
    struct stat st;
    char path[300];
    sqlite3 *db;
    umask(022);
    fx_setup_file();
    fx_open_session(1, "s");
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", fx.path, suffixes[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    char version[16];
    snprintf(version, sizeof version, "%d", store_schema_version());
    const struct {
        const char *pragma, *value;
    } want[] = {{"PRAGMA journal_mode", "wal"},
                {"PRAGMA application_id", "1347570777"},
                {"PRAGMA user_version", version},
                {"PRAGMA foreign_key_check", NULL}};
    assert_int_equal(sqlite3_open_v2(fx.path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    for (int i = 0; i < 4; i++) {
        sqlite3_stmt *s;
        assert_int_equal(sqlite3_prepare_v2(db, want[i].pragma, -1, &s, NULL), SQLITE_OK);
        int step = sqlite3_step(s);
        if (want[i].value)
            assert_string_equal((const char *)sqlite3_column_text(s, 0), want[i].value);
        if (!want[i].value) assert_int_equal(step, SQLITE_DONE);
        sqlite3_finalize(s);
    }
    sqlite3_close(db);
    fx_teardown();
}

static void the_writers_settings_hold(void **state) {
    static const struct {
        const char *pragma;
        int64_t value;
    } want[] = {{"PRAGMA synchronous", 2},
                {"PRAGMA foreign_keys", 1},
                {"PRAGMA trusted_schema", 0},
                {"PRAGMA cell_size_check", 1},
                {"PRAGMA wal_autocheckpoint", 0},
                {"PRAGMA secure_delete", 1},
                {"PRAGMA journal_size_limit", 67108864}};
    struct store_db db;
    struct err err = {0};
    fx_start_closed();
    assert_int_equal(store_db_open(&db, fx.path, &err), 0);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int64_t value = -1;
        assert_int_equal(store_db_int(&db, want[i].pragma, &value, &err), 0);
        if (value != want[i].value) fail_msg("%s is %lld", want[i].pragma, (long long)value);
    }
    store_db_close(&db, true);
    assert_int_equal(store_db_open_reader(&db, fx.path, &err), 0);
    assert_true(store_db_exec(&db, "DELETE FROM sessions", &err) < 0);
    store_db_close(&db, false);
    fx_end_closed();
}

static void foreign_and_newer_databases_are_left_alone(void **state) {
    char before[65536], after[65536];
    fx_settings("x");
    fx_setup_file();
    sessions_close(fx.ss);
    fx_remove_files();
    with_sql("CREATE TABLE recipes (name TEXT)");
    int fd = open(fx.path, O_RDONLY);
    ssize_t n = read(fd, before, sizeof before);
    close(fd);
    fx_expect_refused(E_FORMAT, "belongs to another program");
    fd = open(fx.path, O_RDONLY);
    assert_int_equal(read(fd, after, sizeof after), n);
    close(fd);
    assert_memory_equal(before, after, (size_t)n);
    fx_end_closed();
    fx_start_closed();
    with_sql("PRAGMA user_version = 99");
    fx_expect_refused(E_UNSUPPORTED, "written by a newer Parley (schema 99");
    fx_expect_refused(E_UNSUPPORTED, "use that version, or a backup from before it");
    with_sql("PRAGMA user_version = -10000000");
    fx_expect_refused(E_CORRUPT, "the database is damaged (schema -10000000)");
    fx_end_closed();
}

static void broken_files_are_named(void **state) {
    static const char text[] =
        "this is a text of more than sixteen bytes, and no database at all\n";
    char page[4096];
    fx_start_closed();
    fx_remove_files();
    write_file(text, sizeof text - 1);
    fx_expect_refused(E_FORMAT, "not an SQLite database");
    fx_end_closed();

    fx_start_closed(); // a page of it overwritten
    memset(page, 0x5a, sizeof page);
    int fd = open(fx.path, O_RDWR);
    struct stat st;
    fstat(fd, &st);
    for (off_t at = 4096; at + 4096 <= st.st_size; at += 4096)
        assert_int_equal(pwrite(fd, page, 4096, at), 4096);
    close(fd);
    fx_expect_refused(E_CORRUPT, "damaged");
    fx_end_closed();

    fx_start_closed(); // cut short
    assert_int_equal(truncate(fx.path, 4096 * 3), 0);
    fx_expect_refused(E_CORRUPT, "damaged");
    fx_end_closed();
}

static int64_t bytes_read(void) {
    char line[64];
    long long n = -1;
    FILE *f = fopen("/proc/self/io", "r");
    if (f && fgets(line, sizeof line, f)) sscanf(line, "rchar: %lld", &n);
    if (f) fclose(f);
    return n;
}

// A start reads little of the database however large it is: it must be ready within two seconds.
static void a_large_file_is_not_read_through(void **state) {
    struct stat st;
    fx_start_closed();
    with_sql("INSERT INTO tokens (session, turn, first, ids, logprobs, text_ends, text, seq, "
             "seq_reserved) SELECT 1, 0, 1000, zeroblob(80000000), x'', x'', x'', 1, 1");
    assert_int_equal(stat(fx.path, &st), 0);
    assert_true(st.st_size > 80000000);
    int64_t before = bytes_read();
    fx_open();
    assert_in_range(bytes_read() - before, 0, 4 << 20);
    fx_open_session(1, "another");
    sessions_close(fx.ss);
    fx.ss = NULL;
    fx_forget_clients();
    // Damage in the part that a start reads is still found.
    with_sql("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 1 WHERE name = "
             "'sessions'");
    fx_expect_refused(E_CORRUPT, "damaged");
    fx_end_closed();
}

static void beside(char out[300], const char *suffix) {
    snprintf(out, 300, "%s%s", fx.path, suffix);
}

static void wait_for_store(bool ok, const char *why) {
    const char *reason = NULL;
    for (int ms = 0; sessions_store_ok(fx.ss, &reason) != ok; ms++) {
        if (ms == 60000) fail_msg("still %s", ok ? reason : "works");
        usleep(1000);
        fx_advance(1000);
        sessions_poll(fx.ss);
    }
    if (!ok && !strstr(reason, why)) fail_msg("%s", reason);
}

// If the file was moved or replaced, the next start would not find what is written now. So no turn
// is confirmed, and a server without requests reports the fault too.
static void a_file_that_was_moved_takes_no_turns(void **state) {
    static const char *const suffixes[] = {"", "-wal"};
    for (int i = 0; i < 2; i++) {
        char path[300], aside[300];
        fx_setup_file();
        fx_open_session(1, "s");
        fx_turn(1, "s", "one");
        beside(path, suffixes[i]);
        beside(aside, "-aside");
        assert_int_equal(rename(path, aside), 0);
        if (i) close(open(path, O_WRONLY | O_CREAT, 0600)); // another one in its place
        fx_open_session(1, "t");
        fx_expect_error("store_failed");
        wait_for_store(false, "the database file was replaced or removed");
        assert_int_equal(rename(aside, path), 0);
        wait_for_store(true, NULL);
        fx_turn(1, "s", "two");
        assert_true(fx_follower(1, "s")->turns[1].done);
        assert_int_equal(rename(path, aside), 0);
        wait_for_store(false,
                       "the database file was replaced or removed"); // noticed without a request
        assert_int_equal(rename(aside, path), 0);
        wait_for_store(true, NULL);
        fx_teardown();
    }
}

// SQLite writes to files that were cut short as if nothing had happened, and the next start finds
// nothing there.
static void cut_short(int fd, off_t size) {
    static char bytes[1 << 20];
    struct stat whole;
    assert_int_equal(fstat(fd, &whole), 0);
    assert_in_range(whole.st_size, size + 1, sizeof bytes);
    assert_int_equal(pread(fd, bytes, (size_t)whole.st_size, 0), whole.st_size);
    fx_await_look(); // the server has seen the file
    assert_int_equal(ftruncate(fd, size), 0);
    fx_open_session(1, "t");
    fx_expect_error("store_failed");
    wait_for_store(false, "cut short by another program");
    assert_int_equal(pwrite(fd, bytes, (size_t)whole.st_size, 0), whole.st_size);
    wait_for_store(true, NULL);
}
static void a_file_that_was_cut_short_takes_no_turns(void **state) {
    char log[300];
    fx_start_closed();
    beside(log, "-wal");
    with_sql("CREATE TABLE ballast (x); INSERT INTO ballast VALUES (zeroblob(1000000));"
             "DELETE FROM ballast; DROP TABLE ballast");
    fx_open();
    fx_turn(1, "s", "one");
    fx_await_look();
    with_sql("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)"); // shorter, and complete
    fx_turn(1, "s", "two");
    fx_restart();
    assert_int_equal(fx_get(1, "s")->n_turns, 3);
    fx_turn(1, "s", "three");
    // Closing a descriptor of a file would drop SQLite's locks on it.
    int file = open(fx.path, O_RDWR), wal = open(log, O_RDWR);
    cut_short(file, 0);
    cut_short(file, 4096 * 3);
    cut_short(wal, 0);
    cut_short(wal, 3000);
    fx_turn(1, "s", "four");
    fx_restart();
    assert_int_equal(fx_get(1, "s")->n_turns, 5);
    fx_teardown();
    close(file), close(wal);
}

// The index of the log is mapped memory: one that was cut short is rebuilt, without SIGBUS.
static void a_log_index_cut_short_is_rebuilt(void **state) {
    char shm[300];
    fx_setup_file();
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    beside(shm, "-shm");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(truncate(shm, i == 1 ? 100 : 0), 0);
        fx_turn(1, "s", "again");
        assert_true(fx_follower(1, "s")->turns[1 + i].done);
    }
    assert_int_equal(truncate(shm, 0), 0);
    fx_await_look();
    assert_int_equal(truncate(shm, 0), 0);
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 1);
    fx_restart();
    assert_int_equal(fx_get(1, "s")->n_turns, 4);
    fx_teardown();
}

static void an_empty_file_is_a_new_database(void **state) {
    fx_start_closed();
    fx_remove_files();
    write_file("", 0);
    fx_open();
    fx_open_session(1, "s");
    assert_int_equal(fx_follower(1, "s")->last, 1);
    fx_teardown();
}

static void unreachable_places_are_named(void **state) {
    fx_start_closed();
    fx_end_closed();
    snprintf(fx.path, sizeof fx.path, "/nowhere/at/all.db");
    fx_expect_refused(E_NOTFOUND, "No such file");
    snprintf(fx.path, sizeof fx.path, "/proc/parley.db");
    struct err err = {0};
    assert_true(fx_try_open(&err) < 0);
    snprintf(fx.path, sizeof fx.path, "%s", "/tmp");
    assert_true(fx_try_open(&err) < 0);
    unlink("/tmp.lock");
    metrics_free(fx.metrics);
}

// As a user who may not write: permissions do not bind root.
static void a_read_only_file_is_named(void **state) {
    int status;
    fx_start_closed();
    chmod(fx.path, 0444);
    char lock[300];
    snprintf(lock, sizeof lock, "%s.lock", fx.path);
    chmod(lock, 0666);
    pid_t child = fork();
    if (child == 0) {
        if (getuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0)) _exit(3);
        struct err err = {0};
        int rc = fx_try_open(&err);
        _exit(rc == E_DENIED && strstr(err.text, "read-only") ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
    fx_end_closed();
}

static int as_nobody(int (*act)(struct err *err), int want, const char *words) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct err err = {0};
        if (getuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0)) _exit(3);
        int rc = act(&err);
        if (rc != want || !strstr(err.text, words)) fprintf(stderr, "%d: %s\n", rc, err.text);
        _exit(rc == want && strstr(err.text, words) ? 0 : 1);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
static int load_s(struct err *err) {
    struct archive *a;
    struct stored_session *s;
    TRY(archive_open(&a, fx.path, err));
    int rc = archive_load(a, NULL, "s", &s, err);
    if (rc == 0) stored_session_free(s);
    archive_close(a);
    return rc;
}

// On a read-only medium or folder, tools can still read: SQLite alone would
// have to make files there.
static void a_folder_for_reading_only_is_read(void **state) {
    char folder[sizeof fx.path], from[sizeof fx.path], log[300];
    fx_start_closed();
    snprintf(from, sizeof from, "%s", fx.path);
    snprintf(folder, sizeof folder, "%.200s-100%%#1?", from);
    assert_int_equal(mkdir(folder, 0755), 0);
    snprintf(fx.path, sizeof fx.path, "%.240s/a.db", folder);
    assert_int_equal(rename(from, fx.path), 0);
    chmod(fx.path, 0444);
    chmod(folder, 0555);
    assert_int_equal(as_nobody(load_s, 0, ""), 0);
    snprintf(log, sizeof log, "%s-wal", fx.path);
    int fd = open(log, O_WRONLY | O_CREAT, 0444);
    assert_int_equal(write(fd, "not nothing", 11), 11);
    close(fd);
    assert_int_equal(as_nobody(load_s, E_DENIED, "-wal"), 0);
    // A server may have emptied its log a moment ago.
    unlink(log);
    fd = open(fx.path, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(as_nobody(load_s, E_DENIED, "-wal"), 0);
    close(fd);
    assert_int_equal(as_nobody(load_s, 0, ""), 0);
    chmod(folder, 0755);
    fx_remove_files();
    rmdir(folder);
    snprintf(fx.path, sizeof fx.path, "%s", from);
    fx_end_closed();
}

static struct store_job *save_job(int64_t key, const char *id, bool insert) {
    struct store_job *job = store_job_new(STORE_SAVE, key);
    job->save = calloc(1, sizeof *job->save);
    job->save->insert = insert;
    job->save->session_changed = job->save->title_changed = true;
    struct session_record r = {.key = key,
                               .id = (char *)id,
                               .owner = "o",
                               .model = "m",
                               .fingerprint = "f",
                               .title = "Title",
                               .sampling = (char *)"{}",
                               .memory_len = 1,
                               .seq = 1,
                               .updated_ms = key};
    assert_int_equal(session_record_copy(&job->save->rec, &r), 0);
    job->save->events = calloc(1, sizeof *job->save->events);
    job->save->events[0] =
        (struct event_record){.seq = 1, .n = 1, .kind = EVENT_OPENED, .turn = -1};
    job->save->n_events = 1;
    return job;
}

static void one_bad_job_of_a_group_takes_none_down(void **state) {
    struct store *st;
    struct store_start start;
    struct store_options o = {.path = ":memory:", .clock = &clock_system};
    char id[16];
    log_set_level(LOG_OFF);
    assert_int_equal(store_open(&st, &o, &start, NULL), 0);
    assert_int_equal(start.next_key, 1);
    for (int i = 1; i <= 600; i++) {                         // more than one group
        snprintf(id, sizeof id, "s%d", i % 50 == 0 ? 1 : i); // every fiftieth id is taken
        store_send(st, save_job(i, id, true));
    }
    struct store_job *load = store_job_new(STORE_LOAD, 0);
    load->id = strdup("s599");
    store_send(st, load);
    for (int i = 1; i <= 600; i++) {
        struct store_job *job = store_wait(st, 10000000);
        assert_int_equal(job->key, i); // in the order sent
        assert_int_equal(job->rc, i % 50 == 0 ? E_EXISTS : 0);
        store_job_free(job);
    }
    load = store_wait(st, 10000000);
    assert_int_equal(load->rc, 0); // reads see what was sent before them
    assert_string_equal(load->loaded->rec.title, "Title");
    store_job_free(load);
    assert_int_equal(store_n_waiting(st), 0);
    store_close(st);
}

// Without a rule each job would wait for the lock as long as the first one, and so would all after
// it.
static void a_locked_database_is_waited_for_once(void **state) {
    char id[16];
    sqlite3 *db;
    fx_setup_file();
    assert_int_equal(sqlite3_open(fx.path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    int64_t start = clock_mono_us(&clock_system);
    for (int i = 0; i < 8; i++) {
        snprintf(id, sizeof id, "s%d", i);
        struct request r = fx_request(1, "open");
        struct ask_open o = {.id = id, .sink_len = -1};
        ask_open(fx.ss, &r, &o);
    }
    fx_settle();
    assert_true(clock_mono_us(&clock_system) - start < 15000000); // two groups, 2 s each; not 16 s
    assert_int_equal(fx.n_answers, 8);
    fx_expect_error("store_failed");
    sqlite3_close(db);
    fx_teardown();
}

static void more_jobs_than_the_queue_holds_wait_in_order(void **state) {
    struct store *st;
    struct store_start start;
    struct store_options o = {.path = ":memory:", .clock = &clock_system};
    assert_int_equal(store_open(&st, &o, &start, NULL), 0);
    for (int i = 0; i < 20000; i++) store_send(st, store_job_new(STORE_PROBE, i));
    for (int i = 0; i < 10000; i++) {
        struct store_job *job = store_wait(st, 10000000);
        assert_int_equal(job->key, i);
        store_job_free(job);
    }
    store_close(st); // with half of the answers not taken
}

static void records_that_contradict_themselves_are_refused_alone(void **state) {
    static const char *const damage[] = {
        "UPDATE turns SET n_output = 5",
        "UPDATE turns SET log_first = 3",
        "UPDATE turns SET n_input = 1",
        "UPDATE tokens SET text_ends = x'ffffffff'",
        "UPDATE tokens SET text_ends = x'050000000400000003000000020000000100000000000000'",
        "UPDATE tokens SET logprobs = x'00'",
        "UPDATE tokens SET text = x''",
        "DELETE FROM tokens",
        "DELETE FROM events WHERE seq = 2",
        "UPDATE events SET kind = 'delta' WHERE seq = 2",
        "UPDATE events SET kind = 'nonsense' WHERE seq = 2",
        "UPDATE sessions SET seq = 7 WHERE id = 's'",
        "UPDATE sessions SET n_turns = 2 WHERE id = 's'",
        "UPDATE turns SET turn = 1",
        "UPDATE turns SET cache_source = 'moon'",
        "UPDATE turns SET input_ids = x'0102'",
    };
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        fx_start_closed();
        fx_open();
        fx_open_session(1, "other");
        sessions_close(fx.ss);
        fx.ss = NULL;
        with_sql(damage[i]);
        fx_open();
        fx_get(1, "s");
        if (strcmp(fx_last_answer()->code, "store_failed") != 0) fail_msg("%s", damage[i]);
        assert_int_equal(fx_get(1, "other")->kind, ANSWER_STATE);
        fx_get(1, "s"); // asked again it is the same
        fx_expect_error("store_failed");
        fx_close(1, "s", false); // there is nothing that could be closed ...
        fx_expect_error("store_failed");
        struct request stranger = {.client = 2, .owner = "stranger"};
        ask_close(fx.ss, &stranger, "s", true);
        fx_settle();
        fx_expect_error("session_not_found");
        fx_close(1, "s", true); // ... but it can be removed, by its owner
        assert_int_equal(fx_last_answer()->kind, ANSWER_CLOSED);
        assert_true(fx_last_answer()->deleted);
        fx_get(1, "s");
        fx_expect_error("session_not_found");
        fx_teardown();
    }
}

// The key of a database: its own, and the same after each restart.
static void a_database_keeps_its_secret(void **state) {
    uint64_t first[2], again[2], other[2];
    fx_setup_file();
    sessions_secret(fx.ss, first);
    assert_true(first[0] && first[1]);
    for (int i = 0; i < 2; i++) {
        fx_restart();
        sessions_secret(fx.ss, again);
        assert_memory_equal(first, again, sizeof first);
    }
    fx_shut_down();
    with_sql("DELETE FROM state WHERE name = 'secret_1'"); // half of one is none
    fx_open();
    sessions_secret(fx.ss, again);
    fx_teardown();
    fx_setup_file();
    sessions_secret(fx.ss, other);
    assert_memory_not_equal(first, other, sizeof first);
    fx_teardown();
}

// --- conversations that are sent again ---

static size_t n_found(struct store_db *db, bool all) {
    char *digests[] = {"none", "d2", "d1", "d0"};
    struct store_told q = {.digests = digests, .n_digests = 4, .all = all, .fingerprint = "f-1"};
    struct err err = {0};
    assert_int_equal(store_read_told(db, "local", &q, &err), 0);
    size_t n = q.n_matches;
    assert_string_equal(q.found, "s");
    assert_int_equal(q.matches[0].digest, 1);
    assert_int_equal(q.matches[0].turn, 3);
    for (size_t i = 0; i < n; i++) free(q.matches[i].shown);
    free(q.matches);
    free(q.found);
    return n;
}

// The deepest turn alone, unless all are asked for, or its answer has thinking.
static void a_conversation_is_found_by_its_deepest_turn(void **state) {
    struct store_db db = {0};
    struct err err = {0};
    fx_setup_file();
    fx_open_session(1, "s");
    for (int i = 0; i < 4; i++) fx_turn(1, "s", "hello");
    fx_shut_down();
    with_sql(
        "UPDATE turns SET told = 'd' || min(turn, 2), shown = '{\"said\":\"\\\"thought\\\"\"}'");
    for (int thinks = 0; thinks < 2; thinks++) {
        if (thinks) with_sql("UPDATE turns SET shown = '{\"thought\":\"Hm.\"}' WHERE turn = 2");
        assert_int_equal(store_db_open_reader(&db, fx.path, &err), 0);
        assert_int_equal(n_found(&db, false), thinks ? 4 : 2);
        assert_int_equal(n_found(&db, true), 4);
        store_db_close(&db, false);
    }
    fx_end_closed();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_is_private_and_set_up),
        cmocka_unit_test(a_database_keeps_its_secret),
        cmocka_unit_test(the_writers_settings_hold),
        cmocka_unit_test(foreign_and_newer_databases_are_left_alone),
        cmocka_unit_test(broken_files_are_named),
        cmocka_unit_test(a_file_that_was_moved_takes_no_turns),
        cmocka_unit_test(a_conversation_is_found_by_its_deepest_turn),
        cmocka_unit_test(a_file_that_was_cut_short_takes_no_turns),
        cmocka_unit_test(a_log_index_cut_short_is_rebuilt),
        cmocka_unit_test(an_empty_file_is_a_new_database),
        cmocka_unit_test(a_large_file_is_not_read_through),
        cmocka_unit_test(unreachable_places_are_named),
        cmocka_unit_test(a_read_only_file_is_named),
        cmocka_unit_test(a_folder_for_reading_only_is_read),
        cmocka_unit_test(one_bad_job_of_a_group_takes_none_down),
        cmocka_unit_test(a_locked_database_is_waited_for_once),
        cmocka_unit_test(more_jobs_than_the_queue_holds_wait_in_order),
        cmocka_unit_test(records_that_contradict_themselves_are_refused_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
