// A database that cannot be written to: each way has a sentence that names the file or folder, no byte
// changes, and tools read what they can, with and without a log.
#include "sessions/archive/archive.h"
#include "tests/unit/sessions_fixture.h"
#include <sqlite3.h>
#include <sys/wait.h>

enum { OTHER_USER = 65534, N_FILES = 5 };
static const char *const files[N_FILES] = {"", "-wal", "-shm", ".lock", ".tail"};

struct way {
    const char *name;
    const char *read_only; // suffixes of the files of mode 0400, "/" for the folder of mode 0500
    const char *refused_log, *refused_no_log; // a server's sentence; NULL: it starts
};
static const struct way ways[] = {
    {"the database", "p", "p.db: the database is read-only: Permission denied",
     "p.db: the database is read-only: Permission denied"},
    {"the folder", "/", NULL, "the database's folder is read-only: Permission denied"},
    {"both", "p/", "p.db: the database is read-only: Permission denied",
     "p.db: the database is read-only: Permission denied"},
    {"the log", "w", "p.db-wal: the database is read-only: Permission denied", NULL},
    {"the lock", "l",
     "p.db.lock: this file beside the database cannot be opened: Permission denied",
     "p.db.lock: this file beside the database cannot be opened: Permission denied"},
};

static char folder[280];

static const char *in_folder(const char *suffix) {
    static char path[2][340];
    static int turn;
    char *out = path[turn ^= 1];
    snprintf(out, sizeof path[0], "%s/p.db%s", folder, suffix);
    return out;
}

// A read that began before the session: the idle store moves nothing of it out of the log, which the copies below would
// meet half moved.
static sqlite3 *hold_log(void) {
    sqlite3 *reader;
    assert_int_equal(sqlite3_open_v2(fx.path, &reader, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM sessions", NULL, NULL, NULL),
                     SQLITE_OK);
    return reader;
}

// A database of another user with a session; with `log` the session lies in the log, as kill -9 leaves it.
static void make(bool log) {
    fx_setup_file();
    sqlite3 *reader = log ? hold_log() : NULL;
    fx_open_session(1, "s");
    fx_turn(1, "s", "hello");
    if (!log) fx_shut_down();
    snprintf(folder, sizeof folder, "%.200s-read-only", fx.path);
    assert_int_equal(mkdir(folder, 0755), 0);
    for (int i = 0; i < N_FILES; i++) {
        char command[1200];
        snprintf(command, sizeof command, "test ! -e '%s%s' || cp '%s%s' '%s'", fx.path, files[i],
                 fx.path, files[i], in_folder(files[i]));
        assert_int_equal(system(command), 0);
        if (access(in_folder(files[i]), F_OK) < 0) continue;
        chmod(in_folder(files[i]), 0600);
        if (geteuid() == 0) assert_int_equal(chown(in_folder(files[i]), OTHER_USER, OTHER_USER), 0);
    }
    if (geteuid() == 0) assert_int_equal(chown(folder, OTHER_USER, OTHER_USER), 0);
    sqlite3_close(reader);
    if (log) fx_shut_down();
    fx_end_closed();
    assert_int_equal(access(in_folder("-wal"), F_OK), log ? 0 : -1);
}

static void unmake(void) {
    chmod(folder, 0700);
    for (int i = 0; i < N_FILES; i++) unlink(in_folder(files[i]));
    assert_int_equal(rmdir(folder), 0);
}

static void make_read_only(const struct way *w) {
    for (const char *c = w->read_only; *c; c++) {
        if (*c == '/') chmod(folder, 0500);
        if (*c == 'p') chmod(in_folder(""), 0400);
        if (*c == 'l') chmod(in_folder(".lock"), 0400);
        if (*c == 'w') chmod(in_folder("-wal"), 0400);
    }
}

// The same for no file and an empty one: a reader makes the log where it can, as SQLite does.
static unsigned long sum_of(const char *path) {
    unsigned long sum = 5381;
    FILE *f = fopen(path, "rb");
    for (int c; f && (c = getc(f)) != EOF;) sum = sum * 33 + (unsigned long)c;
    if (f) fclose(f);
    return sum;
}

static int served(struct err *err) {
    snprintf(fx.path, sizeof fx.path, "%s", in_folder(""));
    return fx_try_open(err);
}
static int read_by_tools(struct err *err) {
    struct archive *a;
    struct stored_session *s;
    TRY(archive_open(&a, in_folder(""), err));
    int rc = archive_load(a, NULL, "s", &s, err);
    if (rc == 0) stored_session_free(s);
    archive_close(a);
    return rc;
}

// As a user whom modes bind. words: of the refusal, NULL: none.
static void as_other_user(const char *way, int (*act)(struct err *err), const char *words) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct err err = {0};
        if (geteuid() == 0 && (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0)) _exit(3);
        int rc = act(&err);
        bool ok = words ? rc == E_DENIED && strstr(err.text, words) : rc == 0;
        if (!ok) fprintf(stderr, "%s: %d: %s\n", way, rc, err.text);
        _exit(ok ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void go_all_ways(bool log) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const struct way *w = &ways[i];
        const char *refused = log ? w->refused_log : w->refused_no_log;
        unsigned long database, in_log;
        make(log);
        make_read_only(w);
        database = sum_of(in_folder(""));
        in_log = sum_of(in_folder("-wal"));
        as_other_user(w->name, read_by_tools, NULL);
        as_other_user(w->name, served, refused);
        if (refused) {
            assert_int_equal(sum_of(in_folder("")), database);
            assert_int_equal(sum_of(in_folder("-wal")), in_log);
            as_other_user(w->name, read_by_tools, NULL);
            chmod(folder, 0700); // and where it can be written to again, all is there
            for (int f = 0; f < N_FILES; f++) chmod(in_folder(files[f]), 0600);
            as_other_user(w->name, served, NULL);
        }
        as_other_user(w->name, read_by_tools, NULL);
        unmake();
    }
}

static void each_way_has_its_sentence_and_does_no_harm(void **state) {
    go_all_ways(false);
}
static void with_a_log_too(void **state) {
    go_all_ways(true);
}

// What root has made there keeps a service of another user out; the sentence names both users.
static void a_lock_of_another_user_is_named(void **state) {
    if (geteuid() != 0) skip(); // only root gives files away
    make(false);
    assert_int_equal(chown(in_folder(".lock"), 0, 0), 0);
    as_other_user("the lock", served,
                  "p.db.lock: belongs to user 0, and user 65534 cannot open it");
    unmake();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_way_has_its_sentence_and_does_no_harm),
        cmocka_unit_test(with_a_log_too),
        cmocka_unit_test(a_lock_of_another_user_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
