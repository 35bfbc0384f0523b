// The system clocks and the fake clock. See clock.h.
#include "base/clock.h"
#include <time.h>

static int64_t read_clock(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static int64_t system_mono(const struct clock *self) {
    return read_clock(CLOCK_MONOTONIC);
}

static int64_t system_wall(const struct clock *self) {
    return read_clock(CLOCK_REALTIME);
}

const struct clock clock_system = {system_mono, system_wall};

// Atomic, because a test advances the fake clock while the tested threads read it.
static int64_t fake_mono(const struct clock *self) {
    return __atomic_load_n(&((const struct clock_fake *)self)->mono, __ATOMIC_RELAXED);
}

static int64_t fake_wall(const struct clock *self) {
    return __atomic_load_n(&((const struct clock_fake *)self)->wall, __ATOMIC_RELAXED);
}

void clock_fake_init(struct clock_fake *fake, int64_t wall_us) {
    *fake = (struct clock_fake){.clock = {fake_mono, fake_wall}, .mono = 0, .wall = wall_us};
}

void clock_fake_advance(struct clock_fake *fake, int64_t us) {
    __atomic_fetch_add(&fake->mono, us, __ATOMIC_RELAXED);
    __atomic_fetch_add(&fake->wall, us, __ATOMIC_RELAXED);
}
