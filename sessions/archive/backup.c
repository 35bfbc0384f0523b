// See backup.h.
#include "sessions/archive/backup.h"
#include "base/err.h"
#include "sessions/store/lock.h"
#include "sessions/store/words.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_PAGES 1024
#define STEP_PAUSE_MS 1

static int fail_target(sqlite3 *target, const char *path, struct err *err) {
    int rc = sqlite3_errcode(target);
    return err_set(err, rc == SQLITE_FULL ? E_FULL : E_IO, "%s: %s", path, sqlite3_errmsg(target));
}

// The source's transaction makes all pages those of one moment.
static int copy_pages(struct store_db *source, sqlite3 *target, const char *path,
                      backup_progress progress, void *ctx, struct err *err) {
    sqlite3_backup *b = sqlite3_backup_init(target, "main", source->sql, "main");
    if (!b) return fail_target(target, path, err);
    int rc;
    do {
        rc = sqlite3_backup_step(b, STEP_PAGES);
        int64_t total = sqlite3_backup_pagecount(b);
        if (progress) progress(ctx, total - sqlite3_backup_remaining(b), total);
        if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED) sqlite3_sleep(STEP_PAUSE_MS);
    } while (rc == SQLITE_OK || rc == SQLITE_BUSY || rc == SQLITE_LOCKED);
    sqlite3_backup_finish(b); // leaves its code in the target
    return rc == SQLITE_DONE ? 0 : fail_target(target, path, err);
}

// A copy that cannot be read is an error.
static int check_copy(sqlite3 *target, const char *path, struct err *err) {
    sqlite3_stmt *s;
    if (store_words_register(target) != SQLITE_OK ||
        sqlite3_prepare_v2(target, "PRAGMA quick_check(1)", -1, &s, NULL) != SQLITE_OK)
        return fail_target(target, path, err);
    int rc = 0;
    const char *verdict =
        sqlite3_step(s) == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    if (!verdict)
        rc = fail_target(target, path, err);
    else if (strcmp(verdict, "ok") != 0)
        rc = err_set(err, E_CORRUPT,
                     "the database is damaged (%s): `sessions doctor` says what can be saved",
                     verdict);
    sqlite3_finalize(s);
    return rc;
}

static int copy_into(struct store_db *source, const char *part, backup_progress progress, void *ctx,
                     struct err *err) {
    sqlite3 *target = NULL;
    int64_t n_objects;
    int rc;
    if (sqlite3_open_v2(part, &target, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK) {
        rc = fail_target(target, part, err);
        goto close;
    }
    sqlite3_busy_timeout(target, STORE_BUSY_MS);
    // An unfinished copy is removed: it needs no journal.
    sqlite3_exec(target, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL, NULL, NULL);
    TRY_GOTO(close, store_db_exec(source, "BEGIN", err));
    rc = store_db_int(source, "SELECT count(*) FROM sqlite_schema", &n_objects, err);
    if (rc == 0) rc = copy_pages(source, target, part, progress, ctx, err);
    store_db_exec(source, "COMMIT", NULL);
    if (rc == 0) rc = check_copy(target, part, err);
close:
    sqlite3_close(target);
    return rc;
}

static int sync_path(const char *path, int flags, struct err *err) {
    int fd = open(path, flags | O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_errno(err, "%s", path);
    int rc = fsync(fd) < 0 ? err_errno(err, "%s", path) : 0;
    close(fd);
    return rc;
}

static int sync_folder_of(const char *path, struct err *err) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash) return sync_path(".", O_DIRECTORY, err);
    slash[slash == folder ? 1 : 0] = '\0';
    return sync_path(folder, O_DIRECTORY, err);
}

// Fails when the name is taken.
int backup_name(const char *part, const char *to, struct err *err) {
    TRY(sync_path(part, 0, err));
    int rc = renameat2(AT_FDCWD, part, AT_FDCWD, to, RENAME_NOREPLACE);
    if (rc < 0 && errno == EINVAL) rc = rename(part, to); // a file system without RENAME_NOREPLACE
    if (rc < 0)
        return errno == EEXIST ? err_set(err, E_EXISTS, "%s: there is such a file already", to)
                               : err_errno(err, "%s", to);
    return sync_folder_of(to, err);
}

static bool is_named(int fd, const char *path) {
    struct stat of_fd, of_path;
    return fstat(fd, &of_fd) == 0 && lstat(path, &of_path) == 0 && of_fd.st_dev == of_path.st_dev &&
           of_fd.st_ino == of_path.st_ino;
}

// A writer holds the lock until it has renamed or removed the file. So if the file can be locked and still has its
// name, the file is stale.
static int claim_part(int fd, const char *part, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) < 0) return err_errno(err, "%s", part);
    if (!S_ISREG(st.st_mode)) return err_set(err, E_EXISTS, "%s: this is no regular file", part);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? err_set(err, E_BUSY, "%s: another command is writing this file", part)
                   : err_errno(err, "%s", part);
    if (!is_named(fd, part)) return 1;
    if (fchmod(fd, 0600) < 0 || ftruncate(fd, 0) < 0) return err_errno(err, "%s", part);
    return 0;
}

#define PART_ATTEMPTS 10 // each means that another command finished at this moment

int backup_part(const char *part, struct err *err) {
    for (int i = 0; i < PART_ATTEMPTS; i++) {
        int fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0) return err_errno(err, "%s", part);
        int rc = claim_part(fd, part, err);
        if (rc == 0) return fd;
        close(fd);
        if (rc < 0) return rc;
    }
    return err_set(err, E_BUSY, "%s: other commands are writing this file", part);
}

static void remove_part(const char *part) {
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    char path[4096 + 16];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", part, suffixes[i]);
        unlink(path);
    }
}

int backup_database(const char *from, const char *to, backup_progress progress, void *ctx,
                    struct err *err) {
    struct store_db source;
    char part[4096];
    int rc;
    if (access(to, F_OK) == 0)
        return err_set(err, E_EXISTS, "%s: there is such a file already", to);
    if (snprintf(part, sizeof part, "%s.part", to) >= (int)sizeof part)
        return err_set(err, E_LIMIT, "the copy's path is too long");
    TRY(store_db_open_copy(&source, from, err));
    int fd = rc = backup_part(part, err);
    if (rc < 0) goto close;
    rc = copy_into(&source, part, progress, ctx, err);
    if (rc == 0) rc = backup_name(part, to, err);
    if (rc < 0) remove_part(part);
    close(fd);
close:
    store_db_close(&source, false);
    return rc;
}
