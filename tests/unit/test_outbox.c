// The queue of messages on their way out.
#include "base/err.h"
#include "tests/cmocka.h"
#include "ws/outbox.h"
#include <string.h>

static void take(struct outbox *o, size_t max, const char *bytes, bool first, bool last) {
    size_t n;
    bool f, l, escape;
    const char *p = outbox_next(o, max, &n, &f, &l, &escape);
    assert_false(escape);
    assert_int_equal(n, strlen(bytes));
    assert_memory_equal(p, bytes, n);
    assert_true(f == first && l == last);
    outbox_sent(o, n);
}

static void messages_go_out_in_pieces_and_in_order(void **state) {
    struct outbox o = {0};
    assert_true(outbox_empty(&o) && !outbox_ready(&o));
    outbox_add(&o, "abcdefg", 7);
    outbox_add(&o, "xy", 2);
    assert_int_equal(o.bytes, 9);
    take(&o, 3, "abc", true, false);
    assert_int_equal(o.bytes, 6);
    take(&o, 3, "def", false, false);
    take(&o, 3, "g", false, true);
    take(&o, 3, "xy", true, true);
    assert_true(outbox_empty(&o) && o.bytes == 0 && o.count == 0);
}

static void an_open_message_holds_up_those_behind_it(void **state) {
    struct outbox o = {0};
    outbox_add(&o, "ab", 2);
    outbox_open_last(&o);
    outbox_add(&o, "next", 4);
    take(&o, 9, "ab", true, false);
    assert_true(!outbox_ready(&o) && !outbox_empty(&o) && o.bytes == 4);
    assert_int_equal(outbox_extend(&o, "cd", 2, false), 0);
    assert_int_equal(outbox_extend(&o, "ef", 2, false), 0); // before the one before it is out
    take(&o, 1, "c", false, false);
    take(&o, 9, "d", false, false);
    take(&o, 9, "ef", false, false);
    assert_false(outbox_ready(&o));
    outbox_extend(&o, "g", 1, true);
    assert_null(o.open);
    take(&o, 9, "g", false, true);
    take(&o, 9, "next", true, true);
    assert_true(outbox_empty(&o) && o.bytes == 0 && o.count == 0);
}

static void an_open_message_may_end_with_nothing(void **state) {
    struct outbox o = {0};
    outbox_add(&o, "ab", 2);
    outbox_open_last(&o);
    take(&o, 9, "ab", true, false);
    outbox_extend(&o, "", 0, true);
    assert_true(outbox_ready(&o));
    take(&o, 9, "", false, true);
    assert_true(outbox_empty(&o));
}

static void all_of_one_goes_behind_another(void **state) {
    struct outbox held = {0}, o = {0};
    outbox_add(&o, "a", 1);
    outbox_append(&o, &held); // nothing
    outbox_add(&held, "b", 1);
    outbox_append(&o, &held);
    assert_true(outbox_empty(&held) && held.bytes == 0);
    outbox_add(&o, "c", 1);
    assert_int_equal(o.bytes, 3);
    take(&o, 9, "a", true, true);
    take(&o, 9, "b", true, true);
    take(&o, 9, "c", true, true);
}

// Every kind of character that escaping treats in its own way, at every place of a piece's end.
static void a_gap_is_escaped_as_it_goes_out(void **state) {
    static const char mix[] =
        "\"\\\n\x01</script><<//\xc3\xa4\xe2\x80\xa8\xf0\x9f\x98\x80\xff\xe2\x80plain";
    char text[JSON_GAP_BYTES + 64];
    for (size_t i = 0; i < sizeof text; i++) text[i] = mix[i % (sizeof mix - 1)];
    for (size_t max = 16; max < 16 + sizeof mix; max++) {
        struct buf whole, gapped, sent;
        struct json_gaps gaps = {.n = 0};
        struct json_writer all = {.buf = &whole}, w = {.buf = &gapped, .gaps = &gaps};
        struct outbox o = {0};
        buf_init(&whole, 1 << 20), buf_init(&gapped, 1 << 20), buf_init(&sent, 1 << 20);
        for (struct json_writer *x = &all; x; x = x == &all ? &w : NULL) {
            json_open(x, NULL, '{');
            json_put_text(x, "short", "s", 1);
            json_put_text(x, "long", text, sizeof text);
            json_put_text(x, "again", text, JSON_GAP_BYTES);
            json_close(x, '}');
        }
        assert_int_equal(gaps.n, 2);
        assert_true(gapped.len < 64);
        assert_int_equal(outbox_add_gaps(&o, gapped.data, gapped.len, &gaps), 0);
        outbox_add(&o, "next", 4);
        bool first, last = false, escape;
        while (!last) {
            size_t n, before = sent.len;
            const char *p = outbox_next(&o, max, &n, &first, &last, &escape);
            assert_true(n > 0 && first == (before == 0));
            escape ? json_escape(&sent, p, n) : (void)buf_add(&sent, p, n);
            assert_true(sent.len - before <= max);
            outbox_sent(&o, n);
        }
        assert_int_equal(sent.len, whole.len);
        assert_memory_equal(sent.data, whole.data, whole.len);
        take(&o, 9, "next", true, true);
        assert_true(outbox_empty(&o) && o.bytes == 0 && o.count == 0);
        buf_release(&whole), buf_release(&gapped), buf_release(&sent);
    }
}

static void it_is_bounded(void **state) {
    struct outbox o = {0};
    for (int i = 0; i < OUTBOX_MAX_ITEMS; i++) assert_int_equal(outbox_add(&o, "x", 1), 0);
    assert_int_equal(outbox_add(&o, "x", 1), E_LIMIT);
    outbox_open_last(&o);
    assert_int_equal(outbox_extend(&o, "y", 1, true), 0); // what has begun can end
    outbox_release(&o);
    assert_true(outbox_empty(&o) && o.bytes == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_go_out_in_pieces_and_in_order),
        cmocka_unit_test(an_open_message_holds_up_those_behind_it),
        cmocka_unit_test(an_open_message_may_end_with_nothing),
        cmocka_unit_test(all_of_one_goes_behind_another),
        cmocka_unit_test(a_gap_is_escaped_as_it_goes_out),
        cmocka_unit_test(it_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
