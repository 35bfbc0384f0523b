// Shows what is on record. See debug.h, debug_handlers.h.
//
// A turn goes out in pieces (streams.c). The store reads the turn again for each piece, so a client
// that stops reading holds no memory.
#include "sessions/replay/debug.h"
#include "base/err.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/streams.h"
#include "sessions/replay/debug_handlers.h"
#include "sessions/replay/debug_replay.h"
#include "sessions/state/record_view.h"
#include "sessions/turns/input.h"
#include <stdlib.h>

static bool ended(const struct session *s, const struct turn *t) {
    return t->state == TURN_DONE && t->rec.seq_last <= session_tellable(s);
}

// True: the request was refused, before anything is read.
static bool refused(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    const struct turn *t = session_turn(s, r->turn);
    struct err err = {0};
    if (!t || !session_turn_visible(s, t))
        refuse(ss, r, "invalid", "the session has no such turn");
    else if (r->kind == REQUEST_TURN)
        return false;
    else if (ss->draining)
        refuse(ss, r, "shutting_down", "the server is shutting down");
    else if (!service_model(s))
        input_no_model(s, &err), refuse_err(ss, r, &err);
    else if (!ended(s, t))
        refuse(ss, r, "invalid", "the turn has not ended");
    else if (turn_was_edited(&t->rec))
        refuse(ss, r, "invalid", REPLAY_EDITED);
    else if (t->rec.branch && t->out.n > 0 && !rerun_ended_by_itself(&t->rec))
        refuse(ss, r, "invalid",
               "the search for this answer was cut short: where it was cut decides which answer it "
               "has");
    else if (replays_has(ss, r->client))
        refuse(ss, r, "session_busy", "a replay that this connection asked for is running");
    else
        return false;
    return true;
}

int debug_turn(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    if (refused(s, r)) return 0;
    struct store_job *job = service_job(STORE_TURNS, r, s->rec.id);
    if (job) job->turns = malloc(sizeof *job->turns);
    if (!job || !job->turns) {
        store_job_free(job);
        return E_NOMEM;
    }
    job->key = s->rec.key;
    job->turns[0] = r->turn;
    job->n_turns = 1;
    return streams_begin_job(ss, r, job);
}

int debug_replay(struct session *s, const struct request *r) {
    return refused(s, r) ? 0 : replays_start(s, r);
}

// --- turns -------------------------------------------------------------------

// A turn that had not ended when its first piece was sent: further pieces show it as it was then.
static void cut_back(struct store_job *job, struct stored_turn *t) {
    if (!job->goes_on) job->n_tokens = t->rec.finish_reason[0] ? -1 : (int64_t)t->tokens.n;
    if (job->n_tokens < 0) return;
    t->rec.finish_reason[0] = '\0';
    t->rec.n_output = job->n_tokens;
    t->tokens.n = (size_t)job->n_tokens;
    t->tokens.text_len = job->n_tokens ? t->tokens.text_ends[job->n_tokens - 1] : 0;
}

static void check_read(struct store_job *job) {
    if (job->rc < 0) return;
    const struct stored_turn *t = job->loaded->n_turns ? job->loaded->turns : NULL;
    bool without = t && t->tokens.n && t->rec.n_alternatives > 0 && !t->tokens.alternatives;
    if (!t)
        job->rc = err_set(&job->err, E_NOTFOUND, "the session was deleted");
    else if ((int64_t)t->tokens.n != t->rec.n_output || without)
        job->rc = err_set(&job->err, E_CORRUPT, "the record of this turn contradicts itself");
}

// After the first piece, an error ends the answer.
void debug_turn_read(struct sessions *ss, struct store_job *job) {
    const struct session *s = service_find_key(ss, job->key);
    struct turn_detail detail;
    struct session_answer a = {
        .kind = ANSWER_TURN, .request_id = job->request_id, .session_id = job->id};
    check_read(job);
    if (job->rc < 0 && !job->goes_on) {
        answer_job_failed(ss, job);
        return;
    }
    if (job->rc == 0) {
        struct stored_turn *t = job->loaded->turns;
        cut_back(job, t);
        detail = (struct turn_detail){.rec = &t->rec,
                                      .ids = t->tokens.ids,
                                      .logprobs = t->tokens.logprobs,
                                      .text_ends = t->tokens.text_ends,
                                      .n_ids = t->tokens.n,
                                      .alternatives = t->tokens.alternatives};
        stored_turn_view(t, &detail.turn);
        if (s && detail.turn.state != TURN_DONE) detail.turn.seq_last = session_tellable(s);
        a.detail = &detail;
        a.engine = s ? session_engine(s) : NULL;
    } else {
        a.code = job_code(job), a.message = job->err.text;
    }
    job->more = streams_answer(ss, job->client, &a);
}

// --- events ------------------------------------------------------------------

static struct listed_event listed(const struct session *s, const struct event_record *e) {
    const struct turn *t = e->kind == EVENT_DONE ? session_turn(s, e->turn) : NULL;
    bool resumed = t && t->rec.numbers.source >= CACHE_RECOMPUTED;
    bool fork = e->kind == EVENT_OPENED && s->rec.forked_from;
    return (struct listed_event){.rec = *e,
                                 .resumed = resumed ? &t->rec.numbers : NULL,
                                 .forked_from = fork ? s->rec.forked_from : NULL,
                                 .forked_turn = s->rec.forked_turn};
}

int debug_events(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    int64_t limit = session_tellable(s);
    size_t most = (size_t)(r->last > 0 ? r->last : SESSION_PAGE_TURNS), first = s->events.n, n = 0;
    bool more = false;
    if (r->before >= 0 && r->before <= limit) limit = r->before - 1;
    if (most > SESSION_PAGE_TURNS_MAX) most = SESSION_PAGE_TURNS_MAX;
    while (first > 0 && !more) {
        const struct event_record *e = &s->events.entries[first - 1].rec;
        bool fact = e->kind != EVENT_DELTA && e->seq <= limit;
        more = fact && n == most;
        if (more) break;
        n += fact;
        first--;
    }
    struct listed_event *events = calloc(n + 1, sizeof *events);
    if (!events) return E_NOMEM;
    n = 0;
    for (size_t i = first; i < s->events.n; i++) {
        const struct event_record *e = &s->events.entries[i].rec;
        if (e->kind != EVENT_DELTA && e->seq <= limit) events[n++] = listed(s, e);
    }
    struct session_answer a = answer_of(r, ANSWER_EVENTS);
    a.more = more;
    a.before = r->before;
    a.events = events;
    a.n_events = n;
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
    free(events);
    return 0;
}
