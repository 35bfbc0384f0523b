// The mark of a database whose sessions are being moved to another one (archive/move.c). See leaving.h.
#include "sessions/store/leaving.h"
#include "base/err.h"
#include <string.h>

#define MARK "moving_to "
#define PATH_BYTES 4096

static int set(struct store_db *db, void *path, struct err *err) {
    TRY(store_db_exec(db, "DELETE FROM state WHERE name LIKE '" MARK "%'", err));
    if (!path) return 0;
    sqlite3_stmt *s =
        store_db_stmt(db, "INSERT INTO state (name, value) VALUES ('" MARK "' || ?1, 1)", err);
    if (!s) return err->code;
    sqlite3_bind_text(s, 1, path, -1, SQLITE_STATIC);
    return store_db_step_done(db, s, err);
}

int store_leaving_set(struct store_db *db, const char *path, struct err *err) {
    return store_db_transaction(db, set, (void *)path, err);
}

int store_leaving_check(struct store_db *db, const char *path, struct err *err) {
    char to[PATH_BYTES] = "";
    TRY(store_db_text(db,
                      "SELECT coalesce(max(substr(name, length('" MARK "') + 1)), '') FROM state"
                      " WHERE name LIKE '" MARK "%'",
                      to, sizeof to, err));
    if (!to[0] || (path && strcmp(to, path) == 0)) return 0;
    return err_set(err, E_BUSY,
                   "%s: its sessions are being moved; finish with: parley sessions move --db %s "
                   "--to %s",
                   db->path, db->path, to);
}
