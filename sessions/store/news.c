// Sessions that other programs imported beside the server, for the clients that watch the list.
//
// SQLite counts the commits of other connections; the query reads shared memory alone. When that
// count has moved, the keys of imported sessions (from STORE_IMPORT_KEYS on) are compared with
// those of the last look. Imports are the only writes beside the server (lock.c).
#include "sessions/store/news.h"
#include "base/array.h"
#include "base/err.h"
#include "sessions/store/read.h"
#include <stdlib.h>

// *keys: (*n) ascending; the caller frees it.
static int read_keys(struct store_db *db, int64_t **keys, size_t *n, struct err *err) {
    sqlite3_stmt *s = store_db_bind(db, "SELECT key FROM sessions WHERE key >= ?1 ORDER BY key",
                                    NUMBERS(STORE_IMPORT_KEYS), err);
    size_t cap = 0;
    int rc = 0;
    *keys = NULL;
    *n = 0;
    if (!s) return err->code;
    while (store_db_row(db, s, &rc, err)) {
        rc = ARRAY_RESERVE(*keys, cap, *n + 1);
        if (rc == 0) (*keys)[(*n)++] = sqlite3_column_int64(s, 0);
    }
    if (rc < 0) {
        free(*keys);
        *keys = NULL;
    }
    return rc == E_NOMEM ? err_set(err, rc, "no memory for the imported sessions") : rc;
}

int store_news_init(struct store_db *db, struct err *err) {
    TRY(store_db_int(db, "PRAGMA data_version", &db->data_version, err));
    return read_keys(db, &db->imported, &db->n_imported, err);
}

void store_news_release(struct store_db *db) {
    free(db->imported);
    db->imported = NULL;
    db->n_imported = 0;
}

// Both lists are ascending: appends the rows that only `now` has.
static int read_new(struct store_db *db, const int64_t *now, size_t n, struct store_list *out,
                    struct err *err) {
    size_t old = 0;
    out->rows = calloc(n + 1, sizeof *out->rows);
    if (!out->rows) return err_set(err, E_NOMEM, "no memory for the imported sessions");
    for (size_t i = 0; i < n; i++) {
        while (old < db->n_imported && db->imported[old] < now[i]) old++;
        if (old < db->n_imported && db->imported[old] == now[i]) continue;
        TRY(store_read_row(db, now[i], &out->rows[out->n_rows++], err));
    }
    return 0;
}

int store_news_read(struct store_db *db, struct store_list *out, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, "PRAGMA data_version", err);
    if (!s) return err->code;
    int rc = sqlite3_step(s) == SQLITE_ROW ? 0 : store_db_error(db, err);
    int64_t version = rc == 0 ? sqlite3_column_int64(s, 0) : 0, *now;
    size_t n;
    sqlite3_reset(s);
    if (rc < 0 || version == db->data_version) return rc;
    TRY(read_keys(db, &now, &n, err));
    rc = read_new(db, now, n, out, err);
    if (rc < 0) { // the next look returns them
        free(now);
        return rc;
    }
    store_news_release(db);
    db->imported = now;
    db->n_imported = n;
    db->data_version = version;
    return 0;
}
