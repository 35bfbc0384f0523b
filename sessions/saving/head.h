// Moves the head of a session's tree, and back. Net thread only.
#pragma once
#include "sessions/state/service.h"

// Whether the head may be moved to `turn` now; else the request has been answered.
bool head_can_move(struct session *s, const struct request *r, int64_t turn);
// Moves the head in memory and adds the event; p gets what undoes both. why: the event's reason, or NULL.
// E_NOMEM: nothing has changed.
int head_move(struct session *s, int64_t turn, const char *why, struct pending *p);
void head_move_back(struct session *s, struct pending *p); // undoes it while it is undelivered
