// An archive in pieces: their order, the limits of one upload and of all, and uploads that stop.
#include "tests/cmocka.h"
#include "ws/parley/upload.h"
#include <stdlib.h>
#include <string.h>

static struct err err;
static size_t total;

static int add(struct upload *u, int64_t at, const char *piece) {
    return upload_add(u, &total, at, piece, strlen(piece), 1, &err);
}

static void pieces_are_put_together_in_their_order(void **state) {
    struct upload u = {0};
    assert_int_equal(add(&u, 0, "abc"), 0);
    assert_int_equal(add(&u, 3, "def"), 0);
    assert_string_equal(u.text.data, "abcdef");
    assert_int_equal(total, 6);
    assert_int_equal(add(&u, 3, "x"), E_INVAL); // it was sent already: all of it goes
    assert_non_null(strstr(err.text, "at is 3, but 6 bytes"));
    assert_int_equal(total, 0);
    assert_int_equal(add(&u, 6, "x"), E_INVAL);
    assert_int_equal(add(&u, 0, "old"), 0);
    assert_int_equal(add(&u, 0, "new"), 0); // begins anew
    assert_string_equal(u.text.data, "new");
    assert_int_equal(total, 3);
    upload_release(&u);
    upload_release(&u);
    assert_int_equal(total, 0);
}

static void one_and_all_have_limits(void **state) {
    size_t mib = (size_t)1 << 20;
    struct upload u[6] = {0};
    char *piece = calloc(1, mib);
    int rc = 0;
    assert_non_null(piece);
    for (size_t i = 0; rc == 0 && i < 16; i++)
        rc = upload_add(&u[0], &total, (int64_t)(i * mib), piece, mib, 1, &err);
    assert_int_equal(rc, E_LIMIT);
    assert_int_equal(total, 0);
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < 15; i++)
            assert_int_equal(upload_add(&u[k], &total, (int64_t)(i * mib), piece, mib, 1, &err), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(upload_add(&u[4], &total, (int64_t)(i * mib), piece, mib, 1, &err), 0);
    assert_int_equal(total, UPLOAD_TOTAL_BYTES);
    assert_int_equal(upload_add(&u[5], &total, 0, piece, 1, 1, &err), E_BUSY);
    upload_release(&u[0]);
    assert_int_equal(upload_add(&u[5], &total, 0, piece, 1, 1, &err), 0);
    for (size_t k = 0; k < 6; k++) upload_release(&u[k]);
    assert_int_equal(total, 0);
    free(piece);
}

static void one_that_stops_is_dropped(void **state) {
    struct upload u = {0};
    assert_int_equal(add(&u, 0, "abc"), 0);
    upload_tick(&u, UPLOAD_PAUSE_US);
    assert_int_equal(total, 3);
    upload_tick(&u, UPLOAD_PAUSE_US + 2);
    assert_int_equal(total, 0);
    upload_tick(&u, 2 * UPLOAD_PAUSE_US);
    assert_int_equal(add(&u, 3, "def"), E_INVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_put_together_in_their_order),
        cmocka_unit_test(one_and_all_have_limits),
        cmocka_unit_test(one_that_stops_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
