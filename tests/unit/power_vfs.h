// A disk that loses power and a disk that refuses, as a layer over SQLite's own file system.
//
// Everything reaches the real files; beside that the layer knows, of each file, what was there at
// its last sync and every write since. pv_cut() makes from that what a power cut may leave: of the
// writes after the last sync any may be there, whole, in part (by sectors of 512 bytes) or not, in
// any order. A file that was never synced may be gone. pv_fail() makes the n-th write, sync or open
// fail, and all after it until it is called off.
#pragma once
#pragma GCC diagnostic ignored "-Wunused-function"
#include "base/buf.h"
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PV_FILES 8
#define PV_SECTOR 512

struct pv_write {
    sqlite3_int64 at;
    int len; // -1: truncated to `at`
    unsigned char *bytes;
};
struct pv_disk_file { // by name, however often it is opened
    char name[300];
    bool synced; // once at least, or there from the start
    unsigned char *bytes;
    sqlite3_int64 len; // as of the last sync
    struct pv_write *writes;
    int n, cap;
};
enum pv_kind { PV_WRITE = 1, PV_SYNC = 2, PV_OPEN = 4 };
static struct {
    pthread_mutex_t mutex;
    struct pv_disk_file files[PV_FILES];
    int n_files;
    int64_t n_ops;       // writes, syncs, truncations
    void (*on_op)(void); // before each; the mutex is held
    int fail_kinds, fail_code;
    int64_t fail_at; // operations of these kinds to go; < 0: off
    int64_t n_failed;
} pv = {.mutex = PTHREAD_MUTEX_INITIALIZER, .fail_at = -1};

struct pv_file {
    sqlite3_file base;
    struct pv_disk_file *disk; // NULL: a temporary one
    sqlite3_file *real;        // behind this struct
};

static sqlite3_vfs *pv_real;

// --- the model ---------------------------------------------------------------

// Files this long get their memory in large steps, because a log grows by half a page at a time.
static size_t pv_cap(sqlite3_int64 len) {
    size_t cap = 4096;
    while (cap < (size_t)len) cap *= 2;
    return cap;
}

static struct pv_disk_file *pv_find(const char *name, bool add) {
    for (int i = 0; i < pv.n_files; i++)
        if (strcmp(pv.files[i].name, name) == 0) return &pv.files[i];
    if (!add || pv.n_files == PV_FILES) return NULL;
    struct pv_disk_file *f = &pv.files[pv.n_files++];
    memset(f, 0, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    struct buf b;
    if (buf_read_file(&b, name, 1 << 28, NULL) == 0) { // made outside the test
        f->len = (sqlite3_int64)b.len;
        f->synced = true;
        f->bytes = malloc(pv_cap(f->len));
        if (b.len) memcpy(f->bytes, b.data, b.len);
    }
    buf_release(&b);
    return f;
}

static void pv_apply(unsigned char **bytes, sqlite3_int64 *len, const struct pv_write *w) {
    sqlite3_int64 end = w->len < 0 ? w->at : w->at + w->len;
    if (w->len < 0 ? end < *len : end > *len) {
        if (!*bytes || pv_cap(end) != pv_cap(*len)) *bytes = realloc(*bytes, pv_cap(end));
        if (end > *len) memset(*bytes + *len, 0, (size_t)(end - *len));
        *len = end;
    }
    if (w->len > 0) memcpy(*bytes + w->at, w->bytes, (size_t)w->len);
}

static void pv_forget_writes(struct pv_disk_file *f) {
    for (int i = 0; i < f->n; i++) free(f->writes[i].bytes);
    f->n = 0;
}

static void pv_note(struct pv_disk_file *f, const void *bytes, int len, sqlite3_int64 at) {
    if (f->n == f->cap) {
        f->cap = f->cap ? f->cap * 2 : 64;
        f->writes = realloc(f->writes, (size_t)f->cap * sizeof *f->writes);
    }
    struct pv_write *w = &f->writes[f->n++];
    *w = (struct pv_write){.at = at, .len = len};
    if (len > 0) w->bytes = memcpy(malloc((size_t)len), bytes, (size_t)len);
}

static void pv_settle(struct pv_disk_file *f) {
    for (int i = 0; i < f->n; i++) pv_apply(&f->bytes, &f->len, &f->writes[i]);
    pv_forget_writes(f);
    f->synced = true;
}

static void pv_reset(void) {
    for (int i = 0; i < pv.n_files; i++) {
        pv_forget_writes(&pv.files[i]);
        free(pv.files[i].writes);
        free(pv.files[i].bytes);
    }
    pv.n_files = 0;
    pv.n_ops = pv.n_failed = 0;
    pv.fail_at = -1;
    pv.on_op = NULL;
}

// What may be left of a file. Keeps each part of an unsynced write with probability keep/4.
static unsigned char *pv_cut(const struct pv_disk_file *f, int keep, unsigned *seed,
                             sqlite3_int64 *len) {
    unsigned char *bytes = malloc(pv_cap(f->len));
    *len = f->len;
    if (f->len) memcpy(bytes, f->bytes, (size_t)f->len);
    int *order = malloc((size_t)(f->n + 1) * sizeof *order);
    for (int i = 0; i < f->n; i++) order[i] = i;
    for (int i = f->n - 1; i > 0; i--) { // any order
        int j = (int)(rand_r(seed) % (unsigned)(i + 1)), k = order[i];
        order[i] = order[j], order[j] = k;
    }
    for (int i = 0; i < f->n; i++) {
        const struct pv_write *w = &f->writes[order[i]];
        if (w->len < 0) {
            if ((int)(rand_r(seed) % 4) < keep) pv_apply(&bytes, len, w);
            continue;
        }
        for (sqlite3_int64 at = w->at, next; at < w->at + w->len; at = next) {
            next = (at / PV_SECTOR + 1) * PV_SECTOR;
            if (next > w->at + w->len) next = w->at + w->len;
            if ((int)(rand_r(seed) % 4) >= keep) continue;
            pv_apply(&bytes, len,
                     &(struct pv_write){at, (int)(next - at), w->bytes + (at - w->at)});
        }
    }
    free(order);
    return bytes;
}

// --- faults ------------------------------------------------------------------

static void pv_fail(int kinds, int code, int64_t at) {
    pthread_mutex_lock(&pv.mutex);
    pv.fail_kinds = kinds;
    pv.fail_code = code;
    pv.fail_at = at;
    pthread_mutex_unlock(&pv.mutex);
}

// The mutex is held. The error, or SQLITE_OK.
static int pv_verdict(enum pv_kind kind) {
    if (kind != PV_OPEN) {
        if (pv.on_op) pv.on_op();
        pv.n_ops++;
    }
    if (pv.fail_at < 0 || !(pv.fail_kinds & kind)) return SQLITE_OK;
    if (pv.fail_at > 0) {
        pv.fail_at--;
        return SQLITE_OK;
    }
    pv.n_failed++;
    return pv.fail_code;
}

// --- SQLite's side -----------------------------------------------------------

#define PV(file) ((struct pv_file *)(file))
#define PV_CALL(file, method, ...) PV(file)->real->pMethods->method(PV(file)->real, ##__VA_ARGS__)

static int pv_close(sqlite3_file *f) {
    return PV(f)->real->pMethods ? PV_CALL(f, xClose) : SQLITE_OK;
}
static int pv_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at) {
    return PV_CALL(f, xRead, p, n, at);
}
static int pv_write_bytes(sqlite3_file *f, const void *p, int n, sqlite3_int64 at) {
    pthread_mutex_lock(&pv.mutex);
    int rc = PV(f)->disk ? pv_verdict(PV_WRITE) : SQLITE_OK;
    if (rc == SQLITE_OK && PV(f)->disk) pv_note(PV(f)->disk, p, n, at);
    pthread_mutex_unlock(&pv.mutex);
    return rc == SQLITE_OK ? PV_CALL(f, xWrite, p, n, at) : rc;
}
static int pv_truncate(sqlite3_file *f, sqlite3_int64 len) {
    pthread_mutex_lock(&pv.mutex);
    int rc = PV(f)->disk ? pv_verdict(PV_WRITE) : SQLITE_OK;
    if (rc == SQLITE_FULL) rc = SQLITE_IOERR_TRUNCATE;
    if (rc == SQLITE_OK && PV(f)->disk) pv_note(PV(f)->disk, NULL, -1, len);
    pthread_mutex_unlock(&pv.mutex);
    return rc == SQLITE_OK ? PV_CALL(f, xTruncate, len) : rc;
}
static int pv_sync(sqlite3_file *f, int flags) {
    pthread_mutex_lock(&pv.mutex);
    int rc = PV(f)->disk ? pv_verdict(PV_SYNC) : SQLITE_OK;
    if (rc == SQLITE_OK && PV(f)->disk) pv_settle(PV(f)->disk);
    pthread_mutex_unlock(&pv.mutex);
    return rc; // nothing here survives a real power cut: no need to wait for the real disk
}
static int pv_size(sqlite3_file *f, sqlite3_int64 *out) {
    return PV_CALL(f, xFileSize, out);
}
static int pv_lock(sqlite3_file *f, int level) {
    return PV_CALL(f, xLock, level);
}
static int pv_unlock(sqlite3_file *f, int level) {
    return PV_CALL(f, xUnlock, level);
}
static int pv_reserved(sqlite3_file *f, int *out) {
    return PV_CALL(f, xCheckReservedLock, out);
}
static int pv_control(sqlite3_file *f, int op, void *arg) {
    return PV_CALL(f, xFileControl, op, arg);
}
static int pv_sector(sqlite3_file *f) {
    return PV_CALL(f, xSectorSize);
}
static int pv_device(sqlite3_file *f) {
    return PV_CALL(f, xDeviceCharacteristics);
}
static int pv_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out) {
    return PV_CALL(f, xShmMap, page, size, extend, out);
}
static int pv_shm_lock(sqlite3_file *f, int offset, int n, int flags) {
    return PV_CALL(f, xShmLock, offset, n, flags);
}
static void pv_shm_barrier(sqlite3_file *f) {
    PV_CALL(f, xShmBarrier);
}
static int pv_shm_unmap(sqlite3_file *f, int delete_it) {
    return PV_CALL(f, xShmUnmap, delete_it);
}
static const sqlite3_io_methods pv_methods = {
    2,           pv_close,       pv_read,      pv_write_bytes, pv_truncate, pv_sync,   pv_size,
    pv_lock,     pv_unlock,      pv_reserved,  pv_control,     pv_sector,   pv_device, pv_shm_map,
    pv_shm_lock, pv_shm_barrier, pv_shm_unmap, NULL,           NULL};

static int pv_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out) {
    struct pv_file *f = PV(file);
    memset(f, 0, sizeof *f);
    f->real = (sqlite3_file *)(f + 1);
    pthread_mutex_lock(&pv.mutex);
    int rc = name ? pv_verdict(PV_OPEN) : SQLITE_OK;
    if (rc == SQLITE_OK && name) f->disk = pv_find(name, true);
    pthread_mutex_unlock(&pv.mutex);
    if (rc == SQLITE_OK) rc = pv_real->xOpen(pv_real, name, f->real, flags, out);
    file->pMethods = f->real->pMethods ? &pv_methods : NULL;
    return rc;
}

static int pv_delete(sqlite3_vfs *vfs, const char *name, int sync_folder) {
    pthread_mutex_lock(&pv.mutex);
    struct pv_disk_file *f = pv_find(name, false);
    // Its name becomes durable with the folder's sync. Before that both states may be found; the harder
    // one is that the file is gone.
    if (f) {
        pv_forget_writes(f);
        f->len = 0;
        f->synced = false;
    }
    pthread_mutex_unlock(&pv.mutex);
    return pv_real->xDelete(pv_real, name, sync_folder);
}

static sqlite3_vfs pv_vfs;

// From here on SQLite's files go through the layer, or (off) no longer.
static void pv_install(bool on) {
    if (!pv_real) {
        pv_real = sqlite3_vfs_find(NULL);
        pv_vfs = *pv_real;
        pv_vfs.zName = "power";
        pv_vfs.szOsFile = (int)sizeof(struct pv_file) + pv_real->szOsFile;
        pv_vfs.xOpen = pv_open;
        pv_vfs.xDelete = pv_delete;
    }
    if (on)
        sqlite3_vfs_register(&pv_vfs, 1);
    else
        sqlite3_vfs_register(pv_real, 1);
}
