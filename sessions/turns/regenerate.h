// Asking for an answer again: a turn with the same input beside an earlier one. Net thread only.
#pragma once
#include "sessions/state/service.h"

// REGENERATE (request.h): starts a turn with turn `turn`'s input, below the same parent. A handler (service.h).
int regenerate_start(struct session *s, const struct request *r);
