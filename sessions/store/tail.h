// The tail: tokens that clients are told of before SQLite has them, in a file beside the database
// (FILE.tail) that survives the process.
//
// A token must be out of this process before its delta is told, and must not wait for an fsync or
// another thread: one write() for all tokens of a step, into the system's page cache, which kill -9
// does not touch. Commits follow within the commit interval; at the next start what the database
// does not have yet is taken from here. Power loss may take the tail with it, and only that: what
// it tells is deltas, never the end of a turn.
//
// Each record is a run of one turn's tokens with a checksum; one that was cut off ends what counts.
// Net thread.
#pragma once
#include "base/err.h"
#include "sessions/store/record.h"

struct store_db;
struct tail;

// An empty one: recovery has taken what was in it. NULL with *err: E_DENIED, E_IO ...
int tail_open(struct tail **out, const char *db_path, struct err *err);
void tail_close(struct tail *t, bool remove); // remove: all of it is in the database
// A run of a turn's tokens, of session number `key`. Into a buffer: tail_flush writes. E_NOMEM.
int tail_put(struct tail *t, int64_t key, const struct turn_record *turn,
             const struct token_run *run);
// Writes what was put; all of it or, on failure, nothing.
int tail_flush(struct tail *t, struct err *err);
// Would a write be taken? Nothing that counts changes.
int tail_try(struct tail *t, struct err *err);
int64_t tail_bytes(const struct tail *t);
// Between begin and end what was put replaces all that counts. With `scrub`, and where nothing was
// put, none of the old bytes stay in the file. On failure the old records stay.
void tail_rewrite_begin(struct tail *t);
int tail_rewrite_end(struct tail *t, bool scrub, struct err *err);

// At the start, before turns without an end are ended: gives them the tokens that they told. One
// transaction; *n_tokens counts. Unreadable rests are of records that nobody was told of.
int tail_recover(struct store_db *db, int64_t *n_tokens, struct err *err);
// Takes what is in it and removes it: before a tool deletes words, which it may hold too.
int tail_absorb(struct store_db *db, struct err *err);
