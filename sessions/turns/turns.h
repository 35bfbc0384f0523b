// Turns: from a request to the engine, and their ends. Net thread only.
#pragma once
#include "sessions/state/service.h"

// START: submits the turn or queues it; a long input goes to a worker first (preparing.h).
int turns_start(struct session *s, const struct request *r);
void turns_cancel(struct session *s, int64_t turn); // TURN_HEAD: all
void turns_hint(struct session *s);                 // a turn of this cold session is likely soon
void turns_prepared(struct session *s, struct preparation *p); // takes the worker's result
void turns_start_next(struct session *s); // starts the next queued turn if it can start
void turns_interrupt(struct session *s);  // when the service closes
// Submits a turn that has lost its instance to another instance, which continues after the tokens drawn so
// far. E_BUSY: no instance takes the turn now.
int turns_go_on(struct session *s, struct turn *t, struct err *err);
void turns_finish(struct session *s, struct turn *t, const char *reason, const char *code,
                  const char *message);
