// A bell that any thread rings and the loop's thread hears: an event descriptor on the loop.
//
// uv_async_t does the same, but its receiver spins for a sender that is half-way through. The net
// thread may run at a higher priority than its senders (run_ahead): on one processor it would spin
// for a sender that cannot run.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <uv.h>

struct bell {
    uv_poll_t poll;
    int fd;
    bool ringing; // atomic: rung, and not heard yet
    void (*heard)(void *ctx);
    void *ctx;
};

// heard() is called on the loop's thread, once for all rings before it. E_IO. b stays where it is.
int bell_open(struct bell *b, uv_loop_t *loop, void (*heard)(void *ctx), void *ctx,
              struct err *err);
void bell_ring(void *bell); // any thread
// After the loop has closed its handles, and when nothing rings any more.
void bell_close(struct bell *b);
