// The database's schema, its migrations, and every fixed statement. user_version counts the
// migrations applied; a file with more of them than this program knows is refused.
#include "base/err.h"
#include "sessions/store/db.h"
#include <stdio.h>

// Numbers stored as text or blobs: seeds are the 64 bits as a signed integer; ids int32,
// log-probabilities the bits of binary32, text ends uint32, alternatives (int32 id, binary32
// logprob) pairs, all little-endian.
static const char *const migrations[] = {
    // 1
    "CREATE TABLE models ("
    "  key INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, name TEXT NOT NULL) STRICT;"
    "CREATE TABLE sessions ("
    "  key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
    "  model INTEGER NOT NULL REFERENCES models(key),"
    "  title TEXT NOT NULL, auto_title INTEGER NOT NULL, system TEXT, sampling TEXT NOT NULL,"
    "  session_len INTEGER NOT NULL, memory_len INTEGER NOT NULL, sink_len INTEGER NOT NULL,"
    "  created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, closed_ms INTEGER NOT NULL,"
    "  n_turns INTEGER NOT NULL, n_tokens INTEGER NOT NULL,"
    "  seq INTEGER NOT NULL, seq_reserved INTEGER NOT NULL) STRICT;"
    "CREATE INDEX sessions_newest ON sessions(owner, updated_ms DESC, key DESC);"
    "CREATE TABLE turns ("
    "  key INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions(key) ON DELETE "
    "CASCADE,"
    "  turn INTEGER NOT NULL, request_id TEXT NOT NULL, request TEXT NOT NULL,"
    "  input_kind TEXT NOT NULL, input_text BLOB, input_ids BLOB NOT NULL,"
    "  log_first INTEGER NOT NULL, n_input INTEGER NOT NULL, n_output INTEGER NOT NULL,"
    "  sampling TEXT NOT NULL, seed INTEGER NOT NULL, logprobs INTEGER NOT NULL, n_alternatives "
    "INTEGER NOT NULL,"
    "  finish_reason TEXT, error_code TEXT, error_message TEXT,"
    "  log_tokens INTEGER NOT NULL, kept_tokens INTEGER NOT NULL, computed_tokens INTEGER NOT NULL,"
    "  queue_us INTEGER NOT NULL, prefill_us INTEGER NOT NULL, first_token_us INTEGER NOT NULL,"
    "  decode_us INTEGER NOT NULL, cache_source TEXT NOT NULL, instance TEXT NOT NULL, build TEXT "
    "NOT NULL,"
    "  seq_first INTEGER NOT NULL, seq_last INTEGER NOT NULL,"
    "  created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
    "  UNIQUE (session, turn)) STRICT;"
    "CREATE INDEX turns_unfinished ON turns(session, turn) WHERE finish_reason IS NULL;"
    "CREATE TABLE tokens (" // a running turn's come in parts; its end makes one row of them
    "  session INTEGER NOT NULL REFERENCES sessions(key) ON DELETE CASCADE, turn INTEGER NOT NULL,"
    "  first INTEGER NOT NULL, ids BLOB NOT NULL, logprobs BLOB NOT NULL, text_ends BLOB NOT NULL,"
    "  alternatives BLOB, text BLOB NOT NULL, seq INTEGER NOT NULL, seq_reserved INTEGER NOT NULL,"
    "  PRIMARY KEY (session, turn, first)) STRICT;"
    "CREATE TABLE events ("
    "  session INTEGER NOT NULL REFERENCES sessions(key) ON DELETE CASCADE, seq INTEGER NOT NULL,"
    "  n INTEGER NOT NULL, kind TEXT NOT NULL, turn INTEGER NOT NULL, reason TEXT NOT NULL,"
    "  at_ms INTEGER NOT NULL, PRIMARY KEY (session, seq)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    // A title's row is minus its session's key, a turn's is the turn's key.
    "CREATE VIRTUAL TABLE search USING fts5(words, session UNINDEXED, tokenize = 'unicode61 "
    "remove_diacritics 2');",
    // 2: a tree of turns. A null parent, as every turn from before has, is the turn before it: no
    // row of words is rewritten, so this takes no time in a large file.
    "ALTER TABLE turns ADD COLUMN parent INTEGER;"
    "ALTER TABLE sessions ADD COLUMN head INTEGER NOT NULL DEFAULT -1;"
    "ALTER TABLE sessions ADD COLUMN forked_from TEXT;"
    "ALTER TABLE sessions ADD COLUMN forked_turn INTEGER NOT NULL DEFAULT -1;"
    "UPDATE sessions SET head = n_turns - 1;",
    // 3: what becomes of a turn whose last client is lost.
    "ALTER TABLE sessions ADD COLUMN cancel_after_ms INTEGER NOT NULL DEFAULT 0;",
    // 4: what it took to have an earlier turn's cache again. Turns from before have told it, but 0
    // is all that is known of them.
    "ALTER TABLE turns ADD COLUMN resume_us INTEGER NOT NULL DEFAULT 0;",
};
#define N_MIGRATIONS ((int)(sizeof migrations / sizeof *migrations))

int store_schema_version(void) {
    return N_MIGRATIONS;
}

// A file without a single table is a new one, whoever made it; anything else must carry our mark.
int store_schema_check(struct store_db *db, struct err *err) {
    int64_t id = 0, version = 0, n_objects = 0;
    TRY(store_db_int(db, "PRAGMA application_id", &id, err));
    TRY(store_db_int(db, "PRAGMA user_version", &version, err));
    TRY(store_db_int(db, "SELECT count(*) FROM sqlite_schema", &n_objects, err));
    if (n_objects > 0 && id != STORE_APPLICATION_ID)
        return err_set(err, E_FORMAT, "%s: this SQLite database belongs to another program",
                       db->path);
    if (version > N_MIGRATIONS)
        return err_set(err, E_UNSUPPORTED,
                       "%s: written by a newer Parley (schema %lld, this program knows %d)",
                       db->path, (long long)version, N_MIGRATIONS);
    return 0;
}

static int apply(struct store_db *db, int number, struct err *err) {
    char pragma[96];
    snprintf(pragma, sizeof pragma, "PRAGMA user_version = %d; PRAGMA application_id = %d", number,
             STORE_APPLICATION_ID);
    int rc;
    TRY_GOTO(undo, store_db_exec(db, "BEGIN IMMEDIATE", err));
    TRY_GOTO(undo, store_db_exec(db, migrations[number - 1], err));
    TRY_GOTO(undo, store_db_exec(db, pragma, err));
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
    for (int i = (int)version + 1; i <= N_MIGRATIONS; i++) TRY(apply(db, i, err));
    return 0;
}
