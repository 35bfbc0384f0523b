// See host_sums.h.
#include "engine/dist/host_sums.h"
#include "base/err.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE = 64, SLOT_FLOATS = 1 << 17 }; // half a megabyte: more goes in pieces

static _Atomic uint64_t *counter(const struct host_sums *s, int32_t rank) {
    return (_Atomic uint64_t *)(void *)(s->memory + (size_t)rank * LINE);
}

static float *slot(const struct host_sums *s, int32_t rank) {
    const size_t at = (size_t)((s->epoch & 1) * (uint64_t)s->n + (uint64_t)rank) * SLOT_FLOATS;
    return (float *)(void *)(s->memory + (size_t)s->n * LINE) + at;
}

size_t host_sums_bytes(int32_t n) {
    return (size_t)n * (LINE + 2 * SLOT_FLOATS * sizeof(float));
}

int host_sums_make(int32_t n) {
    const int fd = memfd_create("parley-sums", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)host_sums_bytes(n)) == 0) return fd;
    close(fd);
    return -1;
}

void *host_sums_map(int pid, int fd, int32_t n) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return NULL;
    void *p = mmap(NULL, host_sums_bytes(n), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return p == MAP_FAILED ? NULL : p;
}

void host_sums_init(struct host_sums *s, void *memory, int32_t n, int32_t me) {
    *s = (struct host_sums){.memory = memory, .n = n, .me = me};
}

static int run_piece(struct host_sums *s, float *x, size_t n, int (*wait)(void *ctx, int64_t i),
                     void *ctx) {
    s->epoch++;
    memcpy(slot(s, s->me), x, n * sizeof *x);
    atomic_store_explicit(counter(s, s->me), s->epoch, memory_order_release);
    for (int32_t r = 0; r < s->n; r++) {
        const float *part = slot(s, r);
        for (int64_t i = 0; atomic_load_explicit(counter(s, r), memory_order_acquire) < s->epoch;
             i++)
            TRY(wait(ctx, i));
        if (r == 0) memcpy(x, part, n * sizeof *x);
        for (size_t i = 0; r > 0 && i < n; i++) x[i] += part[i];
    }
    return 0;
}

int host_sums_run(struct host_sums *s, float *x, int64_t n, int (*wait)(void *ctx, int64_t i),
                  void *ctx) {
    for (int64_t at = 0; at < n; at += SLOT_FLOATS)
        TRY(run_piece(s, x + at, (size_t)(n - at < SLOT_FLOATS ? n - at : SLOT_FLOATS), wait, ctx));
    return 0;
}
