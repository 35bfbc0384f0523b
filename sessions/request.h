// A client's request as data, so that it can wait until its session has been read from the
// database.
#pragma once
#include "sessions/sessions.h"

enum request_kind {
    REQUEST_OPEN,
    REQUEST_ATTACH,
    REQUEST_DETACH,
    REQUEST_GET,
    REQUEST_UPDATE,
    REQUEST_CLOSE,
    REQUEST_START,
    REQUEST_CANCEL,
    REQUEST_TURN, // debug.h
    REQUEST_EVENTS,
    REQUEST_REPLAY,
    REQUEST_REWIND,
    REQUEST_REGENERATE,
    REQUEST_FORK,
};
struct request {
    enum request_kind kind;
    uint64_t client;
    const char *owner, *id;
    char request_id[SESSION_REQUEST_ID_MAX + 1];
    struct session_open open; // OPEN (its id is the one above)
    int64_t after;            // ATTACH; START: the turn to rewind to, TURN_HEAD
    int64_t last, before;     // GET, EVENTS
    bool attach;              // GET
    int64_t cancel_after_ms;  // UPDATE, -1: keep
    const char *title;        // UPDATE, FORK
    const char *sampling;     // UPDATE, START, REGENERATE
    const char *new_id;       // FORK; NULL: drawn
    bool leaf;                // REWIND
    bool delete_it;           // CLOSE
    struct turn_input input;  // START
    bool queue;               // START
    bool replay;              // CANCEL: its client's replay, no turn
    int64_t turn;             // CANCEL, TURN, REPLAY, REWIND, REGENERATE, FORK
    struct request *next;
};

// owns copies of all it points to; NULL: no memory
struct request *request_copy(const struct request *r);
void request_free(struct request *r);
