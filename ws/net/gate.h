// The mask gate. libwebsockets takes frames without a mask (RFC 6455, 5.1: fail the connection) and
// does not say so. There is no callback between its recv() and its parser, and a look at the socket
// before each read would race with what arrives in between. So the gate looks at the first frame
// only: libwebsockets reads nothing from a new WebSocket until the gate has seen the first two
// bytes. A client that masks no frame is refused there. Net thread only.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <uv.h>

struct gate;
struct gate_entry { // one watched socket, in its owner's struct
    int fd;
    void *owner;
};

// passed: the socket has ended, or its first frame's head has come. Called once for each entry, and
// not after its socket was closed.
int gate_open(struct gate **out, uv_loop_t *loop, void (*passed)(void *owner, bool masked),
              struct err *err);
// -1 where the system refuses; errno says why.
int gate_watch(struct gate *g, struct gate_entry *e);
// Its memory goes when the loop has closed the handle; NULL is fine
void gate_close(struct gate *g);
