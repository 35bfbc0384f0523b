// How long a thread sleeps that is also woken by what it waits for. Such a limit is a safety net: no result may come later
// when it is longer. So that a test can see a lost wakeup, the environment variable PARLEY_PATIENCE_MS replaces these limits.
// Limits that measure time (deadlines, heartbeats, backoff, timeouts of peers) are not of this kind. Any thread.
#pragma once
#include <stdint.h>

int64_t patience_us(int64_t usual_us); // the variable's value, or usual_us without it
