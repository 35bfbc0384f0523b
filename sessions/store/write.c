// Rows into the database, within the caller's transaction.
#include "sessions/store/write.h"
#include "base/err.h"
#include "sessions/store/levels.h"
#include "sessions/store/row.h"
#include "sessions/store/tidy.h"
#include <stdlib.h>
#include <string.h>

static const char SQL_TITLE_DROP[] = "DELETE FROM search WHERE rowid = -?1";
static const char SQL_TURN_ADD[] = "INSERT INTO turns ({turns:names}) VALUES ({turns:values})";
static const char SQL_TURN_SET[] =
    "UPDATE turns SET {turns:sets} WHERE session = :session AND turn = :turn";
static const char SQL_WORDS_ADD[] =
    "INSERT INTO search (rowid, words) SELECT t.key, owner_tag(s.owner) || ?3 "
    "FROM turns t JOIN sessions s ON s.key = t.session WHERE t.session = ?1 AND t.turn = ?2";
static const char SQL_WORDS_SET[] =
    "UPDATE search SET words = (SELECT owner_tag(owner) FROM sessions WHERE key = ?1) || ?3 "
    "WHERE rowid = (SELECT key FROM turns WHERE session = ?1 AND turn = ?2)";
// Copies one turn of a path into another session, as turn :turn behind the one before it. No event
// names it there, and it has no request id.
static const char SQL_FORK_TURN[] =
    "INSERT INTO turns ({turns:names}) SELECT {turns:copies} FROM turns WHERE "
    "session = :from AND turn = :from_turn AND finish_reason IS NOT NULL";

static const struct record_table *const sessions = &record_tables[TABLE_SESSIONS];

// The constraint that a client's request can violate.
static bool id_is_taken(struct store_db *db) {
    return sqlite3_extended_errcode(db->sql) == SQLITE_CONSTRAINT_UNIQUE &&
           strstr(sqlite3_errmsg(db->sql), "sessions.owner") != NULL;
}

static int insert_session(struct store_db *db, const struct session_record *r, struct err *err) {
    static const char *const steps[] = {
        "INSERT INTO models (fingerprint, name) VALUES (:fingerprint, :model) ON CONFLICT DO "
        "NOTHING",
        "INSERT INTO sessions ({sessions:names}) VALUES ({sessions:values})"};
    int rc = 0;
    for (int i = 0; rc == 0 && i < 2; i++) {
        sqlite3_stmt *s = store_db_stmt(db, steps[i], err);
        if (!s) return err->code;
        row_bind(s, sessions, r);
        rc = store_db_step_done(db, s, err);
    }
    if (rc < 0 && id_is_taken(db))
        return err_set(err, E_EXISTS, "the session '%s' exists already", r->id);
    return rc;
}

// The table is made with the first client's table of virtual tokens, because few databases need it: while the schema
// fits one page, a file that was cut short can be read up to the cut.
static const char prompts[] =
    "CREATE TABLE IF NOT EXISTS prompts (session INTEGER PRIMARY KEY REFERENCES sessions(key) ON "
    "DELETE CASCADE, data BLOB NOT NULL) STRICT";

static int insert_prompt(struct store_db *db, const struct session_save *save, struct err *err) {
    const struct prompt *p = save->prompt;
    const void *data = p ? p->data : save->rec.prompt_data;
    size_t bytes = p ? prompt_bytes(p) : save->rec.prompt_bytes;
    if (!data) return 0;
    TRY(store_db_exec(db, prompts, err));
    sqlite3_stmt *s =
        store_db_stmt(db, "INSERT INTO prompts (session, data) VALUES (:key, :prompt_data)", err);
    if (!s) return err->code;
    row_bind_int(s, ":key", save->rec.key);
    row_bind_bytes(s, ":prompt_data", data, bytes);
    return store_db_step_done(db, s, err);
}

static const char notes[] =
    "CREATE TABLE IF NOT EXISTS notes (session INTEGER PRIMARY KEY REFERENCES sessions(key) ON "
    "DELETE CASCADE, note BLOB NOT NULL) STRICT";

static int write_note(struct store_db *db, const struct session_record *r, bool insert,
                      struct err *err) {
    if (insert && !r->note) return 0;
    TRY(store_db_exec(db, notes, err));
    sqlite3_stmt *s =
        store_db_stmt(db,
                      r->note ? "INSERT OR REPLACE INTO notes (session, note) VALUES (:key, :note)"
                              : "DELETE FROM notes WHERE session = :key",
                      err);
    if (!s) return err->code;
    row_bind_int(s, ":key", r->key);
    if (r->note) row_bind_bytes(s, ":note", r->note, strlen(r->note));
    return store_db_step_done(db, s, err);
}

static int update_session(struct store_db *db, const struct session_record *r, struct err *err) {
    sqlite3_stmt *s =
        store_db_stmt(db, "UPDATE sessions SET {sessions:sets} WHERE key = :key", err);
    if (!s) return err->code;
    row_bind(s, sessions, r);
    TRY(store_db_step_done(db, s, err));
    if (sqlite3_changes(db->sql) == 1) return 0;
    return err_set(err, E_NOTFOUND, "the session '%s' is no longer in the database", r->id);
}

static int write_title(struct store_db *db, const struct session_record *r, struct err *err) {
    TRY(store_db_run(db, SQL_TITLE_DROP, NUMBERS(r->key), err));
    sqlite3_stmt *s =
        store_db_bind(db, "INSERT INTO search (rowid, words) VALUES (-?1, owner_tag(?2) || ?3)",
                      NUMBERS(r->key), err);
    if (!s) return err->code;
    sqlite3_bind_text(s, 2, r->owner, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 3, r->title, -1, SQLITE_STATIC);
    return store_db_step_done(db, s, err);
}

static int write_turn(struct store_db *db, int64_t key, const struct turn_save *t,
                      struct err *err) {
    if (t->kind == TURN_GROW) return 0;
    bool insert = t->kind == TURN_INSERT;
    sqlite3_stmt *s = store_db_stmt(db, insert ? SQL_TURN_ADD : SQL_TURN_SET, err);
    if (!s) return err->code;
    row_bind(s, &record_tables[TABLE_TURNS], &t->rec);
    row_bind_int(s, ":session", key);
    return store_db_step_done(db, s, err);
}

static int write_words(struct store_db *db, int64_t key, const struct turn_save *t,
                       struct err *err) {
    bool insert = t->kind == TURN_INSERT;
    if (!insert && !t->whole) return 0;
    struct buf words;
    buf_init(&words, (size_t)1 << 30);
    buf_add(&words, t->rec.input_text ? t->rec.input_text : "", t->rec.input_text_len);
    buf_addc(&words, '\n');
    buf_add(&words, t->tokens.text ? t->tokens.text : "", t->tokens.text_len);
    int rc = words.error ? err_set(err, words.error, "no memory to index a turn") : 0;
    sqlite3_stmt *s = NULL;
    if (rc == 0 && !(s = store_db_bind(db, insert ? SQL_WORDS_ADD : SQL_WORDS_SET,
                                       NUMBERS(key, t->rec.turn), err)))
        rc = err->code;
    if (s) {
        sqlite3_bind_text64(s, 3, words.data, words.len, SQLITE_STATIC, SQLITE_UTF8);
        rc = store_db_step_done(db, s, err);
    }
    buf_release(&words);
    return rc;
}

static int write_tokens(struct store_db *db, int64_t key, const struct turn_save *t,
                        struct err *err) {
    const struct token_run *r = &t->tokens;
    if (t->whole && t->kind != TURN_INSERT)
        TRY(store_db_run(db, "DELETE FROM tokens WHERE session = :session AND turn = :turn",
                         NUMBERS(key, t->rec.turn), err));
    if (r->n == 0 && r->text_len == 0) return 0;
    sqlite3_stmt *s =
        store_db_stmt(db, "INSERT INTO tokens ({tokens:names}) VALUES ({tokens:values})", err);
    if (!s) return err->code;
    row_bind(s, &record_tables[TABLE_TOKENS], r);
    row_bind_int(s, ":session", key);
    row_bind_int(s, ":turn", t->rec.turn);
    if (r->alternatives)
        row_bind_bytes(s, ":alternatives", r->alternatives,
                       r->n * (size_t)t->rec.n_alternatives * sizeof *r->alternatives);
    return store_db_step_done(db, s, err);
}

static int write_event(struct store_db *db, int64_t key, const struct event_record *e,
                       struct err *err) {
    sqlite3_stmt *s =
        store_db_stmt(db, "INSERT INTO events ({events:names}) VALUES ({events:values})", err);
    if (!s) return err->code;
    row_bind(s, &record_tables[TABLE_EVENTS], e);
    row_bind_int(s, ":session", key);
    return store_db_step_done(db, s, err);
}

// A fork: copies the rows of a path into the new session.
static int write_fork(struct store_db *db, const struct session_save *save, struct err *err) {
    static const char *const steps[] = {
        SQL_FORK_TURN,
        "INSERT INTO tokens ({tokens:names}) SELECT {tokens:copies} FROM tokens "
        "WHERE session = :from AND turn = :from_turn",
        "INSERT INTO search (rowid, words) SELECT n.key, o.words FROM turns n, "
        "turns t JOIN search o ON o.rowid = t.key WHERE n.session = :session AND n.turn = :turn "
        "AND t.session = :from AND t.turn = :from_turn"};
    for (size_t i = 0; i < save->n_fork_turns; i++) {
        for (int k = 0; k < 3; k++) {
            sqlite3_stmt *s = store_db_stmt(db, steps[k], err);
            if (!s) return err->code;
            row_bind_int(s, ":session", save->rec.key);
            row_bind_int(s, ":turn", (int64_t)i);
            row_bind_int(s, ":from", save->fork_key);
            row_bind_int(s, ":from_turn", save->fork_turns[i]);
            TRY(store_db_step_done(db, s, err));
            if (k == 0 && sqlite3_changes(db->sql) != 1)
                return err_set(err, E_NOTFOUND, "the session '%s' is no longer in the database",
                               save->rec.forked_from);
        }
    }
    return 0;
}

// Turns that leave the record: a row of each number stays.
static int write_erased(struct store_db *db, const struct session_save *save, struct err *err) {
    static const char *const steps[] = {
        "DELETE FROM search WHERE rowid = (SELECT key FROM turns WHERE session = ?1 AND turn = ?2)",
        "DELETE FROM tokens WHERE session = ?1 AND turn = ?2",
        "DELETE FROM turns WHERE session = ?1 AND turn = ?2"};
    int64_t key = save->rec.key;
    for (size_t i = 0; i < save->n_erased; i++) {
        struct turn_save t = {.kind = TURN_INSERT, .whole = true, .rec = save->erased[i]};
        for (int k = 0; k < 3; k++) TRY(store_db_run(db, steps[k], NUMBERS(key, t.rec.turn), err));
        TRY(write_turn(db, key, &t, err));
        TRY(write_words(db, key, &t, err));
    }
    for (size_t i = 0; i < save->n_lost; i++) {
        TRY(store_db_run(db, "DELETE FROM events WHERE session = ?1 AND seq = ?2",
                         NUMBERS(key, save->lost[i].seq), err));
        TRY(write_event(db, key, &save->lost[i], err));
    }
    return save->n_erased ? store_tidy_mark(db, err) : 0;
}

int store_write_save(struct store_db *db, const struct session_save *save, struct err *err) {
    int64_t key = save->rec.key;
    if (save->insert) TRY(insert_session(db, &save->rec, err));
    if (save->insert) TRY(insert_prompt(db, save, err));
    if (save->insert || save->note_changed) TRY(write_note(db, &save->rec, save->insert, err));
    if (!save->insert && save->session_changed) TRY(update_session(db, &save->rec, err));
    if (save->title_changed) TRY(write_title(db, &save->rec, err));
    TRY(write_fork(db, save, err));
    for (size_t i = 0; i < save->n_turns; i++) {
        const struct turn_save *t = &save->turns[i];
        TRY(write_turn(db, key, t, err));
        TRY(write_tokens(db, key, t, err));
        TRY(write_words(db, key, t, err));
    }
    for (size_t i = 0; i < save->n_events; i++) TRY(write_event(db, key, &save->events[i], err));
    return write_erased(db, save, err);
}

int store_write_session(struct store_db *db, const struct stored_session *s, struct err *err) {
    struct session_save save = {
        .insert = true, .title_changed = true, .rec = s->rec, .n_turns = s->n_turns};
    save.rec.stored_bytes = stored_session_bytes(s);
    save.turns = calloc(s->n_turns + 1, sizeof *save.turns);
    if (!save.turns) return err_set(err, E_NOMEM, "no memory to write a session");
    for (size_t i = 0; i < s->n_turns; i++) {
        struct turn_save *t = &save.turns[i];
        *t = (struct turn_save){.kind = TURN_INSERT, .whole = true};
        t->rec = s->turns[i].rec;
        t->tokens = s->turns[i].tokens;
        t->tokens.seq = t->tokens.seq_reserved = s->rec.seq;
    }
    save.events = s->events;
    save.n_events = s->n_events;
    int rc = store_write_save(db, &save, err);
    free(save.turns);
    return rc;
}

static int delete_rows(struct store_db *db, int64_t key, struct err *err) {
    static const char *const steps[] = {
        SQL_TITLE_DROP,
        "DELETE FROM search WHERE rowid IN (SELECT key FROM turns WHERE session = ?1)",
        "DELETE FROM sessions WHERE key = ?1"};
    for (int i = 0; i < 3; i++) TRY(store_db_run(db, steps[i], NUMBERS(key), err));
    return 0;
}

int store_write_delete_rows(struct store_db *db, int64_t key, struct err *err) {
    TRY(delete_rows(db, key, err));
    return store_tidy_mark(db, err);
}

int store_write_delete(struct store_db *db, int64_t key, struct err *err) {
    TRY(delete_rows(db, key, err));
    // Deleted words stay in older segments of the index until these are merged.
    TRY(store_levels_trim(db, err));
    TRY(store_db_run(db, "INSERT INTO search (search) VALUES ('optimize')", NULL, 0, err));
    db->deleted = true;
    return 0;
}

int store_write_probe(struct store_db *db, int64_t now_ms, struct err *err) {
    return store_db_run(db,
                        "INSERT INTO state (name, value) VALUES ('probed_ms', ?1)"
                        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                        NUMBERS(now_ms), err);
}
