// What an earlier process left undone.
#pragma once
#include "sessions/store/db.h"

// Removes sessions that are temporary (record.h): their program ended before it did so.
int store_remove_temporary(struct store_db *db, int64_t *n_removed, struct err *err);
// Ends every turn without an end as "interrupted".
int store_recover(struct store_db *db, int64_t now_ms, int64_t *n_interrupted, struct err *err);
