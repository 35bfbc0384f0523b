// Answers that go out in pieces: lists, exports, recorded turns and replays. See streams.h.
//
// A piece is made when the client has room for it: the store reads it, or it is written from memory. A
// client gets one such answer at a time, in the order of its requests; the jobs of the others do not go
// to the store before that.
#include "sessions/clients/streams.h"
#include "base/err.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/clients.h"
#include <stdlib.h>
#include <utlist.h>

#define WAITING_MAX 256 // of one client

static void send_next(struct sessions *ss, struct client *c) {
    struct stream *st = c->stream = c->waiting;
    if (!st) {
        clients_release(ss, c);
        return;
    }
    LL_DELETE2(c->waiting, st, later);
    c->n_waiting--;
    st->next(ss, st);
}

int streams_begin(struct sessions *ss, const struct request *r, struct stream *st) {
    struct client *c = clients_of(ss, r->client);
    if (!c || c->n_waiting == WAITING_MAX) {
        st->free(ss, st);
        return !c ? E_NOMEM
                  : refuse(ss, r, "overloaded",
                           "too many lists, exports and records of this connection wait");
    }
    st->client = r->client;
    LL_APPEND2(c->waiting, st, later);
    c->n_waiting++;
    if (!c->stream) send_next(ss, c);
    return 0;
}

bool streams_answer(struct sessions *ss, uint64_t client, struct session_answer *a) {
    struct client *c = clients_find(ss, client);
    if (!c || !c->stream) return false;
    struct answer_position at = c->stream->at;
    a->first = !at.more;
    at.more = false;
    a->position = &at;
    ss->cb.on_answer(ss->cb.ctx, client, a);
    c = clients_find(ss, client); // without memory the callback ends the connection
    if (!c || !c->stream) return false;
    c->stream->at = at;
    return at.more;
}

void streams_answered(struct sessions *ss, uint64_t client, bool more) {
    struct client *c = clients_find(ss, client);
    if (!c || !c->stream) return;
    c->stream->needs_room = more;
    if (more) return;
    c->stream->free(ss, c->stream);
    send_next(ss, c);
}

void streams_continue(struct sessions *ss, uint64_t client) {
    struct client *c = clients_find(ss, client);
    if (!c || !c->stream || !c->stream->needs_room) return;
    c->stream->needs_room = false;
    c->stream->next(ss, c->stream);
}

void streams_client_gone(struct sessions *ss, uint64_t client) {
    struct client *c = clients_find(ss, client);
    struct stream *st, *next;
    if (!c) return;
    LL_FOREACH_SAFE2(c->waiting, st, next, later) st->free(ss, st);
    if (c->stream) c->stream->free(ss, c->stream);
    c->waiting = c->stream = NULL;
    clients_release(ss, c);
}

// --- of the store ------------------------------------------------------------

struct job_stream {
    struct stream stream;  // first
    struct store_job *job; // NULL: the store has it
    struct owner *owner;   // of an export, which is one of its jobs; else NULL
};

static void read_piece(struct sessions *ss, struct stream *st) {
    struct job_stream *js = (struct job_stream *)st;
    store_send(ss->store, js->job);
    js->job = NULL;
}

static void free_job_stream(struct sessions *ss, struct stream *st) {
    struct job_stream *js = (struct job_stream *)st;
    if (js->owner) owner_use(js->owner, OWNER_OUTSTANDING_JOBS, -1);
    store_job_free(js->job);
    free(js);
}

int streams_begin_job(struct sessions *ss, const struct request *r, struct store_job *job) {
    struct job_stream *js = calloc(1, sizeof *js);
    if (!js) {
        store_job_free(job);
        return E_NOMEM;
    }
    *js = (struct job_stream){.stream = {.next = read_piece, .free = free_job_stream}, .job = job};
    if (job->kind == STORE_EXPORT && *r->owner) js->owner = owners_get(ss->owners, r->owner);
    if (js->owner) owner_use(js->owner, OWNER_OUTSTANDING_JOBS, 1);
    return streams_begin(ss, r, &js->stream);
}

bool streams_keep(struct sessions *ss, struct store_job *job) {
    struct client *c = clients_find(ss, job->client);
    bool more = c && c->stream && job->rc == 0 && job->more;
    if (more) {
        stored_session_free(job->loaded); // it is read again
        job->loaded = NULL;
        job->goes_on = true;
        ((struct job_stream *)c->stream)->job = job;
    }
    streams_answered(ss, job->client, more);
    return more;
}
