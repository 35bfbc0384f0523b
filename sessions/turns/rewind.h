// Moving the head to another turn for a client. Net thread only.
#pragma once
#include "sessions/state/service.h"

// REWIND (request.h), answered when the new head is on disk. A handler (service.h).
int rewind_start(struct session *s, const struct request *r);
