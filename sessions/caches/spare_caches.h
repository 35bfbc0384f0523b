// Caches of temporary sessions that are gone, kept for their owners' next ones. Net thread only.
#pragma once
#include "sessions/state/service.h"

// Drops the session's cache and snapshots, also when no event has reported a cache: a fork begins with one.
// The cache of a temporary session that is deleted stays for its owner's next ones.
void spare_or_drop(struct session *s);
void spare_evict(struct sessions *ss); // those that are due
// An event of a sequence that belongs to no session.
void spare_left(struct sessions *ss, const struct instance *from, const struct engine_event *e);
// All of this instance's (NULL: of every one's). release false: its engine is gone with them.
void spare_drop(struct sessions *ss, const struct instance *at, bool release);
