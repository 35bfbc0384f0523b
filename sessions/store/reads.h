// Reads on a thread and a connection of their own, so that no commit waits for one.
//
// Each owner has a queue; the thread serves the queues in turn. A read starts when the writes that
// were sent before it are committed. Only the sender's thread calls, except reads_written.
#pragma once
#include "sessions/store/db.h"

#define READS_PER_OWNER 256

struct queue;
struct reads;

// A reader of the writer's database. E_NOMEM, E_IO ...
int reads_open(struct reads **out, const struct store_db *writer, struct queue *answers,
               const char *thread_name, bool run_ahead, struct err *err);
// Interrupts the read that runs and joins the thread. reads_written() and reads_push() stay legal.
// NULL is fine, here and below.
void reads_stop(struct reads *r);
// Stops it, drops the reads that wait, and frees. The writer's thread must have ended.
void reads_close(struct reads *r);
// Takes the job, whose answer comes after that of write number `after`. E_LIMIT: its owner has
// READS_PER_OWNER waiting; the job stays the caller's.
int reads_push(struct reads *r, struct store_job *job, uint64_t after);
// Drops the client's reads; returns how many. One that runs is interrupted and answered.
size_t reads_cancel(struct reads *r, uint64_t client);
// The store's thread: so many more writes are answered.
void reads_written(struct reads *r, uint64_t n);

// The store's thread: while held, no read begins. Returns whether one runs.
bool reads_hold(struct reads *r, bool hold);

// Runs a read and sets its code. `between` as for store_watch.
void read_job(struct store_db *db, struct store_job *job, bool between);
