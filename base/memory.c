// See memory.h.
#include "base/memory.h"
#include "base/cgroup.h"
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

static void read_statm(int64_t *addresses, int64_t *resident) {
    long long pages[2] = {0};
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%lld %lld", &pages[0], &pages[1]) != 2) pages[0] = pages[1] = 0;
    if (f) fclose(f);
    *addresses = pages[0] * sysconf(_SC_PAGESIZE);
    *resident = pages[1] * sysconf(_SC_PAGESIZE);
}

int64_t memory_resident(void) {
    int64_t addresses, resident;
    read_statm(&addresses, &resident);
    return resident;
}

int64_t memory_left(void) {
    struct rlimit limit;
    struct cgroup_limits group;
    int64_t left = available(), addresses, resident;
    cgroup_limits(&group);
    if (group.bytes_left >= 0 && (left == 0 || group.bytes_left < left))
        left = group.bytes_left > 0 ? group.bytes_left : 1; // 0 is unknown
    if (getrlimit(RLIMIT_AS, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return left;
    read_statm(&addresses, &resident);
    int64_t allowed = (int64_t)limit.rlim_cur - addresses;
    if (allowed < 1) allowed = 1; // 0 is unknown
    return left == 0 || allowed < left ? allowed : left;
}

struct memory_advice memory_advice(void) {
    struct memory_advice a = {""};
    long long left = memory_left() >> 20, fits = left - (SPARE_BYTES >> 20);
    if (fits > 0)
        snprintf(a.text, sizeof a.text, "; %lld MiB would fit", fits);
    else
        snprintf(a.text, sizeof a.text, "; only %lld MiB of memory are left", left);
    return a;
}
