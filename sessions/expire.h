// Removes old sessions. Net thread only.
#pragma once
#include "sessions/service.h"

void expire_init(struct sessions *ss);
void expire_begin(struct sessions *ss); // when it is due
void expire_take(struct sessions *ss, struct store_job *job);
void expire_done(struct sessions *ss, const char *id, const char *why); // why NULL: a client asked
