// The folder of snapshots. See snapshots.h.
#include "engine/cache/snapshots.h"

#include "base/log.h"
#include "base/thread.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#define LOCK_FILE "parley.lock"
enum { NAME_DIGITS = 32, SCAN_MOST = 4 * SNAPSHOTS_MAX_FILES };

// --- entries

static struct snapshot_entry *find_name(struct snapshots *f, struct hash128 name) {
    struct snapshot_entry *e;
    HASH_FIND(hh, f->by_name, &name, sizeof name, e);
    return e;
}

struct snapshot_entry *snapshots_find(struct snapshots *f, const char *id) {
    struct snapshot_entry *e = snapshots_on(f) && id[0] ? find_name(f, snapshot_name(id)) : NULL;
    return e && strcmp(e->id, id) == 0 ? e : NULL;
}

static int entry_add(struct snapshots *f, const struct kv_snapshot_head *h, struct hash128 name,
                     int64_t used_ns) {
    struct snapshot_entry *e = calloc(1, sizeof *e);
    if (!e) return E_NOMEM;
    e->name = name;
    memcpy(e->id, h->id, sizeof e->id);
    e->bytes = (int64_t)kv_snapshot_file_bytes(h);
    e->n_tokens = h->n_tokens;
    e->used_ns = used_ns;
    HASH_ADD(hh, f->by_name, name, sizeof e->name, e);
    if (!hash_added(&e->hh)) {
        free(e);
        return E_NOMEM;
    }
    DL_APPEND(f->lru, e);
    f->bytes += e->bytes;
    return 0;
}

static void entry_drop(struct snapshots *f, struct snapshot_entry *e) {
    HASH_DEL(f->by_name, e);
    DL_DELETE(f->lru, e);
    f->bytes -= e->bytes;
    free(e);
}

// The writer thread removes the file; if it does not run yet, or there is no memory for a job, this function
// does.
static void file_remove(struct snapshots *f, struct hash128 name) {
    struct snapshot_job *j = f->state == SNAPSHOTS_RUNNING ? calloc(1, sizeof *j) : NULL;
    if (j) {
        *j = (struct snapshot_job){
            .task = SNAPSHOT_REMOVE, .dir_fd = f->dir_fd, .name = name, .fd = -1};
        if (queue_try_push(&f->writes, &j) == 0) return;
        free(j);
    }
    char file[SNAPSHOT_NAME_BYTES];
    snapshot_file_name(name, file);
    unlinkat(f->dir_fd, file, 0);
}

static struct snapshot_job *being_written(struct snapshots *f, struct hash128 name) {
    for (int32_t i = 0; i < f->n_writing; i++) {
        struct snapshot_job *j = f->writing[i];
        if (j->name.lo == name.lo && j->name.hi == name.hi) return j;
    }
    return NULL;
}

bool snapshots_is_writing(const struct snapshots *f, uint64_t sequence) {
    for (int32_t i = 0; i < f->n_writing; i++)
        if (f->writing[i]->sequence == sequence) return true;
    return false;
}

static void evict(struct snapshots *f, struct snapshot_entry *e) {
    struct hash128 name = e->name;
    entry_drop(f, e);
    file_remove(f, name);
    if (f->emit) emit_snapshot(f->emit, name, false);
}

void snapshots_forget(struct snapshots *f, struct hash128 name) {
    struct snapshot_entry *e = snapshots_on(f) ? find_name(f, name) : NULL;
    struct snapshot_job *j = being_written(f, name);
    if (j) j->forgotten = true;
    if (e) evict(f, e);
}

// --- scan

static bool is_ours(const char *file, bool *temporary) {
    for (int i = 0; i < NAME_DIGITS; i++) {
        if (!isxdigit((unsigned char)file[i]) || isupper((unsigned char)file[i])) return false;
    }
    *temporary = strcmp(file + NAME_DIGITS, ".kv.tmp") == 0;
    return *temporary || strcmp(file + NAME_DIGITS, ".kv") == 0;
}

static void discard(struct snapshots *f, const char *file, const char *why) {
    char quoted[600];
    log_warn("snapshot.removed", "file=%s reason=%s", file, log_quote(quoted, sizeof quoted, why));
    unlinkat(f->dir_fd, file, 0);
}

// Adds the file to the entries, or removes it if it is unusable. Fails only with E_NOMEM.
static int scan_file(struct snapshots *f, const char *file) {
    struct kv_snapshot_head h;
    struct err err = {0};
    struct stat st;
    char right[SNAPSHOT_NAME_BYTES];
    int fd;
    int rc = snapshot_file_head(f->dir_fd, file, &h, &fd, &err);
    if (rc < 0) {
        discard(f, file, err.text);
        return 0;
    }
    rc = fstat(fd, &st) < 0 ? E_IO : 0;
    close(fd);
    struct hash128 name = snapshot_name(h.id);
    snapshot_file_name(name, right);
    if (rc < 0 || strcmp(file, right) != 0) {
        discard(f, file, "it has another session's name");
        return 0;
    }
    return entry_add(f, &h, name, st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec);
}

static int by_use(struct snapshot_entry *a, struct snapshot_entry *b) {
    return (a->used_ns > b->used_ns) - (a->used_ns < b->used_ns);
}

static int scan(struct snapshots *f, const char *dir, struct err *err) {
    int fd = openat(f->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0) close(fd);
        return err_errno(err, "snapshot_dir %s cannot be read", dir);
    }
    int rc = 0, seen = 0;
    for (struct dirent *e; rc == 0 && seen < SCAN_MOST && (e = readdir(d)); seen++) {
        bool temporary;
        if (!is_ours(e->d_name, &temporary)) continue;
        if (temporary)
            discard(f, e->d_name, "it is incomplete");
        else
            rc = scan_file(f, e->d_name);
    }
    closedir(d);
    if (rc < 0) return err_set(err, rc, "no memory for the list of snapshots in %s", dir);
    DL_SORT(f->lru, by_use);
    while (f->lru && (f->bytes > f->limit || HASH_COUNT(f->by_name) > SNAPSHOTS_MAX_FILES)) {
        char file[SNAPSHOT_NAME_BYTES];
        snapshot_file_name(f->lru->name, file);
        discard(f, file, "over the limit of snapshot_bytes");
        entry_drop(f, f->lru);
    }
    return 0;
}

// --- open and close

static int take_folder(struct snapshots *f, const char *dir, struct err *err) {
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return err_errno(err, "snapshot_dir %s cannot be made", dir);
    f->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir_fd < 0) return err_errno(err, "snapshot_dir %s cannot be opened", dir);
    f->lock_fd = openat(f->dir_fd, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (f->lock_fd < 0) return err_errno(err, "snapshot_dir %s cannot be written to", dir);
    if (flock(f->lock_fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno == EWOULDBLOCK)
        return err_set(err, E_BUSY, "snapshot_dir %s is in use by another server", dir);
    return err_errno(err, "snapshot_dir %s cannot be locked", dir);
}

int snapshots_open(struct snapshots *f, const char *dir, int64_t limit,
                   const struct kv_snapshot_maker *maker, struct err *err) {
    int rc;
    *f = (struct snapshots){
        .state = SNAPSHOTS_OPEN, .dir_fd = -1, .lock_fd = -1, .limit = limit, .maker = *maker};
    TRY_GOTO(fail, take_folder(f, dir, err));
    TRY_GOTO(fail, scan(f, dir, err));
    // Room for all jobs: for each file its removal and that of its replacement, and the reads.
    size_t room = 2 * SNAPSHOTS_MAX_FILES + SNAPSHOTS_MAX_READS;
    TRY_GOTO(fail, queue_init(&f->writes, sizeof(void *), room, NULL, NULL, err));
    TRY_GOTO(fail, queue_init(&f->reads, sizeof(void *), SNAPSHOTS_MAX_READS, NULL, NULL, err));
    return 0;
fail:
    snapshots_close(f);
    return rc;
}

static void work(struct snapshots *f, struct queue *q) {
    struct snapshot_job *j;
    while (queue_pop(q, &j, -1) == 1) {
        snapshot_job_run(j);
        if (j->task == SNAPSHOT_REMOVE)
            snapshot_job_free(j);
        else
            f->done(f->done_ctx, j);
    }
}

static void *writer_main(void *arg) {
    struct snapshots *f = arg;
    pthread_setname_np(pthread_self(), "parley-snap-w");
    work(f, &f->writes);
    return NULL;
}

static void *reader_main(void *arg) {
    struct snapshots *f = arg;
    pthread_setname_np(pthread_self(), "parley-snap-r");
    work(f, &f->reads);
    return NULL;
}

int snapshots_start(struct snapshots *f, void (*done)(void *ctx, struct snapshot_job *j), void *ctx,
                    struct err *err) {
    f->done = done;
    f->done_ctx = ctx;
    int rc = thread_start(&f->writer, writer_main, f);
    if (rc == 0 && (rc = thread_start(&f->reader, reader_main, f)) != 0) {
        queue_close(&f->writes);
        pthread_join(f->writer, NULL);
    }
    if (rc != 0) return thread_refused(err, rc, "a thread for snapshots");
    f->state = SNAPSHOTS_RUNNING;
    return 0;
}

void snapshots_stop(struct snapshots *f) {
    if (f->state != SNAPSHOTS_RUNNING) return;
    f->state = SNAPSHOTS_OPEN;
    for (int32_t i = 0; i < f->n_writing; i++) atomic_store(&f->writing[i]->stop, true);
    queue_close(&f->writes);
    queue_close(&f->reads);
    pthread_join(f->writer, NULL);
    pthread_join(f->reader, NULL);
}

void snapshots_close(struct snapshots *f) {
    if (!snapshots_on(f)) return;
    snapshots_stop(f);
    while (f->lru) entry_drop(f, f->lru);
    queue_release(&f->writes);
    queue_release(&f->reads);
    if (f->lock_fd >= 0) close(f->lock_fd);
    if (f->dir_fd >= 0) close(f->dir_fd);
    *f = (struct snapshots){0};
}

// --- jobs

// A file counts until its replacement is complete. If both do not fit, the old file is removed first.
int snapshots_write(struct snapshots *f, struct snapshot_job *j) {
    int64_t bytes = (int64_t)kv_snapshot_file_bytes(&j->head);
    if (f->state != SNAPSHOTS_RUNNING || f->n_writing >= SNAPSHOTS_MAX_WRITES) return E_BUSY;
    if (being_written(f, j->name)) return E_BUSY;
    if (bytes > f->limit) return E_FULL;
    struct snapshot_entry *own = find_name(f, j->name), *e, *next;
    if (own && bytes > f->limit - f->pending - f->bytes) evict(f, own);
    DL_FOREACH_SAFE(f->lru, e, next) {
        if (bytes <= f->limit - f->pending - f->bytes &&
            HASH_COUNT(f->by_name) < SNAPSHOTS_MAX_FILES)
            break;
        // A file that is being replaced is skipped: the removal would run after the replacement.
        if (!being_written(f, e->name)) evict(f, e);
    }
    if (bytes > f->limit - f->pending - f->bytes) return E_BUSY;
    j->dir_fd = f->dir_fd;
    TRY(queue_try_push(&f->writes, &j));
    f->pending += bytes;
    f->writing[f->n_writing++] = j;
    return 0;
}

int snapshots_read(struct snapshots *f, struct snapshot_job *j) {
    if (f->state != SNAPSHOTS_RUNNING || f->n_reading >= SNAPSHOTS_MAX_READS) return E_BUSY;
    struct snapshot_entry *e = find_name(f, j->name);
    if (e) {
        DL_DELETE(f->lru, e);
        DL_APPEND(f->lru, e);
    }
    j->dir_fd = f->dir_fd;
    TRY(queue_try_push(&f->reads, &j));
    f->n_reading++;
    return 0;
}

int snapshots_again(struct snapshots *f, struct snapshot_job *j) {
    if (f->state != SNAPSHOTS_RUNNING) return E_CANCELLED;
    return queue_try_push(j->task == SNAPSHOT_WRITE ? &f->writes : &f->reads, &j);
}

static void written(struct snapshots *f, const struct snapshot_job *j) {
    struct snapshot_entry *old = find_name(f, j->name);
    f->pending -= (int64_t)kv_snapshot_file_bytes(&j->head);
    if (j->rc < 0) return; // an older snapshot, if any, still exists
    bool is_new = !old;
    if (old) entry_drop(f, old);
    if (j->forgotten || entry_add(f, &j->head, j->name, 0) < 0) {
        file_remove(f, j->name);
        if (!is_new) emit_snapshot(f->emit, j->name, false);
    } else if (is_new) {
        emit_snapshot(f->emit, j->name, true);
    }
}

void snapshots_done(struct snapshots *f, struct snapshot_job *j) {
    if (j->task == SNAPSHOT_WRITE) {
        int32_t i = 0;
        while (f->writing[i] != j) i++;
        f->writing[i] = f->writing[--f->n_writing];
        written(f, j);
    } else {
        f->n_reading--;
    }
}
