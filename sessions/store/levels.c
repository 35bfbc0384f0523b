// Removes empty levels of the index of words. See levels.h.
//
// FTS5 has one record of the index's structure: search_data's row 10. Behind a cookie of 4 bytes stand numbers of 7 bits
// a byte (SQLite's varints): how many levels, segments and writes; of each level how many of its segments are being merged
// and how many it has; of each segment its id, its first and its last page. A level without segments says nothing: the
// order of the others stays, and a segment that a merge writes stays on the level above those that the merge reads.
#include "sessions/store/levels.h"
#include "base/buf.h"
#include "base/err.h"

#define STRUCTURE_ID 10
#define COOKIE_BYTES 4
#define RECORD_BYTES (1 << 20)

struct reader {
    const uint8_t *at, *end;
    bool failed;
};

static uint64_t take_number(struct reader *r) {
    uint64_t v = 0;
    for (int i = 0; i < 8 && r->at < r->end; i++) {
        v = v << 7 | (*r->at & 0x7f);
        if (!(*r->at++ & 0x80)) return v;
    }
    r->failed = true;
    return 0;
}

static void add_number(struct buf *out, uint64_t v) {
    for (int shift = 49; shift > 0; shift -= 7)
        if (v >> shift) buf_addc(out, (char)(0x80 | (v >> shift & 0x7f)));
    buf_addc(out, (char)(v & 0x7f));
}

// Its levels that have segments, as they stand there. False: the record has another form.
static bool take_levels(struct reader *r, uint64_t n, struct buf *out, uint64_t *n_kept) {
    for (uint64_t i = 0; i < n && !r->failed; i++) {
        const uint8_t *level = r->at;
        take_number(r);
        uint64_t n_segments = take_number(r);
        for (uint64_t k = 0; k < 3 * n_segments && !r->failed; k++) take_number(r);
        if (n_segments == 0) continue;
        buf_add(out, level, (size_t)(r->at - level));
        ++*n_kept;
    }
    return !r->failed && r->at == r->end;
}

// *out: the record without its empty levels; empty if there are few levels or the form is unknown. E_NOMEM.
static int trim(const uint8_t *record, size_t len, struct buf *out) {
    struct buf kept;
    struct reader r = {.at = record + COOKIE_BYTES, .end = record + len};
    if (len < COOKIE_BYTES) return 0;
    uint64_t n_kept = 0, n = take_number(&r);
    const uint8_t *counts = r.at;
    take_number(&r);
    take_number(&r);
    size_t counts_len = (size_t)(r.at - counts);
    if (n <= STORE_LEVELS_MOST) return 0;
    buf_init(&kept, RECORD_BYTES);
    bool known = take_levels(&r, n, &kept, &n_kept);
    if (known) {
        buf_add(out, record, COOKIE_BYTES);
        add_number(out, n_kept);
        buf_add(out, counts, counts_len);
        buf_add(out, kept.data, kept.len);
    }
    int rc = kept.error ? kept.error : out->error;
    buf_release(&kept);
    return rc;
}

static int read_trimmed(struct store_db *db, struct buf *out, struct err *err) {
    sqlite3_stmt *s;
    int rc = 0;
    TRY(store_db_prepare(db, "SELECT block FROM search_data WHERE id = ?1", 0, &s, err));
    sqlite3_bind_int64(s, 1, STRUCTURE_ID);
    if (sqlite3_step(s) == SQLITE_ROW)
        rc = trim(sqlite3_column_blob(s, 0), (size_t)sqlite3_column_bytes(s, 0), out);
    sqlite3_finalize(s);
    return rc < 0 ? err_set(err, rc, "no memory for the index of words") : 0;
}

// FTS5 keeps what it has read of the record until a transaction of its table is undone.
static int forget_read(struct store_db *db, struct err *err) {
    TRY(store_db_exec(db, "SAVEPOINT levels", err));
    // Of an index that SQLite does not read it has read nothing.
    store_db_exec(db, "INSERT INTO search (search, rank) VALUES ('merge', 1)", NULL);
    return store_db_exec(db, "ROLLBACK TO levels; RELEASE levels", err);
}

static int write_record(struct store_db *db, const struct buf *record, struct err *err) {
    sqlite3_stmt *s;
    TRY(store_db_prepare(db, "UPDATE search_data SET block = ?1 WHERE id = ?2", 0, &s, err));
    sqlite3_bind_blob(s, 1, record->data, (int)record->len, SQLITE_STATIC);
    sqlite3_bind_int64(s, 2, STRUCTURE_ID);
    int rc = sqlite3_step(s) == SQLITE_DONE ? 0 : store_db_error(db, err);
    sqlite3_finalize(s);
    return rc;
}

int store_levels_trim(struct store_db *db, struct err *err) {
    struct buf record;
    buf_init(&record, RECORD_BYTES);
    int rc = read_trimmed(db, &record, err);
    if (rc == 0 && record.len > 0) rc = forget_read(db, err);
    if (rc == 0 && record.len > 0) rc = write_record(db, &record, err);
    buf_release(&record);
    return rc;
}
