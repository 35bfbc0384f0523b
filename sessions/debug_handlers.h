// Requests that look into a session (debug.h). Net thread only.
#pragma once
#include "sessions/service.h"

int debug_turn(struct session *s, const struct request *r);
void debug_turn_read(struct sessions *ss, struct store_job *job);
int debug_replay(struct session *s, const struct request *r);
int debug_events(struct session *s, const struct request *r);
