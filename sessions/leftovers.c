// Snapshots whose session is gone. A session's file is removed with it, but a process may die between
// the two, and `parley sessions rm` has no engine. So each start removes files without a session: a
// deleted conversation must not survive in one. See service.h.
#include "base/err.h"
#include "base/log.h"
#include "sessions/service.h"
#include "sessions/store/db.h"
#include <string.h>

// While the database cannot be read, no file is removed.
static bool wanted(void *ctx, const char *id) {
    struct err err = {0};
    return store_read_live(ctx, id, &err) != 0;
}

static bool unwanted(void *ctx, const char *id) {
    return false;
}

void leftovers_remove(struct sessions *ss, const char *db_path) {
    struct store_db db;
    struct err err = {0};
    int n = 0;
    if (strcmp(db_path, ":memory:") == 0) { // a new database: no session has a file
        n = engine_snapshots_tidy(ss->engine, unwanted, NULL);
    } else if (store_db_open_reader(&db, db_path, &err) == 0) {
        n = engine_snapshots_tidy(ss->engine, wanted, &db);
        store_db_close(&db, false);
    } else {
        log_warn("snapshot.leftovers", "error=%s", err_name(err.code));
    }
    if (n > 0) log_info("snapshot.leftovers", "removed=%d", n);
}
