// The mask gate. RFC 6455, 5.1 requires a server to fail a connection whose frames have no mask, but
// libwebsockets accepts them silently. It has no callback between recv() and its parser, and peeking at
// the socket before each read would race with arriving bytes. So the gate checks the first frame only:
// libwebsockets reads nothing from a new WebSocket until the gate has peeked at the first two bytes. A
// client that does not mask is refused there. Net thread only.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <uv.h>

struct gate;
struct gate_entry { // one watched socket, in its owner's struct
    int fd;
    void *owner;
};

// passed: called once for each entry, when the head of its first frame has come or the peer has ended the
// connection; not after the socket was closed here.
int gate_open(struct gate **out, uv_loop_t *loop, void (*passed)(void *owner, bool masked),
              struct err *err);
// -1 where the system refuses; errno says why.
int gate_watch(struct gate *g, struct gate_entry *e);
// Its memory is freed when the loop has closed the handle. NULL is fine.
void gate_close(struct gate *g);
