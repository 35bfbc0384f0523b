// Whether the files are still those that were opened.
#pragma once
#include "sessions/store/db.h"

// E_IO when the database or its log is no longer the file that was opened, or was cut short. With `between`
// no transaction of this process is open, and an index that was cut short is repaired; without it
// that is E_BUSY. For the server's connection.
int store_watch(struct store_db *db, bool between, struct err *err);
