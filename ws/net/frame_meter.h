// How fast a client of HTTP/2 may send frames to a library that reads whatever comes (gRPC 1.51). The library keeps a
// call that nobody has taken yet, and a reply that nobody has read, without a bound: frames of 17 bytes grew the server
// by 100 MB a second. So a tunnel (tunnel.h) passes a frame on only if the meter has room for it, and reads nothing
// more until then. No frame is changed.
//
// A HEADERS frame begins a call, in most cases. A connection has CALLS_UNTAKEN of them under way: frame_meter_took gives
// one back, and so does time, since a call that its client reset at once is never taken. Beside that, all frames have a
// rate. DATA frames of some length are free: HTTP/2's own windows bound them.
#pragma once
#include "base/rate.h"
#include <stddef.h>

struct frame_meter {
    size_t preface_left;   // bytes of the client's first line, which is no frame
    unsigned char head[9]; // of the next frame, as far as it has passed
    size_t n_head;         // bytes of it
    uint32_t body_left;    // bytes of the frame under way
    uint64_t block;        // bytes of the headers under way
    bool broken;           // they are too long: the connection is to be ended
    struct rate frames, calls;
};

void frame_meter_init(struct frame_meter *m, int64_t now_us);
// How many of the next bytes may pass now; they are taken as passed. Less than len: call it again with the others in
// frame_meter_wait_ms.
size_t frame_meter_pass(struct frame_meter *m, const unsigned char *bytes, size_t len,
                        int64_t now_us);
int64_t frame_meter_wait_ms(const struct frame_meter *m); // at least 1
void frame_meter_took(struct frame_meter *m);             // the server has taken a call
