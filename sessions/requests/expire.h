// Removes old sessions. Net thread only.
#pragma once
#include "sessions/state/service.h"

void expire_init(struct sessions *ss); // sets the clock, if the options limit sessions
// Asks the store for old sessions if it is time; call it often.
void expire_begin(struct sessions *ss);
void expire_take(struct sessions *ss,
                 struct store_job *job); // removes those that the store has found
// A session was deleted: logs it. why NULL: a client asked for it, and nothing is logged.
void expire_done(const char *id, const char *why);
