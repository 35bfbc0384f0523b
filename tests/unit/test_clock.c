// Clocks: the system's move by themselves, the fake one in clock_fake_advance only.
#include "base/clock.h"
#include "tests/cmocka.h"
#include <time.h>

static void system_clock_moves_forward(void **state) {
    int64_t mono = clock_mono_us(&clock_system), wall = clock_wall_us(&clock_system);
    assert_true(wall / 1000000 - (int64_t)time(NULL) <= 1);
    assert_true((int64_t)time(NULL) - wall / 1000000 <= 1);
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    assert_true(clock_mono_us(&clock_system) - mono >= 3000);
    assert_true(clock_mono_us(&clock_system) - mono < 60000000);
}

static void fake_clock_stands_still_until_told(void **state) {
    struct clock_fake fake;
    clock_fake_init(&fake, 1700000000000000);
    int64_t mono = clock_mono_us(&fake.clock);
    assert_int_equal(clock_wall_us(&fake.clock), 1700000000000000);
    assert_int_equal(clock_mono_us(&fake.clock), mono);
    clock_fake_advance(&fake, 1500);
    assert_int_equal(clock_mono_us(&fake.clock), mono + 1500);
    assert_int_equal(clock_wall_us(&fake.clock), 1700000000001500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(system_clock_moves_forward),
        cmocka_unit_test(fake_clock_stands_still_until_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
