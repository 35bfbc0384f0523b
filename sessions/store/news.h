// Sessions that another process has imported.
#pragma once
#include "sessions/store/db.h"

// Appends the sessions imported since the last look to *out. After a failure, which may
// leave some rows in *out, the next look returns all of them again.
int store_news_init(struct store_db *db, struct err *err);
void store_news_release(struct store_db *db);
int store_news_read(struct store_db *db, struct store_list *out, struct err *err);
