// Sessions that are shared by a link. In the caller's transaction.
#include "base/array.h"
#include "base/err.h"
#include "sessions/store/read.h"

static const char SQL_SHARED[] = "SELECT key FROM sessions WHERE share = ?1";
// A null parent is the turn before (schema 1).
static const char SQL_PATH[] =
    "WITH RECURSIVE path(turn, parent) AS (SELECT t.turn, coalesce(t.parent, t.turn - 1) FROM "
    "sessions s JOIN turns t ON t.session = s.key AND t.turn = s.head WHERE s.key = ?1 UNION ALL "
    "SELECT t.turn, coalesce(t.parent, t.turn - 1) FROM path p JOIN turns t ON t.session = ?1 AND "
    "t.turn = p.parent AND t.turn < p.turn) SELECT turn FROM path ORDER BY turn";

int store_read_shared(struct store_db *db, const char *digest, int64_t *key, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_SHARED, err);
    if (!s) return err->code;
    sqlite3_bind_text(s, 1, digest, -1, SQLITE_STATIC);
    int step = sqlite3_step(s), rc = 0;
    if (step == SQLITE_ROW)
        *key = sqlite3_column_int64(s, 0);
    else
        rc = step == SQLITE_DONE ? err_set(err, E_NOTFOUND, "nothing is shared by this link")
                                 : store_db_error(db, err);
    sqlite3_reset(s);
    return rc;
}

int store_read_path(struct store_db *db, int64_t key, int64_t **turns, size_t *n, struct err *err) {
    sqlite3_stmt *s = store_db_bind(db, SQL_PATH, NUMBERS(key), err);
    int rc = 0;
    *n = 0;
    if (!s) return err->code;
    while (rc == 0 && store_db_row(db, s, &rc, err)) {
        rc = ARRAY_RESIZE(*turns, *n + 1);
        if (rc == 0) (*turns)[(*n)++] = sqlite3_column_int64(s, 0);
    }
    sqlite3_reset(s);
    return rc == E_NOMEM ? err_set(err, rc, "no memory for a path of %zu turns", *n) : rc;
}
