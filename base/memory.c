// See memory.h.
#include "base/memory.h"
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

// Of the threads that start later, and of connections and sessions.
#define SPARE_BYTES (INT64_C(64) << 20)

static int64_t available(void) {
    char line[128];
    long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemAvailable: %lld kB", &kib) == 1) break;
    }
    if (f) fclose(f);
    return kib * 1024;
}

static int64_t used_addresses(void) {
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%lld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

int64_t memory_left(void) {
    struct rlimit limit;
    int64_t left = available();
    if (getrlimit(RLIMIT_AS, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return left;
    int64_t allowed = (int64_t)limit.rlim_cur - used_addresses();
    if (allowed < 1) allowed = 1; // 0 is unknown
    return left == 0 || allowed < left ? allowed : left;
}

struct memory_advice memory_advice(void) {
    struct memory_advice a = {""};
    long long left = memory_left() >> 20, fits = left - (SPARE_BYTES >> 20);
    if (fits > 0)
        snprintf(a.text, sizeof a.text, "; %lldMiB would fit", fits);
    else
        snprintf(a.text, sizeof a.text, "; only %lld MiB of memory are left", left);
    return a;
}
