// Deleted words leave the index in small steps while store_db.unmerged.
#pragma once
#include "sessions/store/db.h"

int store_tidy_init(struct store_db *db,
                    struct err *err); // at the start: what the last run left undone
int store_tidy_mark(struct store_db *db, struct err *err); // within a deletion's transaction
int store_tidy_step(struct store_db *db, struct err *err); // a transaction of its own
