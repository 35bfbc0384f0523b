// A scratch folder for tests that read files: created under TMPDIR or /tmp, removed with its
// contents.
#pragma once
#include "tests/cmocka.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tmp_dir {
    char path[80];
};

static inline void tmp_dir_open(struct tmp_dir *d) {
    const char *under = getenv("TMPDIR");
    int n = snprintf(d->path, sizeof d->path, "%s/parley-test-XXXXXX", under ? under : "/tmp");
    assert_true(n < (int)sizeof d->path);
    assert_non_null(mkdtemp(d->path));
}

static inline void tmp_dir_close(struct tmp_dir *d) {
    char path[500];
    DIR *dir = opendir(d->path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%s/%s", d->path, e->d_name);
        assert_int_equal(remove(path), 0);
    }
    closedir(dir);
    assert_int_equal(rmdir(d->path), 0);
}

// "DIR/name", in one of four buffers that take turns.
static inline const char *tmp_path(const struct tmp_dir *d, const char *name) {
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", d->path, name);
    return path;
}

static inline void tmp_write(const struct tmp_dir *d, const char *name, const void *bytes,
                             size_t n) {
    FILE *f = fopen(tmp_path(d, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void tmp_text(const struct tmp_dir *d, const char *name, const char *text) {
    tmp_write(d, name, text, strlen(text));
}

// Copies FROM/name into the folder.
static inline void tmp_copy(const struct tmp_dir *d, const char *from, const char *name) {
    char path[512];
    static char bytes[1 << 20];
    snprintf(path, sizeof path, "%s/%s", from, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    assert_true(n < sizeof bytes);
    fclose(f);
    tmp_write(d, name, bytes, n);
}
