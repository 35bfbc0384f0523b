// Whether the database's files are still those that were opened.
//
// SQLite writes to open files. When such a file is removed or replaced, later commits go to a file
// that the next start does not find. The store therefore checks before each group of writes, and on
// a quiet server at each check for imported sessions.
//
// The index of the log (-shm) is mapped: where it was cut short, the next access is SIGBUS. Between
// transactions it can be made long again. The new part is zeros, which SQLite finds invalid and
// rebuilds from the log. In the middle of a transaction the process ends, as with kill -9, and
// loses nothing that was confirmed.
#include "base/err.h"
#include "sessions/store/db.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const suffixes[STORE_FILES] = {"", "-wal", "-shm"};
#define SHM 2

static int look(struct store_db *db, int i, struct stat *st, struct err *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s", db->path, suffixes[i]) >= (int)sizeof path)
        return err_set(err, E_LIMIT, "the database's path is too long");
    if (stat(path, st) == 0) return 0;
    return errno == ENOENT ? E_NOTFOUND : err_errno(err, "%s", path);
}

// By its path: closing a descriptor of the file would drop SQLite's locks on it.
static int lengthen(struct store_db *db, int64_t size, struct err *err) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s", db->path, suffixes[SHM]);
    return truncate(path, size) < 0 ? err_errno(err, "%s", path) : 0;
}

int store_watch(struct store_db *db, bool between, struct err *err) {
    if (!db->watched) return 0;
    for (int i = 0; i < STORE_FILES; i++) {
        struct store_file *f = &db->files[i];
        struct stat st;
        int rc = look(db, i, &st, err);
        if (rc == E_NOTFOUND && !f->ino) continue; // SQLite has not made it yet
        if (rc < 0 && rc != E_NOTFOUND) return rc;
        if (f->ino && (rc < 0 || st.st_ino != f->ino || st.st_dev != f->dev))
            return err_set(err, E_IO, "the database file was replaced or removed");
        *f = (struct store_file){st.st_dev, st.st_ino, st.st_size > f->size ? st.st_size : f->size};
        if (i != SHM || st.st_size == f->size) continue;
        if (!between) return err_set(err, E_BUSY, "the index of the database's log was cut short");
        TRY(lengthen(db, f->size, err));
    }
    return 0;
}
