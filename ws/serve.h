// `parley serve`: starts engine, sessions and server, and stops them in reverse order.
#pragma once
#include "ws/serve_config.h"

enum { SERVE_EXIT_RESTART = 75 }; // the process's exit code after E_DEVICE (EX_TEMPFAIL)

// Serves until SIGTERM or SIGINT and prints its address on stdout. Returns 0 after an orderly
// shutdown; E_CANCELLED if a second signal, half a second later or more, ended it (turns that still run are recorded as
// interrupted in both cases); E_DEVICE if the GPU failed (then exit at once: only a new process can
// use the GPU again, and freeing its memory may crash); any other error is from startup.
int serve_run(const struct serve_config *c, struct err *err);
