// New sessions. Net thread only.
#pragma once
#include "sessions/state/service.h"

// OPEN: checks what is asked for, and makes the session.
int opening_start(struct sessions *ss, const struct request *r);
// Goes on with a session whose grammar a worker has compiled, or makes a worker compile it.
int opening_prepared(struct session *s, const struct request *r);
// Puts a new session into the tables, attaches its client and saves it. head: of its first event.
// E_NOMEM: *s is freed, or gone.
int opening_admit(struct session *s, const struct request *r, int64_t head);
