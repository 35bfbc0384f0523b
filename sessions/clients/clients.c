// Attached clients and authors of turns. See clients.h.
//
// A session may ask for its turns to be cancelled some time after its last client is lost. The clock
// starts when a connection ends and the session has no attached client and no author left. It stops
// when a client attaches or starts a turn. A client that detaches is not lost.
#include "sessions/clients/clients.h"
#include "base/err.h"
#include "sessions/caches/routing.h"
#include "sessions/clients/deliver.h"
#include <stdlib.h>
#include <utlist.h>

struct client *clients_find(struct sessions *ss, uint64_t number) {
    struct client *c;
    HASH_FIND(hh, ss->clients, &number, sizeof number, c);
    return c;
}

struct client *clients_of(struct sessions *ss, uint64_t number) {
    struct client *c = clients_find(ss, number);
    if (c) return c;
    c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->number = number;
    HASH_ADD(hh, ss->clients, number, sizeof c->number, c);
    if (hash_added(&c->hh)) return c;
    free(c);
    return NULL;
}

static void client_forget(struct sessions *ss, struct client *c) {
    HASH_DEL(ss->clients, c);
    free(c);
}

void clients_release(struct sessions *ss, struct client *c) {
    if (!c->attachments && !c->authored && c->n_deferred == 0 && !c->stream && !c->waiting)
        client_forget(ss, c);
}

int clients_defer(struct sessions *ss, uint64_t client) {
    struct client *c = client == CLIENT_GONE ? NULL : clients_of(ss, client);
    if (c) c->n_deferred++;
    return c || client == CLIENT_GONE ? 0 : E_NOMEM;
}

uint64_t clients_resume(struct sessions *ss, uint64_t client) {
    struct client *c = clients_find(ss, client);
    if (!c) return CLIENT_GONE;
    c->n_deferred--;
    clients_release(ss, c);
    return client;
}

void clients_lost_begin(struct session *s) {
    if (s->attachments || s->author != CLIENT_GONE) return;
    if (!s->rec.cancel_after_ms || !session_has_turn(s)) return;
    s->lost_us = service_now(s->service) + s->rec.cancel_after_ms * 1000;
    service_timers_changed(s);
}

void clients_lost_end(struct session *s) {
    s->lost_us = 0;
    service_timers_changed(s);
}

bool clients_lost_is_due(const struct session *s) {
    return s->lost_us && s->lost_us <= service_now(s->service);
}

int clients_attach(struct session *s, uint64_t client, int64_t cursor) {
    if (client == CLIENT_GONE) return 0;
    deliver_answer_told(s, client, cursor);
    struct attachment *a = session_attachment(s, client);
    if (!a) {
        struct client *c = clients_of(s->service, client);
        a = c ? calloc(1, sizeof *a) : NULL;
        if (!a) return E_NOMEM;
        a->client = client;
        a->session = s;
        DL_APPEND(s->attachments, a);
        DL_APPEND2(c->attachments, a, client_prev, client_next);
    }
    if (s->author == client) clients_forget_author(s);
    clients_lost_end(s);
    a->cursor = cursor;
    a->since_us = service_now(s->service);
    a->since_seq = event_log_seq(&s->events);
    a->waiting = true;
    service_touch(s);
    return 0;
}

void clients_detach(struct attachment *a) {
    struct session *s = a->session;
    struct sessions *ss = s->service;
    struct client *c = clients_find(ss, a->client);
    deliver_forget_told(s, a->client, INT64_MAX);
    DL_DELETE(s->attachments, a);
    DL_DELETE2(c->attachments, a, client_prev, client_next);
    clients_release(ss, c);
    free(a->sampled);
    free(a);
    service_touch(s);
}

void clients_forget_author(struct session *s) {
    struct sessions *ss = s->service;
    struct client *c = clients_find(ss, s->author);
    if (s->author == CLIENT_GONE) return;
    DL_DELETE2(c->authored, s, author_prev, author_next);
    s->author = CLIENT_GONE;
    clients_release(ss, c);
}

int clients_note_author(struct session *s, uint64_t client) {
    struct client *c = client == CLIENT_GONE ? NULL : clients_of(s->service, client);
    if (!c && client != CLIENT_GONE) return E_NOMEM;
    if (s->author != client) clients_forget_author(s);
    if (!c || s->author == client) return 0;
    if (session_attachment(s, client)) return 0;
    s->author = client;
    DL_APPEND2(c->authored, s, author_prev, author_next);
    return 0;
}

void clients_gone(struct sessions *ss, uint64_t client) {
    struct client *c;
    while ((c = clients_find(ss, client)) && c->attachments) {
        struct session *s = c->attachments->session;
        clients_detach(c->attachments);
        clients_lost_begin(s);
    }
    while ((c = clients_find(ss, client)) && c->authored) {
        struct session *s = c->authored;
        clients_forget_author(s);
        clients_lost_begin(s);
    }
    if (c) client_forget(ss, c); // its deferred requests will find it gone
}

void clients_lose(struct session *s) {
    struct sessions *ss = s->service;
    while (s->attachments) {
        uint64_t client = s->attachments->client;
        clients_detach(s->attachments);
        if (ss->cb.on_gone) ss->cb.on_gone(ss->cb.ctx, client, s);
    }
}

void clients_drop(struct session *s) {
    routing_release(s);
    while (s->attachments) clients_detach(s->attachments);
    service_gone(s);
}
