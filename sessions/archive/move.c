// Moves sessions from one database to another. See archive.h.
//
// Two databases have no common transaction: a batch of sessions is committed in the target, then deleted in the
// source. A process that dies in between leaves them in both, so the source is marked before the first
// copy, and no server opens a marked database (store_open). The same move again finishes: what the
// target has already is compared and only deleted here.
#include "base/clock.h"
#include "base/err.h"
#include "sessions/archive/archive.h"
#include "sessions/archive/check.h"
#include "sessions/store/leaving.h"
#include "sessions/store/read.h"
#include "sessions/store/recover.h"
#include "sessions/store/schema.h"
#include "sessions/store/tail.h"
#include "sessions/store/write.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// Two commits for each session would take most of the time.
#define BATCH 32
#define BATCH_TURNS 1000
#define BUSY_ATTEMPTS 15 // of two seconds each: a server in the target writes a large commit

struct moving {
    struct stored_session *session; // its key is the target's, when it is written there
    int64_t key;                    // here
    bool exists;                    // the target has a session of this owner and id
    bool stays;
};
struct move_batch {
    struct moving of[BATCH];
    size_t n, n_turns;
};
struct move {
    const struct archive_move *options;
    struct archive_moved *out;
    struct store_db from, to;
    struct move_batch batch;
    bool in_both; // sessions were committed there and not deleted here
};

// --- one session ---

// Adds those that the target does not have.
static int add(struct store_db *db, void *ctx, struct err *err) {
    struct move_batch *b = ctx;
    for (size_t i = 0; i < b->n; i++) {
        struct stored_session *s = b->of[i].session;
        struct err unknown = {0};
        int64_t key;
        int rc = store_read_key(db, s->rec.owner, s->rec.id, &key, &unknown);
        if (rc < 0 && rc != E_NOTFOUND) return err_set(err, rc, "%s", unknown.text);
        b->of[i].exists = rc == 0;
        if (rc == 0) continue;
        TRY(archive_add(db, s, err));
    }
    return 0;
}

static int remove_them(struct store_db *db, void *ctx, struct err *err) {
    const struct move_batch *b = ctx;
    for (size_t i = 0; i < b->n; i++)
        if (!b->of[i].stays) TRY(store_write_delete(db, b->of[i].key, err));
    return 0;
}

static int add_patiently(struct store_db *db, struct move_batch *b, struct err *err) {
    int rc;
    for (int i = 0; i < BUSY_ATTEMPTS; i++) {
        *err = (struct err){0};
        rc = store_db_transaction(db, add, b, err);
        if (rc != E_BUSY) break;
    }
    return rc;
}

// The target's session of this id is ours, from an earlier attempt: it may have had more turns since.
static bool is_copy(const struct stored_session *there, const struct stored_session *s) {
    if (there->rec.created_ms != s->rec.created_ms || there->n_turns < s->n_turns) return false;
    for (size_t i = 0; i < s->n_turns; i++) {
        const struct turn_record *a = &there->turns[i].rec, *b = &s->turns[i].rec;
        if (a->created_ms != b->created_ms || a->seed != b->seed) return false;
    }
    return true;
}

static bool has_copy(struct store_db *to, const struct stored_session *s) {
    struct stored_session *there = NULL;
    struct err ignored = {0};
    int64_t key;
    if (store_read_key(to, s->rec.owner, s->rec.id, &key, &ignored) < 0) return false;
    if (store_read_session(to, key, &there, &ignored) < 0) return false;
    bool is = is_copy(there, s);
    stored_session_free(there);
    return is;
}

static void leave(struct move *m, const struct session_record *r, const char *why) {
    m->out->n_left++;
    if (m->options->left) m->options->left(m->options->ctx, r, why);
}

// Their transactions: one there, one here.
static int commit_batch(struct move *m, struct err *err) {
    struct move_batch *b = &m->batch;
    size_t n_go = 0;
    if (b->n == 0) return 0;
    TRY(add_patiently(&m->to, b, err));
    m->in_both = true;
    for (size_t i = 0; i < b->n; i++) {
        const struct stored_session *s = b->of[i].session;
        b->of[i].stays = b->of[i].exists && !has_copy(&m->to, s);
        if (b->of[i].stays)
            leave(m, &s->rec, "the target has another session of this owner and id");
        else
            n_go++;
    }
    if (n_go > 0) TRY(store_db_transaction(&m->from, remove_them, b, err));
    m->in_both = false;
    m->out->n_moved += (int64_t)n_go;
    return 0;
}

static int empty_batch(struct move *m, int rc, struct err *err) {
    struct move_batch *b = &m->batch;
    if (rc == 0) rc = commit_batch(m, err);
    while (b->n > 0) stored_session_free(b->of[--b->n].session);
    b->n_turns = 0;
    return rc;
}

static int move_one(struct move *m, int64_t key, struct err *err) {
    struct move_batch *b = &m->batch;
    struct stored_session *s;
    struct err why = {0};
    TRY(store_read_session(&m->from, key, &s, err));
    if (stored_session_check(s, &why) < 0) {
        leave(m, &s->rec, why.text);
        stored_session_free(s);
        return 0;
    }
    b->of[b->n++] = (struct moving){.session = s, .key = key};
    b->n_turns += s->n_turns;
    return b->n < BATCH && b->n_turns < BATCH_TURNS ? 0 : empty_batch(m, 0, err);
}

// --- all of them ---

static int next_key(struct store_db *db, int64_t *key, struct err *err) {
    sqlite3_stmt *s = store_db_bind(db, "SELECT coalesce(min(key), 0) FROM sessions WHERE key > ?1",
                                    NUMBERS(*key), err);
    int rc = 0;
    if (!s) return err->code;
    while (store_db_row(db, s, &rc, err)) *key = sqlite3_column_int64(s, 0);
    return rc;
}

static int is_wanted(struct move *m, int64_t key, bool *wanted, struct err *err) {
    struct session_record row = {0};
    const char *owner = m->options->owner;
    *wanted = true;
    if (!owner) return 0;
    TRY(store_read_row(&m->from, key, &row, err));
    *wanted = strcmp(row.owner, owner) == 0;
    session_record_release(&row);
    return 0;
}

static int move_wanted(struct move *m, struct err *err) {
    int64_t key = 0;
    bool wanted;
    if (m->options->id) {
        TRY(store_read_key(&m->from, m->options->owner, m->options->id, &key, err));
        return move_one(m, key, err);
    }
    for (;;) {
        TRY(next_key(&m->from, &key, err));
        if (key == 0) return 0;
        TRY(is_wanted(m, key, &wanted, err));
        if (wanted) TRY(move_one(m, key, err));
    }
}

static int move_all(struct move *m, struct err *err) {
    return empty_batch(m, move_wanted(m, err), err);
}

// What the operator has to know besides the reason.
static int stopped(const struct move *m, int rc, struct err *err) {
    struct err why = *err;
    if (rc >= 0 || (m->out->n_moved == 0 && !m->in_both)) return rc;
    return err_set(err, rc, "%.300s; %lld sessions were moved, the same command moves the rest%s",
                   why.text, (long long)m->out->n_moved,
                   m->in_both ? "; until then no server opens the old database" : "");
}

static int move_marked(struct move *m, const char *to, struct err *err) {
    struct err later = {0};
    TRY(store_leaving_check(&m->from, to, err));
    TRY(store_leaving_set(&m->from, to, err));
    int rc = stopped(m, move_all(m, err), err);
    if (!m->in_both && store_leaving_set(&m->from, NULL, &later) < 0 && rc == 0)
        rc = err_set(err, later.code, "%s", later.text);
    return rc;
}

// --- the two files ---

// As a server's start does it.
static int prepare_source(struct store_db *db, struct err *err) {
    int64_t n;
    TRY(store_schema_migrate(db, err));
    TRY(tail_absorb(db, err));
    TRY(store_recover(db, clock_wall_us(&clock_system) / 1000, &n, err));
    return store_remove_temporary(db, &n, err);
}

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// Where the target is refused, the source's own, older program must still open it.
int archive_move(const char *from, const char *to, const struct archive_move *o,
                 struct archive_moved *out, struct err *err) {
    struct move m = {.options = o, .out = out};
    struct err local = {0};
    bool served = false;
    if (!err) err = &local;
    *out = (struct archive_moved){0};
    if (is_same_file(from, to))
        return err_set(err, E_INVAL, "%s and %s are the same database", from, to);
    TRY(store_db_open_unmigrated(&m.from, from, err));
    int rc = store_db_open_any(&m.to, to, &served, err);
    if (rc == 0) {
        char *path = realpath(to, NULL);
        rc = path ? store_leaving_check(&m.to, NULL, err) : err_errno(err, "%s", to);
        if (rc == 0) rc = prepare_source(&m.from, err);
        if (rc == 0) rc = move_marked(&m, path, err);
        free(path);
        store_db_close(&m.to, !served);
    }
    store_db_close(&m.from, true); // with a checkpoint: the log holds the words too
    return rc;
}
