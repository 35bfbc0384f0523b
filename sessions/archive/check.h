// Whether a whole stored session fits together: what an import and `sessions doctor` ask before
// they believe one.
#pragma once
#include "sessions/store/record.h"

struct err;

// Ends turns that have no end as store_recover would: `interrupted`, their tokens kept, numbers
// that clients may have been told of beyond them given to one lost event. For a record that was
// taken while its server ran, or that a crash left. E_NOMEM.
int stored_session_interrupt(struct stored_session *s, int64_t now_ms, struct err *err);

// Every rule that a session in memory rests on: ranges, the log without a hole, text ends inside
// the text, events numbered from 1 without a gap, counts that add up. E_CORRUPT; *err names the
// first field that does not fit, as in "turns[3].log_first". All turns must have ended.
int stored_session_check(const struct stored_session *s, struct err *err);
