// HTTP/2's frames, counted. See frame_meter.h.
#include "ws/net/frame_meter.h"

#define PREFACE_BYTES 24 // PRI * HTTP/2.0 ...
#define TYPE_DATA 0
#define TYPE_HEADERS 1
#define TYPE_PING 6
#define TYPE_CONTINUATION 9
#define END_HEADERS 4
#define CALLS_UNTAKEN 8
#define CALLS_PER_SECOND 50
#define FRAMES_PER_SECOND 4000
#define FRAMES_BURST 2000
#define CALL_COST 8          // frames
#define PING_COST 8          // gRPC 1.51 writes a GOAWAY of 1 KB for each ping that comes too soon
#define UNIT_BYTES 64        // of a frame other than DATA: one frame more for each
#define FREE_DATA_BYTES 1024 // a DATA frame of this length costs nothing
// Of a call's headers: gRPC refuses a call with more than 16 KiB, but keeps the headers in memory.
#define BLOCK_BYTES 65536

static const struct rate_limit frames_limit = {FRAMES_PER_SECOND, FRAMES_BURST};
static const struct rate_limit calls_limit = {CALLS_PER_SECOND, CALLS_UNTAKEN};

void frame_meter_init(struct frame_meter *m, int64_t now_us) {
    *m = (struct frame_meter){.preface_left = PREFACE_BYTES};
    rate_init(&m->frames, &frames_limit, now_us);
    rate_init(&m->calls, &calls_limit, now_us);
}

static double cost_of(int type, uint32_t body) {
    if (type == TYPE_DATA) return body >= FREE_DATA_BYTES ? 0 : 1;
    double cost = type == TYPE_HEADERS ? CALL_COST : type == TYPE_PING ? PING_COST : 1;
    return cost + (double)body / UNIT_BYTES;
}

// A call's headers may come in any number of frames.
static void count_headers(struct frame_meter *m, int type, int flags, uint32_t body) {
    if (type != TYPE_HEADERS && type != TYPE_CONTINUATION) return;
    m->block += body;
    m->broken |= m->block > BLOCK_BYTES;
    if (flags & END_HEADERS) m->block = 0;
}

// False: the frame whose head is complete must wait.
static bool begin_frame(struct frame_meter *m, int64_t now_us) {
    const unsigned char *h = m->head;
    uint32_t body = (uint32_t)h[0] << 16 | (uint32_t)h[1] << 8 | h[2];
    if (!rate_take(&m->frames, &frames_limit, 0, now_us)) return false; // it is in debt
    if (h[3] == TYPE_HEADERS && !rate_take(&m->calls, &calls_limit, 1, now_us)) return false;
    rate_charge(&m->frames, &frames_limit, cost_of(h[3], body), now_us);
    count_headers(m, h[3], h[4], body);
    m->body_left = body;
    m->n_head = 0;
    return true;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t frame_meter_pass(struct frame_meter *m, const unsigned char *bytes, size_t len,
                        int64_t now_us) {
    size_t at = 0;
    while (at < len) {
        size_t free_bytes = smaller(m->preface_left + m->body_left, len - at);
        if (free_bytes > 0) {
            size_t preface = smaller(m->preface_left, free_bytes);
            m->preface_left -= preface;
            m->body_left -= (uint32_t)(free_bytes - preface);
            at += free_bytes;
            continue;
        }
        // A frame that must wait is held back at the last byte of its head.
        m->head[m->n_head] = bytes[at];
        if (m->n_head + 1 < sizeof m->head)
            m->n_head++;
        else if (!begin_frame(m, now_us))
            break;
        at++;
    }
    return at;
}

int64_t frame_meter_wait_ms(const struct frame_meter *m) {
    double frames_ms = -m->frames.tokens * 1000 / FRAMES_PER_SECOND;
    double calls_ms = (1 - m->calls.tokens) * 1000 / CALLS_PER_SECOND;
    double ms = m->head[3] == TYPE_HEADERS && calls_ms > frames_ms ? calls_ms : frames_ms;
    return ms > 1 ? (int64_t)ms + 1 : 1;
}

void frame_meter_took(struct frame_meter *m) {
    m->calls.tokens += 1;
    if (m->calls.tokens > CALLS_UNTAKEN) m->calls.tokens = CALLS_UNTAKEN;
}
