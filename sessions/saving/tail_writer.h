// Tokens enter the tail (store/tail.h) before clients see them, and leave it when the database has them.
// Net thread only.
#pragma once
#include "sessions/state/service.h"

// Opens the tail beside the database, unless `durable` needs none.
int tail_writer_open(struct sessions *ss, const char *db_path, struct err *err);
// all_saved: the database has every token, so that the file can go.
void tail_writer_close(struct sessions *ss, bool all_saved);
// Writes touched sessions' tokens; then clients may see them.
void tail_writer_tokens(struct sessions *ss);
void tail_writer_probe(struct sessions *ss); // tries again after the disk refused the tail
// Drops what the database has. scrub: also overwrites the bytes, which hold words of deleted sessions.
void tail_writer_trim(struct sessions *ss, bool scrub);
