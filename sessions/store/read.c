// Whole sessions and lists of them. A record that contradicts itself is E_CORRUPT with its id.
#include "base/err.h"
#include "base/random_id.h"
#include "sessions/store/db.h"
#include "sessions/store/row.h"
#include "sessions/store/store.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    sqlite3_stmt *s = store_db_stmt(db, SQL_TOKENS_GET, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, key);
    sqlite3_bind_int64(s, 2, t->rec.turn);
    int rc = 0, step = SQLITE_DONE;
    while (rc == 0 && (step = sqlite3_step(s)) == SQLITE_ROW)
        rc = append_part(s, &t->tokens, (size_t)t->rec.n_alternatives, db->salvage);
    if (rc == 0 && step != SQLITE_DONE && !db->salvage) rc = store_db_error(db, err);
    sqlite3_reset(s);
    return rc > 0 ? 0 : rc;
}

// Appends turns [first, end).
static int read_turns(struct store_db *db, struct stored_session *out, int64_t first, int64_t end,
                      struct err *err) {
    size_t before = out->n_turns;
    sqlite3_stmt *s = store_db_stmt(db, SQL_TURNS_GET, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, out->rec.key);
    sqlite3_bind_int64(s, 2, first);
    sqlite3_bind_int64(s, 3, end);
    int rc = 0, step = SQLITE_DONE;
    while (rc == 0 && (step = sqlite3_step(s)) == SQLITE_ROW) {
        struct stored_turn *grown = realloc(out->turns, (out->n_turns + 1) * sizeof *grown);
        if (!grown) {
            rc = E_NOMEM;
            break;
        }
        out->turns = grown;
        struct stored_turn *t = &grown[out->n_turns++];
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
    if (rc == 0 && step != SQLITE_DONE && !db->salvage) rc = store_db_error(db, err);
    sqlite3_reset(s);
    return rc;
}

// Appends at most n events of the numbers (after, upto].
static int read_events(struct store_db *db, struct stored_session *out, int64_t after, int64_t upto,
                       int64_t n, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_EVENTS_GET, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, out->rec.key);
    sqlite3_bind_int64(s, 2, after);
    sqlite3_bind_int64(s, 3, upto);
    sqlite3_bind_int64(s, 4, n);
    int rc = 0, step = SQLITE_DONE;
    while (rc == 0 && (step = sqlite3_step(s)) == SQLITE_ROW) {
        struct event_record *grown = realloc(out->events, (out->n_events + 1) * sizeof *grown);
        if (!grown) {
            rc = E_NOMEM;
            break;
        }
        out->events = grown;
        struct event_record *e = &grown[out->n_events++];
        *e = (struct event_record){0};
        rc = row_read(s, &record_tables[TABLE_EVENTS], e, false);
        if (rc < 0 && db->salvage) out->n_events--, rc = 0;
    }
    if (rc == 0 && step != SQLITE_DONE && !db->salvage) rc = store_db_error(db, err);
    sqlite3_reset(s);
    return rc;
}

static int read_origins(struct store_db *db, struct stored_session *out, struct err *err) {
    sqlite3_stmt *s = out->rec.forked_from ? store_db_stmt(db, SQL_ORIGINS_GET, err) : NULL;
    if (!s) return out->rec.forked_from ? err->code : 0;
    sqlite3_bind_int64(s, 1, out->rec.key);
    sqlite3_bind_text(s, 2, out->rec.owner, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 3, RECORD_ORIGINS);
    bool failed = false;
    int step = SQLITE_DONE;
    while (!failed && out->n_origins < RECORD_ORIGINS && (step = sqlite3_step(s)) == SQLITE_ROW) {
        char *id = record_strdup((const char *)sqlite3_column_text(s, 0), &failed);
        if (id) out->origins[out->n_origins++] = id;
    }
    int rc = failed                                                      ? E_NOMEM
             : step != SQLITE_DONE && step != SQLITE_ROW && !db->salvage ? store_db_error(db, err)
                                                                         : 0;
    sqlite3_reset(s);
    return rc;
}

static int read_row(struct store_db *db, int64_t key, bool salvage, struct session_record *out,
                    struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_ROW_GET, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, key);
    int step = sqlite3_step(s);
    int rc = step == SQLITE_ROW    ? row_read(s, &record_tables[TABLE_SESSIONS], out, salvage)
             : step == SQLITE_DONE ? err_set(err, E_NOTFOUND, "there is no such session")
                                   : store_db_error(db, err);
    sqlite3_reset(s);
    return rc == E_NOMEM ? err_set(err, rc, "no memory to read a session") : rc;
}

int store_read_row(struct store_db *db, int64_t key, struct session_record *out, struct err *err) {
    return read_row(db, key, db->salvage, out, err);
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
    if (rc == 0) {
        *out = stored;
        return 0;
    }
    stored_session_free(stored);
    if (err->code == 0) err_set(err, rc, "%s: turns of a session cannot be read", db->path);
    return rc;
}

int store_read_part(struct store_db *db, const struct store_part *p, struct stored_session **out,
                    struct err *err) {
    struct stored_session *part = calloc(1, sizeof *part);
    if (!part) return err_set(err, E_NOMEM, "no memory to read a part of a session");
    part->rec.key = p->key;
    err->code = 0;
    int rc = read_turns(db, part, p->turn, p->end, err);
    if (rc == 0 && p->n_events) rc = read_events(db, part, p->after, p->upto, p->n_events, err);
    if (rc == 0) {
        *out = part;
        return 0;
    }
    stored_session_free(part);
    if (err->code == 0) err_set(err, rc, "%s: a part of a session cannot be read", db->path);
    return rc;
}

int store_read_unfinished(struct store_db *db, int64_t key, int64_t *out, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_UNFINISHED_GET, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, key);
    int rc = sqlite3_step(s) == SQLITE_ROW ? 0 : store_db_error(db, err);
    if (rc == 0)
        *out = sqlite3_column_type(s, 0) == SQLITE_NULL ? INT64_MAX : sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    return rc;
}

// --- lists -------------------------------------------------------------------

#define MAX_WORDS 16
// A session has the word where one of its rows in the owner's part of the index has (words.c). Tools
// that list all owners' sessions look in each part.
#define PER_WORD                                                                                   \
    " AND s.key IN (SELECT iif(search.rowid < 0, -search.rowid, (SELECT session FROM turns WHERE " \
    "key = search.rowid)) FROM (%s) o CROSS JOIN "                                                 \
    "search WHERE search MATCH '\"' || "                                                           \
    "owner_tag(o.owner) || ?%d)"
#define TERM 6 // the first one's parameter
#define ONE_OWNER "SELECT ?3 AS owner"
#define ALL_OWNERS "SELECT DISTINCT owner FROM sessions"

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// A word without a letter or digit (any byte above ASCII counts) matches nothing and would empty
// the search.
static bool is_searchable(const char *word, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)word[i];
        if (c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
            return true;
    }
    return false;
}

// Quoted for FTS5, so that no character is an operator; the first quote and the owner's tag stand in
// the statement. The last word is a prefix.
static int add_term(struct buf *out, const char *word, size_t len, bool prefix) {
    for (size_t i = 0; i < len; i++) {
        if (word[i] == '"') buf_addc(out, '"');
        buf_addc(out, word[i]);
    }
    return buf_addz(out, prefix ? "\"*" : "\"");
}

// Splits the query into terms, each NUL-terminated in *out.
static int split_query(const char *query, struct buf *out, int *n_terms, struct err *err) {
    *n_terms = 0;
    for (const char *p = query; *p;) {
        while (is_blank(*p)) p++;
        const char *start = p;
        while (*p && !is_blank(*p)) p++;
        size_t len = (size_t)(p - start);
        if (!is_searchable(start, len)) continue;
        if (++*n_terms > MAX_WORDS)
            return err_set(err, E_INVAL, "query has more than %d words", MAX_WORDS);
        const char *rest = p;
        while (is_blank(*rest)) rest++;
        add_term(out, start, len, *rest == '\0');
        buf_addc(out, '\0');
    }
    return out->error ? err_set(err, out->error, "query is too long") : 0;
}

static int parse_cursor(const char *cursor, int64_t *updated_ms, int64_t *key) {
    char end;
    *updated_ms = *key = INT64_MAX;
    if (!cursor) return 0;
    return sscanf(cursor, "%" SCNd64 "-%" SCNd64 "%c", updated_ms, key, &end) == 2 ? 0 : E_INVAL;
}

static int prepare_list(struct store_db *db, const struct store_list *l, const struct buf *terms,
                        int n_terms, sqlite3_stmt **out, struct err *err) {
    int64_t updated_ms, key;
    if (parse_cursor(l->cursor, &updated_ms, &key) < 0)
        return err_set(err, E_INVAL, "cursor is not one of ours");
    char sql[256 + 512 + MAX_WORDS * (sizeof PER_WORD + sizeof ALL_OWNERS)];
    int n = snprintf(sql, sizeof sql,
                     "SELECT s.key, s.updated_ms FROM sessions s WHERE (s.updated_ms, s.key) < "
                     "(?1, ?2)%s%s",
                     l->owner ? " AND s.owner = ?3" : "",
                     l->forked_from ? " AND s.forked_from = ?4" : "");
    for (int i = 0; i < n_terms; i++)
        n += snprintf(sql + n, sizeof sql - (size_t)n, PER_WORD, l->owner ? ONE_OWNER : ALL_OWNERS,
                      TERM + i);
    snprintf(sql + n, sizeof sql - (size_t)n, " ORDER BY s.updated_ms DESC, s.key DESC LIMIT ?5");
    TRY(store_db_prepare(db, sql, 0, out, err));
    sqlite3_bind_int64(*out, 1, updated_ms);
    sqlite3_bind_int64(*out, 2, key);
    if (l->owner) sqlite3_bind_text(*out, 3, l->owner, -1, SQLITE_STATIC);
    if (l->forked_from) sqlite3_bind_text(*out, 4, l->forked_from, -1, SQLITE_STATIC);
    sqlite3_bind_int64(*out, 5, l->limit + 1); // one more row means another page
    const char *term = buf_z(terms);
    for (int i = 0; i < n_terms; i++, term += strlen(term) + 1)
        sqlite3_bind_text(*out, TERM + i, term, -1, SQLITE_STATIC);
    return 0;
}

// To what follows the first n rows.
static void set_cursor(struct store_list *l, int64_t updated_ms, size_t n) {
    snprintf(l->next, sizeof l->next, "%" PRId64 "-%" PRId64, updated_ms, l->keys[n - 1]);
}

// The keys of the list's rows, and its cursor.
static int find_rows(struct store_db *db, struct store_list *l, sqlite3_stmt *s, struct err *err) {
    int64_t updated_ms = 0;
    int step;
    l->keys = calloc((size_t)l->limit + 1, sizeof *l->keys);
    if (!l->keys)
        return err_set(err, E_NOMEM, "no memory to list %lld sessions", (long long)l->limit);
    while ((step = sqlite3_step(s)) == SQLITE_ROW) {
        if ((int64_t)l->n_keys == l->limit) {
            set_cursor(l, updated_ms, l->n_keys);
            return 0;
        }
        l->keys[l->n_keys++] = sqlite3_column_int64(s, 0);
        updated_ms = sqlite3_column_int64(s, 1);
    }
    return step == SQLITE_DONE ? 0 : store_db_error(db, err);
}

static int find_list(struct store_db *db, struct store_list *l, struct err *err) {
    struct buf terms;
    int n_terms = 0, rc;
    sqlite3_stmt *s = NULL;
    buf_init(&terms, 65536);
    TRY_GOTO(end, split_query(l->query ? l->query : "", &terms, &n_terms, err));
    TRY_GOTO(end, prepare_list(db, l, &terms, n_terms, &s, err));
    rc = find_rows(db, l, s, err);
end:
    sqlite3_finalize(s);
    buf_release(&terms);
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
           (r->sampling ? strlen(r->sampling) : 0);
}

void store_list_clear(struct store_list *l) {
    for (size_t i = 0; i < l->n_rows; i++) session_record_release(&l->rows[i]);
    free(l->rows);
    l->rows = NULL;
    l->n_rows = 0;
}

int store_read_list(struct store_db *db, struct store_list *l, struct err *err) {
    store_list_clear(l);
    bool old = l->before_ms || l->keep;
    if (!l->keys) TRY((old ? find_old : find_list)(db, l, err));
    l->rows = calloc(l->n_keys - l->at + 1, sizeof *l->rows);
    if (!l->rows) return err_set(err, E_NOMEM, "no memory to list sessions");
    for (size_t bytes = 0; l->at < l->n_keys && (!l->max_bytes || bytes < l->max_bytes); l->at++) {
        struct session_record *row = &l->rows[l->n_rows];
        int rc = read_row(db, l->keys[l->at], true, row, err);
        if (rc == E_NOTFOUND) continue; // deleted since
        l->n_rows++;
        if (rc < 0) return rc;
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
    struct stored_owner *grown = realloc(to->owners, (to->n_owners + 1) * sizeof *grown);
    if (!grown) return E_NOMEM;
    to->owners = grown;
    const char *name = (const char *)sqlite3_column_text(s, 0);
    grown += to->n_owners;
    *grown = (struct stored_owner){strdup(name ? name : ""), sqlite3_column_int64(s, 1),
                                   sqlite3_column_int64(s, 2)};
    if (!grown->name) return E_NOMEM;
    to->n_owners++;
    return 0;
}

int store_read_owners(struct store_db *db, struct store_start *out, struct err *err) {
    static const char sql[] = "SELECT owner, count(*), sum(stored_bytes) FROM sessions GROUP BY 1";
    sqlite3_stmt *s;
    int rc = 0, step = SQLITE_DONE;
    if (sqlite3_prepare_v2(db->sql, sql, -1, &s, NULL) != SQLITE_OK) return store_db_error(db, err);
    while (rc == 0 && (step = sqlite3_step(s)) == SQLITE_ROW) rc = add_owner(out, s);
    if (rc == 0 && step != SQLITE_DONE) rc = store_db_error(db, err);
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
    int rc = 0, step = SQLITE_DONE;
    TRY(store_db_prepare(db, "SELECT owner, id FROM sessions WHERE closed_ms = 0", 0, &s, err));
    while (rc == 0 && (step = sqlite3_step(s)) == SQLITE_ROW)
        rc = each(ctx, (const char *)sqlite3_column_text(s, 0),
                  (const char *)sqlite3_column_text(s, 1));
    if (rc == 0 && step != SQLITE_DONE) rc = store_db_error(db, err);
    sqlite3_finalize(s);
    return rc;
}
