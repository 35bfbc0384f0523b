// The tree of a session's turns, a page at a time. Net thread only.
#pragma once
#include "sessions/state/service.h"

#define OUTLINE_TURNS_MAX 200
// Writes the turns of the requested page to list. *next: where the next page begins; TURN_NONE: there is
// none.
size_t outline_turns(const struct session *s, const struct request *r, int64_t *list,
                     int64_t *next);
int outline_page(struct session *s, const struct request *r);
