// The share of a long random test that runs: all of it, or a quarter under the sanitizers, where
// each step costs several times as much. PARLEY_TEST_SCALE overrides it: 1 runs all of it there
// too, 10 runs ten times as much.
#pragma once
#include <stdlib.h>

static inline double test_scale(void) {
    const char *given = getenv("PARLEY_TEST_SCALE");
    if (given && atof(given) > 0) return atof(given);
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return 0.25;
#else
    return 1;
#endif
}

// So many rounds of n, one at least.
static inline int test_scaled(int n) {
    double scaled = n * test_scale();
    return scaled < 1 ? 1 : (int)scaled;
}
