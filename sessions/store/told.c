// Turns by what clients know of them (sessions/matching/told.h).
#include "base/array.h"
#include "base/err.h"
#include "sessions/store/read.h"
#include <stdlib.h>
#include <string.h>

#define OF_A_DIGEST 8 // the newest: repeated questions, and answers in another form

// The session of the newest turn with this digest: any session, or only the session with the id ?4, its forks, and the
// forks of forks.
static const char SQL_SESSION[] =
    "SELECT s.key, s.id FROM turns t JOIN sessions s ON s.key = t.session JOIN "
    "models m ON m.key = s.model WHERE t.told = ?1 AND s.owner = ?2 AND m.fingerprint = ?3 AND "
    "s.closed_ms = 0 AND (?4 IS NULL OR EXISTS (WITH "
    "RECURSIVE up(id, n) AS (SELECT s.id, 0 UNION ALL SELECT p.forked_from, n + 1 FROM up JOIN "
    "sessions p ON p.owner = ?2 AND p.id = up.id WHERE p.forked_from IS NOT NULL AND n < 16) "
    "SELECT 1 FROM up WHERE id = ?4)) ORDER BY t.key DESC LIMIT 1";
// The newest turns (at most ?3) of that session with a digest. It runs for every answer of a long
// conversation, so it reads nothing but turns. The + keeps SQLite from walking the session's turns.
static const char SQL_TURNS[] = "SELECT turn, shown, log_first + n_input + n_output FROM turns "
                                "WHERE told = ?1 AND +session = ?2 ORDER BY key DESC LIMIT ?3";

static const char SQL_BEGIN[] = "BEGIN", SQL_COMMIT[] = "COMMIT";

static char *copy_text(sqlite3_stmt *s, int column) {
    const char *text = (const char *)sqlite3_column_text(s, column);
    return strdup(text ? text : "{}");
}

static int add_match(struct store_told *q, sqlite3_stmt *s, size_t i) {
    TRY(ARRAY_RESIZE(q->matches, q->n_matches + 1));
    struct stored_match *m = &q->matches[q->n_matches++];
    *m = (struct stored_match){
        .digest = i,
        .turn = sqlite3_column_int64(s, 0),
        .shown = copy_text(s, 1),
        .log_end = sqlite3_column_int64(s, 2),
    };
    return m->shown ? 0 : E_NOMEM;
}

// The first digest found says in which session the others are looked for.
static int find_session(struct store_db *db, const char *owner, struct store_told *q, size_t i,
                        struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_SESSION, err);
    int rc = 0;
    if (!s) return err->code;
    sqlite3_bind_text(s, 1, q->digests[i], -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 2, owner, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 3, q->fingerprint, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 4, q->session, -1, SQLITE_STATIC);
    while (store_db_row(db, s, &rc, err)) {
        q->key = sqlite3_column_int64(s, 0);
        q->found = copy_text(s, 1);
        if (!q->found) rc = E_NOMEM;
    }
    return rc;
}

static int find(struct store_db *db, const char *owner, struct store_told *q, size_t i,
                struct err *err) {
    int rc = 0;
    if (q->key == 0) TRY(find_session(db, owner, q, i, err));
    if (q->key == 0) return 0;
    sqlite3_stmt *s = store_db_stmt(db, SQL_TURNS, err);
    if (!s) return err->code;
    sqlite3_bind_text(s, 1, q->digests[i], -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 2, q->key);
    sqlite3_bind_int(s, 3, OF_A_DIGEST);
    while (store_db_row(db, s, &rc, err)) rc = add_match(q, s, i);
    return rc;
}

static bool has_session(struct store_db *db, const char *owner, const char *id) {
    int64_t key;
    return id && store_read_key(db, owner, id, &key, NULL) == 0;
}

// A client that sends a conversation again adds to its deepest turn, so the deepest turn is enough, however long the
// conversation is. If its answer has thinking, all turns are needed: thinking of earlier answers may have to be put
// back.
static bool is_enough(struct store_told *q) {
    // A key cannot be within a value: quotes are escaped there.
    for (size_t i = 0; i < q->n_matches && !q->all; i++)
        q->all = strstr(q->matches[i].shown, "\"thought\"");
    return q->n_matches > 0 && !q->all;
}

// In one transaction: all answers are of the same moment, and a query takes no locks of its own, which cost
// more than the row.
int store_read_told(struct store_db *db, const char *owner, struct store_told *q, struct err *err) {
    int rc = 0;
    TRY(store_db_run(db, SQL_BEGIN, NULL, 0, err));
    for (size_t i = 0; i < q->n_digests && rc == 0 && !is_enough(q); i++)
        rc = find(db, owner, q, i, err);
    q->exists = rc == 0 && has_session(db, owner, q->session);
    store_db_run(db, SQL_COMMIT, NULL, 0, NULL);
    return rc;
}

void store_told_free(struct store_told *q) {
    if (!q) return;
    for (size_t i = 0; i < q->n_matches; i++) {
        free(q->matches[i].shown);
    }
    free(q->matches);
    for (size_t i = 0; i < q->n_digests; i++) free(q->digests[i]);
    free(q->digests);
    free(q->fingerprint);
    free(q->session);
    free(q->found);
    free(q);
}
