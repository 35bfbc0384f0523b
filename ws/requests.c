// Open requests in the order in which they were made. See requests.h.
#include "ws/requests.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define MAX_REQUESTS 256 // beyond, the oldest's event goes without its id

struct request {
    struct request *prev, *next;
    enum message_type type;
    bool delete_it;
    char session[SESSION_ID_MAX + 1]; // "": the server draws the id
    char id[SESSION_REQUEST_ID_MAX + 1];
};

static void drop(struct requests *r, struct request *q) {
    DL_DELETE(r->items, q);
    r->count--;
    free(q);
}

void requests_note(struct requests *r, const struct message *m) {
    if (m->type != MESSAGE_SESSION_OPEN && m->type != MESSAGE_SESSION_UPDATE &&
        m->type != MESSAGE_SESSION_CLOSE)
        return;
    if (r->count >= MAX_REQUESTS) drop(r, r->items);
    struct request *q = calloc(1, sizeof(*q));
    if (!q) return; // costs an id, no more
    q->type = m->type;
    q->delete_it = m->delete_it;
    if (m->session) strcpy(q->session, m->session);
    strcpy(q->id, m->request_id);
    DL_APPEND(r->items, q);
    r->count++;
}

// The oldest of that type about that session; where the server drew the id, the oldest without one.
static struct request *find(struct requests *r, enum message_type type, const char *session) {
    struct request *q;
    DL_FOREACH(r->items, q)
    if (q->type == type && strcmp(q->session, session) == 0) return q;
    DL_FOREACH(r->items, q)
    if (q->type == type && !q->session[0]) return q;
    return NULL;
}

void requests_answered(struct requests *r, const struct session_event *ev, const char *session,
                       char id[SESSION_REQUEST_ID_MAX + 1]) {
    id[0] = '\0';
    if (ev->kind != EVENT_OPENED && ev->kind != EVENT_UPDATED && ev->kind != EVENT_CLOSED) return;
    enum message_type type = ev->kind == EVENT_OPENED    ? MESSAGE_SESSION_OPEN
                             : ev->kind == EVENT_UPDATED ? MESSAGE_SESSION_UPDATE
                                                         : MESSAGE_SESSION_CLOSE;
    struct request *q = find(r, type, session);
    if (!q) return;
    strcpy(id, q->id);
    drop(r, q);
}

bool requests_forget(struct requests *r, const struct session_answer *a) {
    struct request *q;
    if (a->kind != ANSWER_ERROR && a->kind != ANSWER_CLOSED && a->kind != ANSWER_UPDATED)
        return false;
    DL_FOREACH(r->items, q) {
        bool same_session = a->session_id && strcmp(q->session, a->session_id) == 0;
        bool same_kind = (a->kind != ANSWER_CLOSED || q->type == MESSAGE_SESSION_CLOSE) &&
                         (a->kind != ANSWER_UPDATED || q->type == MESSAGE_SESSION_UPDATE);
        if (!same_kind || strcmp(q->id, a->request_id) != 0 ||
            (a->session_id && q->session[0] && !same_session))
            continue;
        // An error without a request_id may be about anything; only one that names the session is
        // taken for it.
        if (a->kind == ANSWER_ERROR && !q->id[0] && !same_session) continue;
        bool deleted = q->delete_it;
        drop(r, q);
        return deleted;
    }
    return false;
}

void requests_release(struct requests *r) {
    while (r->items) drop(r, r->items);
}
