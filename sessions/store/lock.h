// Locks on a file beside the database. They end with their process.
#pragma once
#include "sessions/store/db.h"

// Opens or makes such a file, of mode 0600 and of the database's owner: a descriptor, E_DENIED, E_IO ...
int store_open_beside(const char *db_path, const char *path, int flags, struct err *err);
// The server's: one process at a time. E_BUSY names the process that holds it.
int store_lock_take(struct store_db *db, struct err *err);
int store_lock_visit(struct store_db *db, struct err *err); // a guest's: opens the file alone
// A server has the database. Not while this process has it open with SQLite: closing the descriptor
// would drop SQLite's locks.
bool store_lock_is_held(const struct store_db *db);
long store_lock_holder(int fd); // the process that the lock file names; 0: none
// WAL mode needs shared memory and reliable locks: E_UNSUPPORTED where the file system has neither.
int store_refuse_network(const char *path, int fd, struct err *err);
// One process at a time writes or checkpoints. Waits up to 2 s, then E_BUSY. Nests. Fails as
// store_watch does.
int store_db_write_begin(struct store_db *db, struct err *err);
void store_db_write_end(struct store_db *db);
#define STORE_BUSY_MS 2000
