// Opens the instances of a start. Engine processes load side by side, except those that share a GPU: each sizes
// its cache by the memory that the one before it has left free. Those on the CPU share the free memory by
// engine_options.n_beside. An instance without a process of its own is opened on the calling thread, and such
// instances one after another.
//
//   WAITS --> OPENS --> OPENED
//     |         '-----> FAILED: the others are given up
//     '---------------> GIVEN_UP
#pragma once
#include "ws/instances.h"

// Opens all in the order of their list, as far as they wait for each other. When one fails, it gives up the others,
// waits until their processes are gone, and returns that error, which names the instance; others that failed too
// are logged. What is open then is closed with instances_release.
int opening_run(struct instances *v, struct err *err);
