// Gives memory that a burst took back to the system once the server is at rest. malloc keeps it
// otherwise, in pieces between what is still used.
#pragma once
#include "base/workers.h"
#include "ws/net/net.h"

struct reclaim {
    struct work work; // first: the trim, on a worker
    struct net *net;
    const uint64_t *activity; // it grows while the server does anything
    uint64_t seen, trimmed;   // of it, at the last look, and at the last trim
    int64_t start_bytes;      // resident at the start
    uv_timer_t timer;
    bool busy;
};

// Handles on net's loop, which net_close closes.
void reclaim_init(struct reclaim *r, struct net *net, const uint64_t *activity);
void reclaim_start(struct reclaim *r);
