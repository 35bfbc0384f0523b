// token_list: growing, handing its array over, appending nothing.
#include "engine/text/token_list.h"
#include "tests/cmocka.h"
#include <stdlib.h>

static void test_push_append_take(void **state) {
    struct token_list l;
    token_list_init(&l);
    assert_int_equal(token_list_append(&l, NULL, 0), 0);
    int32_t some[] = {7, 8, 9};
    for (int i = 0; i < 1000; i++) assert_int_equal(token_list_push(&l, i), 0);
    assert_int_equal(token_list_append(&l, some, 3), 0);
    assert_int_equal(l.len, 1003);
    for (int i = 0; i < 1000; i++) assert_int_equal(l.ids[i], i);
    assert_int_equal(l.ids[1002], 9);
    size_t len;
    int32_t *ids = token_list_take(&l, &len);
    assert_int_equal(len, 1003);
    assert_int_equal(ids[1001], 8);
    free(ids);
    assert_int_equal(l.len, 0);
    assert_int_equal(token_list_push(&l, 5), 0);
    token_list_release(&l);
    token_list_release(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_push_append_take)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
