// A session whose record contradicts itself, cut down to what fits together.
#pragma once
#include "sessions/store/record.h"

struct err;

// Afterwards stored_session_check is content, or this fails with what it said (an id or owner that
// is none). Turns keep their words and tokens up to the first that cannot be; the log is counted
// anew; where events do not fit they are numbered anew, above every number that was ever given, so
// that none means two things. Turns without an end get one.
int stored_session_repair(struct stored_session *s, int64_t now_ms, struct err *err);
