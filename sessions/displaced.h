// Turns that have lost their instance continue on another one. Net thread only.
#pragma once
#include "sessions/service.h"

enum displaced_why { DISPLACED_LOST, DISPLACED_DRAINED };
// Whether the turn can continue elsewhere after this end: it yielded, or its instance failed and another
// one, or the same one once it is opened again, can take it. False: the turn has ended.
bool displaced_is(const struct session *s, const struct engine_event *done);
void displaced_take(struct session *s, struct turn *t, const struct engine_event *done);
void displaced_go_on(struct sessions *ss); // submits waiting turns where an instance has room
// A token of the turn has come. True: clients have it already.
bool displaced_repeats(struct session *s, struct turn *t, const struct engine_event *e);
// It runs again and draws other tokens than before: it ends with an error.
void displaced_diverged(struct session *s, struct turn *t);
void displaced_trial_over(struct sessions *ss, uint64_t turn); // if this turn is ss->trial
