// The database handle that the files of this folder share. One thread at a time: the opener's, then
// the store's.
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

// lock.c: locks on a file beside the database. They end with their process.
// Opens or makes such a file, of mode 0600 and of the database's owner: a descriptor, E_DENIED, E_IO ...
int store_open_beside(const char *db_path, const char *path, int flags, struct err *err);
// The server's: one process at a time. E_BUSY names the process that holds it.
int store_lock_take(struct store_db *db, struct err *err);
int store_lock_visit(struct store_db *db, struct err *err); // a guest's: opens the file alone
// A server has the database. Not while this process has it open with SQLite: closing the descriptor
// would drop SQLite's locks.
bool store_lock_is_held(const struct store_db *db);
long store_lock_holder(int fd); // the process that the lock file names; 0: none
// WAL mode needs shared memory and reliable locks: E_UNSUPPORTED where the file system has neither.
int store_refuse_network(const char *path, int fd, struct err *err);
// One process at a time writes or checkpoints. Waits up to 2 s, then E_BUSY. Nests. Fails as
// store_watch does.
int store_db_write_begin(struct store_db *db, struct err *err);
void store_db_write_end(struct store_db *db);
#define STORE_BUSY_MS 2000

// watch.c: E_IO when the database or its log is no longer the file that was opened, or was cut short. With `between`
// no transaction of this process is open, and an index that was cut short is repaired; without it
// that is E_BUSY. For the server's connection.
int store_watch(struct store_db *db, bool between, struct err *err);

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

// schema.c
int store_schema_version(void);
int store_schema_migrate(struct store_db *db,
                         struct err *err); // each version in one transaction
int store_schema_check(struct store_db *db,
                       struct err *err); // E_FORMAT: another program's; E_UNSUPPORTED: newer

// words.c
// Of the connection: owner_tag(owner), plain_tag(owner), and the tokenizer of the index. Returns
// SQLite's code.
int store_words_register(sqlite3 *sql);
// The index, made anew: without a row; with all. Within a transaction.
int store_words_clear(struct store_db *db, struct err *err);
int store_words_fill(struct store_db *db, struct err *err);
// Length in bytes of the character at the start of s if its script has no spaces, else 0.
size_t store_unspaced(const char *s, size_t len);
// Rows from before schema 11 have whole runs of such scripts as terms. Within a transaction: notes that there may be
// some; brings the next few up to date, *done: there are no more.
int store_words_mark_old(struct store_db *db, struct err *err);
int store_words_renew(struct store_db *db, bool *done, struct err *err);
// Whether there may be some: a search asks for both kinds of terms then.
int store_words_have_old(struct store_db *db, bool *out, struct err *err);
// What the index has of a session s, and of its turn t. Rows with old terms differ in the first character.
#define STORE_TITLE_WORDS "owner_tag(s.owner) || s.title"
#define STORE_TURN_WORDS                                                                           \
    "owner_tag(s.owner) || coalesce(CAST(t.input_text AS TEXT), '') || char(10) || "               \
    "coalesce((SELECT group_concat(CAST(p.text AS TEXT), '') FROM (SELECT text FROM tokens "       \
    "WHERE session = t.session AND turn = t.turn ORDER BY first) p), '')"

// write.c: within a transaction
int store_write_save(struct store_db *db, const struct session_save *save, struct err *err);
// A whole session, under its number (rec.key).
int store_write_session(struct store_db *db, const struct stored_session *s, struct err *err);
int store_write_delete(struct store_db *db, int64_t key, struct err *err); // and merges the index
int store_write_delete_rows(struct store_db *db, int64_t key,
                            struct err *err); // tidy.c does the rest
int store_write_probe(struct store_db *db, int64_t now_ms, struct err *err);
// tidy.c: deleted words leave the index in small steps while store_db.unmerged.
int store_tidy_init(struct store_db *db,
                    struct err *err); // at the start: what the last run left undone
int store_tidy_mark(struct store_db *db, struct err *err); // within a deletion's transaction
int store_tidy_step(struct store_db *db, struct err *err); // a transaction of its own
// news.c: appends the sessions imported since the last look to *out. After a failure, which may
// leave some rows in *out, the next look returns all of them again.
int store_news_init(struct store_db *db, struct err *err);
void store_news_release(struct store_db *db);
int store_news_read(struct store_db *db, struct store_list *out, struct err *err);
// recover.c: removes sessions that are temporary (record.h): their program ended before it did so.
int store_remove_temporary(struct store_db *db, int64_t *n_removed, struct err *err);
// Ends every turn without an end as "interrupted".
int store_recover(struct store_db *db, int64_t now_ms, int64_t *n_interrupted, struct err *err);

// leaving.c: while sessions are moved to the database at `path`, some may be in both. NULL: no longer.
int store_leaving_set(struct store_db *db, const char *path, struct err *err);
// E_BUSY: they are being moved to another one than `path` (NULL: to any), and how to finish that.
int store_leaving_check(struct store_db *db, const char *path, struct err *err);

// read.c
int store_read_session(struct store_db *db, int64_t key, struct stored_session **out,
                       struct err *err); // E_NOTFOUND
// These turns (ascending) with their tokens. The other parts of *out stay empty.
int store_read_turns(struct store_db *db, int64_t key, const int64_t *turns, size_t n,
                     struct stored_session **out, struct err *err);
// A part of a record, in the caller's transaction: turns [turn, end) with their tokens, and at most
// n_events events of the numbers (after, upto].
struct store_part {
    int64_t key, turn, end, after, upto, n_events;
};
int store_read_part(struct store_db *db, const struct store_part *p, struct stored_session **out,
                    struct err *err);
// The first turn without an end, INT64_MAX: all have one.
int store_read_unfinished(struct store_db *db, int64_t key, int64_t *out, struct err *err);
int store_read_row(struct store_db *db, int64_t key, struct session_record *out,
                   struct err *err); // E_NOTFOUND
// owner NULL: all owners. 1: a slice of a search is done, and there is more to look up.
int store_read_list(struct store_db *db, struct store_list *list, struct err *err);
// shared.c: the session that a link opens, by the digest of its token; E_NOTFOUND.
int store_read_shared(struct store_db *db, const char *digest, int64_t *key, struct err *err);
// The turns from a first one to the session's head, ascending: *turns grows to (*n), from NULL.
int store_read_path(struct store_db *db, int64_t key, int64_t **turns, size_t *n, struct err *err);
// told.c
int store_read_told(struct store_db *db, const char *owner, struct store_told *q, struct err *err);
// search.c: the next slice of list->search, all of it unless list->sliced. 1: there is more. The
// sessions that have all words (or any, without a search), and the end.
struct store_search;
int store_search_step(struct store_db *db, struct store_list *list, struct err *err);
// *row: of the index, the turn where the words were found; 0: in the title alone, or nothing was searched.
bool store_search_has(const struct store_search *s, int64_t key, int64_t *row);
// The words in that row, if it is still there. *out is zeroed before.
int store_search_place(struct store_db *db, const char *query, const char *owner, int64_t row,
                       struct stored_place *out, struct err *err);
// words.c: what the owner's terms begin with, NUL-terminated.
#define STORE_TAG_BYTES 16
void store_owner_tag(const void *owner, size_t len, char tag[STORE_TAG_BYTES + 1]);
// What a query's words begin with: they are cut in pairs, or as in rows from before schema 11.
void store_query_tag(const char *owner, bool paired, char tag[STORE_TAG_BYTES + 1]);
void store_search_free(struct store_search *s);
// Numbers of new sessions. The server counts up in memory, below STORE_IMPORT_KEYS; imports, which
// it does not see, draw random ones from there on.
#define STORE_IMPORT_KEYS (INT64_C(1) << 52)
int store_read_next_key(struct store_db *db, int64_t *out, struct err *err);
// secret.c: the database's key, drawn if it has none. If the disk does not take the key, the log says so,
// and the next start draws another one.
int store_read_secret(struct store_db *db, uint64_t out[2], struct err *err);
struct store_start;
int store_read_owners(struct store_db *db, struct store_start *out, struct err *err);
int store_read_import_key(struct store_db *db, int64_t *out, struct err *err);
// A session's number, even where the rest of its record is damaged. E_NOTFOUND. For tools, owner
// NULL: any; E_INVAL names them when several have a session of this id.
int store_read_key(struct store_db *db, const char *owner, const char *id, int64_t *out,
                   struct err *err);
// All sessions that are not closed; a value other than 0 ends it and is returned.
int store_read_live(struct store_db *db, int (*each)(void *ctx, const char *owner, const char *id),
                    void *ctx, struct err *err);
