// Opening and closing the database. See db.h.
//
// SQLite before 3.51.3 can corrupt a database in WAL mode when one connection writes or checkpoints
// while another checkpoints. So one connection, on one thread, checkpoints, and a guest (an import)
// writes only while that connection does neither: lock.c. All other connections read.
#include "base/err.h"
#include "sessions/store/levels.h"
#include "sessions/store/lock.h"
#include "sessions/store/news.h"
#include "sessions/store/schema.h"
#include "sessions/store/words.h"
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const writer_settings[] = {
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA secure_delete = ON",
    "PRAGMA wal_autocheckpoint = 0", // the store checkpoints
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA temp_store = MEMORY",
};
static const char *const reader_settings[] = {
    "PRAGMA query_only = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA wal_autocheckpoint = 0",
};
#define N_OF(a) (int)(sizeof(a) / sizeof *(a))

static bool is_memory(const char *path) {
    return strcmp(path, ":memory:") == 0;
}

// The database starts at 0600, and SQLite gives its log and index the same mode: only the owner
// reads conversations. A symbolic link without a target makes the target.
static int create_private(const char *path, struct err *err) {
    if (access(path, F_OK) == 0) return 0;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return err_errno(err, "%s", path);
    close(fd);
    return 0;
}

static int on_wal(void *ctx, sqlite3 *sql, const char *name, int n_frames) {
    ((struct store_db *)ctx)->wal_frames = n_frames;
    return SQLITE_OK;
}

static int apply_settings(struct store_db *db, const char *const *settings, int n,
                          struct err *err) {
    sqlite3_busy_timeout(db->sql, STORE_BUSY_MS);
    for (int i = 0; i < n; i++) TRY(store_db_exec(db, settings[i], err));
    return 0;
}

static int switch_to_wal(struct store_db *db, struct err *err) {
    char mode[16];
    TRY(store_db_text(db, "PRAGMA journal_mode = WAL", mode, sizeof mode, err));
    if (strcmp(mode, "wal") == 0 || is_memory(db->path)) return 0;
    return err_set(err, E_UNSUPPORTED,
                   "%s: the file system does not allow SQLite's write-ahead log", db->path);
}

static int check(struct store_db *db, const char *pragma, struct err *err) {
    char verdict[256];
    TRY(store_db_text(db, pragma, verdict, sizeof verdict, err));
    if (strcmp(verdict, "ok") == 0) return 0;
    return err_set(err, E_CORRUPT, "%s: the database is damaged (%s)", db->path, verdict);
}

// A check reads the whole file, and the time of a start must not grow with the file. Of a large
// file only the tables of models and sessions are checked. Damage elsewhere is found when it is
// read; `sessions doctor` checks all.
#define CHECK_ALL_BYTES (INT64_C(64) << 20)
static int quick_check(struct store_db *db, struct err *err) {
    struct stat st;
    if (is_memory(db->path) || stat(db->path, &st) < 0 || st.st_size <= CHECK_ALL_BYTES)
        return check(db, "PRAGMA quick_check(1)", err);
    TRY(check(db, "PRAGMA quick_check('models')", err));
    return check(db, "PRAGMA quick_check('sessions')", err);
}

// SQLite opens a file without write permission read-only, and fails at the first write, as it does
// where the log cannot be written or made. Fail at the start instead, and name what is read-only.
static int refuse_read_only_files(const struct store_db *db, struct err *err) {
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char path[4096];
    bool missing = false;
    for (int i = 0; i < N_OF(suffixes) && !is_memory(db->path); i++) {
        if (snprintf(path, sizeof path, "%s%s", db->path, suffixes[i]) >= (int)sizeof path)
            return err_set(err, E_LIMIT, "the database's path is too long");
        if (faccessat(AT_FDCWD, path, F_OK, AT_EACCESS) < 0)
            missing = true;
        else if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) < 0)
            return err_errno(err, "%s: the database is read-only", path);
    }
    if (!missing) return 0;
    snprintf(path, sizeof path, "%s", db->path);
    const char *folder = dirname(path);
    if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) == 0) return 0;
    return err_errno(err, "%s: the database's folder is read-only", folder);
}

static int refuse_read_only(struct store_db *db, struct err *err) {
    if (is_memory(db->path) || sqlite3_db_readonly(db->sql, "main") == 0) return 0;
    return err_set(err, E_DENIED, "%s: the database is read-only", db->path);
}

static int open_name(struct store_db *db, const char *name, int flags, struct err *err) {
    int rc = sqlite3_open_v2(name, &db->sql, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                             NULL);
    if (rc != SQLITE_OK) return store_db_error(db, err);
    sqlite3_extended_result_codes(db->sql, 1);
    return store_words_register(db->sql) == SQLITE_OK ? 0 : store_db_error(db, err);
}

static int open_sql(struct store_db *db, int flags, struct err *err) {
    // Without SQLITE_OPEN_URI a path that begins with "file:" is a path.
    return open_name(db, db->path, flags, err);
}

// A symbolic link is resolved: SQLite's log lies beside its target, and the lock and the tail must
// lie there too, by whatever name a process opens the database.
static int init(struct store_db *db, const char *path, bool make, struct err *err) {
    struct stat st;
    *db = (struct store_db){.lock_fd = -1, .file_fd = -1};
    if (make && !is_memory(path)) TRY(create_private(path, err));
    // SQLite would wait for the writer of a pipe in the database's place.
    if (!is_memory(path) && stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(err, E_INVAL, "%s: is not a regular file", path);
    bool link = !is_memory(path) && lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    if (link && !(db->path = realpath(path, NULL))) return err_errno(err, "%s", path);
    if (!link) db->path = strdup(path);
    return db->path ? 0 : err_set(err, E_NOMEM, "no memory to open %s", path);
}

static int same_schema(struct store_db *db, struct err *err) {
    int64_t version = 0;
    TRY(store_schema_check(db, err));
    TRY(store_db_int(db, "PRAGMA user_version", &version, err));
    if (version == store_schema_version()) return 0;
    if (version == 0)
        return err_set(err, E_UNSUPPORTED,
                       "%s: is empty: no server has written to it, or it was copied without the "
                       "file %s-wal, which holds what was written last",
                       db->path, db->path);
    // A writer has the lock itself.
    bool served = db->file_fd < 0 && store_lock_is_held(db);
    return err_set(err, E_UNSUPPORTED,
                   served ? "%s: the server that runs on it is of an older version (schema %lld, "
                            "this program reads %d): start it again with this version, or use the "
                            "older program"
                          : "%s: written by an older version (schema %lld, this program reads %d): "
                            "start a server of this version on it once, which brings it up to date",
                   db->path, (long long)version, store_schema_version());
}

enum purpose { SERVE, LOOK_FIRST, REPAIR };

static int trim_levels(struct store_db *db, void *ctx, struct err *err) {
    return store_levels_trim(db, err);
}

static int adopt(struct store_db *db, enum purpose purpose, struct err *err) {
    // Earlier versions let the levels grow until SQLite read the index no more. A new file has no index yet; where
    // the disk is full, the next merge tries again.
    store_db_transaction(db, trim_levels, NULL, NULL);
    if (purpose == REPAIR) return same_schema(db, err);
    TRY(quick_check(db, err));
    return purpose == SERVE ? store_schema_migrate(db, err) : 0;
}

static int open_writer(struct store_db *db, const char *path, enum purpose purpose,
                       struct err *err) {
    int rc;
    TRY(init(db, path, true, err));
    TRY_GOTO(close, refuse_read_only_files(db, err));
    if (!is_memory(path)) TRY_GOTO(close, store_lock_take(db, err));
    TRY_GOTO(close,
             store_db_write_begin(db, err)); // a guest of the previous server may still write
    TRY_GOTO(close, open_sql(db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err));
    TRY_GOTO(close, store_schema_check(db, err)); // before a write to another program's file
    TRY_GOTO(close, refuse_read_only(db, err));
    TRY_GOTO(close, switch_to_wal(db, err));
    TRY_GOTO(close, apply_settings(db, writer_settings, N_OF(writer_settings), err));
    sqlite3_wal_hook(db->sql, on_wal, db);
    TRY_GOTO(close, adopt(db, purpose, err));
    memset(db->files, 0, sizeof db->files); // as SQLite has them now
    db->watched = !is_memory(path);
    store_db_write_end(db);
    return 0;
close:
    store_db_close(db, false);
    return rc;
}

int store_db_open(struct store_db *db, const char *path, struct err *err) {
    return open_writer(db, path, SERVE, err);
}

int store_db_open_unmigrated(struct store_db *db, const char *path, struct err *err) {
    if (access(path, F_OK) < 0) return err_errno(err, "%s", path);
    return open_writer(db, path, LOOK_FIRST, err);
}

int store_db_open_damaged(struct store_db *db, const char *path, struct err *err) {
    if (access(path, F_OK) < 0) return err_errno(err, "%s", path); // a repair makes no file
    return open_writer(db, path, REPAIR, err);
}

static int open_guest(struct store_db *db, const char *path, struct err *err) {
    int rc;
    TRY(init(db, path, false, err));
    TRY_GOTO(close, refuse_read_only_files(db, err));
    TRY_GOTO(close, store_lock_visit(db, err));
    TRY_GOTO(close, open_sql(db, SQLITE_OPEN_READWRITE, err));
    sqlite3_db_config(db->sql, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    TRY_GOTO(close, apply_settings(db, writer_settings, N_OF(writer_settings), err));
    TRY_GOTO(close, refuse_read_only(db, err));
    TRY_GOTO(close, same_schema(db, err));
    return 0;
close:
    store_db_close(db, false);
    return rc;
}

int store_db_open_any(struct store_db *db, const char *path, bool *served, struct err *err) {
    int rc = store_db_open(db, path, err);
    *served = rc == E_BUSY;
    return *served ? open_guest(db, path, err) : rc;
}

enum reading { READ, SALVAGE, COPY };

static int begin_reading(struct store_db *db, enum reading reading, struct err *err) {
    int64_t version = 0;
    TRY(apply_settings(db, reader_settings, N_OF(reader_settings), err));
    // Without it SQLite refuses to read a file that lacks pages.
    if (reading == SALVAGE) TRY(store_db_exec(db, "PRAGMA writable_schema = ON", err));
    if (reading == COPY) TRY(store_db_int(db, "PRAGMA user_version", &version, err));
    return version > 0 ? store_schema_check(db, err) : same_schema(db, err);
}

int store_db_open_beside(struct store_db *db, const struct store_db *writer, struct err *err) {
    int rc;
    TRY(init(db, writer->path, false, err));
    db->watched = true;
    memcpy(db->files, writer->files, sizeof db->files);
    TRY_GOTO(close, open_sql(db, SQLITE_OPEN_READONLY, err));
    TRY_GOTO(close, begin_reading(db, READ, err));
    return 0;
close:
    store_db_close(db, false);
    return rc;
}

// Makes no file beside the database and takes no lock.
static int open_untouched(struct store_db *db, struct err *err) {
    static const char hex[] = "0123456789ABCDEF";
    char uri[3 * 4096 + 32];
    size_t n = (size_t)snprintf(uri, sizeof uri, "file:");
    for (const unsigned char *c = (const unsigned char *)db->path; *c; c++) {
        if (n + 20 > sizeof uri) return err_set(err, E_LIMIT, "the database's path is too long");
        bool plain = *c != '?' && *c != '#' && *c != '%';
        if (plain) uri[n++] = (char)*c;
        if (!plain) uri[n++] = '%', uri[n++] = hex[*c >> 4], uri[n++] = hex[*c & 15];
    }
    snprintf(uri + n, sizeof uri - n, "?immutable=1");
    return open_name(db, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, err);
}

// To read, SQLite makes the index of the log. In a read-only folder it cannot. Without a log and
// without a server the file is complete, and can be read alone.
static int open_alone(struct store_db *db, struct err *err) {
    sqlite3_close(db->sql);
    db->sql = NULL;
    if (store_db_wal_bytes(db) > 0 || store_lock_is_held(db))
        return err_set(
            err, E_DENIED,
            "%s: what was written last is in %s-wal, which can be read only where the "
            "folder can be written to: copy both files, or make a backup as who serves it",
            db->path, db->path);
    return open_untouched(db, err);
}

static int open_reader(struct store_db *db, const char *path, enum reading reading,
                       struct err *err) {
    int rc;
    struct err first = {0};
    TRY(init(db, path, false, err));
    if (access(path, R_OK) < 0) TRY_GOTO(close, err_errno(err, "%s", path));
    TRY_GOTO(close, open_sql(db, SQLITE_OPEN_READONLY, err));
    rc = begin_reading(db, reading, &first);
    if (rc == E_DENIED) {
        TRY_GOTO(close, open_alone(db, err));
        rc = begin_reading(db, reading, &first);
    }
    if (rc == 0) return 0;
    if (err) *err = first;
close:
    store_db_close(db, false);
    return rc;
}

int store_db_open_reader(struct store_db *db, const char *path, struct err *err) {
    return open_reader(db, path, READ, err);
}

int store_db_open_salvage(struct store_db *db, const char *path, struct err *err) {
    return open_reader(db, path, SALVAGE, err);
}

int store_db_open_copy(struct store_db *db, const char *path, struct err *err) {
    return open_reader(db, path, COPY, err);
}

void store_db_close(struct store_db *db, bool checkpoint) {
    for (int i = 0; i < STORE_STMTS; i++) sqlite3_finalize(db->stmts[i].stmt);
    store_news_release(db);
    // SQLite's last connection checkpoints when it closes, which must not meet a guest's
    // transaction. A guest that holds the lock for 2 s is stuck: leave the log to the next start.
    bool alone = store_db_write_begin(db, NULL) == 0;
    if (checkpoint && alone) store_db_checkpoint(db, CHECKPOINT_EMPTY_BY);
    if (!alone && db->sql) sqlite3_db_config(db->sql, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_close(db->sql);
    if (db->file_fd >= 0) close(db->file_fd); // after SQLite: closing it drops SQLite's locks
    if (db->lock_fd >= 0) close(db->lock_fd); // last: now the next server may open
    free(db->path);
    *db = (struct store_db){.lock_fd = -1, .file_fd = -1};
}
