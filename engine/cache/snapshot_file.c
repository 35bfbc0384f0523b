// One snapshot's bytes to and from the disk. See snapshot_file.h.
//
// A file is written under another name, synced and renamed, so that a file of the final name is
// complete even after a crash. Blocks are written first and the head last, so that a file that was
// cut off has no head.
#include "engine/cache/snapshot_file.h"

#include "base/clock.h"
#include "base/parallel.h"
#include "base/xxh64.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEMPORARY_BYTES = SNAPSHOT_NAME_BYTES + 4, PIECE_BYTES = 4 << 20 };

struct hash128 snapshot_name(const char *id) {
    static const uint64_t key[2] = {0x7061726c65790001u, 0x736e617073686f74u};
    return siphash128(key, id, strlen(id));
}

struct hash128 snapshot_owner(const char *owner) {
    static const uint64_t key[2] = {0x7061726c65790002u, 0x736e617073686f74u};
    return siphash128(key, owner, strlen(owner));
}

void snapshot_file_name(struct hash128 name, char out[SNAPSHOT_NAME_BYTES]) {
    snprintf(out, SNAPSHOT_NAME_BYTES, "%016llx%016llx.kv", (unsigned long long)name.hi,
             (unsigned long long)name.lo);
}

// Until the rename the file is only the writer's.
static void temporary_name(const struct snapshot_job *j, char out[TEMPORARY_BYTES]) {
    char name[SNAPSHOT_NAME_BYTES];
    snapshot_file_name(j->name, name);
    snprintf(out, TEMPORARY_BYTES, "%s.tmp", name);
}

static void remove_temporary(struct snapshot_job *j) {
    char temporary[TEMPORARY_BYTES];
    temporary_name(j, temporary);
    unlinkat(j->dir_fd, temporary, 0);
}

void snapshot_job_free(struct snapshot_job *j) {
    if (!j) return;
    if (j->fd >= 0) close(j->fd);
    if (j->fd >= 0 && j->task == SNAPSHOT_WRITE) remove_temporary(j);
    free(j->piece);
    free(j->ids);
    free(j->blocks);
    free(j->memory);
    free(j->wanted);
    free(j->host);
    free(j);
}

// --- bytes

// Only short writes and signals need care.
static int write_all(int fd, const void *data, size_t n, uint64_t at, struct err *err) {
    const char *p = data;
    while (n > 0) {
        ssize_t got = pwrite(fd, p, n < PIECE_BYTES ? n : PIECE_BYTES, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EFBIG)
            return err_set(err, E_FULL, "it exceeds the limit on the size of a file");
        if (got <= 0) return err_errno(err, "it cannot be written");
        p += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

static int read_all(int fd, void *data, size_t n, uint64_t at, struct err *err) {
    char *p = data;
    while (n > 0) {
        ssize_t got = pread(fd, p, n < PIECE_BYTES ? n : PIECE_BYTES, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_errno(err, "it cannot be read");
        if (got == 0) return err_set(err, E_CORRUPT, "it was cut off");
        p += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

// --- writing

static int write_blocks(struct snapshot_job *j) {
    const struct kv_snapshot_head *h = &j->head;
    const uint64_t bytes = h->maker.block_bytes, data = kv_snapshot_data_at(h);
    for (; j->at < j->until; j->at++) {
        const int32_t i = j->at;
        if (atomic_load(&j->stop))
            return err_set(&j->why, E_CANCELLED, "it is not wanted any more");
        if (j->ends_us && clock_mono_us(&clock_system) > j->ends_us)
            return err_set(&j->why, E_TIMEOUT, "the disk is too slow");
        j->blocks[i].sum = xxh64(j->memory[i], bytes, j->blocks[i].number);
        TRY(write_all(j->fd, j->memory[i], bytes, data + (uint64_t)i * bytes, &j->why));
    }
    return 0;
}

static int write_front(struct snapshot_job *j) {
    size_t n = kv_snapshot_table_bytes(&j->head);
    unsigned char head[KV_SNAPSHOT_HEAD_BYTES], *table = malloc(n);
    if (!table) return err_set(&j->why, E_NOMEM, "no memory for its table");
    kv_snapshot_write_table(&j->head, j->ids, j->blocks, table);
    kv_snapshot_write_head(&j->head, head);
    int rc = write_all(j->fd, table, n, sizeof head, &j->why);
    if (rc == 0) rc = write_all(j->fd, head, sizeof head, 0, &j->why);
    free(table);
    return rc;
}

// 1: the last block is written, and the file complete; 0: more pieces follow.
static int write_some(struct snapshot_job *j) {
    TRY(write_blocks(j));
    if (j->at < j->head.n_blocks) return 0;
    TRY(write_front(j));
    if (fsync(j->fd) < 0) return err_errno(&j->why, "it cannot be synced");
    return 1;
}

static int file_write(struct snapshot_job *j, int64_t began_us) {
    char name[SNAPSHOT_NAME_BYTES], temporary[TEMPORARY_BYTES];
    snapshot_file_name(j->name, name);
    temporary_name(j, temporary);
    if (j->fd < 0) {
        j->fd = openat(j->dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                       0600);
        j->ends_us = j->most_us ? began_us + j->most_us : 0;
    }
    if (j->fd < 0) return err_errno(&j->why, "it cannot be made");
    int rc = write_some(j);
    if (rc == 0) return 0;
    if (close(j->fd) < 0 && rc > 0) rc = err_errno(&j->why, "it cannot be closed");
    j->fd = -1;
    if (rc > 0 && renameat(j->dir_fd, temporary, j->dir_fd, name) < 0)
        rc = err_errno(&j->why, "it cannot be renamed");
    if (rc < 0) {
        remove_temporary(j);
        return rc;
    }
    (void)fsync(j->dir_fd); // makes the rename last; else the old file may reappear
    j->bytes = (int64_t)kv_snapshot_file_bytes(&j->head);
    return 0;
}

// --- reading

int snapshot_file_head(int dir_fd, const char *file, struct kv_snapshot_head *h, int *fd,
                       struct err *err) {
    unsigned char head[KV_SNAPSHOT_HEAD_BYTES] = {0};
    struct stat st;
    // Without O_NONBLOCK, opening a pipe of this name would wait.
    *fd = openat(dir_fd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return err_errno(err, "it cannot be opened");
    int rc = fstat(*fd, &st) < 0 ? err_errno(err, "it cannot be examined") : 0;
    if (rc == 0 && !S_ISREG(st.st_mode)) rc = err_set(err, E_FORMAT, "it is not a regular file");
    if (rc == 0 && (uint64_t)st.st_size >= sizeof head)
        rc = read_all(*fd, head, sizeof head, 0, err);
    if (rc == 0) rc = kv_snapshot_read_head(h, head, (uint64_t)st.st_size, err);
    if (rc == 0) return 0;
    close(*fd);
    *fd = -1;
    return rc;
}

static int file_open(struct snapshot_job *j) {
    char name[SNAPSHOT_NAME_BYTES];
    snapshot_file_name(j->name, name);
    TRY(snapshot_file_head(j->dir_fd, name, &j->head, &j->fd, &j->why));
    (void)futimens(j->fd, NULL); // used last, also after a restart
    size_t n = kv_snapshot_table_bytes(&j->head);
    unsigned char *table = malloc(n);
    j->ids = malloc((size_t)j->head.n_tokens * sizeof *j->ids);
    j->blocks = malloc((size_t)j->head.n_blocks * sizeof *j->blocks);
    int rc =
        table && j->ids && j->blocks ? 0 : err_set(&j->why, E_NOMEM, "no memory for its table");
    if (rc == 0) rc = read_all(j->fd, table, n, KV_SNAPSHOT_HEAD_BYTES, &j->why);
    if (rc == 0) rc = kv_snapshot_read_table(&j->head, table, j->ids, j->blocks, &j->why);
    free(table);
    return rc;
}

// One core limits the rate at which pages in memory are copied and checked, so several threads work
// in parallel. They take the file in pieces, so that the engine can copy a piece to the device while
// the next one is read.
enum { READ_AHEAD_BYTES = 32 << 20, READ_THREADS = 4, READ_LEAST_BYTES = 2 << 20 };

struct piece {
    struct snapshot_job *j;
    int32_t first;
    _Atomic int rc; // of the first thread that failed; it also sets the job's why
};

static int block_read(struct snapshot_job *j, int32_t i, struct err *why) {
    const struct kv_snapshot_head *h = &j->head;
    const struct kv_snapshot_block *b = &j->blocks[j->wanted[i]];
    uint64_t bytes = h->maker.block_bytes;
    if (atomic_load(&j->stop)) return err_set(why, E_CANCELLED, "it is not wanted any more");
    uint64_t at = kv_snapshot_data_at(h) + (uint64_t)j->wanted[i] * bytes;
    TRY(read_all(j->fd, j->memory[i], bytes, at, why));
    if (xxh64(j->memory[i], bytes, b->number) == b->sum) return 0;
    return err_set(why, E_CORRUPT, "its block %d is damaged", j->wanted[i]);
}

static void blocks_read(void *ctx, int64_t first, int64_t n) {
    struct piece *p = ctx;
    for (int64_t i = first; i < first + n && atomic_load(&p->rc) == 0; i++) {
        struct err why = {0};
        int none = 0, rc = block_read(p->j, p->first + (int32_t)i, &why);
        if (rc < 0 && atomic_compare_exchange_strong(&p->rc, &none, rc)) p->j->why = why;
    }
}

// Of one rank alone the blocks are read where they stay, and count as done at once.
static int file_read(struct snapshot_job *j) {
    uint64_t data = kv_snapshot_data_at(&j->head), bytes = j->head.maker.block_bytes;
    int64_t ahead = bytes < READ_AHEAD_BYTES ? (int64_t)(READ_AHEAD_BYTES / bytes) : 1;
    int64_t least = (int64_t)(READ_LEAST_BYTES / bytes) + 1; // fewer blocks need no thread
    (void)posix_fadvise(j->fd, (off_t)data, 0, POSIX_FADV_SEQUENTIAL);
    while (j->at < j->until) {
        struct piece p = {.j = j, .first = j->at};
        int64_t n = j->until - j->at < ahead ? j->until - j->at : ahead;
        int64_t part = (n + READ_THREADS - 1) / READ_THREADS;
        parallel_ranges(n, part > least ? part : least, blocks_read, &p);
        if (atomic_load(&p.rc) < 0) return atomic_load(&p.rc);
        j->at += (int32_t)n;
        j->bytes += n * (int64_t)bytes;
        if (!j->piece) atomic_store_explicit(&j->n_done, j->at, memory_order_release);
    }
    return 0;
}

// --- the job

static const char *reason_of(int rc) {
    switch (rc) {
    case 0:
        return "";
    case E_NOTFOUND:
        return "gone";
    case E_FORMAT:
    case E_CORRUPT:
        return "damaged";
    case E_UNSUPPORTED:
        return "version";
    case E_FULL:
        return "full";
    case E_TIMEOUT:
        return "slow";
    case E_DENIED:
        return "denied";
    case E_CANCELLED:
        return "cancelled";
    case E_NOMEM:
        return "memory";
    default:
        return "io";
    }
}

void snapshot_job_run(struct snapshot_job *j) {
    char name[SNAPSHOT_NAME_BYTES];
    int64_t began = clock_mono_us(&clock_system);
    switch (j->task) {
    case SNAPSHOT_WRITE:
        j->rc = file_write(j, began);
        break;
    case SNAPSHOT_REMOVE:
        snapshot_file_name(j->name, name);
        unlinkat(j->dir_fd, name, 0);
        j->rc = 0;
        break;
    case SNAPSHOT_OPEN:
        j->rc = file_open(j);
        break;
    case SNAPSHOT_READ:
        j->rc = file_read(j);
        break;
    }
    j->reason = reason_of(j->rc);
    j->took_us += clock_mono_us(&clock_system) - began;
}

void snapshot_job_fail(struct snapshot_job *j, int rc, const char *why) {
    j->rc = err_set(&j->why, rc, "%s", why);
    j->reason = reason_of(rc);
}
