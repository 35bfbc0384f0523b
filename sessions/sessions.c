// The session service: opening, closing, poll. See service.h for the other files.
#include "base/err.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/random_id.h"
#include "sessions/caches/orphan_snapshots.h"
#include "sessions/caches/routing.h"
#include "sessions/caches/spare_caches.h"
#include "sessions/clients/clients.h"
#include "sessions/clients/limits.h"
#include "sessions/clients/streams.h"
#include "sessions/engine_events.h"
#include "sessions/migration/balance.h"
#include "sessions/migration/failover.h"
#include "sessions/migration/moving.h"
#include "sessions/replay/debug_handlers.h"
#include "sessions/replay/debug_replay.h"
#include "sessions/requests/closing.h"
#include "sessions/requests/expire.h"
#include "sessions/requests/listing.h"
#include "sessions/requests/match.h"
#include "sessions/requests/requests.h"
#include "sessions/requests/settle.h"
#include "sessions/requests/transfer.h"
#include "sessions/saving/save.h"
#include "sessions/saving/tail_writer.h"
#include "sessions/state/service.h"
#include "sessions/turns/preparing.h"
#include "sessions/turns/turns.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define CLOSE_WAIT_US 5000000 // how long the last saves may take
#define ANSWERS_AT_ONCE 8     // of the store, before tokens are looked for again
#define CLOSE_ATTEMPTS 3
#define LOST_WAIT_US 5000000 // for the ends of a lost instance's turns

static const char *const state_names[] = {"open", "active", "idle", "parked", "cold", "closed"};

const char *session_state_name(enum session_state s) {
    return state_names[s];
}

// --- poll --------------------------------------------------------------------

static void probe(struct sessions *ss) {
    if (!ss->probe_us || ss->probing || service_now(ss) < ss->probe_us) return;
    ss->probe_us = 0;
    tail_writer_probe(ss);
    if (!ss->store_suspect) return;
    struct store_job *job = store_job_new(STORE_PROBE, 0);
    if (!job) {
        service_probe_later(ss);
        return;
    }
    ss->probing = true;
    store_send(ss->store, job);
}

static void probe_done(struct sessions *ss, const struct store_job *job) {
    ss->probing = false;
    if (job->rc < 0)
        service_store_failed(ss, &job->err);
    else
        service_store_works(ss);
}

static void store_answer(struct sessions *ss, struct store_job *job) {
    switch (job->kind) {
    case STORE_SAVE:
        requests_saved(ss, job);
        break;
    case STORE_LOAD:
        requests_loaded(ss, job);
        break;
    case STORE_TURNS:
        if (job->replay)
            replays_read(ss, job);
        else if (job->client == CLIENT_GONE)
            requests_paged(ss, job);
        else
            debug_turn_read(ss, job);
        if (job->client != CLIENT_GONE && streams_keep(ss, job)) return;
        break;
    case STORE_LIST:
        listing_done(ss, job);
        if (!job->key && streams_keep(ss, job)) return;
        break;
    case STORE_DELETE:
        if (job->id)
            closing_unread_done(ss, job);
        else
            requests_deleted(ss, job);
        break;
    case STORE_OLD:
        expire_take(ss, job);
        break;
    case STORE_EXPORT:
        transfer_exported(ss, job);
        if (streams_keep(ss, job)) return;
        break;
    case STORE_IMPORT:
        transfer_imported(ss, job);
        break;
    case STORE_TOLD:
        match_done(ss, job);
        break;
    case STORE_PROBE:
        probe_done(ss, job);
        break;
    case STORE_NEWS:
        if (job->rc < 0) service_store_failed(ss, &job->err);
        listing_news(ss, job->list);
        break;
    case STORE_STOP:
        break;
    }
    store_job_free(job);
}

static void evict_idle(struct sessions *ss) {
    int64_t now = service_now(ss);
    struct evict_node *node;
    while ((node = evict_due(&ss->idle, now))) {
        struct session *s = (struct session *)((char *)node - offsetof(struct session, idle));
        routing_park(s, "idle");
    }
    spare_evict(ss);
}

// Touches due sessions; returns when the next is due.
static int64_t run_timers(struct sessions *ss) {
    int64_t now = service_now(ss), next = INT64_MAX;
    struct session *s;
    DL_FOREACH2(ss->timed, s, timed_next) {
        bool retry = s->retry_us && s->retry_us <= now;
        if (retry || save_is_due(s) || clients_lost_is_due(s)) service_touch(s);
    }
    evict_idle(ss);
    probe(ss);
    expire_begin(ss);
    service_settle(ss);
    DL_FOREACH2(ss->timed, s, timed_next) {
        bool waits = s->save == SAVE_SENT || s->life == LIFE_DELETING; // for the store
        if (s->save_due_us && !waits && s->save_due_us < next) next = s->save_due_us;
        if (s->retry_us && s->retry_us < next) next = s->retry_us;
        if (s->lost_us && s->lost_us < next) next = s->lost_us;
    }
    if (evict_next_us(&ss->idle) < next) next = evict_next_us(&ss->idle);
    if (evict_next_us(&ss->spares) < next) next = evict_next_us(&ss->spares);
    if (ss->probe_us && !ss->probing && ss->probe_us < next) next = ss->probe_us;
    if (ss->expire_us && !ss->expiring && ss->expire_us < next) next = ss->expire_us;
    return next;
}

// A turn that was submitted while the device failed may have reached an engine that had ended. Then no
// event of it comes.
static void end_lost_turns(struct sessions *ss, struct instance *i) {
    struct session *s, *next;
    if (service_now(ss) - i->lost_us < LOST_WAIT_US) return;
    i->n_turns = 0;
    DL_FOREACH_SAFE2(i->sessions, s, next, home_next) {
        const struct engine_event done = {.kind = ENGINE_DONE,
                                          .sequence = (uint64_t)s->rec.key,
                                          .turn = s->engine_turn,
                                          .finish = FINISH_ERROR,
                                          .error_code = E_DEVICE};
        failover_trial_over(ss, s->engine_turn);
        if (s->engine_turn) engine_event_take(ss, i, &done);
    }
}

static void take_engine_events(struct sessions *ss) {
    struct engine_event e;
    struct instance *i;
    DL_FOREACH(ss->placement.instances, i) {
        // Another thread may be opening a lost instance again.
        bool polls = i->state != INSTANCE_LOST || i->n_turns > 0;
        while (polls && engine_poll(i->engine, &e) == 1) {
            if (e.kind == ENGINE_DONE || e.kind == ENGINE_RELEASED) service_room_changed(ss);
            if (e.kind == ENGINE_DONE) {
                i->n_turns--;
                failover_trial_over(ss, e.turn);
                if (e.finish == FINISH_ERROR && e.error_code == E_DEVICE) moving_lost(ss, i);
            }
            if (!replays_engine_event(ss, &e)) engine_event_take(ss, i, &e);
        }
        if (i->state == INSTANCE_LOST && i->n_turns > 0) end_lost_turns(ss, i);
    }
}

// Tokens first: their clients wait. The answers of a large group commit together take longer than a
// token may, so they are taken in pieces.
int64_t sessions_poll(struct sessions *ss) {
    struct store_job *job;
    int n_answers = 0;
    service_enter(ss);
    take_engine_events(ss);
    requests_prepared(ss);
    moving_go_on(ss);
    balance_go_on(ss);
    service_wake_for_room(ss);
    failover_continue(ss);
    while (n_answers < ANSWERS_AT_ONCE && (job = store_receive(ss->store))) {
        store_answer(ss, job);
        n_answers++;
    }
    int64_t next = run_timers(ss);
    service_leave(ss);
    if (n_answers == ANSWERS_AT_ONCE) return 0;
    if (next == INT64_MAX) return -1;
    int64_t now = service_now(ss);
    return next > now ? next - now : 0;
}

void sessions_continue(struct sessions *ss, uint64_t client) {
    service_enter(ss);
    streams_continue(ss, client);
    service_leave(ss);
}

void sessions_client_gone(struct sessions *ss, uint64_t client) {
    service_enter(ss);
    replays_client_gone(ss, client);
    streams_client_gone(ss, client);
    clients_gone(ss, client);
    store_cancel(ss->store, client);
    service_leave(ss);
}

void sessions_drain(struct sessions *ss) {
    service_enter(ss);
    ss->draining = true;
    replays_drain(ss);
    service_leave(ss);
}

void sessions_limits_changed(struct sessions *ss, struct owner *o) {
    service_enter(ss);
    if (o->waiting) service_touch(o->waiting);
    service_leave(ss);
}

void sessions_cancel_owner(struct sessions *ss, const struct owner *o) {
    struct session *s, *next;
    service_enter(ss);
    HASH_ITER(by_key, ss->by_key, s, next) {
        if (s->owner != o || !session_has_turn(s)) continue;
        turns_cancel(s, TURN_HEAD);
        service_touch(s);
    }
    service_leave(ss);
}

int sessions_n_running(const struct sessions *ss) {
    return (int)ss->n_active;
}

bool sessions_store_ok(const struct sessions *ss, const char **reason) {
    bool ok = !ss->store_error[0];
    if (reason) *reason = ok ? NULL : ss->store_error;
    return ok;
}

bool sessions_tail_ok(const struct sessions *ss, const char **reason) {
    bool ok = !ss->tail_error[0];
    if (reason) *reason = ok ? NULL : ss->tail_error;
    return ok;
}

// --- opening and closing -----------------------------------------------------

static void register_metrics(struct sessions *ss, struct metrics *m) {
    static const char *const reasons[] = {"idle", "pressure"};
    static const char *const sources[] = {[CACHE_RECOMPUTED] = "source=\"recomputed\"",
                                          [CACHE_HOST] = "source=\"host\"",
                                          [CACHE_SNAPSHOT] = "source=\"snapshot\""};
    static const double resume_bounds[] = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30};
    if (!m) return;
    for (int i = 0; i <= SESSION_CLOSED; i++)
        ss->m_state[i] =
            metrics_gauge_of(m, "parley_sessions_resident", "Sessions in memory, by state.",
                             "state", session_state_name((enum session_state)i));
    for (int i = 0; i < 2; i++) {
        ss->m_evicted[i] = metrics_counter_of(m, "parley_sessions_evictions_total",
                                              "Caches evicted.", "reason", reasons[i]);
        ss->m_parked[i] =
            metrics_counter_of(m, "parley_sessions_parked_total",
                               "Caches that went to host memory.", "reason", reasons[i]);
    }
    for (int i = CACHE_KEPT; i <= CACHE_SNAPSHOT; i++)
        ss->m_resumed[i] =
            metrics_counter_of(m, "parley_sessions_resumes_total",
                               "Turns that continued a log, by where its cache came from.",
                               "source", engine_cache_source_name((enum engine_cache_source)i));
    for (int i = CACHE_RECOMPUTED; i <= CACHE_SNAPSHOT; i++)
        ss->m_resume_time[i] = metrics_histogram(
            m, "parley_sessions_resume_seconds",
            "What it took to have again what an earlier turn had computed, by how.", sources[i],
            resume_bounds, sizeof resume_bounds / sizeof *resume_bounds);
    ss->m_failovers[FAILOVER_LOST] =
        metrics_counter_of(m, "parley_sessions_moved_turns_total",
                           "Running turns that went on with another instance.", "reason", "lost");
    ss->m_failovers[FAILOVER_DRAINED] = metrics_counter_of(
        m, "parley_sessions_moved_turns_total", "Running turns that went on with another instance.",
        "reason", "drained");
    ss->m_poisoned = metrics_counter(m, "parley_sessions_poisoned_turns_total",
                                     "Turns under which two instances failed.", NULL);
    ss->m_instances_lost = metrics_counter(m, "parley_instances_lost_total",
                                           "Times that an instance's device failed.", NULL);
    ss->m_tail_ok =
        metrics_gauge(m, "parley_store_tail_ok", "0: streamed tokens wait for their commit.", NULL);
    ss->m_tail_errors =
        metrics_counter(m, "parley_store_tail_errors_total",
                        "Writes of streamed tokens beside the database that were refused.", NULL);
    metric_set(ss->m_tail_ok, 1);
    for (int i = 0; i < N_TURN_FINISHES; i++)
        ss->m_finished[i] =
            metrics_counter_of(m, "parley_sessions_turns_total", "Turns that ended, by how.",
                               "finish", turn_finish_names[i]);
}

static int copy_options(struct sessions *ss, const struct sessions_options *o, struct err *err) {
    ss->o = *o;
    ss->o.db_path = ss->o.server_name = NULL; // borrowed: not for later
    snprintf(ss->server_name, sizeof ss->server_name, "%s", o->server_name ? o->server_name : "");
    ss->build = strdup(o->build ? o->build : "unknown");
    if (!ss->build) return err_set(err, E_NOMEM, "no memory for the session service");
    return 0;
}

int sessions_add_instance(struct sessions *ss, const struct instance_options *o, struct err *err) {
    struct instance *i;
    TRY(placement_add(&ss->placement, o, &i, err));
    service_room_changed(ss);
    if (!o->is_tidy) orphan_snapshots_remove(o->engine, store_path(ss->store));
    return 0;
}

void sessions_tidy(struct engine *e, const char *db_path) {
    orphan_snapshots_remove(e, db_path);
}

struct placement *sessions_placement(struct sessions *ss) {
    return &ss->placement;
}

void sessions_secret(const struct sessions *ss, uint64_t out[2]) {
    memcpy(out, ss->secret, sizeof ss->secret);
}

int sessions_open(struct sessions **out, const struct sessions_options *o,
                  const struct sessions_callbacks *cb, struct err *err) {
    struct sessions *ss = calloc(1, sizeof *ss);
    if (!ss) return err_set(err, E_NOMEM, "no memory for the session service");
    if (placement_init(&ss->placement) < 0) {
        free(ss);
        return err_set(err, E_NOMEM, "no memory for the session service");
    }
    ss->cb = *cb;
    ss->clock = o->clock ? o->clock : &clock_system;
    ss->next_turn = 1;
    ss->owners = o->owners ? o->owners : &ss->own;
    for (int i = 0; i < 2; i++) ss->name_key[i] = random_u64();
    evict_list_init(&ss->idle, o->max_sequence_idle_microseconds);
    evict_list_init(&ss->spares, o->max_sequence_idle_microseconds);
    struct store_options so = {.path = o->db_path,
                               .clock = ss->clock,
                               .metrics = o->metrics,
                               .wake = o->wake,
                               .wake_ctx = o->wake_ctx,
                               .run_ahead = o->run_ahead};
    struct store_start start = {0};
    int rc;
    TRY_GOTO(free, copy_options(ss, o, err));
    TRY_GOTO(free, store_open(&ss->store, &so, &start, err));
    for (size_t i = 0; i < start.n_owners; i++)
        limits_add_stored(ss, start.owners[i].name, start.owners[i].n_sessions,
                          start.owners[i].bytes);
    TRY_GOTO(store, tail_writer_open(ss, store_path(ss->store), err));
    ss->next_key = start.next_key;
    memcpy(ss->secret, start.secret, sizeof ss->secret);
    expire_init(ss);
    register_metrics(ss, o->metrics);
    store_start_release(&start);
    *out = ss;
    return 0;
store:
    store_close(ss->store);
free:
    store_start_release(&start);
    placement_release(&ss->placement);
    owners_release(&ss->own);
    free(ss->build);
    free(ss);
    return rc;
}

// Saves all sessions that are not on disk yet, in a few attempts, and logs the sessions that it cannot save.
static void save_everything(struct sessions *ss) {
    int64_t deadline = clock_mono_us(&clock_system) + CLOSE_WAIT_US;
    for (int attempt = 0; attempt < CLOSE_ATTEMPTS; attempt++) {
        struct session *s, *next;
        bool missing = false;
        HASH_ITER(by_key, ss->by_key, s, next) {
            if (s->save == SAVE_SENT || s->life == LIFE_DELETING || !save_wanted(s)) continue;
            missing = true;
            save_begin(s);
        }
        if (!missing && store_n_writing(ss->store) == 0) return;
        while (store_n_writing(ss->store) > 0) {
            int64_t left = deadline - clock_mono_us(&clock_system);
            struct store_job *job = left > 0 ? store_wait(ss->store, left) : NULL;
            if (!job) return;
            store_answer(ss, job);
        }
    }
}

void sessions_close(struct sessions *ss) {
    if (!ss) return;
    struct session *s, *next;
    service_enter(ss); // never left: nothing is settled any more
    take_engine_events(ss);
    ss->closing = ss->draining = true;
    preparing_close(ss);
    HASH_ITER(by_key, ss->by_key, s, next) turns_interrupt(s);
    save_everything(ss);
    replays_free(ss);
    spare_drop(ss, NULL, true);
    bool all_saved = true;
    HASH_ITER(by_key, ss->by_key, s, next) {
        if (save_wanted(s)) all_saved = false;
        if (save_wanted(s))
            log_error("session.lost", "session=%s unsaved_events=%lld", s->rec.id,
                      (long long)(event_log_seq(&s->events) - s->saved_seq));
        if (s->cache != PLACE_NONE || s->engine_turn) routing_release(s);
        service_destroy(s);
    }
    HASH_ITER(by_name, ss->by_name, s, next) service_destroy(s);
    struct client *c, *next_client;
    HASH_ITER(hh, ss->clients, c, next_client) {
        c->n_deferred = 0;
        streams_client_gone(ss, c->number); // frees a client that has nothing else
    }
    store_close(ss->store);
    tail_writer_close(ss, all_saved); // what could not be saved is taken from it at the next start
    placement_release(&ss->placement);
    owners_release(&ss->own);
    free(ss->build);
    free(ss);
}
