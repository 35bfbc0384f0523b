// Cuts a session that contradicts itself to what fits together.
#pragma once
#include "sessions/store/record.h"

struct err;

// Afterwards the session passes stored_session_check, or this fails with its error (an invalid id
// or owner). Turns keep their text, and their tokens up to the first invalid one. The log is
// counted again. Events that do not fit are replaced, with numbers above all that were ever used,
// so that no number gets a second meaning. Turns without an end get one.
int stored_session_repair(struct stored_session *s, int64_t now_ms, struct err *err);
