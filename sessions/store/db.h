// The database's handle: opening it (open.c), and statements (db.c). One thread at a time: the opener's, then the
// store's.
#pragma once
#include "sessions/store/store.h"
#include <sqlite3.h>
#include <sys/types.h>

#define STORE_APPLICATION_ID 0x50524c59 // "PRLY"

#define STORE_FILES 3 // the database, its log, the index of that
struct store_file {   // as it was first seen; ino 0: not yet
    dev_t dev;
    ino_t ino;
    int64_t size; // at the last look; of the log's index the largest
};
#define STORE_STMTS 64 // more than there are
struct store_stmt {
    const char *sql; // NULL: free, and so are those behind it
    sqlite3_stmt *stmt;
};
struct store_db {
    sqlite3 *sql;
    char *path;                           // of a symbolic link its target
    int lock_fd;                          // -1: none (memory, readers)
    int file_fd;                          // the database itself, for its lock; -1: none
    int n_writing;                        // nested store_db_write_begin
    struct store_stmt stmts[STORE_STMTS]; // prepared at first use, then kept
    int wal_frames;                       // since the last full checkpoint
    bool deleted;                         // the log holds bytes of deleted rows
    bool unmerged;                        // the index of words does too, in older segments
    bool unpaired;                        // it has rows of older schemas (words.c)
    bool merging, again;                  // the index is being merged; a deletion since then
    int64_t data_version;                 // other connections' commits at the last look (news.c)
    int64_t *imported; // (n_imported) keys of imported sessions at that look, ascending
    size_t n_imported;
    struct store_file files[STORE_FILES];
    bool watched; // store_watch looks at them
    bool salvage; // a read takes what it can of a damaged record
};

// The server's read-write connection: lock, file mode, settings, checks, migrations.
int store_db_open(struct store_db *db, const char *path, struct err *err);
// The same without the migration: store_schema_migrate follows once it is sure that the file will be
// used, because no older program opens it afterwards. Makes no file.
int store_db_open_unmigrated(struct store_db *db, const char *path, struct err *err);
// The same of a file that may be damaged: no check, no migration.
int store_db_open_damaged(struct store_db *db, const char *path, struct err *err);
// For tools. Without a server: as store_db_open, which makes the file. Beside a server (*served): a
// guest, for short transactions between write_begin and write_end. A guest never checkpoints, and
// needs the schema of this program.
int store_db_open_any(struct store_db *db, const char *path, bool *served, struct err *err);
// Never writes, never checkpoints, needs the schema of this program.
int store_db_open_reader(struct store_db *db, const char *path, struct err *err);
// The same of any older schema too: the pages are copied as they are.
int store_db_open_copy(struct store_db *db, const char *path, struct err *err);
// A reader in the process of the server's connection, which stays open longer.
int store_db_open_beside(struct store_db *db, const struct store_db *writer, struct err *err);
// For tools, of a file that may be damaged or cut short.
int store_db_open_salvage(struct store_db *db, const char *path, struct err *err);
void store_db_close(struct store_db *db, bool checkpoint);

enum store_checkpoint {
    CHECKPOINT_SOME,     // what no reader needs
    CHECKPOINT_EMPTY,    // empties the log, but does not wait for readers
    CHECKPOINT_EMPTY_BY, // empties the log, waits for readers up to STORE_BUSY_MS
};
// Moves the log's pages into the database. Not doing so loses nothing, so no error is reported.
void store_db_checkpoint(struct store_db *db, enum store_checkpoint how);
int64_t store_db_wal_bytes(const struct store_db *db); // 0: none
// Fills *err from the connection's last failure and returns the E_* that fits (E_FULL, E_DENIED,
// E_IO, E_CORRUPT, E_BUSY ...).
int store_db_error(struct store_db *db, struct err *err);
int store_db_exec(struct store_db *db, const char *sql, struct err *err);
// One transaction of `act`, under the writer's lock: committed if act returns 0, else undone.
int store_db_transaction(struct store_db *db,
                         int (*act)(struct store_db *db, void *ctx, struct err *err), void *ctx,
                         struct err *err);
int store_db_int(struct store_db *db, const char *sql, int64_t *out, struct err *err);
// Expands and prepares a statement. The caller finalizes it.
int store_db_prepare(struct store_db *db, const char *sql, unsigned flags, sqlite3_stmt **out,
                     struct err *err);
// The prepared statement, reset; NULL and *err on failure. sql is static: its address names the
// statement.
sqlite3_stmt *store_db_stmt(struct store_db *db, const char *sql, struct err *err);
// The same with its first parameters bound: NUMBERS(key, turn).
sqlite3_stmt *store_db_bind(struct store_db *db, const char *sql, const int64_t *values, int n,
                            struct err *err);
#define NUMBERS(...)                                                                               \
    (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)
// Statements that return no rows: store_db_step_done after binding, or both in one call.
int store_db_step_done(struct store_db *db, sqlite3_stmt *s, struct err *err);
int store_db_run(struct store_db *db, const char *sql, const int64_t *values, int n,
                 struct err *err);
// `int rc = 0; while (store_db_row(db, s, &rc, err)) rc = take(s);` walks the rows and resets s at
// the end. A failure is in rc, and none of a damaged file where db->salvage is set.
bool store_db_row(struct store_db *db, sqlite3_stmt *s, int *rc, struct err *err);
// The one row's one text, in out.
int store_db_text(struct store_db *db, const char *sql, char *out, size_t size, struct err *err);
