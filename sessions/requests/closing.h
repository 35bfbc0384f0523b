// Closing and deleting sessions. Net thread only.
#pragma once
#include "sessions/state/service.h"

// CLOSE: closes or deletes the session, when its turns have ended.
int closing_start(struct session *s, const struct request *r);
void closing_settle(struct session *s); // when its turns have ended
// A session that was DELETING becomes GONE, or LIVE again, and its requests get an error.
void closing_delete_done(struct session *s, const struct store_job *job);
// Deletes a session whose record cannot be read; the second one is the store's answer.
int closing_delete_unread(struct sessions *ss, const struct request *r);
void closing_unread_done(struct sessions *ss, const struct store_job *job);
