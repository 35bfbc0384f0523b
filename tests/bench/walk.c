// Records which functions a program enters and leaves, for walk.mjs: a library that LD_PRELOAD puts before the empty
// __cyg_profile_func_* of libc. The file WALK_FILE is mapped; its reader switches the recording on and off.
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define WALK_MAX (1 << 20)

static struct walk {
    _Atomic uint64_t on, n; // n may exceed WALK_MAX: what is beyond is lost
    struct walk_step {
        uint64_t at; // address in the program's file
        uint32_t thread, leaves;
    } steps[WALK_MAX];
} * walk;
static uint64_t base;

static int note_base(struct dl_phdr_info *info, size_t size, void *out) {
    *(uint64_t *)out = info->dlpi_addr; // the first one is the program
    return 1;
}

__attribute__((constructor)) static void open_walk(void) {
    const char *path = getenv("WALK_FILE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof *walk, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    dl_iterate_phdr(note_base, &base);
    if (map != MAP_FAILED) walk = map;
}

static void note(const void *function, uint32_t leaves) {
    static _Thread_local uint32_t thread;
    if (!walk || !atomic_load_explicit(&walk->on, memory_order_relaxed)) return;
    if (!thread) thread = (uint32_t)gettid();
    uint64_t i = atomic_fetch_add(&walk->n, 1);
    if (i < WALK_MAX)
        walk->steps[i] = (struct walk_step){(uint64_t)(uintptr_t)function - base, thread, leaves};
}

void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);

void __cyg_profile_func_enter(void *function, void *caller) {
    note(function, 0);
}

void __cyg_profile_func_exit(void *function, void *caller) {
    note(function, 1);
}
