// HTTP/2's GOAWAY between a library's frames. See goaway.h.
#include "ws/net/goaway.h"
#include <string.h>

#define PREFACE_BYTES 24 // PRI * HTTP/2.0 ...
#define TYPE_DATA 0
#define TYPE_HEADERS 1
#define TYPE_PUSH_PROMISE 5
#define TYPE_CONTINUATION 9
#define END_HEADERS 4

void goaway_init(struct goaway *g) {
    *g = (struct goaway){.in.preface_left = PREFACE_BYTES};
}

static uint32_t number(const unsigned char *b) {
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static void put_number(unsigned char *b, uint32_t value) {
    for (int i = 0; i < 4; i++) b[i] = (unsigned char)(value >> (24 - 8 * i));
}

// How many of the next bytes are not of a head.
static size_t pass_body(struct frames *f, size_t len) {
    size_t preface = f->preface_left < len ? f->preface_left : len;
    size_t body = f->body_left < len - preface ? f->body_left : len - preface;
    f->preface_left -= preface;
    f->body_left -= (uint32_t)body;
    return preface + body;
}

// true: the head is complete.
static bool take_head(struct frames *f, unsigned char byte) {
    f->head[f->n_head++] = byte;
    if (f->n_head < sizeof f->head) return false;
    f->n_head = 0;
    f->body_left = number(f->head) >> 8;
    return true;
}

static void begin_frame(struct goaway *g) {
    const unsigned char *h = g->in.head;
    uint32_t stream = number(h + 5) & 0x7fffffff;
    g->drops = g->state == GOAWAY_SENT && stream > g->last;
    if (g->drops && h[3] == TYPE_DATA) g->dropped += g->in.body_left;
    if (!g->drops && h[3] == TYPE_HEADERS && stream > g->last) g->last = stream;
}

size_t goaway_keep(struct goaway *g, unsigned char *to, const unsigned char *bytes, size_t len) {
    struct frames *f = &g->in;
    size_t n = 0;
    for (size_t at = 0; at < len;) {
        size_t body = pass_body(f, len - at);
        if (!g->drops) {
            memmove(to + n, bytes + at, body);
            n += body;
        }
        at += body;
        if (at == len) break;
        // Behind the GOAWAY a head waits here until it is known whether its frame is kept from the library.
        if (g->state != GOAWAY_SENT) to[n++] = bytes[at];
        if (!take_head(f, bytes[at++])) continue;
        begin_frame(g);
        if (g->state != GOAWAY_SENT || g->drops) continue;
        memcpy(to + n, f->head, sizeof f->head);
        n += sizeof f->head;
    }
    return n;
}

void goaway_follow(struct goaway *g, const unsigned char *bytes, size_t len) {
    struct frames *f = &g->out;
    for (size_t at = 0; at < len;) {
        at += pass_body(f, len - at);
        if (at == len || !take_head(f, bytes[at++])) continue;
        int type = f->head[3];
        bool headers =
            type == TYPE_HEADERS || type == TYPE_PUSH_PROMISE || type == TYPE_CONTINUATION;
        g->in_headers = headers && !(f->head[4] & END_HEADERS);
        g->begun = true;
    }
}

size_t goaway_take(struct goaway *g, unsigned char frames[GOAWAY_FRAMES_BYTES]) {
    static const unsigned char goaway[9] = {0, 0, 8, 7}, window_update[9] = {0, 0, 4, 8};
    size_t n = 0;
    bool between = g->begun && g->out.n_head == 0 && g->out.body_left == 0 && !g->in_headers;
    if (!between) return 0;
    if (g->state == GOAWAY_WANTED && g->in.n_head == 0) {
        memcpy(frames, goaway, sizeof goaway);
        put_number(frames + 9, g->last);
        put_number(frames + 13, 0); // NO_ERROR
        n = 17;
        g->state = GOAWAY_SENT;
    }
    if (g->dropped > 0) { // the library, which has not seen them, gives no window back for them
        memcpy(frames + n, window_update, sizeof window_update);
        put_number(frames + n + 9, g->dropped);
        n += 13;
        g->dropped = 0;
    }
    return n;
}
