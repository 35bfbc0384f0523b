// Exports and imports on a running service. Net thread only.
#pragma once
#include "sessions/state/service.h"

// Sends the session's whole record, as the database has it, in pieces.
int transfer_export(struct sessions *ss, const struct request *r);
// Sends what a link shows, in the same pieces: of any owner, to a client without one.
int transfer_shared(struct sessions *ss, const struct request *r);
// Makes a new session of the request's owner, with a new id, from the archive. The whole archive is
// checked first; the database gets the whole session or nothing.
void transfer_import(struct sessions *ss, const struct request *r);
void transfer_read(struct sessions *ss, struct preparation *p); // an import by a worker
void transfer_exported(struct sessions *ss, const struct store_job *job);
void transfer_imported(struct sessions *ss, const struct store_job *job);
