// Rewinding, and asking for an answer again. Net thread only.
#pragma once
#include "sessions/service.h"

int branch_rewind(struct session *s, const struct request *r);
int branch_regenerate(struct session *s, const struct request *r);
