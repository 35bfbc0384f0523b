// The schema and its migrations. user_version is the number of migrations applied; a file with more
// than this program knows is refused.
#include "sessions/store/schema.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "sessions/store/columns.h"
#include "sessions/store/words.h"

// Numbers stored as text or blobs: seeds are the 64 bits as a signed integer; ids int32,
// log-probabilities the bits of binary32, text ends uint32, alternatives (int32 id, binary32
// logprob) pairs, all little-endian.

static const char state[] =
    "CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;";
static const char shares[] =
    "CREATE UNIQUE INDEX sessions_share ON sessions(share) WHERE share IS NOT NULL;";
// What a version changes besides columns.
static const char *const more[] = {
    // A tree of turns. Older turns have a null parent, which means the turn before: the migration
    // rewrites no turn, so a large file takes no longer.
    [2] = "UPDATE sessions SET head = n_turns - 1;",
    // About what session_bytes() counts.
    [9] = "CREATE INDEX turns_told ON turns(told) WHERE told IS NOT NULL;",
    [6] = "UPDATE sessions SET stored_bytes = 1024 + 512 * n_turns + 16 * n_tokens;",
    [13] = shares,
};
// The index of words is made last, from the rows: the one of versions 1 to 4 had no owners.
#define WORDS_SINCE 5
#define PAIRS_SINCE 11 // its rows are brought up to date after the start (words.c)
#define SCHEMA_BYTES 65536
#define N_MORE (int)(sizeof more / sizeof *more)

int store_schema_version(void) {
    return columns_version() > PAIRS_SINCE ? columns_version() : PAIRS_SINCE;
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
        return err_set(
            err, E_UNSUPPORTED,
            "%s: written by a newer Parley (schema %lld, this program knows %d): use that "
            "version, or a backup from before it",
            db->path, (long long)version, store_schema_version());
    return 0;
}

// From version 0, an empty file, to the newest; else from number - 1 to number.
static void write_sql(int from, int number, struct buf *out) {
    if (from == 0) {
        columns_create(record_tables, N_TABLES, number, out);
        buf_addz(out, state);
        buf_addz(out, shares);
        return;
    }
    columns_migrate(record_tables, N_TABLES, number, out);
    if (number < N_MORE && more[number]) buf_addz(out, more[number]);
}

static int run_migrations(struct store_db *db, void *version, struct err *err) {
    int from = *(int *)version, to = store_schema_version();
    struct buf sql;
    buf_init(&sql, SCHEMA_BYTES);
    for (int i = from ? from + 1 : to; i <= to; i++) write_sql(from, i, &sql);
    buf_addf(&sql, "PRAGMA user_version = %d; PRAGMA application_id = %d", to,
             STORE_APPLICATION_ID);
    int rc = sql.error ? err_set(err, sql.error, "no memory for the schema")
                       : store_db_exec(db, buf_z(&sql), err);
    buf_release(&sql);
    if (rc == 0 && from < WORDS_SINCE) rc = store_words_clear(db, err);
    if (rc == 0 && from > 0 && from < WORDS_SINCE) rc = store_words_fill(db, err);
    if (rc == 0 && from >= WORDS_SINCE && from < PAIRS_SINCE) rc = store_words_mark_old(db, err);
    return rc;
}

// In one transaction: after a crash the file is unchanged, and the older program can open it.
int store_schema_migrate(struct store_db *db, struct err *err) {
    int64_t version = 0, began = clock_mono_us(&clock_system);
    TRY(store_schema_check(db, err));
    TRY(store_db_int(db, "PRAGMA user_version", &version, err));
    if (version == store_schema_version()) return 0;
    TRY(store_db_exec(db, "PRAGMA foreign_keys = OFF", err));
    int from = (int)version;
    int rc = store_db_transaction(db, run_migrations, &from, err);
    store_db_exec(db, "PRAGMA foreign_keys = ON", NULL);
    if (rc == 0 && version > 0)
        log_info("store.migrate", "from=%d to=%d took_ms=%.1f", from, store_schema_version(),
                 (double)(clock_mono_us(&clock_system) - began) * 1e-3);
    return rc;
}
