// The key of a database, drawn at its first start and kept in it. See read.h.
#include "base/err.h"
#include "base/log.h"
#include "base/random_id.h"
#include "sessions/store/read.h"

static int keep(struct store_db *db, void *drawn, struct err *err) {
    const int64_t *halves = drawn;
    return store_db_run(db,
                        "INSERT OR REPLACE INTO state (name, value)"
                        " VALUES ('secret_0', ?1), ('secret_1', ?2)",
                        NUMBERS(halves[0], halves[1]), err);
}

int store_read_secret(struct store_db *db, uint64_t out[2], struct err *err) {
    int64_t n = 0, halves[2];
    struct err why = {0};
    char quoted[600];
    TRY(store_db_int(db, "SELECT count(*) FROM state WHERE name IN ('secret_0', 'secret_1')", &n,
                     err));
    for (int i = 0; i < 2; i++) halves[i] = (int64_t)random_u64();
    if (n == 2) {
        TRY(store_db_int(db, "SELECT value FROM state WHERE name = 'secret_0'", &halves[0], err));
        TRY(store_db_int(db, "SELECT value FROM state WHERE name = 'secret_1'", &halves[1], err));
    } else if (store_db_transaction(db, keep, halves, &why) < 0) {
        // A full disk must not stop a start. Signatures of this run are then invalid after the next start.
        log_warn("store.secret", "error=%s", log_quote(quoted, sizeof quoted, why.text));
    }
    for (int i = 0; i < 2; i++) out[i] = (uint64_t)halves[i];
    return 0;
}
