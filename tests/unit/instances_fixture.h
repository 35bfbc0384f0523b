// Sessions over up to three fake engines: A is the first instance's, which has no name.
#pragma once
#include "tests/unit/sessions_fixture.h"

#define A fake_engine(0)
#define B fake_engine(1)
#define C fake_engine(2)

static struct instance *at(const char *name) {
    return placement_find(sessions_placement(fx.ss), name);
}
static void add(const char *name, struct engine *e) {
    struct err err = {0};
    if (fx_add_instance(name, e, &err) < 0) fail_msg("%s", err.text);
}
// A second instance of the model, with the name "b".
static void setup_pair(void) {
    fx_setup_memory();
    add("b", B);
}
static int submitted(struct engine *e) {
    fake_use(e);
    return fake.n_submitted;
}

// One step of each engine.
static void step_all(void) {
    for (size_t i = 0; i < 3; i++) {
        fake_use(fake_engine(i));
        fx_step();
    }
}
// Steps a millisecond apart.
static void steps(int n) {
    for (int i = 0; i < n; i++) {
        clock_fake_advance(&fx.clock, 1000);
        step_all();
    }
}
static void run_all(void) {
    fx_settle();
    for (int i = 0; i < 1000 && sessions_n_running(fx.ss); i++) steps(1);
    fx_advance(30000);
    assert_int_equal(sessions_n_running(fx.ss), 0);
}
static void turn(const char *id, const char *text) {
    fx_start(1, id, text);
    run_all();
}
