// What the engine reports of a session: its turn's tokens and end, and where its cache is. Net thread only.
#pragma once
#include "sessions/state/service.h"

// From this instance; an event of a sequence that lives elsewhere now is ignored.
void engine_event_take(struct sessions *ss, struct instance *from, const struct engine_event *e);
