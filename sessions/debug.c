// What is on record, shown. See debug.h, service.h.
//
// Turns come from the store by the way of older turns (history.c): the request waits, with what
// comes behind it for its session, and finds what was read in debug_read().
#include "sessions/debug.h"
#include "base/err.h"
#include "sessions/answers.h"
#include "sessions/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ended(const struct session *s, const struct turn *t) {
    return t->state == TURN_DONE && t->rec.seq_last <= session_tellable(s);
}

// The code of what refuses it before anything is read, or NULL.
static const char *refusal(const struct session *s, const struct request *r, const char **message) {
    const struct sessions *ss = s->service;
    const struct turn *t = session_turn(s, r->turn);
    if (!t || !session_turn_visible(s, t)) {
        *message = "the session has no such turn";
        return "invalid";
    }
    if (r->kind == REQUEST_TURN) return NULL;
    if (ss->draining) {
        *message = "the server is shutting down";
        return "shutting_down";
    }
    if (strcmp(s->rec.fingerprint, ss->info->fingerprint) != 0) {
        *message = "the session was made with another model";
        return "unsupported";
    }
    if (!ended(s, t)) {
        *message = "the turn has not ended";
        return "invalid";
    }
    if (t->n_out == 0 && !rerun_ended_by_itself(&t->rec)) {
        *message = "the turn has no answer to compare";
        return "invalid";
    }
    if (replays_has(ss, r->client)) {
        *message = "a replay that this connection asked for is running";
        return "session_busy";
    }
    return NULL;
}

bool debug_needs(const struct session *s, const struct request *r, int64_t *list, size_t *n) {
    const char *message;
    if (r->kind != REQUEST_TURN || refusal(s, r, &message)) return false;
    if (list) list[0] = r->turn;
    *n = 1;
    return true;
}

// Of a turn that can be shown only memory for reading it was missing.
int debug_turn(struct session *s, const struct request *r) {
    const char *message = "", *code = refusal(s, r, &message);
    return code ? refuse(s->service, r, code, "%s", message) : E_NOMEM;
}

int debug_replay(struct session *s, const struct request *r) {
    const char *message = "", *code = refusal(s, r, &message);
    return code ? refuse(s->service, r, code, "%s", message) : replays_start(s, r);
}

// --- turns -------------------------------------------------------------------

static void show(struct session *s, const struct request *r, const struct turn *t,
                 const int32_t *ids) {
    struct sessions *ss = s->service;
    struct turn_detail detail = {.rec = &t->rec,
                                 .ids = ids,
                                 .logprobs = t->logprobs,
                                 .n_ids = t->n_out,
                                 .alternatives = t->alternatives};
    struct session_answer a = answer_of(r, ANSWER_TURN);
    a.detail = &detail;
    turn_view_fill(t, (int64_t)t->n_out, t->state == TURN_DONE, &detail.turn);
    if (t->state != TURN_DONE) detail.turn.seq_last = session_tellable(s);
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
}

static void show_stored(struct session *s, const struct request *r, struct stored_turn *stored) {
    struct turn *t = turn_new();
    int rc = t ? turn_restore(t, stored) : E_NOMEM;
    if (rc == 0) {
        if (!t->rec.finish_reason[0]) t->state = t->rec.log_first < 0 ? TURN_QUEUED : TURN_RUNNING;
        show(s, r, t, t->ids);
    } else {
        struct asker to = asker_of(r);
        answer_error(s->service, &to, "store_failed", rc,
                     "the record of this turn contradicts itself");
    }
    turn_free(t);
}

bool debug_read(struct session *s, const struct request *r, struct stored_session *turns) {
    if (r->kind != REQUEST_TURN) return false;
    show_stored(s, r, &turns->turns[turns->n_turns - 1]);
    return true;
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
