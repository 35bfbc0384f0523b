// How many frames of HTTP/2 a client may send.
#include "tests/cmocka.h"
#include "ws/net/frame_meter.h"
#include <string.h>

#define SECOND 1000000
static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum {
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    CONTINUATION
};

static void begin(struct frame_meter *m) {
    frame_meter_init(m, 0);
    assert_int_equal(frame_meter_pass(m, (const unsigned char *)preface, sizeof preface - 1, 0),
                     24);
}

// Sends one frame; false: it waits, and the next call sends its last byte again.
static bool send_frame(struct frame_meter *m, int type, int flags, size_t body, int64_t now_us) {
    static unsigned char frame[9 + 20000];
    memset(frame, 0xff, sizeof frame);
    frame[0] = (unsigned char)(body >> 16);
    frame[1] = (unsigned char)(body >> 8);
    frame[2] = (unsigned char)body;
    frame[3] = (unsigned char)type;
    frame[4] = (unsigned char)flags;
    size_t from = m->n_head, passed = frame_meter_pass(m, frame + from, 9 + body - from, now_us);
    if (from + passed == 9 + body) return true;
    assert_int_equal(from + passed, 8);
    return false;
}

static int most(struct frame_meter *m, int type, int flags, size_t body, int64_t now_us) {
    int n = 0;
    while (n < 100000 && send_frame(m, type, flags, body, now_us)) n++;
    return n;
}

static void calls_wait_until_the_server_has_taken_others(void **state) {
    struct frame_meter m;
    begin(&m);
    assert_int_equal(most(&m, HEADERS, 4, 17, 0), 8);
    assert_in_range(frame_meter_wait_ms(&m), 1, 21);
    for (int i = 0; i < 3; i++) frame_meter_took(&m);
    assert_int_equal(most(&m, HEADERS, 4, 17, 0), 3);
    assert_int_equal(most(&m, HEADERS, 4, 17, SECOND),
                     8); // those that were reset come back by time
}

// A call and its reset, again and again, none of which the server sees.
static void resets_give_no_calls_back(void **state) {
    struct frame_meter m;
    int calls = 0;
    begin(&m);
    for (int64_t now = 0; now < 10 * SECOND; now += 1000)
        while (send_frame(&m, HEADERS, 4, 17, now) && send_frame(&m, RST_STREAM, 0, 4, now))
            calls++;
    assert_in_range(calls, 450, 550);
}

static void frames_have_a_rate(void **state) {
    const struct {
        int type;
        size_t body;
        int burst, per_second; // at most
    } rows[] = {{SETTINGS, 0, 2001, 4000}, {WINDOW_UPDATE, 4, 2001, 4000},
                {PING, 8, 251, 500},       {PRIORITY, 5, 2001, 4000},
                {99, 0, 2001, 4000},       {DATA, 0, 2001, 4000},
                {DATA, 1023, 2001, 4000},  {RST_STREAM, 4, 2001, 4000},
                {SETTINGS, 16380, 8, 16}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct frame_meter m;
        begin(&m);
        assert_in_range(most(&m, rows[i].type, 0, rows[i].body, 0), rows[i].burst * 9 / 10,
                        rows[i].burst);
        int n = 0;
        for (int64_t now = 1000; now <= SECOND; now += 1000)
            n += most(&m, rows[i].type, 0, rows[i].body, now);
        assert_in_range(n, rows[i].per_second * 9 / 10, rows[i].per_second + 1);
    }
}

static void what_waits_passes_when_its_time_has_come(void **state) {
    struct frame_meter m;
    begin(&m);
    most(&m, PING, 0, 8, 0);
    int64_t ms = frame_meter_wait_ms(&m);
    assert_in_range(ms, 1, 3);
    assert_true(send_frame(&m, PING, 0, 8, ms * 1000));
}

static void long_messages_are_free(void **state) {
    struct frame_meter m;
    begin(&m);
    assert_int_equal(most(&m, DATA, 0, 16384, 0), 100000);
    assert_int_equal(most(&m, HEADERS, 4, 17, 0), 8);
}

static void headers_without_an_end_break_it(void **state) {
    struct frame_meter m;
    begin(&m);
    assert_true(send_frame(&m, HEADERS, 0, 16000, 0));
    for (int i = 0; i < 3; i++) assert_true(send_frame(&m, CONTINUATION, 0, 16000, 0));
    assert_false(m.broken);
    send_frame(&m, CONTINUATION, 0, 16000, 0);
    assert_true(m.broken);
    begin(&m);
    for (int i = 0; i < 20; i++) assert_true(send_frame(&m, HEADERS, 4, 16000, i * SECOND));
    assert_false(m.broken);
}

static void pieces_count_as_the_whole(void **state) {
    struct frame_meter m;
    unsigned char bytes[24 + 3 * 26];
    memcpy(bytes, preface, 24);
    for (int i = 0; i < 3; i++) {
        unsigned char *f = bytes + 24 + 26 * i;
        memset(f, 0, 26);
        f[2] = 17;
        f[3] = HEADERS;
        f[4] = 4;
    }
    frame_meter_init(&m, 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(frame_meter_pass(&m, bytes + i, 1, 0), 1);
    assert_int_equal(most(&m, HEADERS, 4, 17, 0), 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_wait_until_the_server_has_taken_others),
        cmocka_unit_test(resets_give_no_calls_back),
        cmocka_unit_test(frames_have_a_rate),
        cmocka_unit_test(what_waits_passes_when_its_time_has_come),
        cmocka_unit_test(long_messages_are_free),
        cmocka_unit_test(headers_without_an_end_break_it),
        cmocka_unit_test(pieces_count_as_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
