// Shared by the fuzz targets: a scratch folder in memory for parsers that read files, and the checks that
// hold for every parser and every input.
#pragma once
#include "base/err.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);              \
        abort();                                                                                   \
    } while (0)

// A failure has a code, and a sentence of its own that is not empty; a success has neither.
static inline void fuzz_check_err(int rc, const struct err *err) {
    FUZZ_CHECK(rc <= 0);
    FUZZ_CHECK(err->code == rc);
    FUZZ_CHECK((rc == 0) == (err->text[0] == '\0'));
}

static char fuzz_folder[64];
static char fuzz_names[4][96]; // the files that are in it
static int fuzz_n_names;

static inline void fuzz_remove_folder(void) {
    while (fuzz_n_names > 0) unlink(fuzz_names[--fuzz_n_names]);
    rmdir(fuzz_folder);
}

// The folder, made on the first call and removed at the end of the process.
static inline const char *fuzz_dir(void) {
    if (fuzz_folder[0]) return fuzz_folder;
    const char *where = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(fuzz_folder, sizeof fuzz_folder, "%s/parley-fuzz-XXXXXX", where);
    FUZZ_CHECK(mkdtemp(fuzz_folder));
    atexit(fuzz_remove_folder);
    return fuzz_folder;
}

// DIR/name with these bytes, in place of what was there.
static inline const char *fuzz_file(const char *name, const uint8_t *data, size_t size) {
    char path[96];
    int i = 0;
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    while (i < fuzz_n_names && strcmp(fuzz_names[i], path) != 0) i++;
    FUZZ_CHECK(i < 4);
    if (i == fuzz_n_names) memcpy(fuzz_names[fuzz_n_names++], path, sizeof path);
    FILE *f = fopen(path, "wb");
    FUZZ_CHECK(f);
    FUZZ_CHECK(fwrite(data, 1, size, f) == size);
    FUZZ_CHECK(fclose(f) == 0);
    return fuzz_names[i];
}

static inline void fuzz_remove(const char *name) {
    char path[96];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    unlink(path);
}

// An input of two parts has a NUL between them, which no text file holds. *rest: what is behind it.
static inline size_t fuzz_split(const uint8_t *data, size_t size, const uint8_t **rest,
                                size_t *n_rest) {
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    *rest = nul ? nul + 1 : data + size;
    *n_rest = nul ? size - n - 1 : 0;
    return n;
}
