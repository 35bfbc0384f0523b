// Requests of one connection that an event answers (session.opened, .updated, .closed): the event
// belongs to everybody who is attached, the request_id to the caller alone, so the connection
// remembers it.
#pragma once
#include "ws/protocol.h"

struct request;
struct requests { // all zero: empty
    struct request *items;
    size_t count;
};

void requests_note(struct requests *r,
                   const struct message *m); // ignores what events do not answer
// The request_id that ev answers for this connection, "" for none; forgets it.
void requests_answered(struct requests *r, const struct session_event *ev, const char *session,
                       char id[SESSION_REQUEST_ID_MAX + 1]);
// An answer came instead. True when it was a session.close with delete.
bool requests_forget(struct requests *r, const struct session_answer *a);
void requests_release(struct requests *r);
