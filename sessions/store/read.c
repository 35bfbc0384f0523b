// Whole sessions and lists of them. A record that contradicts itself is E_CORRUPT with its id.
#include "sessions/store/read.h"
#include "base/array.h"
#include "base/err.h"
#include "base/random_id.h"
#include "sessions/store/row.h"
#include "sessions/store/search.h"
#include "sessions/store/store.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char SQL_KEY_GET[] = "SELECT key FROM sessions WHERE id = ?1 AND owner = ?2";
static const char SQL_KEYS_GET[] =
    "SELECT min(key), count(*), group_concat(owner, ', ') FROM sessions WHERE id = "
    "?1";

// Of a part's arrays: bytes of one token.
static size_t bytes_each(const struct column *c, size_t n_alternatives) {
    if (c->type == COLUMN_ALTERNATIVES) return n_alternatives * sizeof(struct engine_alternative);
    return c->type == COLUMN_ARRAY ? 4 : 0;
}

// The columns of {tokens:reads}: all that have a field, in order.
static const struct column *token_column(int i) {
    const struct record_table *t = &record_tables[TABLE_TOKENS];
    for (size_t k = 0; k < t->n; k++)
        if (column_has_field(&t->columns[k]) && i-- == 0) return &t->columns[k];
    return NULL;
}

// How many tokens the arrays of a part have, and whether they agree.
static size_t count_part(sqlite3_stmt *s, size_t n_alt, bool *agree) {
    const struct column *c;
    size_t n = SIZE_MAX;
    *agree = true;
    for (int i = 0; (c = token_column(i)); i++) {
        size_t each = bytes_each(c, n_alt);
        if (each == 0) continue;
        size_t bytes = (size_t)sqlite3_column_bytes(s, i), have = bytes / each;
        if (n == SIZE_MAX) n = have;
        if (have != n || bytes % each) *agree = false;
        if (have < n) n = have;
    }
    return n;
}

// Appends `bytes` of column i behind the `have` of the field.
static int append_column(sqlite3_stmt *s, int i, const struct column *c, struct token_run *r,
                         size_t have, size_t bytes) {
    char *grown = realloc(column_pointer(c, r), have + bytes + 1);
    if (!grown) return E_NOMEM;
    if (bytes) memcpy(grown + have, sqlite3_column_blob(s, i), bytes);
    grown[have + bytes] = '\0';
    column_set_pointer(c, r, grown);
    return 0;
}

static int append_columns(sqlite3_stmt *s, struct token_run *r, size_t n, size_t n_alt) {
    const struct column *c;
    for (int i = 0; (c = token_column(i)); i++) {
        size_t each = bytes_each(c, n_alt);
        if (each && (n || c->type != COLUMN_ALTERNATIVES))
            TRY(append_column(s, i, c, r, r->n * each, n * each));
        if (c->type != COLUMN_BYTES) continue;
        size_t bytes = (size_t)sqlite3_column_bytes(s, i);
        TRY(append_column(s, i, c, r, r->text_len, bytes));
        r->text_len += bytes;
    }
    r->n += n;
    return 0;
}

// 1, when salvaging: what follows cannot be placed.
static int append_part(sqlite3_stmt *s, struct token_run *r, size_t n_alt, bool salvage) {
    struct token_run part = {0};
    bool agree;
    size_t n = count_part(s, n_alt, &agree);
    row_read_numbers(s, &record_tables[TABLE_TOKENS], &part);
    bool next = part.first == (int64_t)r->n;
    if (!salvage && (!agree || !next)) return E_CORRUPT;
    if (!next) return 1;
    if (part.seq_reserved > r->seq_reserved) r->seq_reserved = part.seq_reserved;
    TRY(append_columns(s, r, n, n_alt));
    return agree ? 0 : 1;
}

static int read_tokens(struct store_db *db, int64_t key, struct stored_turn *t, struct err *err) {
    sqlite3_stmt *s = store_db_bind(
        db, "SELECT {tokens:reads} FROM tokens WHERE session = ?1 AND turn = ?2 ORDER BY first",
        NUMBERS(key, t->rec.turn), err);
    if (!s) return err->code;
    int rc = 0;
    while (store_db_row(db, s, &rc, err))
        rc = append_part(s, &t->tokens, (size_t)t->rec.n_alternatives, db->salvage);
    return rc > 0 ? 0 : rc;
}

// Appends turns [first, end).
static int read_turns(struct store_db *db, struct stored_session *out, int64_t first, int64_t end,
                      struct err *err) {
    size_t before = out->n_turns;
    sqlite3_stmt *s =
        store_db_bind(db,
                      "SELECT {turns:reads} FROM turns WHERE session = ?1 AND turn >= ?2 AND turn "
                      "< ?3 ORDER BY turn",
                      NUMBERS(out->rec.key, first, end), err);
    if (!s) return err->code;
    int rc = 0;
    while (store_db_row(db, s, &rc, err)) {
        if ((rc = ARRAY_RESIZE(out->turns, out->n_turns + 1)) < 0) continue;
        struct stored_turn *t = &out->turns[out->n_turns++];
        *t = (struct stored_turn){0};
        rc = row_read(s, &record_tables[TABLE_TURNS], &t->rec, db->salvage);
        if (rc == 0 && !db->salvage && t->rec.turn != first + (int64_t)(out->n_turns - before) - 1)
            rc = E_CORRUPT;
        if (rc == 0) rc = read_tokens(db, out->rec.key, t, err);
        // A running turn's tokens are newer than its row.
        if (rc == 0 && !t->rec.finish_reason[0]) {
            t->rec.n_output = (int64_t)t->tokens.n;
            if (t->tokens.seq_reserved > out->rec.seq_reserved)
                out->rec.seq_reserved = t->tokens.seq_reserved;
        }
    }
    return rc;
}

// Appends at most n events of the numbers (after, upto].
static int read_events(struct store_db *db, struct stored_session *out, int64_t after, int64_t upto,
                       int64_t n, struct err *err) {
    sqlite3_stmt *s =
        store_db_bind(db,
                      "SELECT {events:reads} FROM events WHERE session = ?1 AND seq > ?2 AND seq "
                      "<= ?3 ORDER BY seq LIMIT ?4",
                      NUMBERS(out->rec.key, after, upto, n), err);
    if (!s) return err->code;
    int rc = 0;
    while (store_db_row(db, s, &rc, err)) {
        if ((rc = ARRAY_RESIZE(out->events, out->n_events + 1)) < 0) continue;
        struct event_record *e = &out->events[out->n_events++];
        *e = (struct event_record){0};
        rc = row_read(s, &record_tables[TABLE_EVENTS], e, false);
        if (rc < 0 && db->salvage) out->n_events--, rc = 0;
    }
    return rc;
}

static int read_origins(struct store_db *db, struct stored_session *out, struct err *err) {
    if (!out->rec.forked_from) return 0;
    // Ids are given again once a session is gone, so that the way may go round.
    sqlite3_stmt *s = store_db_stmt(
        db,
        "WITH RECURSIVE up (id, n) AS (SELECT forked_from, 1 FROM sessions WHERE key = ?1 UNION ALL"
        " SELECT s.forked_from, n + 1 FROM up JOIN sessions s ON s.id = up.id AND s.owner = ?2 AND"
        " n < ?3) SELECT id FROM up WHERE id IS NOT NULL ORDER BY n",
        err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, out->rec.key);
    sqlite3_bind_text(s, 2, out->rec.owner, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 3, RECORD_ORIGINS); // at most so many rows
    bool failed = false;
    int rc = 0;
    while (store_db_row(db, s, &rc, err)) {
        char *id = record_strdup((const char *)sqlite3_column_text(s, 0), &failed);
        if (id) out->origins[out->n_origins++] = id;
        if (failed) rc = E_NOMEM;
    }
    return rc;
}

static int read_row(struct store_db *db, int64_t key, bool salvage, struct session_record *out,
                    struct err *err) {
    sqlite3_stmt *s = store_db_bind(
        db,
        "SELECT {sessions:reads} FROM sessions s JOIN models m ON m.key = s.model WHERE s.key = ?1",
        NUMBERS(key), err);
    if (!s) return err->code;
    int step = sqlite3_step(s);
    int rc = step == SQLITE_ROW    ? row_read(s, &record_tables[TABLE_SESSIONS], out, salvage)
             : step == SQLITE_DONE ? err_set(err, E_NOTFOUND, "there is no such session")
                                   : store_db_error(db, err);
    sqlite3_reset(s);
    return rc == E_NOMEM ? err_set(err, rc, "no memory to read a session") : rc;
}

// Of a table without a task.
static int read_prompt(struct store_db *db, int64_t key, struct session_record *out,
                       struct err *err) {
    bool failed = false;
    int rc = 0;
    if (!out->prompt_hash || out->prompt_task) return 0;
    sqlite3_stmt *s =
        store_db_bind(db, "SELECT data FROM prompts WHERE session = ?1", NUMBERS(key), err);
    if (!s) return err->code;
    while (store_db_row(db, s, &rc, err)) {
        out->prompt_bytes = (size_t)sqlite3_column_bytes(s, 0);
        out->prompt_data = record_memdup(sqlite3_column_blob(s, 0), out->prompt_bytes, &failed);
        if (failed) rc = err_set(err, E_NOMEM, "no memory to read a session");
    }
    return rc;
}

// The table is made with its first row.
static int read_note(struct store_db *db, int64_t key, struct session_record *out,
                     struct err *err) {
    int64_t n_tables = 0;
    int rc = 0;
    TRY(store_db_int(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'notes'", &n_tables,
                     err));
    if (n_tables == 0) return 0;
    sqlite3_stmt *s =
        store_db_bind(db, "SELECT note FROM notes WHERE session = ?1", NUMBERS(key), err);
    if (!s) return err->code;
    while (store_db_row(db, s, &rc, err)) {
        const char *text = sqlite3_column_blob(s, 0);
        free(out->note);
        out->note = strndup(text ? text : "", (size_t)sqlite3_column_bytes(s, 0));
        if (!out->note) rc = err_set(err, E_NOMEM, "no memory to read a session");
    }
    return rc;
}

// Turns of a damaged session can be read; a new turn is refused.
static int make_prompt(struct stored_session *stored, struct err *err) {
    struct err why = {0};
    if (!stored->rec.prompt_data) return 0;
    int rc = record_prompt_make(&stored->rec, &stored->prompt, &why);
    return rc == E_NOMEM ? err_set(err, rc, "no memory to read a session") : 0;
}

int store_read_row(struct store_db *db, int64_t key, struct session_record *out, struct err *err) {
    TRY(read_row(db, key, db->salvage, out, err));
    TRY(read_note(db, key, out, err));
    return read_prompt(db, key, out, err);
}

int store_read_session(struct store_db *db, int64_t key, struct stored_session **out,
                       struct err *err) {
    struct err local = {0};
    if (!err) err = &local; // the helpers return codes through it
    struct stored_session *stored = calloc(1, sizeof *stored);
    if (!stored) return err_set(err, E_NOMEM, "no memory to read a session");
    err->code = 0;
    // One transaction for all queries: a reader beside a server must not see a turn without its
    // tokens.
    bool own = sqlite3_get_autocommit(db->sql);
    int rc;
    if (own) TRY_GOTO(fail, store_db_exec(db, "BEGIN", err));
    TRY_GOTO(end, store_read_row(db, key, &stored->rec, err));
    TRY_GOTO(end, make_prompt(stored, err));
    TRY_GOTO(end, read_origins(db, stored, err));
    TRY_GOTO(end, read_turns(db, stored, 0, INT64_MAX, err));
    TRY_GOTO(end, read_events(db, stored, INT64_MIN, INT64_MAX, -1, err));
end:
    if (own) store_db_exec(db, "COMMIT", NULL);
    if (rc == 0) {
        *out = stored;
        return 0;
    }
fail:
    if (err->code == 0 && rc == E_NOMEM) err_set(err, rc, "no memory to read a session");
    if (err->code == 0)
        err_set(err, rc, "%s: the record of session '%s' contradicts itself", db->path,
                stored->rec.id ? stored->rec.id : "");
    stored_session_free(stored);
    return rc;
}

// Takes what was read, or frees it.
static int give(struct store_db *db, struct stored_session *part, int rc,
                struct stored_session **out, struct err *err) {
    *out = rc == 0 ? part : NULL;
    if (rc < 0) stored_session_free(part);
    if (rc < 0 && err->code == 0)
        err_set(err, rc, "%s: a part of a session cannot be read", db->path);
    return rc;
}

int store_read_turns(struct store_db *db, int64_t key, const int64_t *turns, size_t n,
                     struct stored_session **out, struct err *err) {
    struct stored_session *stored = calloc(1, sizeof *stored);
    if (!stored) return err_set(err, E_NOMEM, "no memory to read turns");
    stored->rec.key = key;
    err->code = 0;
    int rc = 0;
    for (size_t i = 0, end; rc == 0 && i < n; i = end) { // by runs of neighbours
        for (end = i + 1; end < n && turns[end] == turns[end - 1] + 1;) end++;
        rc = read_turns(db, stored, turns[i], turns[end - 1] + 1, err);
    }
    return give(db, stored, rc, out, err);
}

int store_read_part(struct store_db *db, const struct store_part *p, struct stored_session **out,
                    struct err *err) {
    struct stored_session *part = calloc(1, sizeof *part);
    if (!part) return err_set(err, E_NOMEM, "no memory to read a part of a session");
    part->rec.key = p->key;
    err->code = 0;
    int rc = read_turns(db, part, p->turn, p->end, err);
    if (rc == 0 && p->n_events) rc = read_events(db, part, p->after, p->upto, p->n_events, err);
    return give(db, part, rc, out, err);
}

int store_read_unfinished(struct store_db *db, int64_t key, int64_t *out, struct err *err) {
    sqlite3_stmt *s = store_db_bind(
        db, "SELECT min(turn) FROM turns WHERE session = ?1 AND finish_reason IS NULL",
        NUMBERS(key), err);
    if (!s) return err->code;
    int rc = sqlite3_step(s) == SQLITE_ROW ? 0 : store_db_error(db, err);
    if (rc == 0)
        *out = sqlite3_column_type(s, 0) == SQLITE_NULL ? INT64_MAX : sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    return rc;
}

// --- lists -------------------------------------------------------------------

static int parse_cursor(const char *cursor, int64_t *updated_ms, int64_t *key) {
    char end;
    *updated_ms = *key = INT64_MAX;
    if (!cursor) return 0;
    return sscanf(cursor, "%" SCNd64 "-%" SCNd64 "%c", updated_ms, key, &end) == 2 ? 0 : E_INVAL;
}

static int prepare_list(struct store_db *db, const struct store_list *l, sqlite3_stmt **out,
                        struct err *err) {
    int64_t updated_ms, key;
    char sql[448], pinned[48] = "", archived[48] = "";
    static const char *const in_folder[] = {
        [FLAG_ANY] = "", [FLAG_OFF] = " AND s.folder IS NULL", [FLAG_ON] = " AND s.folder NOTNULL"};
    if (parse_cursor(l->cursor, &updated_ms, &key) < 0)
        return err_set(err, E_INVAL, "cursor is not one of ours");
    if (l->pinned)
        snprintf(pinned, sizeof pinned, " AND coalesce(s.pinned, 0) = %d", l->pinned == FLAG_ON);
    if (l->archived)
        snprintf(archived, sizeof archived, " AND coalesce(s.archived, 0) = %d",
                 l->archived == FLAG_ON);
    snprintf(sql, sizeof sql,
             "SELECT s.key, s.updated_ms FROM sessions s WHERE (s.updated_ms, s.key) < (?1, "
             "?2)%s%s%s%s%s"
             " ORDER BY s.updated_ms DESC, s.key DESC",
             l->owner ? " AND s.owner = ?3" : "", l->forked_from ? " AND s.forked_from = ?4" : "",
             pinned, archived, in_folder[l->in_folder]);
    TRY(store_db_prepare(db, sql, 0, out, err));
    sqlite3_bind_int64(*out, 1, updated_ms);
    sqlite3_bind_int64(*out, 2, key);
    if (l->owner) sqlite3_bind_text(*out, 3, l->owner, -1, SQLITE_STATIC);
    if (l->forked_from) sqlite3_bind_text(*out, 4, l->forked_from, -1, SQLITE_STATIC);
    return 0;
}

// Moves the cursor after the first n rows.
static void set_cursor(struct store_list *l, int64_t updated_ms, size_t n) {
    snprintf(l->next, sizeof l->next, "%" PRId64 "-%" PRId64, updated_ms, l->keys[n - 1]);
}

// The keys of the list's rows, and its cursor: one row more means another page.
static int find_rows(struct store_db *db, struct store_list *l, sqlite3_stmt *s, struct err *err) {
    int64_t updated_ms = 0;
    int rc = 0;
    l->keys = calloc((size_t)l->limit + 1, sizeof *l->keys);
    if (l->query) l->hits = calloc((size_t)l->limit + 1, sizeof *l->hits);
    if (!l->keys || (l->query && !l->hits))
        return err_set(err, E_NOMEM, "no memory to list %lld sessions", (long long)l->limit);
    while (store_db_row(db, s, &rc, err)) {
        int64_t key = sqlite3_column_int64(s, 0), row;
        if (!store_search_has(l->search, key, &row)) continue;
        if ((int64_t)l->n_keys == l->limit) {
            set_cursor(l, updated_ms, l->n_keys);
            break;
        }
        if (l->hits) l->hits[l->n_keys] = row;
        l->keys[l->n_keys++] = key;
        updated_ms = sqlite3_column_int64(s, 1);
    }
    return rc;
}

// 1: the words have not been looked up yet.
static int find_list(struct store_db *db, struct store_list *l, struct err *err) {
    sqlite3_stmt *s = NULL;
    int rc = l->query ? store_search_step(db, l, err) : 0;
    if (rc != 0) return rc;
    rc = prepare_list(db, l, &s, err);
    if (rc == 0) rc = find_rows(db, l, s, err);
    sqlite3_finalize(s);
    store_search_free(l->search);
    l->search = NULL;
    return rc;
}

// Of all owners, the oldest first.
static int find_old(struct store_db *db, struct store_list *l, struct err *err) {
    int64_t updated_ms, key;
    sqlite3_stmt *s;
    TRY(parse_cursor(l->cursor ? l->cursor : "0-0", &updated_ms, &key));
    TRY(store_db_prepare(db,
                         "SELECT key, updated_ms FROM (SELECT key, updated_ms, row_number() OVER "
                         "(PARTITION BY owner ORDER BY updated_ms DESC, key DESC) AS place FROM "
                         "sessions) WHERE (updated_ms < ?1 OR (?2 > 0 AND place > ?2)) AND "
                         "(updated_ms, key) > (?3, ?4) ORDER BY updated_ms, key LIMIT ?5",
                         0, &s, err));
    const int64_t values[] = {l->before_ms, l->keep, updated_ms, key, l->limit + 1};
    for (int i = 0; i < 5; i++) sqlite3_bind_int64(s, i + 1, values[i]);
    int rc = find_rows(db, l, s, err);
    sqlite3_finalize(s);
    return rc;
}

static size_t text_bytes(const struct session_record *r) {
    return sizeof *r + (r->system ? strlen(r->system) : 0) + (r->title ? strlen(r->title) : 0) +
           (r->folder ? strlen(r->folder) : 0) + (r->sampling ? strlen(r->sampling) : 0);
}

void store_list_clear(struct store_list *l) {
    for (size_t i = 0; i < l->n_rows; i++) session_record_release(&l->rows[i]);
    for (size_t i = 0; l->places && i < l->n_rows; i++) free(l->places[i].text);
    free(l->rows);
    free(l->places);
    l->rows = NULL;
    l->places = NULL;
    l->n_rows = 0;
}

void store_list_release(struct store_list *l) {
    store_list_clear(l);
    store_search_free(l->search);
    free(l->keys);
    free(l->hits);
    l->search = NULL;
    l->keys = l->hits = NULL;
    l->n_keys = l->at = 0;
}

int store_read_list(struct store_db *db, struct store_list *l, struct err *err) {
    bool old = l->before_ms || l->keep;
    int rc = 0;
    store_list_clear(l);
    if (!l->keys) rc = (old ? find_old : find_list)(db, l, err);
    if (rc != 0) return rc;
    l->rows = calloc(l->n_keys - l->at + 1, sizeof *l->rows);
    if (l->hits) l->places = calloc(l->n_keys - l->at + 1, sizeof *l->places);
    if (!l->rows || (l->hits && !l->places))
        return err_set(err, E_NOMEM, "no memory to list sessions");
    for (size_t bytes = 0; l->at < l->n_keys && (!l->max_bytes || bytes < l->max_bytes); l->at++) {
        struct session_record *row = &l->rows[l->n_rows];
        rc = read_row(db, l->keys[l->at], true, row, err);
        if (rc == E_NOTFOUND) continue; // deleted since
        struct stored_place *place = l->places ? &l->places[l->n_rows] : NULL;
        l->n_rows++;
        if (rc < 0) return rc;
        if (place && l->hits[l->at])
            TRY(store_search_place(db, l->query, row->owner, l->hits[l->at], place, err));
        l->updated_ms = row->updated_ms;
        bytes += text_bytes(row);
    }
    return 0;
}

void store_list_cut(struct store_list *l) {
    set_cursor(l, l->updated_ms, l->at);
}

int store_read_next_key(struct store_db *db, int64_t *out, struct err *err) {
    char sql[112];
    snprintf(sql, sizeof sql, "SELECT coalesce(max(key), 0) + 1 FROM sessions WHERE key < %" PRId64,
             STORE_IMPORT_KEYS);
    return store_db_int(db, sql, out, err);
}

static int add_owner(struct store_start *to, sqlite3_stmt *s) {
    TRY(ARRAY_RESIZE(to->owners, to->n_owners + 1));
    const char *name = (const char *)sqlite3_column_text(s, 0);
    struct stored_owner *o = &to->owners[to->n_owners];
    *o = (struct stored_owner){strdup(name ? name : ""), sqlite3_column_int64(s, 1),
                               sqlite3_column_int64(s, 2)};
    if (!o->name) return E_NOMEM;
    to->n_owners++;
    return 0;
}

int store_read_owners(struct store_db *db, struct store_start *out, struct err *err) {
    static const char sql[] = "SELECT owner, count(*), sum(stored_bytes) FROM sessions GROUP BY 1";
    sqlite3_stmt *s;
    int rc = 0;
    TRY(store_db_prepare(db, sql, 0, &s, err));
    while (store_db_row(db, s, &rc, err)) rc = add_owner(out, s);
    sqlite3_finalize(s);
    return rc == E_NOMEM ? err_set(err, rc, "no memory for the owners of %s", db->path) : rc;
}

int store_read_import_key(struct store_db *db, int64_t *out, struct err *err) {
    char sql[64];
    int64_t taken;
    do {
        *out = STORE_IMPORT_KEYS + (int64_t)(random_u64() % (uint64_t)STORE_IMPORT_KEYS);
        snprintf(sql, sizeof sql, "SELECT count(*) FROM sessions WHERE key = %" PRId64, *out);
        TRY(store_db_int(db, sql, &taken, err));
    } while (taken);
    return 0;
}

int store_read_key(struct store_db *db, const char *owner, const char *id, int64_t *out,
                   struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, owner ? SQL_KEY_GET : SQL_KEYS_GET, err);
    if (!s) return err->code;
    sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
    if (owner) sqlite3_bind_text(s, 2, owner, -1, SQLITE_STATIC);
    int step = sqlite3_step(s), rc = 0;
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        rc = store_db_error(db, err);
    else if (step == SQLITE_DONE || sqlite3_column_type(s, 0) == SQLITE_NULL)
        rc = err_set(err, E_NOTFOUND, "there is no session '%s'", id);
    else if (!owner && sqlite3_column_int(s, 1) > 1)
        rc =
            err_set(err, E_INVAL, "%d owners have a session '%s': %.200s; --owner NAME selects one",
                    sqlite3_column_int(s, 1), id, sqlite3_column_text(s, 2));
    else
        *out = sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    return rc;
}

int store_read_live(struct store_db *db, int (*each)(void *ctx, const char *owner, const char *id),
                    void *ctx, struct err *err) {
    sqlite3_stmt *s;
    int rc = 0;
    TRY(store_db_prepare(db, "SELECT owner, id FROM sessions WHERE closed_ms = 0", 0, &s, err));
    while (store_db_row(db, s, &rc, err))
        rc = each(ctx, (const char *)sqlite3_column_text(s, 0),
                  (const char *)sqlite3_column_text(s, 1));
    sqlite3_finalize(s);
    return rc;
}
