// Older turns: their words are read from the disk when a request needs them. Net thread only.
#pragma once
#include "sessions/state/service.h"

#define HISTORY_TURNS 128 // kept in full; more than SESSION_IDEMPOTENT_TURNS
#define HISTORY_WAITS 1   // the request waits until the turns that it needs have been read
int history_need(struct session *s, const struct request *r); // 0, HISTORY_WAITS, E_NOMEM
// Replaces slim turns by those that were read.
int history_fill(struct session *s, const struct stored_session *got);
void history_trim(struct session *s); // when it is settled
