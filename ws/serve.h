// `parley serve`: engine, sessions and server put together, run, and taken apart in the order in
// which they depend on each other.
#pragma once
#include "ws/serve_config.h"

enum { SERVE_EXIT_RESTART = 75 }; // the process's exit code after E_DEVICE (EX_TEMPFAIL)

// Serves until SIGTERM or SIGINT. 0 after an orderly end, E_CANCELLED when a second signal cut it
// short (running turns are recorded as interrupted in both cases); E_DEVICE where a GPU failed,
// which only another process can use again (nothing of it is given back: leave at once); any other
// failure is one of starting up. Says on stdout where it can be reached.
int serve_run(const struct serve_config *c, struct err *err);
