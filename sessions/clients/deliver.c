// Events and answers on their way to clients. See deliver.h.
//
// Events are not queued for a client: it has a cursor, and the events after the cursor are read from
// the session when the client has room for them. A client that took everything is called once when
// there is more.
#include "sessions/clients/deliver.h"
#include "sessions/clients/branch_deltas.h"
#include <string.h>
#include <utlist.h>

// A joined delta is bounded in tokens too: most carry few bytes, but every one has its id, and
// maybe alternatives.
#define DELTA_TOKENS 1024
#define DELTA_TOKENS_ALTERNATIVES 64

// Answers a request that no event answers.
static void answer(struct session *s, const struct pending *p) {
    struct sessions *ss = s->service;
    struct session_answer a = {.kind = p->kind == PENDING_OPEN     ? ANSWER_OPENED
                                       : p->kind == PENDING_CLOSE  ? ANSWER_CLOSED
                                       : p->share_token[0]         ? ANSWER_SHARED
                                       : p->kind == PENDING_UPDATE ? ANSWER_UPDATED
                                                                   : ANSWER_REWOUND,
                               .request_id = p->request_id,
                               .session_id = s->rec.id,
                               .token = p->share_token,
                               .deleted = s->life == LIFE_GONE};
    session_view_fill(s, &a.session);
    a.seq = p->kind == PENDING_REWIND && p->repeated ? 0 : a.session.rec.seq;
    ss->cb.on_answer(ss->cb.ctx, p->client, &a);
}

void deliver_answer_told(struct session *s, uint64_t client, int64_t upto) {
    struct pending *p;
    do { // from the start: an answer may make its client take events
        DL_FOREACH(s->told, p) {
            if (p->client == client && p->seq <= upto) break;
        }
        if (!p) return;
        DL_DELETE(s->told, p);
        answer(s, p);
        pending_free(p);
    } while (true);
}

void deliver_forget_told(struct session *s, uint64_t client, int64_t upto) {
    struct pending *p, *next;
    DL_FOREACH_SAFE(s->told, p, next) {
        if (p->client == client && p->seq <= upto) pending_drop(&s->told, p);
    }
}

void deliver_ready(struct session *s) {
    struct sessions *ss = s->service;
    int64_t limit = session_tellable(s);
    struct attachment *a;
    if (ss->closing) return;
again: // the callback may attach and detach clients
    DL_FOREACH(s->attachments, a) {
        if (!a->waiting || (a->cursor >= limit && !branch_deltas_wait(s, a))) continue;
        a->waiting = false;
        if (ss->cb.on_ready) ss->cb.on_ready(ss->cb.ctx, a->client, s);
        goto again;
    }
}

// Tells clients that the disk is the cause: a full disk looks like a slow model otherwise.
void deliver_stalled(struct session *s, const struct err *why, int64_t stalled_us) {
    struct sessions *ss = s->service;
    struct attachment *a, *next;
    if (!ss->cb.on_stalled || ss->closing) return;
    if (session_tellable(s) >= event_log_seq(&s->events)) return;
    DL_FOREACH_SAFE(s->attachments, a, next) { // it may end its connection
        ss->cb.on_stalled(ss->cb.ctx, a->client, s, why, stalled_us);
    }
}

// --- what commits bring ------------------------------------------------------

// An event answers one request of a client. The second of two closes that one event ends needs an answer too.
static bool told_already(const struct session *s, const struct pending *p) {
    struct pending *t;
    DL_FOREACH(s->told, t) {
        if (t->client == p->client && t->seq == p->seq) return true;
    }
    return false;
}

static void answer_accepted(struct session *s, const struct pending *p) {
    struct sessions *ss = s->service;
    struct session_answer a = {.kind = ANSWER_ACCEPTED,
                               .request_id = p->request_id,
                               .session_id = s->rec.id,
                               .turn = p->turn};
    ss->cb.on_answer(ss->cb.ctx, p->client, &a);
}

void deliver_committed(struct session *s, struct pending *p) {
    if (p->kind == PENDING_TURN) {
        answer_accepted(s, p);
        pending_free(p);
        return;
    }
    if (!p->repeated && !p->share_token[0] && session_attachment(s, p->client) &&
        !told_already(s, p)) {
        // The event answers it, but has no link: all who follow the session get it.
        DL_APPEND(s->told, p);
        return;
    }
    // A client that opened a session and left before its commit gets no answer.
    if (p->kind != PENDING_OPEN) answer(s, p);
    pending_free(p);
}

// --- events ------------------------------------------------------------------

static int64_t join_tokens(const struct turn *t, int64_t first, int64_t max, size_t max_text) {
    size_t start = turn_text_end(t, first);
    int64_t n = 1;
    while (n < max && t->out.text_ends[first + n] - start <= max_text) n++;
    return n;
}

// When the token was drawn, if this client was waiting for it; 0: it was not.
static int64_t drawn_at(const struct session *s, const struct turn *t, int64_t token,
                        const struct attachment *a) {
    if (t->rec.turn != s->drawn_turn || token + SESSION_DRAWN < (int64_t)t->out.n) return 0;
    int64_t us = s->drawn_us[token % SESSION_DRAWN];
    return us >= a->since_us ? us : 0;
}

static int64_t fill_delta(const struct session *s, const struct event_entry *e, int64_t from,
                          int64_t limit, size_t max_text, const struct attachment *a,
                          struct session_event *out) {
    const struct turn *t = session_turn(s, e->rec.turn);
    int64_t first = e->first_token + (from - e->rec.seq);
    int64_t last = e->rec.seq + e->rec.n - 1 < limit ? e->rec.seq + e->rec.n - 1 : limit;
    int64_t max = last - from + 1,
            cap = t->rec.n_alternatives ? DELTA_TOKENS_ALTERNATIVES : DELTA_TOKENS;
    int64_t n = join_tokens(t, first, max < cap ? max : cap, max_text);
    size_t start = turn_text_end(t, first), end = turn_text_end(t, first + n);
    out->kind = EVENT_DELTA;
    out->delta_turn = t->rec.turn;
    out->drawn_us = drawn_at(s, t, first, a);
    out->text = buf_z(&t->out.text) + start;
    out->text_len = end - start;
    out->ids = t->out.ids + first;
    out->logprobs = t->rec.logprobs ? t->out.logprobs + first : NULL;
    out->n_ids = (size_t)n;
    out->n_alternatives = t->rec.n_alternatives;
    if (t->out.alternatives)
        out->alternatives = t->out.alternatives + first * t->rec.n_alternatives;
    return from + n - 1;
}

static void fill_turn_event(const struct session *s, const struct event_record *e,
                            struct session_event *out) {
    const struct turn *t = session_turn(s, e->turn);
    bool done = e->kind == EVENT_DONE;
    turn_view_fill(t, done ? (int64_t)t->out.n : 0, done, &out->turn);
    out->turn.state = done ? TURN_DONE : e->kind == EVENT_QUEUED ? TURN_QUEUED : TURN_RUNNING;
    if (!done) return;
    out->reason = e->reason[0] ? e->reason : NULL;
    out->turn.scores = t->scores;
    size_t told = turn_text_end(t, (int64_t)t->out.n);
    out->turn.text += told;
    out->turn.text_len -= told;
}

static void fill_event(const struct session *s, const struct event_record *e,
                       struct session_event *out) {
    out->kind = (enum session_event_kind)e->kind;
    switch (e->kind) {
    case EVENT_OPENED:
    case EVENT_UPDATED:
    case EVENT_CLOSED:
        session_view_fill(s, &out->session);
        out->session.rec.seq = e->seq;
        out->deleted = s->life == LIFE_GONE;
        break;
    case EVENT_REWOUND: // as of then: a later one may have moved on
        session_view_fill(s, &out->session);
        out->session.rec.seq = e->seq;
        out->session.rec.head = out->head = e->turn;
        out->session.rec.n_tokens = session_tokens_at(s, e->seq);
        out->session.below = session_below(s, e->turn, e->seq);
        out->reason = e->reason[0] ? e->reason : NULL;
        break;
    case EVENT_EVICTED:
    case EVENT_PARKED:
        out->reason = e->reason;
        break;
    case EVENT_LOST: // a delta of no tokens keeps the numbers without a gap
        out->kind = EVENT_DELTA;
        out->delta_turn = e->turn;
        out->text = "";
        break;
    default:
        fill_turn_event(s, e, out);
        break;
    }
}

static void take_request_id(struct session *s, struct attachment *a, struct session_event *out) {
    struct pending *p;
    a->request_id[0] = '\0';
    DL_FOREACH(s->told, p) {
        if (p->client == a->client && p->seq == out->seq)
            memcpy(a->request_id, p->request_id, sizeof a->request_id);
    }
    if (s->told) deliver_forget_told(s, a->client, out->seq);
    out->request_id = a->request_id;
}

int session_next_event(struct session *s, uint64_t client, size_t max_text,
                       struct session_event *out) {
    struct attachment *a = session_attachment(s, client);
    if (!a) return 0;
    int64_t limit = session_tellable(s), from = a->cursor + 1;
    const struct event_entry *e = from <= limit ? event_log_find(&s->events, from) : NULL;
    if (branch_deltas_next(s, a, e ? &e->rec : NULL, max_text, out)) return 1;
    if (!e) {
        a->waiting = true;
        // The client has all events: the session may leave memory.
        bool idle = s->life == LIFE_LIVE && !s->lru_prev && !session_is_busy(s);
        if (s->life == LIFE_GONE || idle) service_touch(s);
        return 0;
    }
    *out = (struct session_event){.first_seq = from};
    if (e->rec.kind == EVENT_DELTA) {
        out->seq = fill_delta(s, e, from, limit, max_text, a, out);
    } else {
        out->seq = e->rec.seq + e->rec.n - 1;
        fill_event(s, &e->rec, out);
    }
    a->cursor = out->seq;
    take_request_id(s, a, out);
    return 1;
}
