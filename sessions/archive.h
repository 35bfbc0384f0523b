// A database file as tools see it: read-only, beside a running server or without one. Deleting
// takes the server's lock.
//
// Any thread, one at a time for each archive.
#pragma once
#include "sessions/record.h"

struct archive;
struct buf;

// Errors name the file: missing, not a database, another program's, another schema.
int archive_open(struct archive **out, const char *path, struct err *err);
void archive_close(struct archive *a);

// Every session, newest first, of everybody (owner NULL) or of one owner; query as in session.list
// or NULL; at most limit (0: all). each gets views that live during the call; a value other than 0
// ends the list and is returned.
typedef int (*archive_each)(void *ctx, const char *owner, const struct session_view *view);
int archive_list(struct archive *a, const char *owner, const char *query, int64_t limit,
                 archive_each each, void *ctx, struct err *err);
// One session with all its turns, tokens and events; stored_session_free it. E_NOTFOUND.
int archive_load(struct archive *a, const char *id, struct stored_session **out, struct err *err);
// As shown: borrowed from the stored session.
void archive_session_view(const struct session_record *r, struct session_view *out);
void archive_turn_view(const struct stored_turn *t, struct turn_view *out);
// The whole record as one JSON object, with everything that a replay or an import needs: ids, seeds
// (decimal strings), log-probabilities as the bits of binary32. E_NOMEM, E_LIMIT from the buffer.
int archive_export(const struct stored_session *s, struct buf *out);

// Removes one session for good: its rows, its words in the index, and their bytes in the file.
// E_BUSY while a server has the database: it must be asked instead (session.close with delete).
int archive_remove(const char *path, const char *id, struct err *err);
