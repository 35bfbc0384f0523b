// Answers and turns in the client's own words. Net thread only.
#pragma once
#include "sessions/state/service.h"

// EDIT: the request's text becomes an answer beside turn `turn`. A handler (service.h).
int edit_start(struct session *s, const struct request *r);
// WRITE: the request's input and answer become a finished turn after turn `turn`. A handler.
int write_start(struct session *s, const struct request *r);
// Adds the answer as a turn after `parent` and makes it the head; the caller then adds the turn that
// follows. If that is refused, save_undo(s, *out) removes the answer. E_FULL, E_NOMEM.
int edit_given(struct session *s, const struct given_answer *g, int64_t parent,
               struct pending **out, struct err *err);
