// The other answers of a running turn (sampling n), sent to clients as they are drawn. Net thread only.
#pragma once
#include "sessions/state/service.h"

// A token of another answer of the running turn, or text of it. E_NOMEM; E_CORRUPT: the turn runs again,
// and this is not what it drew before.
int branch_deltas_take(struct session *s, struct turn *t, const struct engine_event *e);
void branch_deltas_again(struct turn *t); // it runs from its start, with another instance
// Whether there are pieces for this client.
bool branch_deltas_wait(const struct session *s, struct attachment *a);
// The next piece for this client, whose next event is `next` (NULL: none yet). False: that comes first.
bool branch_deltas_next(const struct session *s, struct attachment *a,
                        const struct event_record *next, size_t max_text,
                        struct session_event *out);
void branch_deltas_settle(struct session *s); // frees those that every client has
