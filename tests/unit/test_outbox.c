// The queue of messages on their way out.
#include "base/err.h"
#include "ws/parley/outbox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <string.h>

static void take(struct outbox *o, size_t max, const char *bytes, bool first, bool last) {
    size_t n;
    bool f, l;
    const char *p = outbox_next(o, max, &n, &f, &l);
    assert_int_equal(n, strlen(bytes));
    assert_memory_equal(p, bytes, n);
    assert_true(f == first && l == last);
    outbox_sent(o, n);
}

static void messages_go_out_in_pieces_and_in_order(void **state) {
    struct outbox o = {0};
    assert_true(outbox_empty(&o));
    outbox_add(&o, NULL, "abcdefg", 7);
    outbox_add(&o, NULL, "xy", 2);
    assert_int_equal(o.bytes, 9);
    take(&o, 3, "abc", true, false);
    take(&o, 3, "def", false, false);
    take(&o, 3, "g", false, true);
    take(&o, 3, "xy", true, true);
    assert_true(outbox_empty(&o) && o.bytes == 0 && o.count == 0);
}

static void a_key_holds_its_latest_message(void **state) {
    struct outbox o = {0}, to = {0};
    outbox_add(&o, "a", "a1", 2);
    outbox_add(&o, "b", "b1", 2);
    outbox_add(&o, "a", "a-2", 3);
    assert_int_equal(o.count, 2);
    assert_int_equal(o.bytes, 5);
    assert_true(outbox_move(&to, &o));
    outbox_add(&o, "a", "a3", 2); // the moved one stays what it was
    take(&to, 9, "a-2", true, true);
    take(&o, 9, "b1", true, true);
    take(&o, 9, "a3", true, true);
    assert_false(outbox_move(&to, &o));
}

static void a_message_half_way_out_is_not_replaced(void **state) {
    struct outbox o = {0};
    outbox_add(&o, "a", "old", 3);
    take(&o, 1, "o", true, false);
    outbox_add(&o, "a", "new", 3);
    take(&o, 9, "ld", false, true);
    take(&o, 9, "new", true, true);
}

static void it_is_bounded(void **state) {
    struct outbox o = {0};
    for (int i = 0; i < OUTBOX_MAX_ITEMS; i++)
        assert_int_equal(outbox_add(&o, i == 7 ? "k" : NULL, "x", 1), 0);
    assert_int_equal(outbox_add(&o, NULL, "x", 1), E_LIMIT);
    assert_int_equal(outbox_add(&o, "k", "y", 1), 0);
    outbox_release(&o);
    assert_true(outbox_empty(&o) && o.bytes == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_go_out_in_pieces_and_in_order),
        cmocka_unit_test(a_key_holds_its_latest_message),
        cmocka_unit_test(a_message_half_way_out_is_not_replaced),
        cmocka_unit_test(it_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
