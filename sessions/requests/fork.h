// Forks: a new session with a copy of a path. Net thread only.
#pragma once
#include "sessions/state/service.h"

// FORK (request.h): the copy is opened, and answered when it is on disk. A handler (service.h).
int fork_start(struct session *s, const struct request *r);
