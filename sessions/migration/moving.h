// Instances that are drained or fail: their sessions go to others. Net thread only.
#pragma once
#include "sessions/state/service.h"

void moving_go_on(struct sessions *ss); // the next step for instances that drain or have failed
// The instance's device has failed: it takes no turns, and its idle caches are lost. The engine's events
// end its turns.
void moving_lost(struct sessions *ss, struct instance *i);
// Takes the cache of a session without a turn out of its instance, for another one.
void moving_send_away(struct session *s);
// Takes the event's cache.
void moving_exported(struct sessions *ss, struct instance *from, const struct engine_event *e);
// The cache that travelled is parked on the session's instance now, or (parked false) lost.
void moving_arrived(struct session *s, bool parked);
