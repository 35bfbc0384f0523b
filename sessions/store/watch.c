// Whether the database's files are still those that were opened.
//
// SQLite writes to open files. When such a file is removed or replaced, later commits go to a file
// that the next start does not find. The store therefore checks before each group of writes, and on
// a quiet server at each check for imported sessions.
//
// A database or log that was cut short (`> chat.db-wal`) takes writes all the same, and the next
// start finds none of them. A program that made one shorter with SQLite (VACUUM, a checkpoint) left
// as many pages as the database's header says, and as many frames as the log's index says.
//
// The index of the log (-shm) is mapped: where it was cut short, the next access is SIGBUS. Between
// transactions it can be made long again. The new part is zeros, which SQLite finds invalid and
// rebuilds from the log. In the middle of a transaction the process ends, as with kill -9, and
// loses nothing that was confirmed.
#include "sessions/store/watch.h"
#include "base/err.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const suffixes[STORE_FILES] = {"", "-wal", "-shm"};
#define DATABASE 0
#define WAL 1
#define SHM 2

// Whether a shorter file lacks pages. In SQLite's header, big-endian: bytes in a page (1: 65,536) at
// byte 16, pages at byte 28.
static bool lacks_pages(const struct store_db *db, int64_t size) {
    unsigned char h[32];
    if (pread(db->file_fd, h, sizeof h, 0) != sizeof h) return true;
    int64_t page = h[16] << 8 | h[17];
    int64_t pages = (int64_t)h[28] << 24 | h[29] << 16 | h[30] << 8 | h[31];
    return size < pages * (page == 1 ? 65536 : page);
}

static int look(struct store_db *db, int i, struct stat *st, struct err *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s", db->path, suffixes[i]) >= (int)sizeof path)
        return err_set(err, E_LIMIT, "the database's path is too long");
    if (stat(path, st) == 0) return 0;
    return errno == ENOENT ? E_NOTFOUND : err_errno(err, "%s", path);
}

// How many bytes of the log are in use: 32, and for each frame 24 and a page. SQLite's index of the
// log begins with a header: the size of a page (2 bytes) at byte 14, the frames (4) at byte 16.
static int64_t log_bytes_in_use(struct store_db *db) {
    sqlite3_file *file = NULL;
    unsigned char *h = NULL;
    uint16_t page;
    uint32_t frames;
    int rc = sqlite3_file_control(db->sql, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    if (rc != SQLITE_OK || !file || !file->pMethods || file->pMethods->iVersion < 2) return 0;
    if (file->pMethods->xShmMap(file, 0, 32768, 0, (void volatile **)&h) != SQLITE_OK || !h)
        return 0;
    memcpy(&page, h + 14, sizeof page);
    memcpy(&frames, h + 16, sizeof frames);
    return frames ? 32 + (int64_t)frames * (24 + (page == 1 ? 65536 : page)) : 0;
}

// A guest may add frames between a look at the file and one at the index.
static bool lacks_frames(struct store_db *db) {
    struct stat st;
    int64_t in_use = log_bytes_in_use(db);
    return look(db, WAL, &st, NULL) == 0 && st.st_size < in_use;
}

// By its path: closing a descriptor of the file would drop SQLite's locks on it.
static int lengthen(struct store_db *db, int64_t size, struct err *err) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s", db->path, suffixes[SHM]);
    return truncate(path, size) < 0 ? err_errno(err, "%s", path) : 0;
}

static int was_cut_short(struct store_db *db, int i, int64_t size, struct err *err) {
    if (db->file_fd < 0) return 0; // a reader's
    if (i == DATABASE && lacks_pages(db, size))
        return err_set(err, E_IO, "the database file was cut short by another program");
    if (i == WAL && lacks_frames(db))
        return err_set(err, E_IO, "the database's log was cut short by another program");
    return 0;
}

// The index first: was_cut_short() reads it.
int store_watch(struct store_db *db, bool between, struct err *err) {
    if (!db->watched) return 0;
    for (int i = STORE_FILES; i-- > 0;) {
        struct store_file *f = &db->files[i];
        struct stat st;
        int rc = look(db, i, &st, err);
        if (rc == E_NOTFOUND && !f->ino) continue; // SQLite has not made it yet
        if (rc < 0 && rc != E_NOTFOUND) return rc;
        if (f->ino && (rc < 0 || st.st_ino != f->ino || st.st_dev != f->dev))
            return err_set(err, E_IO, "the database file was replaced or removed");
        if (i != SHM && st.st_size < f->size) TRY(was_cut_short(db, i, st.st_size, err));
        int64_t most = i == SHM && f->size > st.st_size ? f->size : st.st_size;
        *f = (struct store_file){st.st_dev, st.st_ino, most};
        if (i != SHM || st.st_size == f->size) continue;
        if (!between) return err_set(err, E_BUSY, "the index of the database's log was cut short");
        TRY(lengthen(db, f->size, err));
    }
    return 0;
}
