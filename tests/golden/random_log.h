// Logs of random tokens, the same in every run.
#pragma once
#include "tests/golden/runner.h"
#include "tests/random_walk.h"

static inline void random_log(const struct engine *e, int32_t *log, int64_t n) {
    for (int64_t i = 0; i < n; i++) log[i] = (int32_t)below((uint32_t)e->info.n_vocab);
}
