// Answers that go out in pieces: lists and exports. See service.h.
//
// The store reads a piece when the client has room for it (sessions_continue). A client is sent one
// such answer at a time, in the order it asked; the others wait as jobs that the store has not seen.
#include "base/err.h"
#include "sessions/answers.h"
#include "sessions/service.h"
#include <stdlib.h>
#include <utlist.h>

#define WAITING_MAX 256 // of one client

static void send_next(struct sessions *ss, struct client *c) {
    struct store_job *job = c->waiting;
    if (!job) {
        clients_release(ss, c);
        return;
    }
    LL_DELETE(c->waiting, job);
    c->n_waiting--;
    c->streaming = true;
    store_send(ss->store, job);
}

int streams_begin(struct sessions *ss, const struct request *r, struct store_job *job) {
    struct client *c = clients_of(ss, job->client);
    if (!c || c->n_waiting == WAITING_MAX) {
        store_job_free(job);
        return !c ? E_NOMEM
                  : refuse(ss, r, "overloaded",
                           "too many lists and exports of this connection wait");
    }
    LL_APPEND(c->waiting, job);
    c->n_waiting++;
    if (!c->streaming) send_next(ss, c);
    return 0;
}

bool streams_keep(struct sessions *ss, struct store_job *job) {
    struct client *c = clients_find(ss, job->client);
    if (!c) return false;
    if (job->rc == 0 && job->more) {
        job->goes_on = true;
        c->stream = job;
        return true;
    }
    c->streaming = false;
    send_next(ss, c);
    return false;
}

void sessions_continue(struct sessions *ss, uint64_t client) {
    struct client *c = clients_find(ss, client);
    if (!c || !c->stream) return;
    service_enter(ss);
    store_send(ss->store, c->stream);
    c->stream = NULL;
    service_leave(ss);
}

void streams_client_gone(struct sessions *ss, uint64_t client) {
    struct client *c = clients_find(ss, client);
    struct store_job *job, *next;
    if (!c) return;
    LL_FOREACH_SAFE(c->waiting, job, next) store_job_free(job);
    store_job_free(c->stream);
    c->waiting = c->stream = NULL;
    c->streaming = false;
    clients_release(ss, c);
}
