// The other branches of a turn (sampling n, beam_width) become versions of it. Net thread only.
#pragma once
#include "sessions/state/service.h"

// A turn with several answers ends; the first becomes its own. E_NOMEM.
int versions_note(struct turn *t, const struct engine_branches *b);
// After its end: keeps the other answers.
void versions_take(struct session *s, const struct turn *t, const struct engine_branches *b);
void versions_settle(struct session *s); // puts them into the tree
