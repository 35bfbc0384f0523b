// The engine's events of a session: its turn's tokens and end, and where its cache is. See engine_events.h.
#include "sessions/engine_events.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/metrics.h"
#include "sessions/caches/routing.h"
#include "sessions/caches/spare_caches.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/branch_deltas.h"
#include "sessions/clients/limits.h"
#include "sessions/matching/told.h"
#include "sessions/migration/failover.h"
#include "sessions/migration/moving.h"
#include "sessions/saving/save.h"
#include "sessions/turns/turns.h"
#include "sessions/turns/versions.h"
#include <stdio.h>
#include <string.h>
#include <utlist.h>

static void on_started(struct session *s, struct turn *t, const struct engine_event *e) {
    struct sessions *ss = s->service;
    bool goes_on = t->engine_started_us; // with another instance
    t->engine_started_us = e->time_us;
    turn_set(t, TURN_RUNNING);
    if (goes_on) return;
    t->rec.numbers.source = e->source;
    t->rec.numbers.kept_tokens = e->n_cached;
    // Recomputing is what a turn that was never interrupted does too: only a log that had been
    // there is a resume.
    if (t->rec.log_first > 0 && e->source != CACHE_NONE) metric_add(ss->m_resumed[e->source], 1);
}

static void on_progress(struct session *s, const struct turn *t, const struct engine_event *e) {
    struct sessions *ss = s->service;
    struct attachment *a, *next;
    if (!ss->cb.on_progress || !session_turn_visible(s, t)) return;
    DL_FOREACH_SAFE(s->attachments, a, next) { // it may end its connection
        ss->cb.on_progress(ss->cb.ctx, a->client, s, t->rec.turn, e->n_done, e->n_total);
    }
}

static int take_token(struct session *s, struct turn *t, const struct engine_event *e) {
    TRY(session_log_reserve(s, 1));
    TRY(event_log_reserve(&s->events, 2)); // one for the end
    TRY(turn_add_token(t, e));
    owner_charge_tokens(s->owner, 1, service_now(s->service));
    s->log[s->n_log++] = e->id;
    s->drawn_turn = t->rec.turn;
    s->drawn_us[(t->out.n - 1) % SESSION_DRAWN] = e->time_us;
    event_log_add_token(&s->events, t->rec.turn, (int64_t)t->out.n - 1);
    return 0;
}

static void on_token(struct session *s, struct turn *t, const struct engine_event *e) {
    if (t->stop == STOP_NO_MEMORY) return;
    int rc = e->id < 0 ? turn_add_text(t, e->text, e->text_len) : take_token(s, t, e);
    if (rc < 0) { // out of memory: this turn ends with what it has
        turn_stop(t, STOP_NO_MEMORY);
        routing_cancel(s, t->number);
        return;
    }
    if (t->out.n == 1 && e->id >= 0)
        t->rec.numbers.first_token_us = e->time_us - t->engine_started_us;
    bool wait = s->service->tail || s->service->o.durable == DURABLE_POWER;
    if (!wait) s->safe_seq = event_log_seq(&s->events);
    save_tokens(s);
}

// Of another answer.
static void on_sample(struct session *s, struct turn *t, const struct engine_event *e) {
    if (t->stop == STOP_NO_MEMORY || !turn_runs(t)) return;
    int rc = branch_deltas_take(s, t, e);
    if (rc == E_CORRUPT) failover_diverged(s, t);
    if (rc != E_NOMEM) return;
    turn_stop(t, STOP_NO_MEMORY);
    routing_cancel(s, t->number);
}

static void note_cache(struct session *s, int64_t tokens) {
    struct sessions *ss = s->service;
    s->cached_tokens = tokens < s->rec.memory_len ? tokens : s->rec.memory_len;
    s->cache = tokens > 0 ? PLACE_DEVICE : PLACE_NONE;
    s->marks |= MARK_WATCHERS;
    if (s->cache == PLACE_DEVICE) {
        evict_start(&ss->idle, &s->idle, service_now(ss));
        limits_share_cache(ss, s->owner, s->instance);
    } else {
        evict_stop(&ss->idle, &s->idle);
    }
}

// A turn that ended before it began has left the cache as it was.
static int64_t cached_after(const struct session *s, const struct turn *t,
                            const struct engine_event *e) {
    if (e->blocks == 0) return 0;
    if (t->n_before > 0) return (int64_t)s->n_log - 1; // it went on behind tokens of its own
    int64_t computed = e->n_prefilled + (e->n_generated > 1 ? e->n_generated - 1 : 0);
    int64_t tokens =
        t->engine_started_us ? t->rec.numbers.kept_tokens + computed : s->cached_tokens;
    return tokens > 0 ? tokens : 1; // there is something to release
}

// The context outputs that the turn asked for.
static int note_context(struct turn *t, const struct engine_event *e, int32_t width) {
    struct json_writer w;
    struct buf out;
    if (!e->has_context_logprob && !e->context_embedding) return 0;
    buf_init(&out, (size_t)width * 32 + 256);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    if (e->has_context_logprob) json_put_float(&w, "logprob", (float)e->context_logprob);
    if (e->context_embedding) {
        json_open(&w, "embedding", '[');
        for (int32_t i = 0; i < width; i++)
            json_put_float(&w, NULL, (float)e->context_embedding[i]);
        json_close(&w, ']');
    }
    json_close(&w, '}');
    t->rec.context = buf_take(&out, NULL);
    buf_release(&out);
    return t->rec.context ? 0 : E_NOMEM;
}

// They add up over the instances that a turn ran on.
static void note_times(struct session *s, struct turn *t, const struct engine_event *e) {
    struct turn_numbers *n = &t->rec.numbers;
    if (n->queue_us == 0) n->queue_us = t->submitted_us - t->accepted_us; // here
    n->queue_us += e->queue_us;                                           // in the engine
    n->prefill_us += e->prefill_us;
    n->decode_us += e->decode_us;
    n->paused_us += e->paused_us;
    n->resume_us += e->resume_us;
    n->computed_tokens += e->n_prefilled;
    t->n_drafted += e->n_drafted;
    t->n_accepted += e->n_accepted;
    owner_charge_tokens(s->owner, e->n_prefilled, service_now(s->service));
}

static void on_done(struct session *s, struct turn *t, const struct engine_event *e) {
    struct turn_numbers *n = &t->rec.numbers;
    // An event's text has no NUL; what lies behind it is another event's. A process that is gone gives no reason.
    char why[ENGINE_EVENT_TEXT + 1] =
        "the instance that ran this turn failed, and no other one of its model can go on with it";
    if (e->text_len) snprintf(why, sizeof why, "%.*s", (int)e->text_len, e->text);
    note_times(s, t, e);
    if (t->out.n) n->first_token_us += n->queue_us;
    n->input_tokens = t->rec.n_input;
    n->output_tokens = (int64_t)t->out.n;
    t->file_refused = e->refused;
    if (note_context(t, e, s->instance->info->width) < 0) turn_stop(t, STOP_NO_MEMORY);
    if (e->scores && !(t->scores = engine_scores_copy(e->scores))) turn_stop(t, STOP_NO_MEMORY);
    bool whole =
        e->finish != FINISH_ERROR && e->finish != FINISH_SHUTDOWN && t->stop != STOP_NO_MEMORY;
    if (whole && versions_note(t, e->branches) < 0) turn_stop(t, STOP_NO_MEMORY);
    if (t->engine_started_us && t->rec.log_first > 0 && n->source >= CACHE_RECOMPUTED)
        metric_observe(s->service->m_resume_time[n->source], (double)n->resume_us * 1e-6);
    note_cache(s, cached_after(s, t, e));
    if (t->stop == STOP_NO_MEMORY ||
        (e->finish != FINISH_ERROR && turn_add_text(t, e->text, e->text_len) < 0))
        turns_finish(s, t, "error", "internal", "the server ran out of memory during this turn");
    else if (e->finish == FINISH_ERROR)
        turns_finish(s, t, "error", answer_code(e->error_code), why);
    else if (e->finish == FINISH_SHUTDOWN)
        turns_finish(s, t, "interrupted", NULL, NULL);
    else
        turns_finish(s, t, engine_finish_name(e->finish), NULL, NULL);
    if (whole && t->stop != STOP_NO_MEMORY) versions_take(s, t, e->branches);
    told_free(t->told);
    t->told = NULL;
    free(t->expected);
    t->expected = NULL;
    t->n_expected = 0;
}

// Where the device failed, caches of it are gone, whatever they were.
static void on_failover(struct session *s, struct turn *t, const struct engine_event *e) {
    bool lost = e->finish == FINISH_ERROR && e->error_code == E_DEVICE,
         kept = !lost && e->blocks > 0;
    note_times(s, t, e);
    note_cache(s, kept ? (int64_t)s->n_log : 0);
    failover_take(s, t, e);
}

// The end of a turn and a fork say whether what there is of the cache is in host memory.
static void note_host(struct session *s, bool parked) {
    if (s->cache != PLACE_DEVICE) s->cache = parked ? PLACE_HOST : PLACE_NONE;
}

// The cache went to host memory, or is gone. A cache that a hint had brought back goes without an
// event.
static void on_left(struct session *s, const struct engine_event *e) {
    struct sessions *ss = s->service;
    bool parked = e->kind == ENGINE_PARKED;
    const char *reason = e->why == RELEASE_PRESSURE ? "pressure" : s->evicting;
    bool news = parked ? s->cache != PLACE_HOST : reason && (s->cache != PLACE_NONE || s->evicting);
    if (!parked && s->cache == PLACE_TRAVELS) reason = "moved", news = true; // it could not
    if (!reason) reason = "idle";
    s->cached_tokens = 0;
    s->cache = parked ? PLACE_HOST : PLACE_NONE;
    s->evicting = NULL;
    s->marks |= MARK_WATCHERS;
    evict_stop(&ss->idle, &s->idle);
    // The cache of a turn that is paused: its end says where the cache is.
    const struct turn *t = session_turn(s, s->running);
    if (t && t->engine_started_us) return;
    // A close asked for it: its own event says so.
    if (!news || s->rec.closed_ms || s->life == LIFE_DELETING || s->life == LIFE_GONE) return;
    metric_add((parked ? ss->m_parked : ss->m_evicted)[strcmp(reason, "idle") != 0], 1);
    log_info(parked ? "session.parked" : "session.evicted", "session=%s reason=%s", s->rec.id,
             reason);
    int kind = parked ? EVENT_PARKED : EVENT_EVICTED;
    if (event_log_add(&s->events, kind, -1, reason, service_now_ms(ss)) > 0) save_now(s);
}

// A session without a cache and a turn lives nowhere.
static void settle_routing(struct session *s) {
    if (s->cache == PLACE_NONE && !s->engine_turn) routing_leave(s);
}

static void take(struct session *s, const struct instance *from, const struct engine_event *e) {
    if (e->kind == ENGINE_RELEASED || e->kind == ENGINE_PARKED) {
        on_left(s, e);
        return;
    }
    if (e->turn != s->engine_turn) return;
    struct turn *t = session_turn(s, s->running);
    if (t && t->number != e->turn) t = NULL; // one that has been taken back
    switch (e->kind) {
    case ENGINE_STARTED:
        if (t) on_started(s, t, e);
        break;
    case ENGINE_PROGRESS:
        if (t) on_progress(s, t, e);
        break;
    case ENGINE_TOKEN:
        if (t && e->branch > 0)
            on_sample(s, t, e);
        else if (t && !failover_repeats(s, t, e))
            on_token(s, t, e);
        break;
    case ENGINE_DONE:
        s->engine_turn = 0;
        if (t && t->stop != STOP_NO_MEMORY && failover_applies(s, e))
            on_failover(s, t, e);
        else if (t)
            on_done(s, t, e);
        else
            note_cache(s, e->blocks == 0 ? 0 : s->n_log ? (int64_t)s->n_log : 1);
        if (from->state == INSTANCE_LOST)
            note_cache(s, 0);
        else
            note_host(s, e->parked);
        break;
    case ENGINE_FORKED: // if the fork has a turn by now, the turn's end says where the cache is
        if (s->cache == PLACE_TRAVELS) {
            moving_arrived(s, e->blocks > 0);
            break;
        }
        if (e->blocks > 0) note_cache(s, e->parked ? 0 : e->n_cached);
        note_host(s, e->parked);
        break;
    case ENGINE_RELEASED:
    case ENGINE_PARKED:
    case ENGINE_SNAPSHOT:
    case ENGINE_EXPORTED:
        break;
    }
}

void engine_event_take(struct sessions *ss, struct instance *from, const struct engine_event *e) {
    if (e->kind == ENGINE_EXPORTED) {
        moving_exported(ss, from, e);
        return;
    }
    struct session *s = service_find_key(ss, (int64_t)e->sequence);
    if (!s) spare_left(ss, from, e);
    if (!s || s->instance != from) return; // it has left memory, or moved
    if (e->kind == ENGINE_TOKEN || e->kind == ENGINE_PROGRESS)
        service_touch_tokens(s);
    else
        service_touch(s);
    take(s, from, e);
    if (e->kind == ENGINE_DONE || e->kind == ENGINE_RELEASED || e->kind == ENGINE_FORKED)
        settle_routing(s);
}
