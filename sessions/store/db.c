// The few calls through which all SQL goes. See db.h.
#include "base/err.h"
#include "sessions/store/columns.h"
#include "sessions/store/lock.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SQL_BYTES 65536

// All other failures are E_IO.
static const struct {
    int sqlite, code;
    const char *sentence; // NULL: SQLite's
} failures[] = {
    {SQLITE_NOTADB, E_FORMAT, "not an SQLite database"},
    {SQLITE_FULL, E_FULL, "no space left for the database"},
    {SQLITE_READONLY, E_DENIED, "the database is read-only"},
    {SQLITE_BUSY, E_BUSY, "the database is locked by another process"},
    {SQLITE_PERM, E_DENIED, NULL},
    {SQLITE_CANTOPEN, E_DENIED, NULL},
    {SQLITE_LOCKED, E_BUSY, NULL},
    {SQLITE_NOMEM, E_NOMEM, NULL},
    {SQLITE_TOOBIG, E_LIMIT, NULL},
    {SQLITE_CONSTRAINT, E_INTERNAL, NULL}, // a taken id is write.c's; any other is our fault
};

int store_db_error(struct store_db *db, struct err *err) {
    int rc = db->sql ? sqlite3_extended_errcode(db->sql) : SQLITE_NOMEM;
    const char *text = db->sql ? sqlite3_errmsg(db->sql) : "out of memory";
    if ((rc & 0xff) == SQLITE_CORRUPT)
        return err_set(err, E_CORRUPT, "%s: the database is damaged (%s)", db->path, text);
    int why = db->sql ? sqlite3_system_errno(db->sql) : 0;
    if ((rc & 0xff) == SQLITE_CANTOPEN && why == EMFILE) {
        errno = why;
        return err_errno(err, "%s", db->path);
    }
    // "disk I/O error" alone does not tell a limit of the files' size from a broken disk.
    if ((rc & 0xff) == SQLITE_IOERR && why) {
        errno = why;
        return err_errno(err, "%s: %s", db->path, text);
    }
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        if (failures[i].sqlite == (rc & 0xff))
            return err_set(err, failures[i].code, "%s: %s", db->path,
                           failures[i].sentence ? failures[i].sentence : text);
    return err_set(err, E_IO, "%s: %s", db->path, text);
}

void store_hide_path(const char *path, struct err *err) {
    char *at;
    while ((at = strstr(err->text, path))) {
        char *rest = at + strlen(path);
        rest += strcspn(rest, ": ");
        rest += strspn(rest, ": ");
        memmove(at, rest, strlen(rest) + 1);
    }
}

int store_db_exec(struct store_db *db, const char *sql, struct err *err) {
    return sqlite3_exec(db->sql, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : store_db_error(db, err);
}

int store_db_transaction(struct store_db *db,
                         int (*act)(struct store_db *db, void *ctx, struct err *err), void *ctx,
                         struct err *err) {
    TRY(store_db_write_begin(db, err));
    int rc = store_db_exec(db, "BEGIN IMMEDIATE", err);
    if (rc == 0) rc = act(db, ctx, err);
    if (rc == 0) rc = store_db_exec(db, "COMMIT", err);
    // After a full disk SQLite may have rolled back; then this fails and changes nothing.
    if (rc < 0) store_db_exec(db, "ROLLBACK", NULL);
    store_db_write_end(db);
    return rc;
}

int store_db_int(struct store_db *db, const char *sql, int64_t *out, struct err *err) {
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(db->sql, sql, -1, &s, NULL) != SQLITE_OK) return store_db_error(db, err);
    int rc = 0;
    if (sqlite3_step(s) == SQLITE_ROW)
        *out = sqlite3_column_int64(s, 0);
    else
        rc = store_db_error(db, err);
    sqlite3_finalize(s);
    return rc;
}

int store_db_text(struct store_db *db, const char *sql, char *out, size_t size, struct err *err) {
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(db->sql, sql, -1, &s, NULL) != SQLITE_OK) return store_db_error(db, err);
    const char *text =
        sqlite3_step(s) == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    int rc = text ? 0 : store_db_error(db, err);
    snprintf(out, size, "%s", text ? text : "");
    sqlite3_finalize(s);
    return rc;
}

int store_db_prepare(struct store_db *db, const char *sql, unsigned flags, sqlite3_stmt **out,
                     struct err *err) {
    struct buf text;
    buf_init(&text, SQL_BYTES);
    int rc = columns_expand(record_tables, N_TABLES, sql, &text);
    if (rc < 0)
        err_set(err, rc, "no memory for a statement");
    else if (sqlite3_prepare_v3(db->sql, buf_z(&text), -1, flags, out, NULL) != SQLITE_OK)
        rc = store_db_error(db, err);
    buf_release(&text);
    return rc;
}

sqlite3_stmt *store_db_stmt(struct store_db *db, const char *sql, struct err *err) {
    struct store_stmt *s = db->stmts;
    while (s->sql && s->sql != sql) s++;
    assert(s < db->stmts + STORE_STMTS - 1);
    if (!s->sql && store_db_prepare(db, sql, SQLITE_PREPARE_PERSISTENT, &s->stmt, err) < 0)
        return NULL;
    s->sql = sql;
    sqlite3_reset(s->stmt);
    sqlite3_clear_bindings(s->stmt);
    return s->stmt;
}

sqlite3_stmt *store_db_bind(struct store_db *db, const char *sql, const int64_t *values, int n,
                            struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, sql, err);
    for (int i = 0; s && i < n; i++) sqlite3_bind_int64(s, i + 1, values[i]);
    return s;
}

int store_db_step_done(struct store_db *db, sqlite3_stmt *s, struct err *err) {
    int rc = sqlite3_step(s) == SQLITE_DONE ? 0 : store_db_error(db, err);
    sqlite3_reset(s); // ends the read; the bound values may be freed
    return rc;
}

int store_db_run(struct store_db *db, const char *sql, const int64_t *values, int n,
                 struct err *err) {
    sqlite3_stmt *s = store_db_bind(db, sql, values, n, err);
    return s ? store_db_step_done(db, s, err) : err->code;
}

bool store_db_row(struct store_db *db, sqlite3_stmt *s, int *rc, struct err *err) {
    int step = *rc == 0 ? sqlite3_step(s) : SQLITE_DONE;
    if (step == SQLITE_ROW) return true;
    if (step != SQLITE_DONE && !db->salvage) *rc = store_db_error(db, err);
    sqlite3_reset(s);
    return false;
}

void store_db_checkpoint(struct store_db *db, enum store_checkpoint how) {
    int n_log = 0, n_done = 0;
    bool truncate = how != CHECKPOINT_SOME;
    int mode = truncate ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE;
    // A checkpoint that fails (full disk, a reader, a guest) loses nothing: the log keeps it all.
    if (store_db_write_begin(db, NULL) < 0) return;
    if (how == CHECKPOINT_EMPTY) sqlite3_busy_timeout(db->sql, 0);
    int rc = sqlite3_wal_checkpoint_v2(db->sql, NULL, mode, &n_log, &n_done);
    sqlite3_busy_timeout(db->sql, STORE_BUSY_MS);
    store_db_write_end(db);
    if (rc != SQLITE_OK) return;
    if (n_log == n_done) db->wal_frames = 0;
    if (truncate && n_log == n_done) db->deleted = false;
}

int64_t store_db_wal_bytes(const struct store_db *db) {
    char path[4096];
    struct stat st;
    if (snprintf(path, sizeof path, "%s-wal", db->path) >= (int)sizeof path) return 0;
    return stat(path, &st) == 0 ? st.st_size : 0;
}
