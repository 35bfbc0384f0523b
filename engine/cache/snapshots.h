// The folder of snapshots: which sessions have one, the bytes of all together, and the two threads
// that write and read them. The total is bounded: the least recently used is removed first. A lock
// file gives the folder to one engine at a time.
//
// This is the mechanism; write.c decides which cache is written, read.c which is read. Once open,
// only the engine's thread calls these functions, and none of them waits for the disk.
#pragma once
#include "base/hash.h"
#include "base/queue.h"
#include "engine/cache/snapshot_file.h"
#include "engine/events.h"
#include <pthread.h>
#include <stdbool.h>

struct snapshot_entry {
    struct hash128 name;
    char id[KV_SNAPSHOT_ID_MAX + 1];
    int64_t bytes, n_tokens;
    int64_t used_ns; // at opening: the file's time of modification
    struct snapshot_entry *prev, *next;
    UT_hash_handle hh;
};

struct snapshots {
    enum {
        SNAPSHOTS_OFF, // there is no folder
        SNAPSHOTS_OPEN,
        SNAPSHOTS_RUNNING // with its threads
    } state;
    int dir_fd, lock_fd;
    int64_t limit, bytes, pending; // bytes: the most allowed; of all files; of those being written
    struct kv_snapshot_maker maker;
    struct snapshot_entry *by_name, *lru; // lru: the least recently used first
    struct queue writes, reads;           // of struct snapshot_job *
    pthread_t writer, reader;
    int32_t n_writing, n_reading;
    struct snapshot_job *writing[4]; // (n_writing)
    // Called on one of the threads: gives a finished job back to the engine.
    void (*done)(void *ctx, struct snapshot_job *j);
    void *done_ctx;
    struct emitter *emit; // ENGINE_SNAPSHOT; NULL while the folder is scanned
};

enum {
    SNAPSHOTS_MAX_FILES = 16384,
    SNAPSHOTS_MAX_WRITES = 4, // as struct snapshots.writing
    SNAPSHOTS_MAX_READS = 64
};

// Makes the folder where there is none, takes its lock, and scans it: half-written and unreadable
// snapshots, and those beyond the limit, are removed with a line in the log; files of other names
// stay. E_BUSY: another engine has the folder. On failure *f is zeroed.
int snapshots_open(struct snapshots *f, const char *dir, int64_t limit,
                   const struct kv_snapshot_maker *maker, struct err *err);
int snapshots_start(struct snapshots *f, void (*done)(void *ctx, struct snapshot_job *j), void *ctx,
                    struct err *err);
// Ends the threads: writes are aborted, reads are finished, and all jobs come back through done().
void snapshots_stop(struct snapshots *f);
void snapshots_close(struct snapshots *f);
static inline bool snapshots_on(const struct snapshots *f) {
    return f->state != SNAPSHOTS_OFF;
}

struct snapshot_entry *snapshots_find(struct snapshots *f, const char *id); // NULL: none
bool snapshots_is_writing(const struct snapshots *f, uint64_t sequence);    // of this sequence, any
// Removes the snapshot of this name, if any, also one that is being written.
void snapshots_forget(struct snapshots *f, struct hash128 name);
// Begins the job and takes *j on 0. E_BUSY: too many under way; E_FULL: larger than the limit.
int snapshots_write(struct snapshots *f, struct snapshot_job *j);
int snapshots_read(struct snapshots *f, struct snapshot_job *j); // OPEN, READ. E_BUSY
// Starts the next piece of a job. E_CANCELLED: the threads are ending.
int snapshots_again(struct snapshots *f, struct snapshot_job *j);
// Call when done() has returned the job to the engine: updates the entries and totals.
void snapshots_done(struct snapshots *f, struct snapshot_job *j);
