// A database for tools: read-only, with a server running on it or without. Removing needs the
// server's lock. Any thread, one at a time for each archive.
#pragma once
#include "sessions/store/record.h"

struct archive;
struct buf;

// Errors name the file: missing, no database, another program's, another schema.
int archive_open(struct archive **out, const char *path, struct err *err);
void archive_close(struct archive *a);

// Sessions, newest first, of all owners (owner NULL) or of one; query as in session.list or NULL;
// at most limit (0: all). `each` borrows the row; a value other than 0 ends the list and is
// returned.
typedef int (*archive_each)(void *ctx, const struct session_record *row);
int archive_list(struct archive *a, const char *owner, const char *query, const char *forked_from,
                 int64_t limit, archive_each each, void *ctx, struct err *err);
// One session with all its turns, tokens and events; stored_session_free it. owner NULL: of any, but
// E_INVAL when several owners have a session of this id. E_NOTFOUND.
int archive_load(struct archive *a, const char *owner, const char *id, struct stored_session **out,
                 struct err *err);
// The record as one JSON object, complete for a replay or an import: README.md has the format. The
// text of a client comes back byte for byte. E_NOMEM, E_LIMIT from the buffer.
int archive_export(const struct stored_session *s, struct buf *out);
// The same text for a client that takes it slowly: in pieces, each read by itself. Turns and events that
// come after the first piece are left out. E_NOTFOUND: the session was deleted meanwhile.
struct store_cursor;
struct store_cursor *archive_export_begin(const char *owner, const char *id); // NULL: no memory
// shared.c: what the session's link shows (share.h), as JSON: {"title","turns":[{"input","answer"}]} of its current
// path, from turn `first` of the path on (0: the oldest). A part of a long path ends with "next", the first of the next
// part. E_NOTFOUND: no session has this digest, or its owner has taken the link back meanwhile.
struct store_cursor *archive_shared_begin(const char *digest, size_t first); // NULL: no memory
// The archive as a line of a new file (0600): written to PATH.part, then renamed. E_EXISTS when PATH exists; a
// failure leaves no file.
int archive_export_file(const struct stored_session *s, const char *path, struct err *err);
#define ARCHIVE_FORMAT "parley.session"
#define ARCHIVE_FORMAT_VERSION                                                                     \
    2 // 1: without parent, head and forked_from: each turn follows the one before

// --- import.c

// Reads a file of archive_export from an untrusted source: it is accepted only if all parts fit
// together. Turns without an end get one at now_ms, as after a crash. E_FORMAT, E_CORRUPT,
// E_LIMIT name the first field that does not fit; E_UNSUPPORTED: a newer format.
// stored_session_free it.
int archive_read(struct stored_session **out, const char *json, size_t len, int64_t now_ms,
                 struct err *err);
struct archive_import {
    bool new_id;       // a fresh id instead of the session's own
    const char *owner; // NULL: as in the file
};
// An act of store_db_transaction: inserts a struct stored_session under a new key, which it gets.
struct store_db;
int archive_add(struct store_db *db, void *session, struct err *err);
// Sets the record's id and owner.
int archive_rename(struct session_record *r, const struct archive_import *o, struct err *err);
// Adds the session to the database in one transaction; makes the database where there is none. A
// server may run on it. *s gets the id, owner and key that it has there. E_EXISTS: the id is taken;
// E_BUSY: another process writes for longer than 2 s.
int archive_import(const char *path, struct stored_session *s, const struct archive_import *o,
                   struct err *err);

// --- move.c

struct archive_move {
    const char *owner, *id; // NULL: of all owners; all
    // A session that stays, and why: it is damaged, or the target has another one of its owner and id.
    void (*left)(void *ctx, const struct session_record *row, const char *why);
    void *ctx;
};
struct archive_moved {
    int64_t n_moved, n_left;
};
// Moves sessions, with their ids and owners, into the database `to`, which is made where there is none;
// a server may run on that one. E_BUSY while a server has `from`. A process that dies in the middle
// leaves `from` marked: servers refuse it, and the same call again finishes.
int archive_move(const char *from, const char *to, const struct archive_move *o,
                 struct archive_moved *out, struct err *err);

// Removes a session: its rows, its words in the index, and their bytes in the file. E_BUSY while a
// server has the database: then session.close with delete does it. owner as for archive_load.
int archive_remove(const char *path, const char *owner, const char *id, struct err *err);
