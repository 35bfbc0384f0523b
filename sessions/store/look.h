// Facts about a database from outside: without opening it, with a server on it or without.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;

struct store_look {
    bool exists;
    int64_t bytes;
    int64_t schema;  // that it was written with; 0: nothing was written yet
    int64_t ours;    // the schema that this program writes
    long server_pid; // the server that has it open; 0: none
};

// E_DENIED, E_NOTFOUND (its folder), E_INVAL (no regular file), E_FORMAT (no database of Parley's),
// E_UNSUPPORTED (a network file system). Not for a process that has the database open: closing the
// file would drop SQLite's locks.
int store_look(struct store_look *out, const char *path, struct err *err);
