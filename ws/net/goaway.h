// The end of a connection of HTTP/2 that another library serves (guest.h). A GOAWAY names the client's last call that the
// library gets. What the client sends for later calls is kept from the library, so that the client may make these calls
// again at once, on another server (RFC 9113, 6.8). All other bytes pass as they are.
//
// The library does not decode the headers that are kept from it, and would misread later headers: those of a new call,
// which are kept from it too, or trailers, which clients of gRPC do not send.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GOAWAY_ROOM 8          // bytes before those that goaway_keep reads
#define GOAWAY_FRAMES_BYTES 30 // the most that goaway_take writes

struct frames { // of one direction, as far as its bytes came
    size_t preface_left;
    unsigned char head[9]; // of the next frame
    size_t n_head;         // bytes of `head`
    uint32_t body_left;
};

struct goaway {
    struct frames in, out;
    uint32_t last; // stream of the newest call that the library gets; 0: none
    // Bytes of DATA that were kept from the library, whose window the client has not got back.
    uint32_t dropped;
    bool drops;      // the client's current frame is kept from the library
    bool begun;      // the library has sent its first frame
    bool in_headers; // of the library: only more of them may follow
    enum { GOAWAY_NONE, GOAWAY_WANTED, GOAWAY_SENT } state;
};

void goaway_init(struct goaway *g);
// Moves what the library gets of the client's next bytes to `to`, which is GOAWAY_ROOM bytes before `bytes`. Returns its
// length.
size_t goaway_keep(struct goaway *g, unsigned char *to, const unsigned char *bytes, size_t len);
// The library's next bytes.
void goaway_follow(struct goaway *g, const unsigned char *bytes, size_t len);
// Writes what the client is to get before the library's next bytes. Returns its length; 0: nothing now.
size_t goaway_take(struct goaway *g, unsigned char frames[GOAWAY_FRAMES_BYTES]);
