// Time limits of waits for other ranks: time in which the waiting process stood still does not count.
#include "base/clock.h"
#include "base/err.h"
#include "tests/cmocka.h"
#include <string.h>
#include <unistd.h>

#if PARLEY_MPI
#include "engine/dist/mpi_wait.h"

enum { LIMIT_US = 300 * 1000, STILL_US = 1500 * 1000 };

static void a_process_that_stood_still_waits_on(void **state) {
    static struct mpi_comm c;
    struct mpi_waiting w = {.c = &c, .limit_us = LIMIT_US};
    int64_t i = 0;
    assert_int_equal(mpi_wait_on(&w, i++), 0);
    usleep(STILL_US);
    assert_int_equal(mpi_wait_on(&w, i++), 0);
    const int64_t began = clock_mono_us(&clock_system);
    while (mpi_wait_on(&w, i) == 0) i++;
    // On a machine that holds this process up again, later than the limit; never earlier than most of it.
    assert_true(clock_mono_us(&clock_system) - began > LIMIT_US / 2);
    assert_int_equal(c.base.why.code, E_DEVICE);
    assert_non_null(strstr(c.base.why.text, "has not answered for 0.3 s"));
}
#else
static void a_process_that_stood_still_waits_on(void **state) {
    skip(); // built without MPI
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_process_that_stood_still_waits_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
