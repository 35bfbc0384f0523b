// A save: the difference between a session and the disk. Net thread only.
#pragma once
#include "sessions/state/service.h"

void save_tokens(struct session *s);       // schedules a save of tokens, as `durable` says
void save_now(struct session *s);          // schedules a save that a client waits for
bool save_wanted(const struct session *s); // something has changed since the last save
bool save_is_due(const struct session *s); // its time has come, and no other save is under way
void save_begin(struct session *s);        // sends what has changed to the store
// The store's answer: commits or undoes the requests of the save. GONE: the session's opening was refused.
void save_done(struct session *s, const struct store_job *job);
// The code of the answer to a request whose save was refused with this E_*; static.
const char *save_refusal(int rc);
// Undoes the newest request, which no save has, and frees p.
void save_undo(struct session *s, struct pending *p);
// Exchanges the settings of the session and of an UPDATE, without the title (title.h).
void save_swap_settings(struct session *s, struct pending *p);
// A request that waits for its commit, the newest; `seq` is the event that answers it. NULL: no memory.
struct pending *save_pending(struct session *s, enum pending_kind kind, const struct request *r,
                             int64_t seq);
