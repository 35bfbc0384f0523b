// What the control group of this process allows: a container or a systemd unit may have less than
// the machine. Reads version 2; where there is none, nothing is limited.
#pragma once
#include <stdint.h>

struct cgroup_limits {
    // Of memory that may still be allocated, counting caches that the kernel would free; -1: no limit.
    int64_t bytes_left;
    double processors; // how many of them it may use on average; 0: no limit
};

// Of the group and all groups above it, the smallest counts. May be called from any thread.
void cgroup_limits(struct cgroup_limits *out);
// The same below a folder other than /sys/fs/cgroup, for the group `path` ("/a/b"): for tests.
void cgroup_limits_of(struct cgroup_limits *out, const char *root, const char *path);

// Processors that this process may run on (its affinity), and at most as many as the group's share
// of time, rounded up: more threads than that would be stopped together in the middle of each
// period. At least 1.
int cgroup_processors(void);
