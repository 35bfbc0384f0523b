// A database file as tools see it: read-only, beside a running server or without one. Deleting
// takes the server's lock.
//
// Any thread, one at a time for each archive.
#pragma once
#include "sessions/store/record.h"

struct archive;
struct buf;

// Errors name the file: missing, not a database, another program's, another schema.
int archive_open(struct archive **out, const char *path, struct err *err);
void archive_close(struct archive *a);

// Every session, newest first, of everybody (owner NULL) or of one owner; query as in session.list
// or NULL; at most limit (0: all). each borrows the row during the call; a value other than 0 ends
// the list and is returned.
typedef int (*archive_each)(void *ctx, const struct session_record *row);
int archive_list(struct archive *a, const char *owner, const char *query, const char *forked_from,
                 int64_t limit, archive_each each, void *ctx, struct err *err);
// One session with all its turns, tokens and events; stored_session_free it. E_NOTFOUND.
int archive_load(struct archive *a, const char *id, struct stored_session **out, struct err *err);
// The whole record as one JSON object, with everything that a replay or an import needs: ids, seeds
// (decimal strings), log-probabilities as the bits of binary32. What a client said comes back byte
// for byte; text that JSON cannot hold (a NUL, say) is in Base64. E_NOMEM, E_LIMIT from the buffer.
int archive_export(const struct stored_session *s, struct buf *out);
// The same as a line of a new file that its owner alone may read. Nothing that is there is written
// over, and what could not be written whole is removed.
int archive_export_file(const struct stored_session *s, const char *path, struct err *err);
#define ARCHIVE_FORMAT "parley.session"
#define ARCHIVE_FORMAT_VERSION                                                                     \
    2 // 1: without parent, head and forked_from: each turn follows the one before

// --- archive_import.c ---
// A file of archive_export, wherever it comes from. Turns that it has no end of (it was written
// while one ran, or after a crash) get one, as after a restart, at now_ms. What the file says is
// believed only when all of it fits together. E_FORMAT, E_CORRUPT, E_LIMIT with the first field
// that does not; E_UNSUPPORTED for a newer format. stored_session_free it.
int archive_read(struct stored_session **out, const char *json, size_t len, int64_t now_ms,
                 struct err *err);
struct archive_import {
    bool new_id;       // a fresh one instead of the session's own
    const char *owner; // NULL: as in the file
};
// Gives the record the id and owner that it is to have; with no other effect.
int archive_rename(struct session_record *r, const struct archive_import *o, struct err *err);
// Adds the session to the database at path as a whole or not at all; makes the database where there
// is none. A server may be running on it: it finds the session when it is asked for it. *s gets the
// id, owner and key that it has there. E_EXISTS when the id is taken, E_BUSY while somebody else
// writes for longer than 2 s.
int archive_import(const char *path, struct stored_session *s, const struct archive_import *o,
                   struct err *err);

// Removes one session for good: its rows, its words in the index, and their bytes in the file.
// E_BUSY while a server has the database: it must be asked instead (session.close with delete).
int archive_remove(const char *path, const char *id, struct err *err);
