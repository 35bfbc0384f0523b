// Turns that have lost their instance continue on another one. Net thread only.
#pragma once
#include "sessions/state/service.h"

enum failover_why { FAILOVER_LOST, FAILOVER_DRAINED };
// Whether the turn can continue after this end: the turn yielded, or its instance failed and another instance, or the
// same instance when it is open again, can take the turn. False: the turn has ended.
bool failover_applies(const struct session *s, const struct engine_event *done);
void failover_take(struct session *s, struct turn *t, const struct engine_event *done);
void failover_continue(struct sessions *ss); // submits waiting turns where an instance has room
// A token of the turn has come. True: clients have it already.
bool failover_repeats(struct session *s, struct turn *t, const struct engine_event *e);
// It runs again and draws other tokens than before: it ends with an error.
void failover_diverged(struct session *s, struct turn *t);
void failover_trial_over(struct sessions *ss, uint64_t turn); // if this turn is ss->trial
