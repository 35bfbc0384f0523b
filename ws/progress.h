// Progress bars on stderr: a bar shows the mean of its parts, the instances that load side by side.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { PROGRESS_WHAT_MAX = 64 };

struct progress {
    pthread_mutex_t lock;
    char what[PROGRESS_WHAT_MAX];
    struct progress *after; // shown when that one is complete; NULL: at once
    int n_parts, sum;       // the parts that have joined, and the sum of their per cent
    int shown;              // per cent; -1: nothing yet
};
struct progress_part {
    struct progress *whole;
    bool has_joined;
    int percent;
};

void progress_open(struct progress *p, const char *what, struct progress *after);
void progress_close(struct progress *p);
// Counts a part that has not reported yet. Without this call it counts from its first report on.
void progress_join(struct progress_part *part);
// As engine_options.progress, with a part as ctx. Any thread.
void progress_report(void *part, int64_t done, int64_t total);
