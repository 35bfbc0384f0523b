// Opens the instances of a start. Engine processes load side by side, but processes that share a GPU load one after
// another: each sizes its cache by the memory that the process before has left free. Processes on the CPU share the
// free memory (engine_options.n_beside). Instances without a process of their own open one after another on the calling
// thread.
//
//   WAITS --> OPENS --> OPENED
//     |         '-----> FAILED: the others are given up
//     '---------------> GIVEN_UP
#pragma once
#include "ws/instances.h"

// Opens all; instances that wait for each other open in the order of the list. When one fails, this gives up the
// others, waits until their processes have ended, and returns the error, which names the instance. Further errors are
// logged. Instances that are open by then stay open until instances_release.
int opening_run(struct instances *v, struct err *err);
