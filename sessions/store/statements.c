// Every fixed statement.
#include "sessions/store/db.h"

#define SESSION_COLUMNS                                                                            \
    "s.key, s.id, s.owner, m.name, m.fingerprint, s.title, s.auto_title, s.system, s.sampling, "   \
    "s.session_len, s.memory_len, s.sink_len, s.created_ms, s.updated_ms, s.closed_ms, "           \
    "s.n_turns, "                                                                                  \
    "s.n_tokens, s.seq, s.seq_reserved, s.head, s.forked_from, s.forked_turn, "                    \
    "s.cancel_after_ms FROM sessions s "                                                           \
    "JOIN models m ON m.key = s.model"

// What of a turn is the same in a copy of it: all but its key, its place in a session, and the
// event numbers and the request id that it has there. A column that a migration adds belongs here
// or there; tests/unit/test_sessions_tree.c compares every one that the table has.
#define TURN_FACTS                                                                                 \
    "request, input_kind, input_text, input_ids, log_first, n_input, n_output, sampling, seed, "   \
    "logprobs, n_alternatives, finish_reason, error_code, error_message, log_tokens, "             \
    "kept_tokens, computed_tokens, queue_us, prefill_us, first_token_us, decode_us, "              \
    "cache_source, instance, build, created_ms, started_ms, ended_ms, resume_us"

static const char *const statements[SQL_COUNT] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_MODEL_ADD] =
        "INSERT INTO models (fingerprint, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
    [SQL_SESSION_ADD] = "INSERT INTO sessions (key, id, owner, model, title, auto_title, system, "
                        "sampling, session_len, memory_len,"
                        " sink_len, created_ms, updated_ms, closed_ms, n_turns, n_tokens, seq, "
                        "seq_reserved, head, forked_from, forked_turn, cancel_after_ms) "
                        "VALUES (?1, ?2, ?3,"
                        " (SELECT key FROM models WHERE fingerprint = ?4), ?5, ?6, ?7, ?8, ?9, "
                        "?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,"
                        " ?18, ?19, ?20, ?21, ?22)",
    [SQL_SESSION_SET] = "UPDATE sessions SET title = ?2, auto_title = ?3, sampling = ?4, "
                        "updated_ms = ?5, closed_ms = ?6, n_turns = ?7,"
                        " n_tokens = ?8, seq = ?9, seq_reserved = ?10, head = ?11, "
                        "cancel_after_ms = ?12 WHERE key = ?1",
    [SQL_TITLE_DROP] = "DELETE FROM search WHERE rowid = -?1",
    [SQL_TITLE_ADD] = "INSERT INTO search (rowid, words, session) VALUES (-?1, ?2, ?1)",
    [SQL_TURN_ADD] = "INSERT INTO turns (session, turn, request_id, request, input_kind, "
                     "input_text, input_ids, log_first, n_input,"
                     " n_output, sampling, seed, logprobs, n_alternatives, finish_reason, "
                     "error_code, error_message, log_tokens,"
                     " kept_tokens, computed_tokens, queue_us, prefill_us, first_token_us, "
                     "decode_us, cache_source, instance, build,"
                     " seq_first, seq_last, created_ms, started_ms, ended_ms, resume_us, parent) "
                     "VALUES (?1, ?2, ?23, "
                     "?24, ?25, ?26, ?3, ?4, ?5, ?6, ?27,"
                     " ?28, ?29, ?30, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?31, "
                     "?32, ?18, ?19, ?33, ?20, ?21, ?22, ?34)",
    [SQL_TURN_SET] = "UPDATE turns SET input_ids = ?3, log_first = ?4, n_input = ?5, n_output = "
                     "?6, finish_reason = ?7,"
                     " error_code = ?8, error_message = ?9, log_tokens = ?10, kept_tokens = ?11, "
                     "computed_tokens = ?12, queue_us = ?13,"
                     " prefill_us = ?14, first_token_us = ?15, decode_us = ?16, cache_source = "
                     "?17, seq_first = ?18, seq_last = ?19,"
                     " started_ms = ?20, ended_ms = ?21, resume_us = ?22 WHERE session = ?1 AND "
                     "turn = ?2",
    [SQL_TOKENS_DROP] = "DELETE FROM tokens WHERE session = ?1 AND turn = ?2",
    [SQL_TOKENS_ADD] = "INSERT INTO tokens (session, turn, first, ids, logprobs, text_ends, "
                       "alternatives, text, seq,"
                       " seq_reserved) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [SQL_EVENT_ADD] = "INSERT INTO events (session, seq, n, kind, turn, reason, at_ms) VALUES (?1, "
                      "?2, ?3, ?4, ?5, ?6, ?7)",
    [SQL_WORDS_ADD] = "INSERT INTO search (rowid, words, session)"
                      " SELECT key, ?3, session FROM turns WHERE session = ?1 AND turn = ?2",
    [SQL_WORDS_SET] = "UPDATE search SET words = ?3 WHERE rowid = (SELECT key FROM turns WHERE "
                      "session = ?1 AND turn = ?2)",
    // One turn of a path into another session, where it is turn ?2 behind the one before it. No
    // event speaks of it there, and nobody asked for it under this request id.
    [SQL_FORK_TURN] =
        "INSERT INTO turns (session, turn, parent, request_id, seq_first, seq_last, " TURN_FACTS
        ") SELECT ?1, ?2, ?2 - 1, '', 1, 1, " TURN_FACTS " FROM turns WHERE session = ?3 AND "
        "turn = ?4 AND finish_reason IS NOT NULL",
    [SQL_FORK_TOKENS] =
        "INSERT INTO tokens (session, turn, first, ids, logprobs, text_ends, alternatives, text, "
        "seq, seq_reserved) SELECT ?1, ?2, first, ids, logprobs, text_ends, alternatives, text, 1, "
        "1 FROM tokens WHERE session = ?3 AND turn = ?4",
    [SQL_FORK_WORDS] =
        "INSERT INTO search (rowid, words, session) SELECT n.key, o.words, ?1 FROM turns n, turns t"
        " JOIN search o ON o.rowid = t.key WHERE n.session = ?1 AND n.turn = ?2 AND t.session = ?3"
        " AND t.turn = ?4",
    [SQL_PROBE] = "INSERT INTO state (name, value) VALUES ('probed_ms', ?1)"
                  " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    [SQL_WORDS_DROP] =
        "DELETE FROM search WHERE rowid IN (SELECT key FROM turns WHERE session = ?1)",
    [SQL_SESSION_DROP] = "DELETE FROM sessions WHERE key = ?1",
    // Deleted words stay in older segments of the index until these are merged.
    [SQL_WORDS_OPTIMIZE] = "INSERT INTO search (search) VALUES ('optimize')",
    [SQL_WORDS_MERGE] = "INSERT INTO search (search, rank) VALUES ('merge', ?1)",
    [SQL_UNMERGED_SET] =
        "INSERT INTO state (name, value) VALUES ('unmerged', 1) ON CONFLICT (name) DO NOTHING",
    [SQL_UNMERGED_CLEAR] = "DELETE FROM state WHERE name = 'unmerged'",
    [SQL_SESSION_GET] = "SELECT " SESSION_COLUMNS " WHERE s.id = ?1",
    // Ids are given again once a session is gone, so that the way may go round.
    [SQL_ORIGINS_GET] =
        "WITH RECURSIVE up (id, n) AS (SELECT forked_from, 1 FROM sessions WHERE key = ?1 UNION ALL"
        " SELECT s.forked_from, n + 1 FROM up JOIN sessions s ON s.id = up.id AND s.owner = ?2 AND"
        " n < ?3) SELECT id FROM up WHERE id IS NOT NULL ORDER BY n",
    [SQL_ROW_GET] = "SELECT " SESSION_COLUMNS " WHERE s.key = ?1",
    [SQL_IMPORTED_GET] = "SELECT key FROM sessions WHERE key >= ?1 ORDER BY key",
    [SQL_DATA_VERSION] = "PRAGMA data_version",
    [SQL_KEY_GET] = "SELECT key FROM sessions WHERE id = ?1 AND (?2 IS NULL OR owner = ?2)",
    [SQL_LIVE_GET] = "SELECT 1 FROM sessions WHERE id = ?1 AND closed_ms = 0",
    [SQL_CUT_OFF_GET] =
        "SELECT coalesce(sum(length(p.ids) / 4), 0), coalesce(sum(length(p.text)), 0) FROM turns t"
        " LEFT JOIN tokens p ON p.session = t.session AND p.turn = t.turn WHERE t.session = ?1 AND"
        " t.turn = ?2 AND t.created_ms = ?3 AND t.seed = ?4 AND t.n_alternatives = ?5 AND"
        " t.log_first >= 0 AND t.finish_reason IS NULL GROUP BY t.key",
    [SQL_TURNS_GET] =
        "SELECT turn, request_id, request, input_kind, input_text, input_ids, log_first, n_input, "
        "n_output, sampling,"
        " seed, logprobs, n_alternatives, finish_reason, error_code, error_message, log_tokens, "
        "kept_tokens,"
        " computed_tokens, queue_us, prefill_us, first_token_us, decode_us, cache_source, "
        "instance, build, seq_first,"
        " seq_last, created_ms, started_ms, ended_ms, coalesce(parent, turn - 1), resume_us FROM "
        "turns"
        " WHERE session = ?1"
        " AND turn >= ?2 AND turn < ?3 ORDER BY turn",
    [SQL_TOKENS_GET] =
        "SELECT first, ids, logprobs, text_ends, alternatives, text, seq_reserved FROM tokens"
        " WHERE session = ?1 AND turn = ?2 ORDER BY first",
    [SQL_EVENTS_GET] =
        "SELECT seq, n, kind, turn, reason, at_ms FROM events WHERE session = ?1 ORDER BY seq",
};

const char *store_sql_text(enum store_sql which) {
    return statements[which];
}
