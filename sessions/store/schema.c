// The schema and its migrations. user_version is the number of migrations applied; a file with more
// than this program knows is refused.
#include "base/err.h"
#include "sessions/store/columns.h"
#include "sessions/store/db.h"
#include <stdio.h>

// Numbers stored as text or blobs: seeds are the 64 bits as a signed integer; ids int32,
// log-probabilities the bits of binary32, text ends uint32, alternatives (int32 id, binary32
// logprob) pairs, all little-endian.

// What a version adds besides columns.
static const char *const more[] = {
    [1] =
        "CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
        // A title's row is minus its session's key, a turn's is the turn's key.
        "CREATE VIRTUAL TABLE search USING fts5(words, session UNINDEXED, tokenize = 'unicode61 "
        "remove_diacritics 2');",
    // A tree of turns. Older turns have a null parent, which means the turn before: the migration
    // rewrites no turn, so a large file takes no longer.
    [2] = "UPDATE sessions SET head = n_turns - 1;",
};
#define SCHEMA_BYTES 65536
#define N_MORE (int)(sizeof more / sizeof *more)

int store_schema_version(void) {
    return columns_version() >= N_MORE ? columns_version() : N_MORE - 1;
}

// A file without a table is new. Any other must carry our application id.
int store_schema_check(struct store_db *db, struct err *err) {
    int64_t id = 0, version = 0, n_objects = 0;
    TRY(store_db_int(db, "PRAGMA application_id", &id, err));
    TRY(store_db_int(db, "PRAGMA user_version", &version, err));
    TRY(store_db_int(db, "SELECT count(*) FROM sqlite_schema", &n_objects, err));
    if (n_objects > 0 && id != STORE_APPLICATION_ID)
        return err_set(err, E_FORMAT, "%s: this SQLite database belongs to another program",
                       db->path);
    if (version < 0)
        return err_set(err, E_CORRUPT, "%s: the database is damaged (schema %lld)", db->path,
                       (long long)version);
    if (version > store_schema_version())
        return err_set(err, E_UNSUPPORTED,
                       "%s: written by a newer Parley (schema %lld, this program knows %d)",
                       db->path, (long long)version, store_schema_version());
    return 0;
}

static int run_migration(struct store_db *db, int number, struct err *err) {
    struct buf sql;
    char pragma[96];
    snprintf(pragma, sizeof pragma, "PRAGMA user_version = %d; PRAGMA application_id = %d", number,
             STORE_APPLICATION_ID);
    buf_init(&sql, SCHEMA_BYTES);
    columns_migrate(record_tables, N_TABLES, number, &sql);
    if (number < N_MORE && more[number]) buf_addz(&sql, more[number]);
    buf_addz(&sql, pragma);
    int rc = sql.error ? err_set(err, sql.error, "no memory for the schema")
                       : store_db_exec(db, buf_z(&sql), err);
    buf_release(&sql);
    return rc;
}

static int apply(struct store_db *db, int number, struct err *err) {
    int rc;
    TRY(store_db_exec(db, "BEGIN IMMEDIATE", err));
    TRY_GOTO(undo, run_migration(db, number, err));
    TRY_GOTO(undo, store_db_exec(db, "COMMIT", err));
    return 0;
undo:
    store_db_exec(db, "ROLLBACK", NULL);
    return rc;
}

int store_schema_migrate(struct store_db *db, struct err *err) {
    int64_t version = 0;
    TRY(store_schema_check(db, err));
    TRY(store_db_int(db, "PRAGMA user_version", &version, err));
    for (int i = (int)version + 1; i <= store_schema_version(); i++) TRY(apply(db, i, err));
    return 0;
}
