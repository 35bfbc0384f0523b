// Moving the head to another turn for a client. Net thread only.
#pragma once
#include "sessions/service.h"

int rewind_start(struct session *s, const struct request *r);
