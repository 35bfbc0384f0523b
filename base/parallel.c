// See parallel.h.
#include "base/parallel.h"
#include "base/cgroup.h"
#include "base/thread.h"
#include <stdbool.h>

enum { MOST = 16 };

struct range {
    pthread_t thread;
    parallel_fn *fn;
    void *ctx;
    int64_t first, n;
};

static void *run(void *arg) {
    struct range *r = arg;
    r->fn(r->ctx, r->first, r->n);
    return NULL;
}

void parallel_ranges(int64_t n, int64_t least, parallel_fn *fn, void *ctx) {
    struct range ranges[MOST];
    bool apart[MOST] = {false};
    int64_t most = least > 0 ? n / least : n;
    if (most < 2) { // most reads are a few bytes long
        if (n > 0) fn(ctx, 0, n);
        return;
    }
    int count = cgroup_processors();
    if (count > MOST) count = MOST;
    if (most < count) count = (int)most;
    for (int i = count - 1; i >= 0; i--) {
        int64_t first = n / count * i, end = i == count - 1 ? n : n / count * (i + 1);
        ranges[i] = (struct range){.fn = fn, .ctx = ctx, .first = first, .n = end - first};
        if (i > 0) apart[i] = thread_start(&ranges[i].thread, run, &ranges[i]) == 0;
    }
    for (int i = 0; i < count; i++)
        if (!apart[i]) run(&ranges[i]);
    for (int i = 0; i < count; i++)
        if (apart[i]) pthread_join(ranges[i].thread, NULL);
}
