// The request to delete a turn and all below it (erasure.h). Net thread only.
#pragma once
#include "sessions/state/service.h"

// ERASE (request.h), refused while one of these turns runs or is being saved. A handler (service.h).
int erase_start(struct session *s, const struct request *r);
