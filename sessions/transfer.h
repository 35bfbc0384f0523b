// Sessions to files and back for a client: the record of archive.h, whole, from a running service
// and into one. Part of the service of sessions.h; net thread only.
#pragma once
#include "sessions/sessions.h"

// Most that a file may have: as a string within one message it takes twice as much at worst.
#define TRANSFER_BYTES ((size_t)15 << 20)

// Each is answered once. sessions_export: ANSWER_EXPORTED (archive), the session as the database
// has it. sessions_import: ANSWER_IMPORTED (session): a new session of the caller's, under an id
// of its own, with all that `json` has on record; watchers are told. Nothing of it is believed
// before all of it has been checked, and it is in the database as a whole or not at all.
void sessions_export(struct sessions *ss, const struct sessions_request *r, const char *id);
void sessions_import(struct sessions *ss, const struct sessions_request *r, const char *json,
                     size_t len);
