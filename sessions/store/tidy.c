// What a deletion leaves behind. Its rows are gone with its transaction (secure_delete), and with
// them the words from every search; but FTS5 keeps the words of deleted rows in its older segments
// until these are merged, and the write-ahead log keeps pages as they were. Merging the whole index
// takes time in proportion to all that was ever said, so it is done in steps of a few pages,
// between other jobs. A row in `state` says that it is due: it goes on after a restart.
#include "base/err.h"
#include "sessions/store/db.h"

#define STEP_PAGES 64 // some milliseconds

int store_tidy_init(struct store_db *db, struct err *err) {
    int64_t due = 0;
    TRY(store_db_int(db, "SELECT count(*) FROM state WHERE name = 'unmerged'", &due, err));
    db->unmerged = due > 0;
    db->deleted = store_db_wal_bytes(db) > 0; // of what, nobody knows any more
    return 0;
}

int store_tidy_mark(struct store_db *db, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_UNMERGED_SET, err);
    if (!s) return err->code;
    TRY(store_db_step_done(db, s, err));
    db->again = db->merging; // what is being merged may have had these words before
    db->unmerged = db->deleted = true;
    return 0;
}

// FTS5: a negative number begins to merge everything into one segment, positive ones go on. When
// there was nothing left to do it changes less than two rows.
static int merge(struct store_db *db, bool *done, struct err *err) {
    sqlite3_stmt *s = store_db_stmt(db, SQL_WORDS_MERGE, err);
    if (!s) return err->code;
    int before = sqlite3_total_changes(db->sql);
    sqlite3_bind_int(s, 1, db->merging ? STEP_PAGES : -STEP_PAGES);
    TRY(store_db_step_done(db, s, err));
    *done = sqlite3_total_changes(db->sql) - before < 2;
    if (!*done || db->again) return 0;
    if (!(s = store_db_stmt(db, SQL_UNMERGED_CLEAR, err))) return err->code;
    return store_db_step_done(db, s, err);
}

int store_tidy_step(struct store_db *db, struct err *err) {
    bool done = false;
    TRY(store_db_write_begin(db, err));
    int rc = store_db_exec(db, "BEGIN IMMEDIATE", err);
    if (rc == 0) rc = merge(db, &done, err);
    if (rc == 0) rc = store_db_exec(db, "COMMIT", err);
    if (rc < 0) store_db_exec(db, "ROLLBACK", NULL);
    store_db_write_end(db);
    if (rc < 0) return rc;
    db->merging = !done;
    if (done) {
        db->unmerged = db->again;
        db->again = false;
    }
    return 0;
}
