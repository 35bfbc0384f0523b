// Whether a stored session fits together: an import and `sessions doctor` ask.
#pragma once
#include "sessions/store/record.h"

struct err;

// Ends turns without an end as store_recover does: `interrupted`, with their tokens, and one lost
// event for numbers that clients may have seen. For a record of a running server or of a crash.
// E_NOMEM.
int stored_session_interrupt(struct stored_session *s, int64_t now_ms, struct err *err);

// The rules that a session in memory relies on: columns in range, a log without a hole, text ends
// inside the text, events numbered from 1 without a gap, correct counts. E_CORRUPT; *err names the
// first field that breaks one, as in "turns[3].log_first". All turns must have ended.
int stored_session_check(const struct stored_session *s, struct err *err);
// Length of the log of a path that ends with `turn` (-1: 0); parents come before their children.
int64_t stored_session_log_end(const struct stored_session *s, int64_t turn);
