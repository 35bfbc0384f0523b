// Asking for an answer again: a turn with the same input beside an earlier one. Net thread only.
#pragma once
#include "sessions/service.h"

int regenerate_start(struct session *s, const struct request *r);
