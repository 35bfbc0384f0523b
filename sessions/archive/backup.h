// A consistent copy of a database, beside a running server or without one.
#pragma once
#include <stdint.h>

struct err;

typedef void (*backup_progress)(void *ctx, int64_t done, int64_t total); // pages
// Copies the database `from` within one read transaction into TO.part, checks it, syncs it and
// renames it to `to` (0600). A server goes on meanwhile, but cannot reset its log before the copy
// ends. E_EXISTS when `to` exists. A failure leaves no file.
int backup_database(const char *from, const char *to, backup_progress progress, void *ctx,
                    struct err *err);
// Creates the empty file `part` (0600) and locks it; the lock lasts until the returned descriptor is closed. A
// stale file that an interrupted command left is reused. E_BUSY: another command is writing it.
int backup_part(const char *part, struct err *err);
// Syncs the finished file `part` and renames it to `to`; E_EXISTS when that exists.
int backup_name(const char *part, const char *to, struct err *err);
