// What the store writes, row by row. All of it runs inside a transaction that store.c began.
#include "base/err.h"
#include "sessions/store/db.h"
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the database's arrays are little-endian: convert them in store_write.c and store_read.c"
#endif

static void bind_text(sqlite3_stmt *s, int i, const char *text) {
    if (text)
        sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(s, i);
}

// Empty blobs are blobs: a NULL pointer would make them null.
static void bind_bytes(sqlite3_stmt *s, int i, const void *p, size_t n) {
    if (n)
        sqlite3_bind_blob64(s, i, p, n, SQLITE_STATIC);
    else
        sqlite3_bind_zeroblob(s, i, 0);
}

static int write_model(struct store_db *db, const struct session_record *r, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_MODEL_ADD, err);
    if (!s) return err->code;
    bind_text(s, 1, r->fingerprint);
    bind_text(s, 2, r->model);
    return store_db_step_done(db, s, err);
}

// Of a failed insertion: the one constraint that is the client's doing.
static bool id_is_taken(struct store_db *db) {
    return sqlite3_extended_errcode(db->sql) == SQLITE_CONSTRAINT_UNIQUE &&
           strstr(sqlite3_errmsg(db->sql), "sessions.id") != NULL;
}

static int insert_session(struct store_db *db, const struct session_record *r, struct err *err) {
    TRY(write_model(db, r, err));
    sqlite3_stmt *s = store_db_stmt(db, SQL_SESSION_ADD, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, r->key);
    bind_text(s, 2, r->id);
    bind_text(s, 3, r->owner);
    bind_text(s, 4, r->fingerprint);
    bind_text(s, 5, r->title);
    sqlite3_bind_int(s, 6, r->auto_title);
    bind_text(s, 7, r->system);
    bind_text(s, 8, r->sampling);
    sqlite3_bind_int64(s, 9, r->session_len);
    sqlite3_bind_int(s, 10, r->memory_len);
    sqlite3_bind_int(s, 11, r->sink_len);
    sqlite3_bind_int64(s, 12, r->created_ms);
    sqlite3_bind_int64(s, 13, r->updated_ms);
    sqlite3_bind_int64(s, 14, r->closed_ms);
    sqlite3_bind_int64(s, 15, r->n_turns);
    sqlite3_bind_int64(s, 16, r->n_tokens);
    sqlite3_bind_int64(s, 17, r->seq);
    sqlite3_bind_int64(s, 18, r->seq_reserved);
    sqlite3_bind_int64(s, 19, r->head);
    bind_text(s, 20, r->forked_from);
    sqlite3_bind_int64(s, 21, r->forked_turn);
    sqlite3_bind_int64(s, 22, r->cancel_after_ms);
    int rc = store_db_step_done(db, s, err);
    if (rc < 0 && id_is_taken(db))
        return err_set(err, E_EXISTS, "the session '%s' exists already", r->id);
    return rc;
}

static int update_session(struct store_db *db, const struct session_record *r, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_SESSION_SET, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, r->key);
    bind_text(s, 2, r->title);
    sqlite3_bind_int(s, 3, r->auto_title);
    bind_text(s, 4, r->sampling);
    sqlite3_bind_int64(s, 5, r->updated_ms);
    sqlite3_bind_int64(s, 6, r->closed_ms);
    sqlite3_bind_int64(s, 7, r->n_turns);
    sqlite3_bind_int64(s, 8, r->n_tokens);
    sqlite3_bind_int64(s, 9, r->seq);
    sqlite3_bind_int64(s, 10, r->seq_reserved);
    sqlite3_bind_int64(s, 11, r->head);
    sqlite3_bind_int64(s, 12, r->cancel_after_ms);
    TRY(store_db_step_done(db, s, err));
    if (sqlite3_changes(db->sql) == 1) return 0;
    return err_set(err, E_NOTFOUND, "the session '%s' is no longer in the database", r->id);
}

static int write_title(struct store_db *db, const struct session_record *r, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_TITLE_DROP, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, r->key);
    TRY(store_db_step_done(db, s, err));
    if (!(s = store_db_stmt(db, SQL_TITLE_ADD, err))) return err->code;
    sqlite3_bind_int64(s, 1, r->key);
    bind_text(s, 2, r->title);
    return store_db_step_done(db, s, err);
}

// Columns 1 to 22: those that both statements set.
static void bind_turn_progress(sqlite3_stmt *s, int64_t key, const struct turn_record *r) {
    const struct turn_numbers *n = &r->numbers;
    sqlite3_bind_int64(s, 1, key);
    sqlite3_bind_int64(s, 2, r->turn);
    bind_bytes(s, 3, r->input_ids, r->n_input_ids * sizeof(int32_t));
    sqlite3_bind_int64(s, 4, r->log_first);
    sqlite3_bind_int64(s, 5, r->n_input);
    sqlite3_bind_int64(s, 6, r->n_output);
    bind_text(s, 7, r->finish_reason[0] ? r->finish_reason : NULL);
    bind_text(s, 8, r->error_code[0] ? r->error_code : NULL);
    bind_text(s, 9, r->error_message);
    sqlite3_bind_int64(s, 10, n->log_tokens);
    sqlite3_bind_int64(s, 11, n->kept_tokens);
    sqlite3_bind_int64(s, 12, n->computed_tokens);
    sqlite3_bind_int64(s, 13, n->queue_us);
    sqlite3_bind_int64(s, 14, n->prefill_us);
    sqlite3_bind_int64(s, 15, n->first_token_us);
    sqlite3_bind_int64(s, 16, n->decode_us);
    bind_text(s, 17, engine_cache_source_name(n->source));
    sqlite3_bind_int64(s, 18, r->seq_first);
    sqlite3_bind_int64(s, 19, r->seq_last);
    sqlite3_bind_int64(s, 20, r->started_ms);
    sqlite3_bind_int64(s, 21, r->ended_ms);
    sqlite3_bind_int64(s, 22, n->resume_us);
}

static void bind_turn_request(sqlite3_stmt *s, const struct turn_record *r) {
    bind_text(s, 23, r->request_id);
    bind_text(s, 24, r->request);
    bind_text(s, 25, turn_input_kind_name(r->kind));
    if (r->input_text) bind_bytes(s, 26, r->input_text, r->input_text_len);
    bind_text(s, 27, r->sampling);
    sqlite3_bind_int64(s, 28, (int64_t)r->seed);
    sqlite3_bind_int(s, 29, r->logprobs);
    sqlite3_bind_int(s, 30, r->n_alternatives);
    bind_text(s, 31, r->instance);
    bind_text(s, 32, r->build);
    sqlite3_bind_int64(s, 33, r->created_ms);
    sqlite3_bind_int64(s, 34, r->parent);
}

static int write_turn(struct store_db *db, int64_t key, const struct turn_save *t,
                      struct err *err) {
    if (t->kind == TURN_GROW) return 0;
    bool insert = t->kind == TURN_INSERT;
    sqlite3_stmt *s = store_db_stmt(db, insert ? SQL_TURN_ADD : SQL_TURN_SET, err);
    if (!s) return err->code;
    bind_turn_progress(s, key, &t->rec);
    if (insert) bind_turn_request(s, &t->rec);
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
    sqlite3_stmt *s =
        rc == 0 ? store_db_stmt(db, insert ? SQL_WORDS_ADD : SQL_WORDS_SET, err) : NULL;
    if (rc == 0 && !s) rc = err->code;
    if (rc == 0) {
        sqlite3_bind_int64(s, 1, key);
        sqlite3_bind_int64(s, 2, t->rec.turn);
        sqlite3_bind_text64(s, 3, words.data, words.len, SQLITE_STATIC, SQLITE_UTF8);
        rc = store_db_step_done(db, s, err);
    }
    buf_release(&words);
    return rc;
}

static int write_tokens(struct store_db *db, int64_t key, const struct turn_save *t,
                        struct err *err) {
    const struct token_run *r = &t->tokens;
    sqlite3_stmt *s;
    if (t->whole && t->kind != TURN_INSERT) {
        if (!(s = store_db_stmt(db, SQL_TOKENS_DROP, err))) return err->code;
        sqlite3_bind_int64(s, 1, key);
        sqlite3_bind_int64(s, 2, t->rec.turn);
        TRY(store_db_step_done(db, s, err));
    }
    if (r->n == 0 && r->text_len == 0) return 0;
    if (!(s = store_db_stmt(db, SQL_TOKENS_ADD, err))) return err->code;
    sqlite3_bind_int64(s, 1, key);
    sqlite3_bind_int64(s, 2, t->rec.turn);
    sqlite3_bind_int64(s, 3, r->first);
    bind_bytes(s, 4, r->ids, r->n * sizeof *r->ids);
    bind_bytes(s, 5, r->logprobs, r->n * sizeof *r->logprobs);
    bind_bytes(s, 6, r->text_ends, r->n * sizeof *r->text_ends);
    if (r->alternatives)
        bind_bytes(s, 7, r->alternatives,
                   r->n * (size_t)t->rec.n_alternatives * sizeof *r->alternatives);
    bind_bytes(s, 8, r->text, r->text_len);
    sqlite3_bind_int64(s, 9, r->seq);
    sqlite3_bind_int64(s, 10, r->seq_reserved);
    return store_db_step_done(db, s, err);
}

static int write_event(struct store_db *db, int64_t key, const struct event_record *e,
                       struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_EVENT_ADD, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, key);
    sqlite3_bind_int64(s, 2, e->seq);
    sqlite3_bind_int64(s, 3, e->n);
    bind_text(s, 4, event_kind_name(e->kind));
    sqlite3_bind_int64(s, 5, e->turn);
    bind_text(s, 6, e->reason);
    sqlite3_bind_int64(s, 7, e->at_ms);
    return store_db_step_done(db, s, err);
}

// The path that a new session begins with, row by row from the session that it is a copy of.
static int write_fork(struct store_db *db, const struct session_save *save, struct err *err) {
    static const enum store_sql steps[] = {SQL_FORK_TURN, SQL_FORK_TOKENS, SQL_FORK_WORDS};
    for (size_t i = 0; i < save->n_fork_turns; i++) {
        for (int k = 0; k < 3; k++) {
            sqlite3_stmt *s = store_db_stmt(db, steps[k], err);
            if (!s) return err->code;
            sqlite3_bind_int64(s, 1, save->rec.key);
            sqlite3_bind_int64(s, 2, (int64_t)i);
            sqlite3_bind_int64(s, 3, save->fork_key);
            sqlite3_bind_int64(s, 4, save->fork_turns[i]);
            TRY(store_db_step_done(db, s, err));
            if (k == 0 && sqlite3_changes(db->sql) != 1)
                return err_set(err, E_NOTFOUND, "the session '%s' is no longer in the database",
                               save->rec.forked_from);
        }
    }
    return 0;
}

int store_write_save(struct store_db *db, const struct session_save *save, struct err *err) {
    int64_t key = save->rec.key;
    if (save->insert) TRY(insert_session(db, &save->rec, err));
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
    return 0;
}

int store_write_session(struct store_db *db, const struct stored_session *s, struct err *err) {
    struct session_save save = {
        .insert = true, .title_changed = true, .rec = s->rec, .n_turns = s->n_turns};
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
    static const enum store_sql steps[] = {SQL_TITLE_DROP, SQL_WORDS_DROP, SQL_SESSION_DROP};
    for (int i = 0; i < 3; i++) {
        sqlite3_stmt *s = store_db_stmt(db, steps[i], err);
        if (!s) return err->code;
        sqlite3_bind_int64(s, 1, key);
        TRY(store_db_step_done(db, s, err));
    }
    return 0;
}

int store_write_delete_rows(struct store_db *db, int64_t key, struct err *err) {
    TRY(delete_rows(db, key, err));
    return store_tidy_mark(db, err);
}

int store_write_delete(struct store_db *db, int64_t key, struct err *err) {
    TRY(delete_rows(db, key, err));
    sqlite3_stmt *s = store_db_stmt(db, SQL_WORDS_OPTIMIZE, err);
    if (!s) return err->code;
    TRY(store_db_step_done(db, s, err));
    db->deleted = true;
    return 0;
}

int store_write_probe(struct store_db *db, int64_t now_ms, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_PROBE, err);
    if (!s) return err->code;
    sqlite3_bind_int64(s, 1, now_ms);
    return store_db_step_done(db, s, err);
}
