// The folder of snapshots: which sessions have one, how much they take together, and the two
// threads that write and read them. Bounded: what was used longest ago goes first. One process at a
// time has the folder, by a lock that goes with it.
//
// This is the mechanism; who is written is persist.c's, who is read resume.c's. Engine thread only,
// once open, but for the threads' own part. Nothing here waits for the disk after opening.
#pragma once
#include "base/hash.h"
#include "base/queue.h"
#include "engine/run/snapshot_file.h"
#include <pthread.h>
#include <stdbool.h>

struct snapshot_entry {
    struct hash128 name;
    char id[KV_SNAPSHOT_ID_MAX + 1];
    int64_t bytes, n_tokens;
    int64_t used_ns; // at opening: of the file
    struct snapshot_entry *prev, *next;
    UT_hash_handle hh;
};

struct snapshots {
    bool on; // all zero: there is no folder
    int dir_fd, lock_fd;
    int64_t limit, bytes, pending; // all files may take; they do; what is being written will
    struct kv_snapshot_maker maker;
    struct snapshot_entry *by_name, *lru; // lru: the one used longest ago first
    struct queue writes, reads;           // of struct snapshot_job *
    pthread_t writer, reader;
    bool running;
    int32_t n_writing, n_reading;
    struct snapshot_job *writing[4]; // (n_writing)
    // From one of the threads: the job is done. It is the engine's again.
    void (*done)(void *ctx, struct snapshot_job *j);
    void *done_ctx;
    // A session has a file now, or has none any more. May be NULL.
    void (*changed)(void *ctx, struct hash128 name, bool present);
    void *changed_ctx;
};

enum {
    SNAPSHOTS_MAX_FILES = 16384,
    SNAPSHOTS_MAX_WRITES = 4 /* of writing */,
    SNAPSHOTS_MAX_READS = 64
};

// Makes the folder where there is none, takes its lock, and looks through it: what is half written,
// unreadable or too much is removed with a line in the log, files of other names are left alone.
// E_BUSY: another process has it. On failure *f is zeroed.
int snapshots_open(struct snapshots *f, const char *dir, int64_t limit,
                   const struct kv_snapshot_maker *maker, struct err *err);
int snapshots_start(struct snapshots *f, void (*done)(void *ctx, struct snapshot_job *j), void *ctx,
                    struct err *err);
// The threads end: what is being written is broken off, what is being read is read; all of it is
// given back.
void snapshots_stop(struct snapshots *f);
void snapshots_close(struct snapshots *f);
static inline bool snapshots_on(const struct snapshots *f) {
    return f->on;
}

struct snapshot_entry *snapshots_find(struct snapshots *f, const char *id); // NULL: none
// Its file goes, if it has one, also one that is being written.
void snapshots_forget(struct snapshots *f, struct hash128 name);
// Begins. E_BUSY: enough is under way; E_FULL: larger than the folder may be. *j is taken on 0.
int snapshots_write(struct snapshots *f, struct snapshot_job *j);
int snapshots_read(struct snapshots *f, struct snapshot_job *j); // OPEN, READ. E_BUSY
// The engine has it back: the books are brought up to date.
void snapshots_done(struct snapshots *f, struct snapshot_job *j);
