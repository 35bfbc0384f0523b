// Databases of earlier versions, left behind by a killed process: each opens, means the same, and
// is continued; and what is left when the disk fails during the migration, or a move is refused.
#include "sessions/archive/archive.h"
#include "sessions/archive/backup.h"
#include "sessions/archive/check.h"
#include "sessions/store/lock.h"
#include "sessions/store/schema.h"
#include "tests/unit/power_vfs.h"
#include "tests/unit/sessions_fixture.h"
#include <fcntl.h>

static void copy_file(const char *from, const char *to) {
    static char bytes[1 << 20];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(in >= 0 && out >= 0);
    ssize_t n = read(in, bytes, sizeof bytes);
    assert_true(n > 0 && n < (ssize_t)sizeof bytes);
    assert_int_equal(write(out, bytes, (size_t)n), n);
    close(in), close(out);
}

static const char *fixture(int version, const char *end) {
    static char path[100];
    snprintf(path, sizeof path, "tests/fixtures/sessions/schema-%d.%s", version, end);
    return path;
}

static void put_schema(int version) {
    char tail[300];
    fx_remove_files();
    snprintf(tail, sizeof tail, "%s.tail", fx.path);
    copy_file(fixture(version, "sqlite"), fx.path);
    copy_file(fixture(version, "sqlite.tail"), tail);
}

static struct stored_session *load_sound(const char *id) {
    struct archive *a;
    struct stored_session *s = NULL;
    struct err err = {0};
    if (archive_open(&a, fx.path, &err) < 0 || archive_load(a, NULL, id, &s, &err) < 0 ||
        stored_session_check(s, &err) < 0)
        fail_msg("%s: %s", id, err.text);
    archive_close(a);
    return s;
}

static void check_linear(const char *id, int64_t n_turns, int64_t n_tokens) {
    struct stored_session *s = load_sound(id);
    assert_int_equal(s->n_turns, n_turns);
    assert_int_equal(s->rec.n_tokens, n_tokens);
    assert_int_equal(s->rec.head, n_turns - 1);
    assert_null(s->rec.forked_from);
    for (int64_t i = 0; i < n_turns; i++) assert_int_equal(s->turns[i].rec.parent, i - 1);
    stored_session_free(s);
}

// Killed at schema 1 in the middle of a turn; the next version goes on with it.
static void a_database_of_schema_1_means_the_same(void **state) {
    fx_setup_file();
    sessions_close(fx.ss);
    put_schema(1);
    fx_open();
    check_linear("linear", 3, 92);
    check_linear("waiting", 4, 430);
    check_linear("empty", 0, 0);
    check_linear("closed", 1, 18);
    const struct seen_answer *a = fx_get(1, "cut-off");
    assert_int_equal(a->n_turns, 3);
    assert_string_equal(a->turns[1].finish, "interrupted");
    assert_string_equal(a->turns[2].finish, "interrupted");
    assert_true(a->turns[1].numbers.output_tokens >= 40); // streamed before the end: from the tail
    check_linear("cut-off", 3, 20 + 17 + a->turns[1].numbers.output_tokens);
    fx.max_text = 4096;
    fx_attach(1, "linear", 0);
    assert_int_equal(fx_follower(1, "linear")->count[EVENT_DONE], 3);
    assert_int_equal(fx_follower(1, "linear")->count[EVENT_EVICTED], 2);
    // And branches, once its model is there.
    free(fx_session("linear")->rec.fingerprint);
    fx_session("linear")->rec.fingerprint = strdup(fake.info.fingerprint);
    struct request r = fx_request(1, "back");
    ask_rewind(fx.ss, &r, "linear", 0, false);
    fx_settle();
    fx_turn(1, "linear", "another way");
    assert_int_equal(fx_session("linear")->turns[3]->rec.parent, 0);
    assert_int_equal(fx_session("linear")->turns[3]->rec.log_first, 36);
    fx_restart();
    assert_int_equal(fx_get(1, "linear")->n_turns, 2);
    fx_teardown();
}

static void expect_tree(const char *id, int64_t head, const int64_t *parents, int64_t n) {
    struct stored_session *s = load_sound(id);
    assert_int_equal(s->n_turns, n);
    assert_int_equal(s->rec.head, head);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(s->turns[i].rec.parent, parents[i]);
        // Not recorded before this version.
        assert_int_equal(s->turns[i].rec.numbers.resume_us, 0);
        assert_int_equal(s->turns[i].rec.numbers.paused_us, 0);
    }
    stored_session_free(s);
}

// A migrated session is written like any other: after a further turn and a restart it has that turn.
static const struct seen_answer *goes_on(const char *id) {
    free(fx_session(id)->rec.fingerprint);
    fx_session(id)->rec.fingerprint = strdup(fake.info.fingerprint);
    fx_turn(1, id, "on");
    fx_restart();
    return fx_get(1, id);
}

// Killed at schema 2, which knows of trees, and at 3, which knows of lost clients.
static void a_database_of_a_later_schema_means_the_same(void **state) {
    static const int64_t linear[] = {-1, 0, 1}, branched[] = {-1, 0, 0, 0};
    int version = *(const int *)*state;
    fx_setup_file();
    sessions_close(fx.ss);
    put_schema(version);
    fx_open();
    expect_tree("linear", 2, linear, 3);
    expect_tree("branched", 1, branched, 4);
    expect_tree("copy", 1, linear, 2);
    expect_tree("empty", -1, NULL, 0);
    expect_tree("cut-off", 2, linear, 3);
    const struct seen_answer *a = fx_get(1, "cut-off");
    assert_string_equal(a->turns[1].finish, "interrupted");
    assert_true(a->turns[1].numbers.output_tokens >= 40); // streamed before the end: from the tail
    fx.max_text = 4096;
    fx_attach(1, "branched", 0);
    assert_int_equal(fx_follower(1, "branched")->count[EVENT_DONE], 4);
    assert_int_equal(fx_follower(1, "branched")->count[EVENT_REWOUND], 3);
    assert_int_equal(fx_session("branched")->rec.cancel_after_ms, version > 2 ? 700 : 0);
    fx_attach(2, "copy", 0);
    assert_string_equal(fx_session("copy")->rec.forked_from, "branched");
    a = goes_on("branched");
    assert_int_equal(a->turns[a->n_turns - 1].turn, 4);
    assert_int_equal(a->turns[a->n_turns - 1].numbers.resume_us, 40); // kept from now on
    assert_int_equal(a->turns[a->n_turns - 1].numbers.paused_us, 7);
    fx_teardown();
}

// --- with exports: schema 4 and later ----------------------------------------

static struct buf exports_of(int version) {
    struct buf b;
    if (buf_read_file(&b, fixture(version, "exports"), 1 << 20, NULL) < 0) fail();
    return b;
}

// Columns of later schemas, as exported with their defaults.
static const char *const later[] = {"\"paused_us\":0,"};

static void remove_later(char *text) {
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        for (char *at; (at = strstr(text, later[i]));) {
            char *rest = at + strlen(later[i]);
            memmove(at, rest, strlen(rest) + 1);
        }
}

// What `sessions export` of that schema printed of each session: the same bytes now.
static int expect_exports(int version) {
    struct buf expected = exports_of(version);
    int n = 0;
    for (char *line = expected.data, *end; *line; line = end + 1, n++) {
        char id[80];
        struct buf out;
        end = strchr(line, '\n');
        *end = '\0';
        assert_int_equal(sscanf(strstr(line, "\"id\":\""), "\"id\":\"%79[^\"]", id), 1);
        struct stored_session *s = load_sound(id);
        buf_init(&out, 1 << 20);
        assert_int_equal(archive_export(s, &out), 0);
        if (version < 7) remove_later(out.data);
        assert_string_equal(out.data, line);
        buf_release(&out);
        stored_session_free(s);
    }
    buf_release(&expected);
    return n;
}

static const char *tmp_path(void) {
    static char path[200];
    snprintf(path, sizeof path, "%s/parley-test-%ld.db",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (long)getpid());
    return path;
}

static size_t found(const char *owner, const char *query) {
    struct request r = fx_request(1, "list");
    r.owner = owner;
    ask_list(fx.ss, &r, query, NULL, 0, NULL);
    fx_settle();
    assert_int_equal(fx_last_answer()->kind, ANSWER_LIST);
    return fx_last_answer()->n_sessions;
}

// Killed in the middle of a turn, with one behind it.
static void a_database_of_schema_4_means_the_same(void **state) {
    fx_setup_file();
    sessions_close(fx.ss);
    put_schema(4);
    fx_open();
    assert_int_equal(expect_exports(4), 5);
    const struct seen_answer *a = fx_get(1, "cut-off");
    assert_int_equal(a->n_turns, 3);
    assert_string_equal(a->turns[1].finish, "interrupted");
    assert_true(a->turns[1].numbers.output_tokens >= 45); // from the tail
    // Its words are its owner's.
    assert_int_equal(found("local", "quetzalcoatl"), 1);
    assert_int_equal(found("local", "zeppelin koln"), 1); // a title
    assert_int_equal(found("local", "another thing"), 2); // found in a copy, too
    assert_int_equal(found("other", "quetzalcoatl"), 0);
    // Its stored size is right: a KiB for each session, and its turns.
    const struct owner *owner = owners_get(fx.ss->owners, "local");
    int64_t n_sessions = (int64_t)fx_list(NULL, 50, NULL)->n_sessions;
    assert_int_equal(owner->used[OWNER_SESSIONS], n_sessions);
    assert_true(owner->used[OWNER_STORED_BYTES] > 1024 * n_sessions + 8 * 512);
    // And its ids.
    struct request r = fx_request(2, "open");
    struct ask_open o = {.id = "linear", .sink_len = -1};
    r.owner = "other";
    ask_open(fx.ss, &r, &o);
    fx_settle();
    assert_int_equal(fx_follower(2, "linear")->count[EVENT_OPENED], 1);
    // Rows of other tables are still the session's.
    fx_close(1, "linear", true);
    assert_int_equal(found("local", "quetzalcoatl"), 0);
    fx_restart();
    assert_string_equal(fx_get(1, "linear")->code, "session_not_found");
    assert_int_equal(fx_get(1, "branched")->n_turns, 2);
    fx_teardown();
}

// Schemas that also have conversations of other protocols, their notes and a turn with two answers.
static void a_database_with_conversations_means_the_same(void **state) {
    static const int64_t linear[] = {-1, 0, 1};
    int version = *(const int *)*state;
    fx_setup_file();
    sessions_close(fx.ss);
    put_schema(version);
    fx_open();
    assert_int_equal(expect_exports(version), 7);
    const struct seen_answer *a = fx_get(1, "cut-off");
    assert_int_equal(a->n_turns, 3);
    assert_string_equal(a->turns[1].finish, "interrupted");
    assert_string_equal(a->turns[2].finish, "interrupted");
    assert_true(a->turns[1].numbers.output_tokens >= 60); // streamed before the end: from the tail
    struct stored_session *s = load_sound("cut-off");
    for (int64_t i = 0; i < 3; i++) assert_int_equal(s->turns[i].rec.parent, linear[i]);
    stored_session_free(s);
    assert_int_equal(found("local", "quetzalcoatl"), 1);
    assert_int_equal(found("local", "zeppelin koln"), 1);
    assert_int_equal(found("local", "another thing"), 2);
    assert_int_equal(found("other", "quetzalcoatl"), 0);
    fx.max_text = 4096;
    fx_attach(1, "branched", 0);
    a = goes_on("branched");
    assert_int_equal(a->turns[a->n_turns - 1].turn, 5);
    fx_teardown();
}

// Without the tail: what a crash during the migration leaves is compared with the exports only.
static int64_t version_of(const char *path) {
    struct buf b;
    if (buf_read_file(&b, path, 1 << 22, NULL) < 0 || b.len < 64) fail();
    int64_t version = (unsigned char)b.data[63]; // user_version, if the log is empty
    buf_release(&b);
    return version;
}

static void open_and_compare(void) {
    struct store_db db;
    struct err err = {0};
    if (store_db_open(&db, fx.path, &err) < 0) fail_msg("%s", err.text);
    store_db_close(&db, true);
    assert_int_equal(version_of(fx.path), store_schema_version());
    assert_int_equal(expect_exports(4), 5);
}

// Each write of the migration fails in turn: the file is as it was, and the next start migrates it.
static void a_migration_that_fails_changes_nothing(void **state) {
    int n = 0, rc;
    fx_settings(tmp_path());
    do {
        struct store_db db;
        struct err err = {0};
        put_schema(4);
        pv_install(true);
        pv_fail(PV_WRITE | PV_SYNC, n % 2 ? SQLITE_FULL : SQLITE_IOERR_WRITE, n);
        rc = store_db_open(&db, fx.path, &err);
        pv_fail(0, 0, -1);
        if (rc == 0) store_db_close(&db, false);
        if (rc < 0) assert_non_null(strstr(err.text, fx.path));
        pv_install(false);
        pv_reset();
        open_and_compare();
        n += 3;
    } while (rc < 0);
    assert_true(n > 30);
    fx_remove_files();
}

static int cut_at;
static unsigned cut_seed;
static struct {
    char name[300];
    unsigned char *bytes;
    sqlite3_int64 len;
} left[PV_FILES];

static void cut_now(void) {
    if (pv.n_ops != cut_at) return;
    for (int i = 0; i < pv.n_files; i++) {
        if (!pv.files[i].synced && !pv.files[i].n) continue;
        strcpy(left[i].name, pv.files[i].name);
        left[i].bytes = pv_cut(&pv.files[i], (int)(cut_seed++ % 5), &cut_seed, &left[i].len);
    }
}

static void a_power_cut_leaves_the_old_database_or_the_new(void **state) {
    bool cut;
    fx_settings(tmp_path());
    cut_at = 1;
    do {
        struct store_db db;
        struct err err = {0};
        memset(left, 0, sizeof left);
        put_schema(4);
        pv_install(true);
        pv.on_op = cut_now;
        if (store_db_open(&db, fx.path, &err) < 0) fail_msg("%s", err.text);
        store_db_close(&db, true); // with its checkpoint
        cut = pv.n_ops > cut_at;
        pv.on_op = NULL;
        pv_install(false);
        pv_reset();
        fx_remove_files();
        for (int i = 0; i < PV_FILES; i++) {
            if (!left[i].bytes) continue;
            FILE *f = fopen(left[i].name, "wb");
            assert_non_null(f);
            fwrite(left[i].bytes, 1, (size_t)left[i].len, f);
            fclose(f);
            free(left[i].bytes);
        }
        if (cut) open_and_compare();
        cut_at += 4;
    } while (cut);
    assert_true(cut_at > 40);
    fx_remove_files();
}

// The copy that an operator makes after the installation and before the first start.
static void a_backup_keeps_an_older_schema(void **state) {
    char to[300];
    fx_settings(tmp_path());
    snprintf(to, sizeof to, "%s.backup", fx.path);
    for (int version = 1; version <= 4; version++) {
        struct err err = {0};
        put_schema(version);
        if (backup_database(fx.path, to, NULL, NULL, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(version_of(fx.path), version);
        assert_int_equal(version_of(to), version);
        if (version == 4) {
            assert_int_equal(rename(to, fx.path), 0);
            open_and_compare();
        }
        unlink(to);
    }
    fx_remove_files();
}

// --- a move ------------------------------------------------------------------

static void expect_refused(const char *from, const char *to, const char *why) {
    struct archive_move o = {0};
    struct archive_moved moved;
    struct err err = {0};
    assert_true(archive_move(from, to, &o, &moved, &err) < 0);
    if (!strstr(err.text, why) || !strstr(err.text, to)) fail_msg("%s", err.text);
    assert_int_equal(version_of(from), 4);
}

// The older program can still open the source of a move that was refused.
static void a_refused_move_migrates_nothing(void **state) {
    char to[300], nowhere[320];
    struct store_db server = {.lock_fd = -1, .file_fd = -1, .path = to};
    struct archive_move o = {0};
    struct archive_moved moved;
    struct err err = {0};
    fx_settings(tmp_path());
    put_schema(4);
    snprintf(to, sizeof to, "%s.to", fx.path);
    snprintf(nowhere, sizeof nowhere, "%s.no/folder", fx.path);
    copy_file(fixture(4, "sqlite"), to);
    expect_refused(fx.path, nowhere, "No such file");
    // A server of the older version has the target.
    assert_int_equal(store_lock_take(&server, NULL), 0);
    expect_refused(fx.path, to, "the server that runs on it is of an older version (schema 4");
    assert_int_equal(version_of(to), 4);
    close(server.file_fd), close(server.lock_fd);
    unlink(to); // its sessions have the same ids
    if (archive_move(fx.path, to, &o, &moved, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(moved.n_moved, 6);
    assert_int_equal(version_of(to), store_schema_version());
    snprintf(nowhere, sizeof nowhere, "%s.lock", to);
    unlink(to), unlink(nowhere);
    fx_remove_files();
}

static void run_sql(const char *path, const char *sql) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

// The source takes no deletion: its sessions are in both databases, and the next move finishes.
static void a_move_that_stops_says_how_to_go_on(void **state) {
    char to[300], lock[320];
    struct archive_move o = {0};
    struct archive_moved moved;
    struct err err = {0};
    fx_settings(tmp_path());
    put_schema(4);
    snprintf(to, sizeof to, "%s.to", fx.path);
    run_sql(fx.path, "CREATE TRIGGER keep BEFORE DELETE ON turns BEGIN"
                     " SELECT raise(ABORT, 'it is kept'); END");
    assert_true(archive_move(fx.path, to, &o, &moved, &err) < 0);
    assert_non_null(strstr(err.text, "it is kept; 0 sessions were moved, the same command moves the"
                                     " rest; until then no server opens the old database"));
    run_sql(fx.path, "DROP TRIGGER keep");
    if (archive_move(fx.path, to, &o, &moved, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(moved.n_moved, 6);
    snprintf(lock, sizeof lock, "%s.lock", to);
    unlink(to), unlink(lock);
    fx_remove_files();
}

int main(void) {
    static int two = 2, three = 3, nine = 9, ten = 10;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_database_of_schema_1_means_the_same),
        cmocka_unit_test_prestate(a_database_of_a_later_schema_means_the_same, &two),
        cmocka_unit_test_prestate(a_database_of_a_later_schema_means_the_same, &three),
        cmocka_unit_test(a_database_of_schema_4_means_the_same),
        cmocka_unit_test_prestate(a_database_with_conversations_means_the_same, &nine),
        cmocka_unit_test_prestate(a_database_with_conversations_means_the_same, &ten),
        cmocka_unit_test(a_backup_keeps_an_older_schema),
        cmocka_unit_test(a_refused_move_migrates_nothing),
        cmocka_unit_test(a_move_that_stops_says_how_to_go_on),
        cmocka_unit_test(a_migration_that_fails_changes_nothing),
        cmocka_unit_test(a_power_cut_leaves_the_old_database_or_the_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
