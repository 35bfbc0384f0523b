// Trimming malloc's lists. See reclaim.h.
//
// A trim of 900 MB takes a quarter of a second, in which no other thread can allocate. So it runs
// while no message comes and no token is drawn.
#include "ws/reclaim.h"
#include "base/memory.h"
#include <malloc.h>

#define LOOK_MS 2000
#define REST_BYTES (INT64_C(16) << 20) // above the last trim's, at rest
#define REST_ACTIVITY 4                // in LOOK_MS: timers alone

static void run_trim(struct work *work) {
    malloc_trim(0);
}

static void done_trim(struct work *work) {
    struct reclaim *r = (struct reclaim *)work;
    r->base_bytes = memory_resident();
    r->busy = false;
}

static void on_look(uv_timer_t *handle) {
    struct reclaim *r = handle->data;
    bool rests = *r->activity - r->seen <= REST_ACTIVITY;
    r->seen = *r->activity;
    if (!rests || r->busy || !r->net->workers) return;
    if (memory_resident() < r->base_bytes + REST_BYTES) return;
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
    r->base_bytes = memory_resident();
    uv_timer_start(&r->timer, on_look, LOOK_MS, LOOK_MS);
}
