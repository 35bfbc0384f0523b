// A session as the database has it becomes one in memory.
#pragma once
#include "sessions/session.h"

// *s is new. Takes what it needs out of *stored. E_CORRUPT when the record contradicts itself,
// E_NOMEM; then *s can only be freed.
int session_restore(struct session *s, struct stored_session *stored);
