// Writing and reading one snapshot (kvcache/snapshot.h): the jobs of the folder's threads
// (snapshots.h). A job belongs to the thread that works on it until the thread gives it back;
// meanwhile the engine touches only n_done and stop.
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
    struct kv_snapshot_block *blocks; // (head.n_blocks) WRITE: logical numbers; OPEN fills it
    void **memory;   // WRITE: (head.n_blocks) the blocks' bytes; READ: (n_wanted) where they go
    int32_t *wanted; // READ: (n_wanted) indices of the file's blocks, ascending
    int32_t n_wanted;
    int fd;                 // OPEN leaves it open for READ; -1
    int64_t most_us;        // WRITE: given up after so long; 0: never
    _Atomic int32_t n_done; // READ: blocks read and checked so far
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
    int64_t version; // WRITE: of the sequence's image
    bool forgotten;  // WRITE: the session is gone: the file is removed when it is written
};

void snapshot_job_free(struct snapshot_job *j); // closes its file; host blocks are the caller's
void snapshot_job_run(struct snapshot_job *j);

#define SNAPSHOT_NAME_BYTES 40
// The name of a session's snapshot: a hash of its lasting id, which a client may have chosen.
struct hash128 snapshot_name(const char *id);
// A hash of a user's name for the head: names have any length, and none is stored.
struct hash128 snapshot_owner(const char *owner);
void snapshot_file_name(struct hash128 name, char out[SNAPSHOT_NAME_BYTES]);
// Reads and checks a head. E_NOTFOUND, E_IO, and as kv_snapshot_read_head. *fd is open on success.
int snapshot_file_head(int dir_fd, const char *file, struct kv_snapshot_head *h, int *fd,
                       struct err *err);
