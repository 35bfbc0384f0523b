// Writing and reading one snapshot (kvcache/snapshot.h): the jobs of the folder's threads
// (snapshots.h). A job belongs to the thread that works on it until the thread gives it back;
// meanwhile the engine touches only n_done and stop.
//
// With several ranks a job goes back and forth: the thread moves a piece of the blocks, up to `until`,
// and the engine brings the next one (pieces.c).
#pragma once
#include "base/siphash.h"
#include "kvcache/snapshot.h"
#include <stdatomic.h>

struct resume;

enum snapshot_task { SNAPSHOT_WRITE, SNAPSHOT_REMOVE, SNAPSHOT_OPEN, SNAPSHOT_READ };

struct snapshot_job {
    enum snapshot_task task;
    int dir_fd; // borrowed
    struct hash128 name;
    struct kv_snapshot_head head;     // WRITE: all but the sums; OPEN fills it
    int32_t *ids;                     // (head.n_tokens) WRITE; OPEN fills it
    struct kv_snapshot_block *blocks; // (head.n_blocks) WRITE: numbers; OPEN fills it
    void **memory;   // WRITE: (head.n_blocks) the blocks' bytes; READ: (n_wanted) where they go
    int32_t *wanted; // READ: (n_wanted) indices of the file's blocks, ascending
    int32_t n_wanted;
    int fd;                 // OPEN leaves it open for READ; WRITE between two pieces; -1
    int32_t at, until;      // WRITE, READ: of `memory`; the blocks [at, until) are next
    int64_t most_us;        // WRITE: given up after so long; 0: never
    int64_t ends_us;        // WRITE: when that will be
    _Atomic int32_t n_done; // READ: blocks that are in host memory, read and checked
    _Atomic bool stop;      // the engine no longer needs the result
    // Result. reason: a word for logs and metrics.
    int rc;
    const char *reason;
    struct err why;
    int64_t took_us, bytes; // bytes: moved
    // Of the engine's thread alone.
    uint64_t sequence;
    struct resume *resume; // OPEN, READ: NULL once the resume has ended
    int32_t *host;         // (n_host) host blocks that the job holds
    int32_t n_host;
    char *piece;     // memory of one piece, with several ranks
    int64_t version; // WRITE: of the sequence's image
    bool forgotten;  // WRITE: the session is gone: the file is removed when it is written
};

// Closes its file, and removes that of a write that has not ended. Host blocks are the caller's.
void snapshot_job_free(struct snapshot_job *j);
void snapshot_job_run(struct snapshot_job *j);
// Ends a job between two pieces.
void snapshot_job_fail(struct snapshot_job *j, int rc, const char *why);

#define SNAPSHOT_NAME_BYTES 40
// The name of a session's snapshot: a hash of its lasting id, which a client may have chosen.
struct hash128 snapshot_name(const char *id);
// A hash of a user's name for the head: names have any length, and none is stored.
struct hash128 snapshot_owner(const char *owner);
void snapshot_file_name(struct hash128 name, char out[SNAPSHOT_NAME_BYTES]);
// Reads and checks a head. E_NOTFOUND, E_IO, and as kv_snapshot_read_head. *fd is open on success.
int snapshot_file_head(int dir_fd, const char *file, struct kv_snapshot_head *h, int *fd,
                       struct err *err);
