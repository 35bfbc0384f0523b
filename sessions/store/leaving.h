// While sessions are moved to another database, some may be in both.
#pragma once
#include "sessions/store/db.h"

// They are moved to the database at `path`. NULL: no longer.
int store_leaving_set(struct store_db *db, const char *path, struct err *err);
// E_BUSY: they are being moved to another one than `path` (NULL: to any), and how to finish that.
int store_leaving_check(struct store_db *db, const char *path, struct err *err);
