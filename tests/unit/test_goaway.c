// GOAWAY between the frames of HTTP/2, and which of the client's frames still pass.
#include "tests/cmocka.h"
#include "ws/net/goaway.h"
#include <string.h>

enum { DATA = 0, HEADERS = 1, SETTINGS = 4, PING = 6, CONTINUATION = 9, END_HEADERS = 4 };
static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

struct bytes {
    unsigned char data[4096];
    size_t len;
};

static void add(struct bytes *b, int type, int flags, unsigned stream, size_t body) {
    unsigned char head[9] = {0, (unsigned char)(body >> 8), (unsigned char)body,
                             (unsigned char)type, (unsigned char)flags};
    head[7] = (unsigned char)(stream >> 8);
    head[8] = (unsigned char)stream;
    memcpy(b->data + b->len, head, 9);
    memset(b->data + b->len + 9, (int)stream, body);
    b->len += 9 + body;
}

// What passes of the bytes, read in pieces of `piece` bytes.
static void keep(struct goaway *g, const struct bytes *b, size_t piece, struct bytes *out) {
    for (size_t at = 0; at < b->len; at += piece) {
        unsigned char room[GOAWAY_ROOM + 4096];
        size_t n = b->len - at < piece ? b->len - at : piece;
        memcpy(room + GOAWAY_ROOM, b->data + at, n);
        size_t kept = goaway_keep(g, room, room + GOAWAY_ROOM, n);
        memcpy(out->data + out->len, room, kept);
        out->len += kept;
    }
}

static void same(const struct bytes *a, const struct bytes *b) {
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->data, b->data, a->len);
}

static void follow(struct goaway *g, int type, int flags, size_t body) {
    struct bytes b = {0};
    add(&b, type, flags, 1, body);
    goaway_follow(g, b.data, b.len);
}

// The server's first frame was sent, and the client's calls 1 and 3.
static void begin(struct goaway *g, size_t piece) {
    struct bytes in = {0}, out = {0};
    goaway_init(g);
    memcpy(in.data, preface, in.len = sizeof preface - 1);
    add(&in, SETTINGS, 0, 0, 12);
    add(&in, HEADERS, END_HEADERS, 1, 40);
    add(&in, HEADERS, END_HEADERS, 3, 40);
    add(&in, DATA, 0, 1, 100);
    keep(g, &in, piece, &out);
    same(&in, &out);
    follow(g, SETTINGS, 0, 6);
}

static void later_calls_are_kept_back_however_the_bytes_are_cut(void **state) {
    for (size_t piece = 1; piece < 60; piece++) {
        struct goaway g;
        struct bytes in = {0}, out = {0}, wanted = {0};
        unsigned char frames[GOAWAY_FRAMES_BYTES];
        begin(&g, piece);
        g.state = GOAWAY_WANTED;
        static const unsigned char goaway[17] = {0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 3};
        assert_int_equal(goaway_take(&g, frames), sizeof goaway);
        assert_memory_equal(frames, goaway, sizeof goaway);
        assert_int_equal(goaway_take(&g, frames), 0); // once
        add(&in, HEADERS, 0, 5, 30);
        add(&in, CONTINUATION, END_HEADERS, 5, 7);
        add(&in, DATA, 1, 5, 300);
        add(&in, DATA, 1, 1, 10);
        add(&in, PING, 0, 0, 8);
        add(&in, DATA, 1, 7, 0);
        add(&in, DATA, 1, 3, 20);
        add(&wanted, DATA, 1, 1, 10);
        add(&wanted, PING, 0, 0, 8);
        add(&wanted, DATA, 1, 3, 20);
        keep(&g, &in, piece, &out);
        same(&out, &wanted);
        // The client gets the window of the connection back.
        static const unsigned char update[13] = {0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 1, 300 - 256};
        assert_int_equal(goaway_take(&g, frames), sizeof update);
        assert_memory_equal(frames, update, sizeof update);
        assert_int_equal(goaway_take(&g, frames), 0);
    }
}

static void the_goaway_waits_for_the_end_of_frames_and_headers(void **state) {
    struct goaway g;
    struct bytes b = {0};
    unsigned char frames[GOAWAY_FRAMES_BYTES];
    goaway_init(&g);
    g.state = GOAWAY_WANTED;
    assert_int_equal(goaway_take(&g, frames), 0); // the library's SETTINGS come first
    add(&b, SETTINGS, 0, 0, 6);
    for (size_t i = 0; i < b.len; i++) {
        assert_int_equal(goaway_take(&g, frames), 0);
        goaway_follow(&g, b.data + i, 1);
    }
    follow(&g, HEADERS, 0, 20);
    assert_int_equal(goaway_take(&g, frames), 0);
    follow(&g, CONTINUATION, END_HEADERS, 20);
    b.len = 0;
    add(&b, HEADERS, END_HEADERS, 1, 9);
    unsigned char room[GOAWAY_ROOM + 64];
    memcpy(room + GOAWAY_ROOM, preface, 24);
    assert_int_equal(goaway_keep(&g, room, room + GOAWAY_ROOM, 24), 24);
    memcpy(room + GOAWAY_ROOM, b.data, b.len);
    assert_int_equal(goaway_keep(&g, room, room + GOAWAY_ROOM, 4), 4);
    assert_int_equal(goaway_take(&g, frames),
                     0); // half a head has passed: its call is the library's
    memcpy(room + GOAWAY_ROOM, b.data + 4, b.len - 4);
    assert_int_equal(goaway_keep(&g, room, room + GOAWAY_ROOM, b.len - 4), b.len - 4);
    assert_int_equal(goaway_take(&g, frames), 17);
    assert_int_equal(frames[12], 1);
}

static void a_client_without_a_call_is_told_that_none_is_served(void **state) {
    struct goaway g;
    unsigned char frames[GOAWAY_FRAMES_BYTES];
    goaway_init(&g);
    follow(&g, SETTINGS, 0, 0);
    g.state = GOAWAY_WANTED;
    assert_int_equal(goaway_take(&g, frames), 17);
    for (int i = 9; i < 17; i++) assert_int_equal(frames[i], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_calls_are_kept_back_however_the_bytes_are_cut),
        cmocka_unit_test(the_goaway_waits_for_the_end_of_frames_and_headers),
        cmocka_unit_test(a_client_without_a_call_is_told_that_none_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
