// The bytes that a deletion leaves. Its transaction removes the rows (secure_delete) and takes the
// words out of searches. But FTS5 keeps deleted words in older segments until it merges them, and
// the write-ahead log keeps old pages. Merging takes time in proportion to the whole index, so the
// store merges a few pages between other jobs. A row in `state` makes a restart go on with it. Rows of older
// schemas are brought up to date the same way, before.
#include "sessions/store/tidy.h"
#include "base/err.h"
#include "sessions/store/levels.h"
#include "sessions/store/words.h"

#define STEP_PAGES 64 // some milliseconds

int store_tidy_init(struct store_db *db, struct err *err) {
    int64_t due = 0;
    TRY(store_db_int(db, "SELECT count(*) FROM state WHERE name = 'unmerged'", &due, err));
    db->unmerged = due > 0;
    TRY(store_words_have_old(db, &db->unpaired, err));
    db->unmerged |= db->unpaired;
    // The log may hold deleted rows; and deleted words, when merging has brought them there.
    db->deleted = db->unmerged || store_db_wal_bytes(db) > 0;
    return 0;
}

int store_tidy_mark(struct store_db *db, struct err *err) {
    TRY(store_db_run(
        db, "INSERT INTO state (name, value) VALUES ('unmerged', 1) ON CONFLICT (name) DO NOTHING",
        NULL, 0, err));
    db->again = db->merging; // merged segments may hold these words
    db->unmerged = db->deleted = true;
    return 0;
}

// FTS5: a negative number begins a merge into one segment, a positive one continues it. A step that
// changes fewer than two rows found nothing left to merge.
static int merge(struct store_db *db, void *done, struct err *err) {
    if (!db->merging) TRY(store_levels_trim(db, err));
    int before = sqlite3_total_changes(db->sql);
    TRY(store_db_run(db, "INSERT INTO search (search, rank) VALUES ('merge', ?1)",
                     NUMBERS(db->merging ? STEP_PAGES : -STEP_PAGES), err));
    bool merged = sqlite3_total_changes(db->sql) - before < 2;
    *(bool *)done = merged;
    return !merged || db->again
               ? 0
               : store_db_run(db, "DELETE FROM state WHERE name = 'unmerged'", NULL, 0, err);
}

// The old terms stay in segments that are merged away in the end.
static int renew(struct store_db *db, void *done, struct err *err) {
    TRY(store_words_renew(db, done, err));
    return *(bool *)done ? store_tidy_mark(db, err) : 0;
}

int store_tidy_step(struct store_db *db, struct err *err) {
    struct err unread = {0};
    bool done = false;
    if (!err) err = &unread;
    if (db->unpaired) {
        TRY(store_db_transaction(db, renew, &done, err));
        db->unpaired = !done;
        return 0;
    }
    TRY(store_db_transaction(db, merge, &done, err));
    db->merging = !done;
    if (done) {
        db->unmerged = db->again;
        db->again = false;
    }
    return 0;
}
