// Requests that look into a session (debug.h). Net thread only.
#pragma once
#include "sessions/state/service.h"

int debug_turn(struct session *s, const struct request *r);       // a turn as it is on record
void debug_turn_read(struct sessions *ss, struct store_job *job); // a piece of it has been read
int debug_replay(struct session *s, const struct request *r); // checks the turn, then replays it
int debug_events(struct session *s, const struct request *r); // a page of the session's events
