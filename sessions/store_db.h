// The store's database handle: what the files store_*.c share. Used on one thread at a time: the
// opener's, then the store's.
#pragma once
#include "sessions/store.h"
#include <sqlite3.h>

#define STORE_APPLICATION_ID 0x50524c59 // "PRLY"

enum store_sql {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_MODEL_ADD,
    SQL_SESSION_ADD,
    SQL_SESSION_SET,
    SQL_TITLE_DROP,
    SQL_TITLE_ADD,
    SQL_TURN_ADD,
    SQL_TURN_SET,
    SQL_TOKENS_DROP,
    SQL_TOKENS_ADD,
    SQL_EVENT_ADD,
    SQL_WORDS_ADD,
    SQL_WORDS_SET,
    SQL_PROBE,
    SQL_WORDS_DROP,
    SQL_SESSION_DROP,
    SQL_WORDS_OPTIMIZE,
    SQL_SESSION_GET,
    SQL_TURNS_GET,
    SQL_TOKENS_GET,
    SQL_EVENTS_GET,
    SQL_COUNT
};
struct store_db {
    sqlite3 *sql;
    char *path;
    int lock_fd;                    // -1: none (memory, readers)
    sqlite3_stmt *stmts[SQL_COUNT]; // prepared at first use
    int wal_frames;                 // since the last full checkpoint
    bool deleted;                   // the log still holds bytes of something deleted
};

// The one read-write connection: lock, file mode, settings, checks.
int store_db_open(struct store_db *db, const char *path, struct err *err);
// mode=ro, query_only: never writes, never checkpoints; the schema must be this program's.
int store_db_open_reader(struct store_db *db, const char *path, struct err *err);
void store_db_close(struct store_db *db, bool checkpoint);
void store_db_checkpoint(struct store_db *db, bool truncate);
int64_t store_db_wal_bytes(const struct store_db *db);
// Fills *err from the connection's last failure and returns the E_* that fits (E_FULL, E_DENIED,
// E_IO, E_CORRUPT, E_BUSY ...).
int store_db_error(struct store_db *db, struct err *err);
int store_db_exec(struct store_db *db, const char *sql, struct err *err);
int store_db_int(struct store_db *db, const char *sql, int64_t *out, struct err *err);
// The prepared statement, reset; NULL and *err on failure.
sqlite3_stmt *store_db_stmt(struct store_db *db, enum store_sql which, struct err *err);
int store_db_step_done(struct store_db *db, sqlite3_stmt *s,
                       struct err *err); // runs one that returns no rows

// store_schema.c
int store_schema_version(void);
int store_schema_migrate(struct store_db *db,
                         struct err *err); // forward, each step in one transaction
int store_schema_check(struct store_db *db,
                       struct err *err); // ours, and not newer than this program
const char *store_schema_sql(enum store_sql which);

// store_write.c: within a transaction
int store_write_save(struct store_db *db, const struct session_save *save, struct err *err);
int store_write_delete(struct store_db *db, int64_t key, struct err *err);
int store_write_probe(struct store_db *db, int64_t now_ms, struct err *err);
// store_recover.c: ends every turn without an end as "interrupted".
int store_recover(struct store_db *db, int64_t now_ms, int64_t *n_interrupted, struct err *err);

// store_read.c
int store_read_session(struct store_db *db, const char *id, struct stored_session **out,
                       struct err *err);
// owner NULL: everybody's.
int store_read_list(struct store_db *db, struct store_list *list, struct err *err);
int store_read_next_key(struct store_db *db, int64_t *out, struct err *err);
