// Limits of owners: refuses requests, and lets turns wait for a place. Net thread only.
#pragma once
#include "sessions/state/service.h"

// True: a limit of the owner refused the request, and the request has been answered.
bool limits_refuse_session(struct sessions *ss, const struct request *r);
bool limits_refuse_resident(struct sessions *ss, const struct request *r); // one more in memory
// For a session that begins with so many stored bytes.
bool limits_refuse_bytes(struct sessions *ss, const struct request *r, int64_t bytes);
bool limits_refuse_job(struct sessions *ss, const struct request *r);
bool limits_refuse_turn(struct sessions *ss, const struct request *r);
// Whether a queued turn of the session may start. False: its owner already has running_turns turns; the
// session waits in the owner's list and is settled again when a place is free.
bool limits_place(struct session *s);
void limits_leave(struct session *s); // takes it out of the owner's list
// Before the turn's state changes to done, or the turn is undone.
void limits_turn_ends(struct session *s, const struct turn *t);
// Counts for an owner by name: the owner may have no session in memory.
void limits_add_stored(struct sessions *ss, const char *name, int64_t n_sessions, int64_t bytes);
// A cache of the owner has become idle on this instance: parks the owner's oldest beyond its share.
void limits_share_cache(struct sessions *ss, struct owner *o, const struct instance *i);
