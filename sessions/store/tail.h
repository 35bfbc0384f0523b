// The tail: a file beside the database (FILE.tail) with tokens whose deltas are sent before SQLite
// has them.
//
// A delta is sent after its token has left this process, and must not wait for an fsync or another
// thread. So all tokens of a step are one write() into the page cache, which survives kill -9.
// Commits follow within the commit interval. The next start takes from the tail what the database
// lacks. A power loss may lose the tail: deltas of a running turn, never the end of one.
//
// A record is a run of one turn's tokens with a checksum. The first incomplete record ends the
// tail. Net thread.
#pragma once
#include "base/err.h"
#include "sessions/store/record.h"

struct store_db;
struct tail;

// Creates or empties it: recovery has read it before. E_DENIED, E_IO ...
int tail_open(struct tail **out, const char *db_path, struct err *err);
void tail_close(struct tail *t, bool remove); // remove: the database has all of it
// A run of a turn's tokens, of session number `key`. Into a buffer: tail_flush writes. E_NOMEM.
int tail_put(struct tail *t, int64_t key, const struct turn_record *turn,
             const struct token_run *run);
// Writes all that was put or, on failure, nothing.
int tail_flush(struct tail *t, struct err *err);
// Tests whether the disk takes a write. The records stay.
int tail_try(struct tail *t, struct err *err);
int64_t tail_bytes(const struct tail *t);
// What is put between begin and end replaces all records. With `scrub`, and when nothing was put,
// no old byte stays in the file. On failure the old records stay.
void tail_rewrite_begin(struct tail *t);
int tail_rewrite_end(struct tail *t, bool scrub, struct err *err);

// At the start, before recovery ends turns: gives them the tokens whose deltas were sent, in one
// transaction. Deltas of an unreadable record were not sent.
int tail_recover(struct store_db *db, int64_t *n_tokens, struct err *err);
// Recovers and removes it, before a tool deletes words that it may hold.
int tail_absorb(struct store_db *db, struct err *err);
