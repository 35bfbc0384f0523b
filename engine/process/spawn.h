// Starts a program as an engine process.
#pragma once
#include "base/err.h"
#include <sys/types.h>

// The child's descriptors (WIRE_*) have lower numbers, so setting them up overwrites none from here on.
enum { SPAWN_HIGH_FD = 10 };

// Starts `program engine` with two descriptors: WIRE_SOCKET, whose other end is *fd, and WIRE_MEMORY, a
// duplicate of `memory` (at least SPAWN_HIGH_FD). The caller closes *fd. On failure *pid is 0, and *fd is -1 or
// open. The kernel kills the process when the thread that calls this ends.
int spawn_process(const char *program, int memory, pid_t *pid, int *fd, struct err *err);
// Zeroed memory of n_bytes, mapped at *at, for spawn_process: the caller unmaps it and closes *fd, which may be open
// after an error too.
int spawn_memory(size_t n_bytes, int *fd, void **at, struct err *err);
