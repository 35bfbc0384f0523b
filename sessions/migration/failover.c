// Turns that have lost their instance, because the instance has failed or is drained. Each turn waits, then goes on
// with another instance of its model (or the same instance, opened again) behind the tokens already drawn. Draws depend
// on the seed and the position alone, so the answer has the same tokens as without the loss; clients see a pause. See
// failover.h.
//
//   the turn's end on its instance --failover_take--> waits --failover_continue--> runs elsewhere
//                                        '--> ends: the turn was cancelled, or is poisoned
//
// A turn that ran when its instance failed is a suspect: its input may be the cause. Suspects go on one after another.
// Each suspect runs alone until it has drawn one more token, so that the next failure shows which turn is the cause. A
// turn whose second instance fails before that token is poisoned: the turn ends with an error. A turn that makes
// progress between two failures is never poisoned, however often its instances fail.
//
// A turn whose instance had no memory for it goes on in the same way, after a pause. After SHORT_MAX such pauses
// without a new token, the turn ends with the engine's error.
//
// The state of a turn with several answers (samples, beams) exists in its engine alone. Such a turn runs again from its
// start, and tokens that clients have already are not sent again.
#include "sessions/migration/failover.h"
#include "base/err.h"
#include "base/log.h"
#include "base/metrics.h"
#include "sessions/caches/routing.h"
#include "sessions/clients/answers.h"
#include "sessions/turns/turns.h"
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#define LOST_MAX 2      // failures without a token between them
#define SHORT_MAX 5     // attempts without memory, and without a token between them
#define SHORT_US 200000 // the first pause; each is twice as long as the one before

static const char *const reasons[] = {[FAILOVER_LOST] = "lost", [FAILOVER_DRAINED] = "drained"};

// True: an instance of its model serves, or will serve again.
static bool has_future(const struct session *s) {
    const struct instance *i;
    DL_FOREACH(s->service->placement.instances, i) {
        if (i->model == service_model(s) &&
            (i->state != INSTANCE_LOST || (i->reopens && !i->leaves)))
            return true;
    }
    return false;
}

bool failover_applies(const struct session *s, const struct engine_event *done) {
    if (done->finish == FINISH_YIELDED) return true;
    bool passes = done->error_code == E_DEVICE || done->error_code == E_NOMEM;
    return done->finish == FINISH_ERROR && passes && has_future(s);
}

static void tell(struct session *s, const struct turn *t, enum failover_why why) {
    struct sessions *ss = s->service;
    struct attachment *a, *next;
    metric_add(ss->m_failovers[why], 1);
    log_info("turn.moved", "session=%s turn=%lld reason=%s tokens=%zu", s->rec.id,
             (long long)t->rec.turn, reasons[why], t->out.n);
    if (!ss->cb.on_moved || ss->closing || !session_turn_visible(s, t)) return;
    DL_FOREACH_SAFE(s->attachments, a, next) { // it may end its connection
        ss->cb.on_moved(ss->cb.ctx, a->client, s, t->rec.turn, reasons[why]);
    }
}

static void note_failure(struct turn *t) {
    if (t->state != TURN_RUNNING) return; // it waited in the queue
    t->n_lost = t->out.n > t->n_before ? 1 : t->n_lost + 1;
}

static void give_up(struct session *s, struct turn *t, const char *why, size_t len) {
    char text[ENGINE_EVENT_TEXT + 1]; // an event's text has no NUL
    snprintf(text, sizeof text, "%.*s", (int)len, why);
    s->retry_us = 0;
    service_timers_changed(s);
    log_warn("turn.given_up", "session=%s turn=%lld", s->rec.id, (long long)t->rec.turn);
    turns_finish(s, t, "error", "overloaded", text);
}

// False: it has tried often enough.
static bool tries_again(struct session *s, struct turn *t) {
    t->n_short = t->out.n > t->n_before ? 1 : t->n_short + 1;
    t->n_before = t->out.n;
    s->retry_us = service_now(s->service) + (SHORT_US << t->n_short) / 2;
    s->wants_room = false;
    service_timers_changed(s);
    return t->n_short < SHORT_MAX;
}

void failover_take(struct session *s, struct turn *t, const struct engine_event *done) {
    enum failover_why why = done->finish == FINISH_YIELDED ? FAILOVER_DRAINED : FAILOVER_LOST;
    bool is_short = done->finish == FINISH_ERROR && done->error_code == E_NOMEM;
    t->number = 0;
    if (why == FAILOVER_LOST && !is_short) note_failure(t);
    if (t->stop >= STOP_CANCEL) {
        turns_finish(s, t, "cancelled", NULL, NULL);
    } else if (is_short && !tries_again(s, t)) {
        give_up(s, t, done->text, done->text_len);
    } else if (t->n_lost >= LOST_MAX) {
        metric_add(s->service->m_poisoned, 1);
        log_error("turn.poisoned", "session=%s turn=%lld", s->rec.id, (long long)t->rec.turn);
        turns_finish(s, t, "error", "poisoned",
                     "two instances failed while they ran this turn; it is not run again");
    } else {
        routing_wait(s);
        tell(s, t, why);
    }
}

void failover_diverged(struct session *s, struct turn *t) {
    log_error("turn.diverged", "session=%s turn=%lld token=%zu", s->rec.id, (long long)t->rec.turn,
              t->n_came_again);
    routing_cancel(s, t->number);
    turns_finish(s, t, "error", "internal",
                 "the instance failed, and the turn ran otherwise on another one");
    service_touch(s); // a token showed it, and tokens end no other turn
}

bool failover_repeats(struct session *s, struct turn *t, const struct engine_event *e) {
    if (t->n_again > 0 && (t->n_came_again < t->n_again || e->id < 0)) {
        if (e->id < 0 && t->n_came_again > t->n_again) return false;
        if (e->id >= 0 && e->id != t->out.ids[t->n_came_again]) {
            failover_diverged(s, t);
        } else if (e->id >= 0) {
            t->n_came_again++;
        }
        return true;
    }
    if (e->id >= 0 && t->n_again > 0) t->n_came_again++;
    failover_trial_over(s->service, t->number);
    return false;
}

void failover_trial_over(struct sessions *ss, uint64_t turn) {
    if (ss->trial == turn) ss->trial = 0;
}

// A turn waits while its session's cache is on its way from an instance that drains.
static bool waits_for_cache(const struct session *s) {
    if (s->cache == PLACE_TRAVELS) return true;
    return s->cache != PLACE_NONE && s->instance && s->instance->state == INSTANCE_DRAINING &&
           placement_has_other(&s->service->placement, s->instance);
}

static void go_on(struct session *s, struct turn *t) {
    struct sessions *ss = s->service;
    struct err err = {0};
    s->retry_us = 0;
    service_timers_changed(s);
    int rc = turns_go_on(s, t, &err);
    if (rc == E_BUSY && ss->draining && !has_future(s)) {
        turns_finish(s, t, "interrupted", NULL, NULL); // the server ends before one comes
    } else if (rc == E_NOMEM && !tries_again(s, t)) {
        give_up(s, t, err.text, strlen(err.text));
    } else if (rc == E_BUSY) {
        service_wait_for_room(s);
    } else if (rc < 0 && rc != E_NOMEM) {
        turns_finish(s, t, "error", answer_code(err.code), err.text);
    } else if (rc == 0) {
        routing_wait_end(s);
        if (t->n_lost > 0) ss->trial = t->number;
    }
}

static bool has_waited(const struct session *s) {
    int64_t most = s->service->o.moved_turn_us;
    return most > 0 && service_now(s->service) - s->awaiting_us > most;
}

void failover_continue(struct sessions *ss) {
    static const char waited[] =
        "the instance failed, and none took the turn within moved_turn_timeout";
    struct session *s, *next;
    DL_FOREACH_SAFE2(ss->awaiting, s, next, awaiting_next) {
        struct turn *t = session_turn(s, s->running);
        if ((t->n_lost > 0 && ss->trial) || waits_for_cache(s)) continue;
        if (s->retry_us > service_now(ss)) continue;
        if (has_waited(s) && routing_awaits(s))
            give_up(s, t, waited, strlen(waited));
        else
            go_on(s, t);
        service_touch(s);
    }
}
