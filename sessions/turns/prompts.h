// The table of a session's virtual tokens (engine/model/prompt.h). Net thread only.
#pragma once
#include "sessions/state/service.h"

// Gives a new session the table of virtual tokens that the request names. E_INVAL, E_NOMEM.
int prompts_open(struct session *s, const struct served_model *m, const struct request *r,
                 struct err *err);
// The session's table, borrowed; NULL: it has none. E_UNSUPPORTED: the server has no such table.
int prompts_find(const struct session *s, const struct prompt **out, struct err *err);
