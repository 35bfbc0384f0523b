// Rows out of the database.
#pragma once
#include "sessions/store/db.h"

int store_read_session(struct store_db *db, int64_t key, struct stored_session **out,
                       struct err *err); // E_NOTFOUND
// These turns (ascending) with their tokens. The other parts of *out stay empty.
int store_read_turns(struct store_db *db, int64_t key, const int64_t *turns, size_t n,
                     struct stored_session **out, struct err *err);
// A part of a record, in the caller's transaction: turns [turn, end) with their tokens, and at most
// n_events events of the numbers (after, upto].
struct store_part {
    int64_t key, turn, end, after, upto, n_events;
};
int store_read_part(struct store_db *db, const struct store_part *p, struct stored_session **out,
                    struct err *err);
// The first turn without an end, INT64_MAX: all have one.
int store_read_unfinished(struct store_db *db, int64_t key, int64_t *out, struct err *err);
int store_read_row(struct store_db *db, int64_t key, struct session_record *out,
                   struct err *err); // E_NOTFOUND
// owner NULL: all owners. 1: a slice of a search is done, and there is more to look up.
int store_read_list(struct store_db *db, struct store_list *list, struct err *err);
// shared.c: the session that a link opens, by the digest of its token; E_NOTFOUND.
int store_read_shared(struct store_db *db, const char *digest, int64_t *key, struct err *err);
// The turns from a first one to the session's head, ascending: *turns grows to (*n), from NULL.
int store_read_path(struct store_db *db, int64_t key, int64_t **turns, size_t *n, struct err *err);
// told.c
int store_read_told(struct store_db *db, const char *owner, struct store_told *q, struct err *err);
// Numbers of new sessions. The server counts up in memory, below STORE_IMPORT_KEYS; imports, which
// it does not see, draw random ones from there on.
#define STORE_IMPORT_KEYS (INT64_C(1) << 52)
int store_read_next_key(struct store_db *db, int64_t *out, struct err *err);
// secret.c: the database's key, drawn if it has none. If the disk does not take the key, the log says so,
// and the next start draws another one.
int store_read_secret(struct store_db *db, uint64_t out[2], struct err *err);
struct store_start;
int store_read_owners(struct store_db *db, struct store_start *out, struct err *err);
int store_read_import_key(struct store_db *db, int64_t *out, struct err *err);
// A session's number, even where the rest of its record is damaged. E_NOTFOUND. For tools, owner
// NULL: any; E_INVAL names them when several have a session of this id.
int store_read_key(struct store_db *db, const char *owner, const char *id, int64_t *out,
                   struct err *err);
// All sessions that are not closed; a value other than 0 ends it and is returned.
int store_read_live(struct store_db *db, int (*each)(void *ctx, const char *owner, const char *id),
                    void *ctx, struct err *err);
