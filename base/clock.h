// Clocks as a table of functions, so that tests can control time.
#pragma once
#include <stdint.h>

struct clock {
    int64_t (*mono_us)(const struct clock *self); // monotonic: timers, durations
    int64_t (*wall_us)(const struct clock *self); // since 1970: for records and display
};

extern const struct clock clock_system;

// From any thread, as the clock's own functions.
static inline int64_t clock_mono_us(const struct clock *c) {
    return c->mono_us(c);
}
static inline int64_t clock_wall_us(const struct clock *c) {
    return c->wall_us(c);
}

// A clock that moves only in clock_fake_advance.
struct clock_fake {
    struct clock clock; // first member: pass &fake.clock
    int64_t mono, wall;
};
// Monotonic time starts at 0. A test may advance the clock while other threads read it.
void clock_fake_init(struct clock_fake *fake, int64_t wall_us);
void clock_fake_advance(struct clock_fake *fake, int64_t us);
