// After a crash: gives an end to each turn without one. Its committed tokens stay.
//
// Deltas may have been sent that were never committed, but none beyond sessions.seq_reserved. One
// "lost" event takes the numbers up to there, so that no number gets a second meaning and there is
// no gap.
#include "sessions/store/recover.h"
#include "base/err.h"
#include "sessions/store/words.h"
#include "sessions/store/write.h"
#include <stdio.h>

static const char *const steps[] = {
    "CREATE TEMP TABLE cut_off AS SELECT session, turn FROM turns WHERE finish_reason IS NULL",
    // The rows of a running turn and its session were written at the turn's start; its tokens are newer.
    "UPDATE turns SET n_output = coalesce((SELECT sum(length(ids) / 4) FROM tokens p WHERE "
    "p.session = turns.session"
    " AND p.turn = turns.turn), 0) WHERE finish_reason IS NULL",
    // Each number is an event's or a token's. Turns that came with a fork (seq_first 1) have none.
    "UPDATE sessions SET"
    " seq = (SELECT coalesce(sum(n), 0) FROM events WHERE session = sessions.key)"
    "  + (SELECT coalesce(sum(length(p.ids) / 4), 0) FROM tokens p JOIN turns t USING (session, "
    "turn) WHERE p.session = sessions.key AND t.seq_first > 1),"
    " seq_reserved = max(seq_reserved, coalesce((SELECT max(p.seq_reserved) FROM tokens p JOIN "
    "cut_off"
    "  USING (session, turn) WHERE p.session = sessions.key), 0)),"
    " n_tokens = max(n_tokens, coalesce((SELECT max(t.log_first + t.n_input + t.n_output) FROM "
    "turns t"
    "  WHERE t.session = sessions.key AND t.log_first >= 0 AND t.finish_reason IS NULL), 0))"
    " WHERE key IN (SELECT session FROM cut_off)",
    "INSERT INTO events (session, seq, n, kind, turn, reason, at_ms)"
    " SELECT key, seq + 1, seq_reserved - seq, 'lost', (SELECT min(turn) FROM cut_off WHERE "
    "session = key), '',"
    " (SELECT ms FROM now) FROM sessions WHERE seq_reserved > seq AND key IN (SELECT session FROM "
    "cut_off)",
    "UPDATE sessions SET seq = max(seq, seq_reserved) WHERE key IN (SELECT session FROM cut_off)",
    "INSERT INTO events (session, seq, n, kind, turn, reason, at_ms)"
    " SELECT c.session, s.seq + row_number() OVER (PARTITION BY c.session ORDER BY c.turn), 1, "
    "'done', c.turn, '',"
    " (SELECT ms FROM now) FROM cut_off c JOIN sessions s ON s.key = c.session",
    "UPDATE search SET words = (SELECT " STORE_TURN_WORDS
    " FROM turns t JOIN sessions s ON s.key = t.session WHERE t.key = search.rowid)"
    " WHERE rowid IN (SELECT key FROM turns WHERE finish_reason IS NULL)",
    "UPDATE turns SET finish_reason = 'interrupted', ended_ms = (SELECT ms FROM now),"
    " seq_last = (SELECT e.seq FROM events e WHERE e.session = turns.session AND e.turn = "
    "turns.turn AND e.kind = 'done'),"
    " log_tokens = CASE WHEN log_first >= 0 THEN log_first + n_input + n_output"
    "  ELSE (SELECT n_tokens FROM sessions WHERE key = turns.session) END WHERE finish_reason IS "
    "NULL",
    // As turn_bytes() counts.
    "UPDATE sessions SET updated_ms = (SELECT ms FROM now),"
    " stored_bytes = stored_bytes + (SELECT sum(512 + length(CAST(t.request AS BLOB))"
    " + coalesce(length(t.input_text), 0) + 16 * "
    "(t.n_input + t.n_output)) FROM turns t JOIN cut_off USING (session, turn) WHERE t.session = "
    "sessions.key),"
    " seq = (SELECT max(e.seq) FROM events e WHERE e.session = key),"
    " seq_reserved = (SELECT max(e.seq) FROM events e WHERE e.session = key)"
    " WHERE key IN (SELECT session FROM cut_off)",
};

static int run(struct store_db *db, void *now_ms, struct err *err) {
    char now[96];
    snprintf(now, sizeof now, "CREATE TEMP TABLE now AS SELECT %lld AS ms",
             (long long)*(int64_t *)now_ms);
    TRY(store_db_exec(db, now, err));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) TRY(store_db_exec(db, steps[i], err));
    return store_db_exec(db, "DROP TABLE cut_off; DROP TABLE now", err);
}

int store_recover(struct store_db *db, int64_t now_ms, int64_t *n_interrupted, struct err *err) {
    TRY(store_db_int(db, "SELECT count(*) FROM turns WHERE finish_reason IS NULL", n_interrupted,
                     err));
    return *n_interrupted == 0 ? 0 : store_db_transaction(db, run, &now_ms, err);
}

static int next_temporary(struct store_db *db, int64_t *key, struct err *err) {
    return store_db_int(
        db,
        "SELECT coalesce(min(session), 0) FROM notes WHERE note = CAST('" RECORD_TEMPORARY
        "' AS BLOB)",
        key, err);
}

static int remove_temporary(struct store_db *db, void *n_removed, struct err *err) {
    int64_t key = 0;
    TRY(next_temporary(db, &key, err));
    while (key > 0) {
        TRY(store_write_delete_rows(db, key, err));
        ++*(int64_t *)n_removed;
        TRY(next_temporary(db, &key, err));
    }
    return 0;
}

int store_remove_temporary(struct store_db *db, int64_t *n_removed, struct err *err) {
    int64_t n_tables = 0, key = 0;
    TRY(store_db_int(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'notes'", &n_tables,
                     err));
    if (n_tables > 0) TRY(next_temporary(db, &key, err));
    return key > 0 ? store_db_transaction(db, remove_temporary, n_removed, err) : 0;
}
