// Every fixed statement.
#include "sessions/store/db.h"

static const char *const statements[SQL_COUNT] = {
    [SQL_MODEL_ADD] =
        "INSERT INTO models (fingerprint, name) VALUES (:fingerprint, :model) ON CONFLICT DO "
        "NOTHING",
    [SQL_SESSION_ADD] = "INSERT INTO sessions ({sessions:names}) VALUES ({sessions:values})",
    [SQL_SESSION_SET] = "UPDATE sessions SET {sessions:sets} WHERE key = :key",
    [SQL_TITLE_DROP] = "DELETE FROM search WHERE rowid = -?1",
    [SQL_TITLE_ADD] = "INSERT INTO search (rowid, words) VALUES (-?1, owner_tag(?2) || ?3)",
    [SQL_TURN_ADD] = "INSERT INTO turns ({turns:names}) VALUES ({turns:values})",
    [SQL_TURN_SET] = "UPDATE turns SET {turns:sets} WHERE session = :session AND turn = :turn",
    [SQL_TOKENS_DROP] = "DELETE FROM tokens WHERE session = :session AND turn = :turn",
    [SQL_TOKENS_ADD] = "INSERT INTO tokens ({tokens:names}) VALUES ({tokens:values})",
    [SQL_EVENT_ADD] = "INSERT INTO events ({events:names}) VALUES ({events:values})",
    [SQL_WORDS_ADD] =
        "INSERT INTO search (rowid, words) SELECT t.key, owner_tag(s.owner) || ?3 "
        "FROM turns t JOIN sessions s ON s.key = t.session WHERE t.session = ?1 AND t.turn = ?2",
    [SQL_WORDS_SET] =
        "UPDATE search SET words = (SELECT owner_tag(owner) FROM sessions WHERE key = ?1) || ?3 "
        "WHERE rowid = (SELECT key FROM turns WHERE session = ?1 AND turn = ?2)",
    // One turn of a path into another session, where it is turn :turn behind the one before it. No
    // event speaks of it there, and it has no request id.
    [SQL_FORK_TURN] = "INSERT INTO turns ({turns:names}) SELECT {turns:copies} FROM turns WHERE "
                      "session = :from AND turn = :from_turn AND finish_reason IS NOT NULL",
    [SQL_FORK_TOKENS] = "INSERT INTO tokens ({tokens:names}) SELECT {tokens:copies} FROM tokens "
                        "WHERE session = :from AND turn = :from_turn",
    [SQL_FORK_WORDS] =
        "INSERT INTO search (rowid, words) SELECT n.key, o.words FROM turns n, "
        "turns t JOIN search o ON o.rowid = t.key WHERE n.session = :session AND n.turn = :turn "
        "AND t.session = :from AND t.turn = :from_turn",
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
    // Ids are given again once a session is gone, so that the way may go round.
    [SQL_ORIGINS_GET] =
        "WITH RECURSIVE up (id, n) AS (SELECT forked_from, 1 FROM sessions WHERE key = ?1 UNION ALL"
        " SELECT s.forked_from, n + 1 FROM up JOIN sessions s ON s.id = up.id AND s.owner = ?2 AND"
        " n < ?3) SELECT id FROM up WHERE id IS NOT NULL ORDER BY n",
    [SQL_ROW_GET] = STORE_SESSIONS "WHERE s.key = ?1",
    [SQL_IMPORTED_GET] = "SELECT key FROM sessions WHERE key >= ?1 ORDER BY key",
    [SQL_DATA_VERSION] = "PRAGMA data_version",
    [SQL_KEY_GET] = "SELECT key FROM sessions WHERE id = ?1 AND owner = ?2",
    [SQL_KEYS_GET] =
        "SELECT min(key), count(*), group_concat(owner, ', ') FROM sessions WHERE id = "
        "?1",
    [SQL_CUT_OFF_GET] =
        "SELECT coalesce(sum(length(p.ids) / 4), 0), coalesce(sum(length(p.text)), 0) FROM turns t"
        " LEFT JOIN tokens p ON p.session = t.session AND p.turn = t.turn WHERE t.session = ?1 AND"
        " t.turn = ?2 AND t.created_ms = ?3 AND t.seed = ?4 AND t.n_alternatives = ?5 AND"
        " t.log_first >= 0 AND t.finish_reason IS NULL GROUP BY t.key",
    [SQL_TURNS_GET] = "SELECT {turns:reads} FROM turns WHERE session = ?1 AND turn >= ?2 AND turn "
                      "< ?3 ORDER BY turn",
    [SQL_TOKENS_GET] =
        "SELECT {tokens:reads} FROM tokens WHERE session = ?1 AND turn = ?2 ORDER BY first",
    [SQL_EVENTS_GET] = "SELECT {events:reads} FROM events WHERE session = ?1 AND seq > ?2 AND seq "
                       "<= ?3 ORDER BY seq LIMIT ?4",
    [SQL_UNFINISHED_GET] =
        "SELECT min(turn) FROM turns WHERE session = ?1 AND finish_reason IS NULL",
};

const char *store_sql_text(enum store_sql which) {
    return statements[which];
}
