// Version 2 of Linux's control groups: memory.max, memory.current, memory.stat and cpu.max. See
// cgroup.h.
#include "base/cgroup.h"
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static FILE *open_file(const char *root, const char *path, const char *name) {
    char full[PATH_MAX];
    int n = snprintf(full, sizeof full, "%s%s/%s", root, path, name);
    return n < (int)sizeof full ? fopen(full, "re") : NULL;
}

// The number in a file of one; -1 for "max" and where there is no such file.
static int64_t read_number(const char *root, const char *path, const char *name) {
    long long n = -1;
    FILE *f = open_file(root, path, name);
    if (!f) return -1;
    if (fscanf(f, "%lld", &n) != 1) n = -1;
    fclose(f);
    return n;
}

// Pages of files that the kernel drops before it ends a process of the group.
static int64_t reclaimable(const char *root, const char *path) {
    char line[128];
    long long n, sum = 0;
    FILE *f = open_file(root, path, "memory.stat");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "inactive_file %lld", &n) == 1 ||
            sscanf(line, "active_file %lld", &n) == 1)
            sum += n;
    if (f) fclose(f);
    return sum;
}

static int64_t memory_left_in(const char *root, const char *path) {
    int64_t max = read_number(root, path, "memory.max");
    int64_t used = read_number(root, path, "memory.current");
    if (max < 0 || used < 0) return -1;
    used -= reclaimable(root, path);
    if (used < 0) used = 0;
    return used < max ? max - used : 0;
}

// cpu.max: "QUOTA PERIOD" in microseconds, or "max PERIOD".
static double processors_in(const char *root, const char *path) {
    double quota = 0, period = 0;
    FILE *f = open_file(root, path, "cpu.max");
    if (!f) return 0;
    if (fscanf(f, "%lf %lf", &quota, &period) != 2 || quota <= 0 || period <= 0)
        quota = 0, period = 1;
    fclose(f);
    return quota / period;
}

void cgroup_limits_of(struct cgroup_limits *out, const char *root, const char *path) {
    char group[PATH_MAX];
    *out = (struct cgroup_limits){.bytes_left = -1};
    if (snprintf(group, sizeof group, "%s", strcmp(path, "/") ? path : "") >= (int)sizeof group)
        return;
    for (;;) {
        int64_t left = memory_left_in(root, group);
        double processors = processors_in(root, group);
        if (left >= 0 && (out->bytes_left < 0 || left < out->bytes_left)) out->bytes_left = left;
        if (processors > 0 && (out->processors <= 0 || processors < out->processors))
            out->processors = processors;
        char *slash = strrchr(group, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

void cgroup_limits(struct cgroup_limits *out) {
    char line[PATH_MAX], path[PATH_MAX] = "";
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) // the others are of version 1
        if (strncmp(line, "0::", 3) == 0 && sscanf(line + 3, "%4095[^\n]", path) == 1) break;
    if (f) fclose(f);
    cgroup_limits_of(out, "/sys/fs/cgroup", path);
}

int cgroup_processors(void) {
    struct cgroup_limits limits;
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    cgroup_limits(&limits);
    if (limits.processors > 0 && limits.processors < n) n = (int)ceil(limits.processors);
    return n > 0 ? n : 1;
}
