// Recorded turns run again on the server's engine. See debug.h, rerun.h, service.h.
//
// A replay owns copies of all it needs, so its session may leave memory meanwhile. Its engine
// sequence is its own: numbers with the highest bit, which no session's has. It ends when it has
// been answered, when its client leaves, when its session is deleted, or with the service.
#include "base/err.h"
#include "sessions/debug.h"
#include "sessions/service.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define REPLAY_SEQUENCES ((uint64_t)1 << 63)

struct replaying {
    uint64_t sequence, turn; // the engine's numbers
    uint64_t client;
    char request_id[SESSION_REQUEST_ID_MAX + 1], session[SESSION_ID_MAX + 1];
    bool running; // the engine has a turn of it
    bool told;    // ANSWER_REPLAYING has been said
    bool stopped; // nobody waits for it any more; the engine's last event ends it
    struct stored_turn stored;
    struct replay_log log;
    struct rerun rerun;
    struct replaying *prev, *next;
};

static void drop(struct sessions *ss, struct replaying *p) {
    if (p->turn) engine_sequence_release(ss->engine, p->sequence);
    DL_DELETE(ss->replays, p);
    rerun_release(&p->rerun);
    turn_record_release(&p->stored.rec);
    token_run_release(&p->stored.tokens);
    free(p->log.ids);
    free(p);
}

static void fail(struct sessions *ss, struct replaying *p, const char *code, const char *message) {
    int64_t retry_ms = strcmp(code, "overloaded") == 0 ? RETRY_AFTER_MS : 0;
    requests_fail(ss, p->client, p->request_id, p->session, code, retry_ms, message);
}

static void answer(struct sessions *ss, const struct replaying *p, enum session_answer_kind kind,
                   const struct replay_detail *detail) {
    struct session_answer a = {.kind = kind,
                               .request_id = p->request_id,
                               .session_id = p->session,
                               .turn = p->stored.rec.turn,
                               .replay = detail};
    ss->cb.on_answer(ss->cb.ctx, p->client, &a);
}

static void answer_found(struct sessions *ss, const struct replaying *p) {
    char instance[RECORD_INSTANCE_MAX];
    struct replay_detail detail = {.found = &p->rerun.found,
                                   .answer = &p->rerun.answer,
                                   .rec = &p->stored.rec,
                                   .build = ss->build,
                                   .instance = instance};
    record_instance(instance, ss->info);
    answer(ss, p, ANSWER_REPLAYED, &detail);
}

// --- its way through the engine ----------------------------------------------

// 0: the engine has it. Frees the turn's ids otherwise.
static int submit(struct sessions *ss, struct replaying *p, struct engine_turn *t,
                  struct err *err) {
    t->sequence = p->sequence;
    t->turn = ss->next_turn;
    int rc = engine_turn_submit(ss->engine, t, err);
    if (rc < 0) {
        free(t->ids);
        // "Never fits" is the session's shape, not a shortage that passes.
        return rc == E_NOMEM ? (err->code = E_INVAL) : rc;
    }
    p->turn = ss->next_turn++;
    p->running = true;
    if (!p->told) answer(ss, p, ANSWER_REPLAYING, NULL);
    p->told = true;
    return 0;
}

// Asks the engine for what comes next, or ends it.
static void advance(struct sessions *ss, struct replaying *p) {
    struct engine_turn t;
    struct err err = {0};
    int rc;
    while ((rc = rerun_next(&p->rerun, &t, &err)) == 1) {
        rc = submit(ss, p, &t, &err);
        if (rc == 0) return;
        if (!p->told) break; // it has not begun
        rc = rerun_refused(&p->rerun, rc, &err);
        if (rc < 0) break;
    }
    if (rc < 0)
        fail(ss, p, requests_code(rc), err.text);
    else if (p->rerun.found.verdict == REPLAY_FAILED)
        fail(ss, p, "internal", p->rerun.found.why);
    else
        answer_found(ss, p);
    drop(ss, p);
}

// Its log is that of its path up to the end of the turn, which comes last in what was read.
static int take_record(struct replaying *p, struct stored_session *turns, struct err *err) {
    for (size_t i = 0; i < turns->n_turns; i++)
        TRY(replay_log_add_turn(&p->log, &turns->turns[i], err));
    struct stored_turn *last = &turns->turns[turns->n_turns - 1];
    p->stored = *last;
    *last = (struct stored_turn){0};
    return 0;
}

void replays_start(struct session *s, const struct request *r, struct stored_session *turns) {
    struct sessions *ss = s->service;
    struct replay_window window;
    struct err err = {0};
    if (r->client == CLIENT_GONE) return;
    struct replaying *p = calloc(1, sizeof *p);
    if (!p) {
        err_set(&err, E_NOMEM, "the server is out of memory");
        requests_fail_err(ss, r, &err);
        return;
    }
    DL_APPEND(ss->replays, p);
    p->sequence = REPLAY_SEQUENCES | ++ss->next_replay;
    p->client = r->client;
    memcpy(p->request_id, r->request_id, sizeof p->request_id);
    strcpy(p->session, s->rec.id);
    rerun_init(&p->rerun, ss->info, REPLAY_TOP);
    turns->rec.session_len = s->rec.session_len;
    turns->rec.memory_len = s->rec.memory_len;
    turns->rec.sink_len = s->rec.sink_len;
    replay_window(turns, false, &window);
    if (take_record(p, turns, &err) < 0) {
        fail(ss, p, err.code == E_NOMEM ? "overloaded" : "store_failed", err.text);
        drop(ss, p);
        return;
    }
    rerun_begin(&p->rerun, &p->stored, p->log.ids, &window, true);
    advance(ss, p);
}

bool replays_engine_event(struct sessions *ss, const struct engine_event *e) {
    struct replaying *p;
    if (!(e->sequence & REPLAY_SEQUENCES)) return false;
    DL_FOREACH(ss->replays, p) {
        if (p->sequence == e->sequence && p->turn == e->turn) break;
    }
    if (!p || !p->running || e->kind == ENGINE_RELEASED || e->kind == ENGINE_PARKED) return true;
    bool over = p->stopped ? e->kind == ENGINE_DONE : rerun_take(&p->rerun, e);
    if (!over) return true;
    p->running = false;
    if (p->stopped)
        drop(ss, p);
    else
        advance(ss, p);
    return true;
}

// --- ends from outside -------------------------------------------------------

static void stop(struct sessions *ss, struct replaying *p) {
    p->stopped = true;
    engine_turn_cancel(ss->engine, p->sequence, p->turn);
}

bool replays_has(const struct sessions *ss, uint64_t client) {
    const struct replaying *p;
    DL_FOREACH(ss->replays, p) {
        if (p->client == client && !p->stopped) return true;
    }
    return false;
}

void replays_client_gone(struct sessions *ss, uint64_t client) {
    struct replaying *p;
    DL_FOREACH(ss->replays, p) {
        if (p->client == client && !p->stopped) stop(ss, p);
    }
}

static void stop_saying(struct sessions *ss, struct replaying *p, const char *code,
                        const char *message) {
    stop(ss, p);
    fail(ss, p, code, message);
}

void replays_session_gone(struct sessions *ss, const char *id) {
    struct replaying *p;
    DL_FOREACH(ss->replays, p) {
        if (strcmp(p->session, id) == 0 && !p->stopped)
            stop_saying(ss, p, "session_not_found", "the session has been deleted");
    }
}

void replays_drain(struct sessions *ss) {
    struct replaying *p;
    DL_FOREACH(ss->replays, p) {
        if (!p->stopped) stop_saying(ss, p, "shutting_down", "the server is shutting down");
    }
}

void replays_free(struct sessions *ss) {
    struct replaying *p, *next;
    DL_FOREACH_SAFE(ss->replays, p, next) {
        if (p->running) engine_turn_cancel(ss->engine, p->sequence, p->turn);
        drop(ss, p);
    }
}
