// What the store reads: whole sessions and lists of them. What does not fit together is E_CORRUPT
// with the session's name.
#include "base/err.h"
#include "base/random_id.h"
#include "sessions/store/db.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *column_text(sqlite3_stmt *s, int i, bool *failed) {
    const char *text = (const char *)sqlite3_column_text(s, i);
    if (!text && sqlite3_column_type(s, i) != SQLITE_NULL) *failed = true;
    return record_strdup(text, failed);
}

// Never NULL unless *failed, except that a null stays NULL.
static void *column_bytes(sqlite3_stmt *s, int i, size_t *len, bool *failed) {
    *len = 0;
    if (sqlite3_column_type(s, i) == SQLITE_NULL) return NULL;
    const void *p = sqlite3_column_blob(s, i);
    *len = (size_t)sqlite3_column_bytes(s, i);
    return record_memdup(*len ? p : "", *len, failed);
}

static void column_short(sqlite3_stmt *s, int i, char *out, size_t cap) {
    const char *text = (const char *)sqlite3_column_text(s, i);
    snprintf(out, cap, "%s", text ? text : "");
}

static int read_session_row(sqlite3_stmt *s, struct session_record *r) {
    bool failed = false;
    r->key = sqlite3_column_int64(s, 0);
    r->id = column_text(s, 1, &failed);
    r->owner = column_text(s, 2, &failed);
    r->model = column_text(s, 3, &failed);
    r->fingerprint = column_text(s, 4, &failed);
    r->title = column_text(s, 5, &failed);
    r->auto_title = sqlite3_column_int(s, 6);
    r->system = column_text(s, 7, &failed);
    r->sampling = column_text(s, 8, &failed);
    r->session_len = sqlite3_column_int64(s, 9);
    r->memory_len = sqlite3_column_int(s, 10);
    r->sink_len = sqlite3_column_int(s, 11);
    r->created_ms = sqlite3_column_int64(s, 12);
    r->updated_ms = sqlite3_column_int64(s, 13);
    r->closed_ms = sqlite3_column_int64(s, 14);
    r->n_turns = sqlite3_column_int64(s, 15);
    r->n_tokens = sqlite3_column_int64(s, 16);
    r->seq = sqlite3_column_int64(s, 17);
    r->seq_reserved = sqlite3_column_int64(s, 18);
    r->head = sqlite3_column_int64(s, 19);
    r->forked_from = column_text(s, 20, &failed);
    r->forked_turn = sqlite3_column_int64(s, 21);
    r->cancel_after_ms = sqlite3_column_int64(s, 22);
    return failed ? E_NOMEM : 0;
}

static int read_turn_row(sqlite3_stmt *s, struct turn_record *r, bool salvage) {
    bool failed = false;
    size_t n_bytes;
    r->turn = sqlite3_column_int64(s, 0);
    r->request_id = column_text(s, 1, &failed);
    r->request = column_text(s, 2, &failed);
    int rc = turn_input_kind_parse((const char *)sqlite3_column_text(s, 3), &r->kind);
    if (rc < 0 && !salvage) return rc;
    r->input_text = column_bytes(s, 4, &r->input_text_len, &failed);
    r->input_ids = column_bytes(s, 5, &n_bytes, &failed);
    r->n_input_ids = n_bytes / sizeof(int32_t);
    r->log_first = sqlite3_column_int64(s, 6);
    r->n_input = sqlite3_column_int64(s, 7);
    r->n_output = sqlite3_column_int64(s, 8);
    r->sampling = column_text(s, 9, &failed);
    r->seed = (uint64_t)sqlite3_column_int64(s, 10);
    r->logprobs = sqlite3_column_int(s, 11);
    r->n_alternatives = sqlite3_column_int(s, 12);
    column_short(s, 13, r->finish_reason, sizeof r->finish_reason);
    column_short(s, 14, r->error_code, sizeof r->error_code);
    r->error_message = column_text(s, 15, &failed);
    struct turn_numbers *n = &r->numbers;
    n->log_tokens = sqlite3_column_int64(s, 16);
    n->kept_tokens = sqlite3_column_int64(s, 17);
    n->computed_tokens = sqlite3_column_int64(s, 18);
    n->queue_us = sqlite3_column_int64(s, 19);
    n->prefill_us = sqlite3_column_int64(s, 20);
    n->first_token_us = sqlite3_column_int64(s, 21);
    n->decode_us = sqlite3_column_int64(s, 22);
    rc = record_cache_source_parse((const char *)sqlite3_column_text(s, 23), &n->source);
    if (rc < 0 && !salvage) return rc;
    r->instance = column_text(s, 24, &failed);
    r->build = column_text(s, 25, &failed);
    r->seq_first = sqlite3_column_int64(s, 26);
    r->seq_last = sqlite3_column_int64(s, 27);
    r->created_ms = sqlite3_column_int64(s, 28);
    r->started_ms = sqlite3_column_int64(s, 29);
    r->ended_ms = sqlite3_column_int64(s, 30);
    r->parent = sqlite3_column_int64(s, 31);
    n->resume_us = sqlite3_column_int64(s, 32);
    if (failed) return E_NOMEM;
    if (salvage && (r->n_alternatives < 0 || r->n_alternatives > SAMPLING_MAX_TOP_LOGPROBS))
        r->n_alternatives = 0;
    if (salvage) return 0;
    return n_bytes % sizeof(int32_t) == 0 && r->n_alternatives >= 0 ? 0 : E_CORRUPT;
}

// Appends a column's bytes behind what *array holds.
static int append_column(sqlite3_stmt *s, int i, void *array, size_t have_bytes,
                         size_t want_bytes) {
    char **p = array;
    char *grown = realloc(*p, have_bytes + want_bytes + 1);
    if (!grown) return E_NOMEM;
    if (want_bytes) memcpy(grown + have_bytes, sqlite3_column_blob(s, i), want_bytes);
    grown[have_bytes + want_bytes] = '\0';
    *p = grown;
    return 0;
}

// How many tokens the arrays of a part have, and whether they agree.
static size_t count_part(sqlite3_stmt *s, size_t n_alt, bool *agree) {
    const size_t each[] = {sizeof(int32_t), sizeof(float), sizeof(uint32_t),
                           n_alt * sizeof(struct engine_alternative)};
    size_t n = SIZE_MAX;
    *agree = true;
    for (int i = 0; i < 4; i++) {
        if (each[i] == 0) continue;
        size_t bytes = (size_t)sqlite3_column_bytes(s, i + 1), have = bytes / each[i];
        if (n == SIZE_MAX) n = have;
        if (have != n || bytes % each[i]) *agree = false;
        if (have < n) n = have;
    }
    return n;
}

// 1, when salvaging: nothing behind it can be told to belong there.
static int append_part(sqlite3_stmt *s, struct token_run *r, size_t n_alt, bool salvage) {
    bool agree;
    size_t n = count_part(s, n_alt, &agree);
    size_t text_len = (size_t)sqlite3_column_bytes(s, 5);
    bool next = sqlite3_column_int64(s, 0) == (int64_t)r->n;
    if (!salvage && (!agree || !next)) return E_CORRUPT;
    if (!next) return 1;
    if (sqlite3_column_int64(s, 6) > r->seq_reserved) r->seq_reserved = sqlite3_column_int64(s, 6);
    TRY(append_column(s, 1, &r->ids, r->n * sizeof(int32_t), n * sizeof(int32_t)));
    TRY(append_column(s, 2, &r->logprobs, r->n * sizeof(float), n * sizeof(float)));
    TRY(append_column(s, 3, &r->text_ends, r->n * sizeof(uint32_t), n * sizeof(uint32_t)));
    size_t alt = n_alt * sizeof *r->alternatives;
    if (alt && n) TRY(append_column(s, 4, &r->alternatives, r->n * alt, n * alt));
    TRY(append_column(s, 5, &r->text, r->text_len, text_len));
    r->n += n;
    r->text_len += text_len;
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
        rc = read_turn_row(s, &t->rec, db->salvage);
        if (rc == 0 && !db->salvage && t->rec.turn != first + (int64_t)(out->n_turns - before) - 1)
            rc = E_CORRUPT;
        if (rc == 0) rc = read_tokens(db, out->rec.key, t, err);
        // While it runs, only its tokens are kept up to date.
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

static int read_events(struct store_db *db, struct stored_session *out, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_EVENTS_GET, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, out->rec.key);
    int rc = 0, step = SQLITE_DONE;
    while (rc == 0 && (step = sqlite3_step(s)) == SQLITE_ROW) {
        struct event_record *grown = realloc(out->events, (out->n_events + 1) * sizeof *grown);
        if (!grown) {
            rc = E_NOMEM;
            break;
        }
        out->events = grown;
        struct event_record *e = &grown[out->n_events++];
        *e = (struct event_record){.seq = sqlite3_column_int64(s, 0),
                                   .n = sqlite3_column_int64(s, 1),
                                   .turn = sqlite3_column_int64(s, 3),
                                   .at_ms = sqlite3_column_int64(s, 5)};
        rc = event_kind_parse((const char *)sqlite3_column_text(s, 2), &e->kind);
        column_short(s, 4, e->reason, sizeof e->reason);
        if (rc < 0 && db->salvage) out->n_events--, rc = 0;
    }
    if (rc == 0 && step != SQLITE_DONE && !db->salvage) rc = store_db_error(db, err);
    sqlite3_reset(s);
    return rc;
}

static int find_session(struct store_db *db, const char *id, struct session_record *out,
                        struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_SESSION_GET, err);
    if (!s) return err->code;
    sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
    int step = sqlite3_step(s);
    int rc = step == SQLITE_ROW    ? read_session_row(s, out)
             : step == SQLITE_DONE ? err_set(err, E_NOTFOUND, "there is no session '%s'", id)
                                   : store_db_error(db, err);
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
        char *id = column_text(s, 0, &failed);
        if (id) out->origins[out->n_origins++] = id;
    }
    int rc = failed                                                      ? E_NOMEM
             : step != SQLITE_DONE && step != SQLITE_ROW && !db->salvage ? store_db_error(db, err)
                                                                         : 0;
    sqlite3_reset(s);
    return rc;
}

int store_read_row(struct store_db *db, int64_t key, struct session_record *out, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_ROW_GET, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, key);
    int step = sqlite3_step(s);
    int rc = step == SQLITE_ROW    ? read_session_row(s, out)
             : step == SQLITE_DONE ? err_set(err, E_NOTFOUND, "there is no such session")
                                   : store_db_error(db, err);
    sqlite3_reset(s);
    return rc == E_NOMEM ? err_set(err, rc, "no memory to read a session") : rc;
}

int store_read_session(struct store_db *db, const char *id, struct stored_session **out,
                       struct err *err) {
    struct err local = {0};
    if (!err) err = &local; // the helpers hand codes on through it
    struct stored_session *stored = calloc(1, sizeof *stored);
    if (!stored) return err_set(err, E_NOMEM, "no memory to read a session");
    err->code = 0;
    // One snapshot for all queries: a reader beside a server must not see a turn without its
    // tokens.
    bool own = sqlite3_get_autocommit(db->sql);
    int rc;
    if (own) TRY_GOTO(fail, store_db_exec(db, "BEGIN", err));
    TRY_GOTO(end, find_session(db, id, &stored->rec, err));
    TRY_GOTO(end, read_origins(db, stored, err));
    TRY_GOTO(end, read_turns(db, stored, 0, INT64_MAX, err));
    TRY_GOTO(end, read_events(db, stored, err));
end:
    if (own) store_db_exec(db, "COMMIT", NULL);
    if (rc == 0) {
        *out = stored;
        return 0;
    }
fail:
    stored_session_free(stored);
    if (err->code == 0 && rc == E_NOMEM) err_set(err, rc, "no memory to read the session '%s'", id);
    if (err->code == 0)
        err_set(err, rc, "%s: the record of session '%s' contradicts itself", db->path, id);
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

// --- lists -------------------------------------------------------------------

#define MAX_WORDS 16
#define PER_WORD " AND s.key IN (SELECT session FROM search WHERE search MATCH ?)"

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// A word without a letter or a digit (anything above ASCII may be one) matches nothing and would
// empty every search.
static bool is_searchable(const char *word, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)word[i];
        if (c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
            return true;
    }
    return false;
}

// "word" as FTS5 quotes it, so that nothing in it is an operator; the last one as a prefix.
static int add_term(struct buf *out, const char *word, size_t len, bool prefix) {
    buf_addc(out, '"');
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
    char sql[256 + 512 + MAX_WORDS * sizeof PER_WORD];
    int n = snprintf(
        sql, sizeof sql,
        "SELECT s.key, s.id, s.owner, m.name, m.fingerprint, s.title, s.auto_title, s.system, "
        "s.sampling,"
        " s.session_len, s.memory_len, s.sink_len, s.created_ms, s.updated_ms, s.closed_ms, "
        "s.n_turns,"
        " s.n_tokens, s.seq, s.seq_reserved, s.head, s.forked_from, s.forked_turn, "
        "s.cancel_after_ms FROM sessions s "
        "JOIN models m ON m.key = s.model"
        " WHERE (s.updated_ms, s.key) < (?, ?)%s%s",
        l->owner ? " AND s.owner = ?" : "", l->forked_from ? " AND s.forked_from = ?" : "");
    for (int i = 0; i < n_terms; i++) n += snprintf(sql + n, sizeof sql - (size_t)n, PER_WORD);
    snprintf(sql + n, sizeof sql - (size_t)n, " ORDER BY s.updated_ms DESC, s.key DESC LIMIT ?");
    if (sqlite3_prepare_v2(db->sql, sql, -1, out, NULL) != SQLITE_OK)
        return store_db_error(db, err);
    int at = 1;
    sqlite3_bind_int64(*out, at++, updated_ms);
    sqlite3_bind_int64(*out, at++, key);
    if (l->owner) sqlite3_bind_text(*out, at++, l->owner, -1, SQLITE_STATIC);
    if (l->forked_from) sqlite3_bind_text(*out, at++, l->forked_from, -1, SQLITE_STATIC);
    const char *term = buf_z(terms);
    for (int i = 0; i < n_terms; i++, term += strlen(term) + 1)
        sqlite3_bind_text(*out, at++, term, -1, SQLITE_STATIC);
    sqlite3_bind_int64(*out, at, l->limit + 1); // one more tells whether there are more
    return 0;
}

static int collect(struct store_db *db, struct store_list *l, sqlite3_stmt *s, struct err *err) {
    int step;
    while ((step = sqlite3_step(s)) == SQLITE_ROW) {
        if ((int64_t)l->n_rows == l->limit) {
            const struct session_record *last = &l->rows[l->n_rows - 1];
            snprintf(l->next, sizeof l->next, "%" PRId64 "-%" PRId64, last->updated_ms, last->key);
            return 0;
        }
        l->rows[l->n_rows] = (struct session_record){0};
        if (read_session_row(s, &l->rows[l->n_rows++]) < 0)
            return err_set(err, E_NOMEM, "no memory to list sessions");
    }
    return step == SQLITE_DONE ? 0 : store_db_error(db, err);
}

int store_read_list(struct store_db *db, struct store_list *l, struct err *err) {
    struct buf terms;
    int n_terms = 0, rc;
    sqlite3_stmt *s = NULL;
    buf_init(&terms, 65536);
    l->rows = calloc((size_t)l->limit, sizeof *l->rows);
    if (!l->rows) {
        rc = err_set(err, E_NOMEM, "no memory to list %lld sessions", (long long)l->limit);
        goto end;
    }
    TRY_GOTO(end, split_query(l->query ? l->query : "", &terms, &n_terms, err));
    TRY_GOTO(end, prepare_list(db, l, &terms, n_terms, &s, err));
    rc = collect(db, l, s, err);
end:
    sqlite3_finalize(s);
    buf_release(&terms);
    return rc;
}

int store_read_next_key(struct store_db *db, int64_t *out, struct err *err) {
    char sql[112];
    snprintf(sql, sizeof sql, "SELECT coalesce(max(key), 0) + 1 FROM sessions WHERE key < %" PRId64,
             STORE_IMPORT_KEYS);
    return store_db_int(db, sql, out, err);
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

int store_read_key(struct store_db *db, const char *id, const char *owner, int64_t *out,
                   struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_KEY_GET, err);
    if (!s) return err->code;
    sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
    if (owner) sqlite3_bind_text(s, 2, owner, -1, SQLITE_STATIC);
    int step = sqlite3_step(s), rc = 0;
    if (step == SQLITE_ROW)
        *out = sqlite3_column_int64(s, 0);
    else
        rc = step == SQLITE_DONE ? err_set(err, E_NOTFOUND, "there is no session '%s'", id)
                                 : store_db_error(db, err);
    sqlite3_reset(s);
    return rc;
}

int store_read_live(struct store_db *db, const char *id, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_LIVE_GET, err);
    if (!s) return err->code;
    sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
    int step = sqlite3_step(s);
    int rc = step == SQLITE_ROW ? 1 : step == SQLITE_DONE ? 0 : store_db_error(db, err);
    sqlite3_reset(s);
    return rc;
}
