// Rows into the database, within a transaction.
#pragma once
#include "sessions/store/db.h"

int store_write_save(struct store_db *db, const struct session_save *save, struct err *err);
// A whole session, under its number (rec.key).
int store_write_session(struct store_db *db, const struct stored_session *s, struct err *err);
int store_write_delete(struct store_db *db, int64_t key, struct err *err); // and merges the index
int store_write_delete_rows(struct store_db *db, int64_t key,
                            struct err *err); // tidy.c does the rest
int store_write_probe(struct store_db *db, int64_t now_ms, struct err *err);
