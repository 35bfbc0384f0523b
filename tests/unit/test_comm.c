// One rank's table: every call succeeds and changes nothing.
#include "engine/dist/comm.h"
#include "tests/cmocka.h"

static void one_rank_has_nobody_to_talk_to(void **state) {
    struct comm *c = comm_none();
    float x[3] = {1, 2, 3};
    const float same[3] = {1, 2, 3};
    assert_string_equal(c->ops->name, "none");
    assert_int_equal(c->ops->all_reduce(c, NULL, x, 3), 0);
    assert_int_equal(c->ops->gather_rows(c, NULL, x, x, 1, 3, 3), 0);
    assert_int_equal(c->ops->send(c, NULL, x, 3, 0), 0);
    assert_int_equal(c->ops->recv(c, NULL, x, 3, 0), 0);
    assert_memory_equal(x, same, sizeof x);
    c->ops->close(c);
    assert_ptr_equal(comm_none(), c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_rank_has_nobody_to_talk_to)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
