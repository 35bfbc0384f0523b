// Snapshots whose session is gone. A session's file is removed with it, but a process may die between
// the two, and `parley sessions rm` has no engine. So each start removes files without a session: a
// deleted conversation must not survive in one. See orphan_snapshots.h.
#include "sessions/caches/orphan_snapshots.h"
#include "base/err.h"
#include "base/log.h"
#include "sessions/store/read.h"
#include <stdlib.h>
#include <string.h>

struct wanted { // a session that has a snapshot
    char name[SESSION_LASTING_BYTES];
    UT_hash_handle hh;
};
struct search {
    struct engine *engine;
    struct wanted *wanted;
};

static int note(void *ctx, const char *owner, const char *id) {
    struct search *s = ctx;
    struct wanted *w = calloc(1, sizeof *w);
    if (!w) return E_NOMEM;
    session_lasting_name(owner, id, w->name);
    bool has = engine_has_snapshot(s->engine, w->name);
    if (has) HASH_ADD_STR(s->wanted, name, w);
    if (has && hash_added(&w->hh)) return 0;
    free(w);
    return has ? E_NOMEM : 0;
}

static bool is_wanted(void *ctx, const char *name) {
    struct wanted *w;
    HASH_FIND_STR(((struct search *)ctx)->wanted, name, w);
    return w;
}

static int search(struct search *s, const char *db_path, struct err *err) {
    struct store_db db;
    if (strcmp(db_path, ":memory:") == 0) return 0; // a new database: no session has a file
    TRY(store_db_open_reader(&db, db_path, err));
    int rc = store_read_live(&db, note, s, err);
    store_db_close(&db, false);
    return rc;
}

// While the database cannot be read, no file is removed.
void orphan_snapshots_remove(struct engine *e, const char *db_path) {
    struct search s = {.engine = e};
    struct wanted *w, *next;
    struct err err = {0};
    int rc = search(&s, db_path, &err), n = 0;
    if (rc == 0)
        n = engine_snapshots_tidy(e, is_wanted, &s);
    else
        log_warn("snapshot.orphans", "error=%s", err_name(rc));
    if (n > 0) log_info("snapshot.orphans", "removed=%d", n);
    HASH_ITER(hh, s.wanted, w, next) {
        HASH_DEL(s.wanted, w);
        free(w);
    }
}
