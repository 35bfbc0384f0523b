// Starts a program as an engine process.
#pragma once
#include "base/err.h"
#include <sys/types.h>

// Descriptors from here on are no target of the child's.
enum { SPAWN_HIGH_FD = 10 };

// Starts `program engine` with the descriptors WIRE_SOCKET, whose other end is *fd (close it), and
// WIRE_MEMORY, which is `memory` (at least SPAWN_HIGH_FD). On failure *pid is 0, and *fd -1 or open. The kernel
// ends the process with the thread that calls this.
int spawn_process(const char *program, int memory, pid_t *pid, int *fd, struct err *err);
