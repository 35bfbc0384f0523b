// How fast a client of HTTP/2 may send frames to gRPC 1.51, which reads all that arrives. gRPC keeps every call that the
// server has not taken yet, and every reply that the client has not read yet, and knows no limit for either: frames of 17
// bytes made the server's memory grow by 100 MB a second. So a tunnel (tunnel.h) passes a frame on only when the meter
// has room for the frame, and reads nothing more from the client until then. The meter changes no frame.
//
// A HEADERS frame begins a call, in most cases. At most CALLS_UNTAKEN calls of a connection wait for the server:
// frame_meter_took frees one place, and time frees places too, because the server never takes a call that its client
// has reset at once. All frames also have a rate. DATA frames of FREE_DATA_BYTES and more cost nothing: HTTP/2's own
// windows bound them.
#pragma once
#include "base/rate.h"
#include <stddef.h>

struct frame_meter {
    size_t preface_left;   // bytes of the client's first line, which is no frame
    unsigned char head[9]; // of the next frame, as far as it has passed
    size_t n_head;         // bytes of `head`
    uint32_t body_left;    // bytes of the current frame that have not passed
    uint64_t block;        // bytes of the current call's headers so far
    bool broken;           // a call's headers are too long: the tunnel ends the connection
    struct rate frames, calls;
};

void frame_meter_init(struct frame_meter *m, int64_t now_us);
// How many of the next bytes may pass now; the meter counts these bytes as passed. Fewer than len: call again with the
// rest after frame_meter_wait_ms.
size_t frame_meter_pass(struct frame_meter *m, const unsigned char *bytes, size_t len,
                        int64_t now_us);
int64_t frame_meter_wait_ms(const struct frame_meter *m); // at least 1
void frame_meter_took(struct frame_meter *m);             // the server has taken a call
