// Locks between processes, on the file FILE.lock beside the database. See lock.h.
//
// The server holds flock() on FILE.lock and on the database from its start to its end. The process
// that writes or checkpoints holds a record lock on the first byte of FILE.lock meanwhile. That is
// an open file description lock: independent of flock() and of other descriptors of this process.
#include "sessions/store/lock.h"
#include "base/err.h"
#include "sessions/store/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define N_OF(a) (int)(sizeof(a) / sizeof *(a))

// WAL mode needs shared memory and reliable locks. Network file systems have neither.
int store_refuse_network(const char *path, int fd, struct err *err) {
    static const struct {
        unsigned long magic;
        const char *name;
    } remote[] = {{0x6969, "NFS"},     {0xff534d42, "CIFS"}, {0xfe534d42, "SMB2"}, {0x517b, "SMB"},
                  {0x5346414f, "AFS"}, {0x00c36400, "Ceph"}, {0x73757245, "Coda"}};
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0) return err_errno(err, "%s", path);
    for (int i = 0; i < N_OF(remote); i++)
        if (((unsigned long)fs.f_type & 0xffffffff) == remote[i].magic)
            return err_set(
                err, E_UNSUPPORTED,
                "%s: on a network file system (%s); a session database must be on a local disk",
                path, remote[i].name);
    return 0;
}

long store_lock_holder(int fd) {
    char pid[24] = "";
    ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
    return n > 0 && strtol(pid, NULL, 10) > 0 ? strtol(pid, NULL, 10) : 0;
}

// A command that root runs must not lock out the server of another user: as SQLite does with its
// log, a file that root makes here belongs to the owner of the database. A file that is there keeps
// its owner: in a folder of another user it may be a hard link to any file.
int store_open_beside(const char *db_path, const char *path, int flags, struct err *err) {
    struct stat st;
    flags |= O_CLOEXEC | O_NOFOLLOW;
    // A pipe in the file's place neither blocks the open nor is taken for a file.
    flags |= O_NONBLOCK;
    int fd = open(path, flags | O_CREAT | O_EXCL, 0600);
    bool made = fd >= 0;
    if (fd < 0 && errno == EEXIST) fd = open(path, flags | O_CREAT, 0600);
    if (fd < 0 && errno == EACCES && stat(path, &st) == 0 && st.st_uid != geteuid())
        return err_set(
            err, E_DENIED,
            "%s: belongs to user %u, and user %u cannot open it: give it the owner of the "
            "database",
            path, st.st_uid, geteuid());
    if (fd < 0) return err_errno(err, "%s: this file beside the database cannot be opened", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(err, E_INVAL, "%s: is not a regular file", path);
    }
    if (!made || geteuid() != 0 || stat(db_path, &st) < 0) return fd;
    if (fchown(fd, st.st_uid, st.st_gid) == 0) return fd;
    int rc = err_errno(err, "%s", path);
    close(fd);
    return rc;
}

// The kernel drops the lock with the process, however that ends.
int store_lock_visit(struct store_db *db, struct err *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s.lock", db->path) >= (int)sizeof path)
        return err_set(err, E_LIMIT, "the database's path is too long");
    db->lock_fd = store_open_beside(db->path, path, O_RDWR, err);
    return db->lock_fd < 0 ? db->lock_fd : 0;
}

// Locks the database too: a process that opened it by another name of the file, or after FILE.lock
// was removed, has another lock file and another log. This descriptor is closed after SQLite's,
// because closing it drops SQLite's locks.
static int lock_file(struct store_db *db, struct err *err) {
    db->file_fd = open(db->path, O_RDONLY | O_CLOEXEC);
    if (db->file_fd < 0) return err_errno(err, "%s", db->path);
    if (flock(db->file_fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK) return err_errno(err, "%s", db->path);
    return err_set(err, E_DENIED,
                   "%s: in use by another Parley, which has another lock: the file has a second "
                   "name, or its .lock was removed",
                   db->path);
}

int store_lock_take(struct store_db *db, struct err *err) {
    char pid[24], holder[48] = "";
    TRY(store_lock_visit(db, err));
    int fd = db->lock_fd;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK) return err_errno(err, "%s.lock", db->path);
        long process = store_lock_holder(fd);
        if (process) snprintf(holder, sizeof holder, " (process %ld)", process);
        return err_set(err, E_BUSY, "%s: in use by another Parley%s", db->path, holder);
    }
    TRY(store_refuse_network(db->path, fd, err));
    TRY(lock_file(db, err));
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
        return 0; // the number is only for people
    return 0;
}

bool store_lock_is_held(const struct store_db *db) {
    int fd = open(db->path, O_RDONLY | O_CLOEXEC);
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    return held;
}

// --- one writer at a time ----------------------------------------------------

static int lock_byte(int fd, short type) {
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &l);
}

int store_db_write_begin(struct store_db *db, struct err *err) {
    const struct timespec pause = {.tv_nsec = 1000000};
    if (db->lock_fd < 0 || db->n_writing > 0) {
        db->n_writing++;
        return 0;
    }
    for (int ms = 0; lock_byte(db->lock_fd, F_WRLCK) < 0; ms++) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return err_errno(err, "%s.lock", db->path);
        if (ms == STORE_BUSY_MS)
            return err_set(err, E_BUSY, "%s: the database is locked by another process", db->path);
        nanosleep(&pause, NULL);
    }
    db->n_writing = 1;
    int rc = store_watch(db, true, err);
    if (rc < 0) store_db_write_end(db);
    return rc;
}

void store_db_write_end(struct store_db *db) {
    if (--db->n_writing > 0 || db->lock_fd < 0) return;
    lock_byte(db->lock_fd, F_UNLCK); // an unlock cannot fail
}
