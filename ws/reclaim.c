// Trimming malloc's lists. See reclaim.h.
//
// A trim of 900 MB takes a quarter of a second, in which no other thread can allocate. So it runs
// while no message comes and no token is drawn.
#include "ws/reclaim.h"
#include "base/memory.h"
#include <malloc.h>

#define LOOK_MS 2000
#define REST_ACTIVITY 4 // in LOOK_MS: timers alone
#define WORTH_ACTIVITY 100
#define WORTH_BYTES (INT64_C(16) << 20) // above those of the start

static void run_trim(struct work *work) {
    malloc_trim(0);
}

static void done_trim(struct work *work) {
    ((struct reclaim *)work)->busy = false;
}

// After each burst once: how much of what is free was given back before, malloc does not know.
static void on_look(uv_timer_t *handle) {
    struct reclaim *r = handle->data;
    uint64_t now = *r->activity, since = now - r->seen;
    r->seen = now;
    if (since > REST_ACTIVITY || now - r->trimmed < WORTH_ACTIVITY) return;
    if (r->busy || !r->net->workers || memory_resident() < r->start_bytes + WORTH_BYTES) return;
    r->trimmed = now;
    r->work = (struct work){.lane = UINT64_MAX, .run = run_trim, .done = done_trim};
    r->busy = workers_submit(r->net->workers, &r->work) == 0;
}

void reclaim_init(struct reclaim *r, struct net *net, const uint64_t *activity) {
    r->net = net;
    r->activity = activity;
    uv_timer_init(&net->loop, &r->timer);
    r->timer.data = r;
}

void reclaim_start(struct reclaim *r) {
    r->start_bytes = memory_resident();
    uv_timer_start(&r->timer, on_look, LOOK_MS, LOOK_MS);
}
