// The few calls through which all SQL goes. See db.h.
#include "sessions/store/db.h"
#include "base/err.h"
#include "sessions/store/columns.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SQL_BYTES 65536

static int code_of(int sqlite_rc) {
    switch (sqlite_rc & 0xff) {
    case SQLITE_FULL:
        return E_FULL;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
        return E_DENIED;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return E_BUSY;
    case SQLITE_NOTADB:
        return E_FORMAT;
    case SQLITE_CORRUPT:
        return E_CORRUPT;
    case SQLITE_NOMEM:
        return E_NOMEM;
    case SQLITE_TOOBIG:
        return E_LIMIT;
    case SQLITE_CONSTRAINT: // a taken id is write.c's; any other is our fault
        return E_INTERNAL;
    default:
        return E_IO;
    }
}

int store_db_error(struct store_db *db, struct err *err) {
    int rc = db->sql ? sqlite3_extended_errcode(db->sql) : SQLITE_NOMEM;
    const char *text = db->sql ? sqlite3_errmsg(db->sql) : "out of memory";
    switch (rc & 0xff) {
    case SQLITE_NOTADB:
        return err_set(err, E_FORMAT, "%s: not an SQLite database", db->path);
    case SQLITE_CORRUPT:
        return err_set(err, E_CORRUPT, "%s: the database is damaged (%s)", db->path, text);
    case SQLITE_FULL:
        return err_set(err, E_FULL, "%s: no space left for the database", db->path);
    case SQLITE_READONLY:
        return err_set(err, E_DENIED, "%s: the database is read-only", db->path);
    case SQLITE_BUSY:
        return err_set(err, E_BUSY, "%s: the database is locked by another process", db->path);
    default:
        return err_set(err, code_of(rc), "%s: %s", db->path, text);
    }
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

sqlite3_stmt *store_db_stmt(struct store_db *db, enum store_sql which, struct err *err) {
    sqlite3_stmt **s = &db->stmts[which];
    if (!*s && store_db_prepare(db, store_sql_text(which), SQLITE_PREPARE_PERSISTENT, s, err) < 0)
        return NULL;
    sqlite3_reset(*s);
    sqlite3_clear_bindings(*s);
    return *s;
}

int store_db_step_done(struct store_db *db, sqlite3_stmt *s, struct err *err) {
    int rc = sqlite3_step(s) == SQLITE_DONE ? 0 : store_db_error(db, err);
    sqlite3_reset(s); // ends the read; the bound values may be freed
    return rc;
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
