// A consistent copy of a database, beside a running server or without one.
#pragma once
#include <stdint.h>

struct err;

typedef void (*backup_progress)(void *ctx, int64_t done, int64_t total); // pages
// Copies the database at `from` as it is at one moment into a new file `to` (0600): page by page
// within one read transaction, into TO.part, which is checked, synced and then given its name. The
// server goes on meanwhile; its log is not reset before the copy is done. E_EXISTS when there is
// such a file already; nothing is left behind on failure.
int backup_database(const char *from, const char *to, backup_progress progress, void *ctx,
                    struct err *err);
