// Writing and reading one snapshot (kvcache/snapshot.h): what the threads of the folder
// (snapshots.h) do, a job at a time. A job belongs to the thread that works on it until it has been
// given back; only n_done and stop are looked at meanwhile.
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
    int32_t *wanted; // READ: (n_wanted) which of the file's blocks, ascending
    int32_t n_wanted;
    int fd;                 // OPEN leaves it open for READ; -1
    int64_t most_us;        // WRITE: given up after so long; 0: never
    _Atomic int32_t n_done; // READ: blocks that are there, and right
    _Atomic bool stop;      // it is not wanted any more
    // Verdict. reason: a word for logs and metrics.
    int rc;
    const char *reason;
    struct err why;
    int64_t took_us, bytes; // bytes: moved
    // The engine's thread alone: for whom, and which of its blocks are held meanwhile.
    uint64_t sequence;
    struct resume *resume; // OPEN, READ: NULL once it is not wanted any more
    int32_t *host;         // (n_host) host block ids
    int32_t n_host;
    int64_t version; // WRITE: of the sequence's image
    bool forgotten;  // WRITE: its session is gone: so is the file, as soon as it is there
};

void snapshot_job_free(struct snapshot_job *j); // closes its file; what it held is not given back
void snapshot_job_run(struct snapshot_job *j);

#define SNAPSHOT_NAME_BYTES 40
// The file of a session, by its lasting id: never the id itself, which its client may have chosen.
struct hash128 snapshot_name(const char *id);
// Of an owner's name, for heads: names of any length, and none of them in the file.
struct hash128 snapshot_owner(const char *owner);
void snapshot_file_name(struct hash128 name, char out[SNAPSHOT_NAME_BYTES]);
// Reads and checks a head. E_NOTFOUND, E_IO, and as kv_snapshot_read_head. *fd is open on success.
int snapshot_file_head(int dir_fd, const char *file, struct kv_snapshot_head *h, int *fd,
                       struct err *err);
