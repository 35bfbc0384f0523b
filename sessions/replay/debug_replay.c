// Recorded turns run again on the server's engine. See debug.h, rerun.h, debug_replay.h.
//
// A replay owns copies of all it needs, so its session may leave memory meanwhile. It copies the log
// before its turn from the session, as far as the turn's path is the path in use. The rest is read from
// the record, a few turns at a time, and only their ids are kept: memory holds the log and the one turn,
// however long the session is. A replay runs at idle priority, after all turns, in an engine sequence of
// its own, whose number has the highest bit set. It ends when it is answered or cancelled, when its
// client leaves, when its session is deleted, or when the service ends.
#include "sessions/replay/debug_replay.h"
#include "base/err.h"
#include "sessions/caches/routing.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/limits.h"
#include "sessions/clients/streams.h"
#include "sessions/replay/debug.h"
#include "sessions/state/tree.h"
#include "sessions/turns/preparing.h"
#include "sessions/turns/prompts.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define REPLAY_SEQUENCES ((uint64_t)1 << 63)
#define READ_TURNS 16 // at a time

struct replaying {
    struct stream stream;    // first: its answer, once it is over
    uint64_t sequence, turn; // the engine's numbers
    uint64_t client;
    struct owner *owner;
    char request_id[SESSION_REQUEST_ID_MAX + 1], session[SESSION_ID_MAX + 1];
    bool running; // the engine has a turn of it
    bool told;    // ANSWER_REPLAYING was sent
    // Its client has left or has its answer: the engine's last event, or the answer of store or worker, ends it.
    bool stopped;
    int64_t key; // of its session
    // (n_path) the turns to read, of which n_read are read; the last one is the one to run
    int64_t *path;
    size_t n_path, n_read;
    struct session_record shape; // of its session; only the window's fields are set
    struct prompt *prompt;       // its session's table
    struct stored_turn stored;
    struct replay_log log;
    struct rerun rerun;
    struct grammar *compiled; // of the turn; held; NULL: none
    struct instance *at;      // where it runs
    struct replaying *prev, *next;
};

static void release_sequence(struct sessions *ss, struct replaying *p) {
    if (p->turn) engine_sequence_release(p->at->engine, p->sequence);
    p->turn = 0;
}

static void release(struct sessions *ss, struct replaying *p) {
    release_sequence(ss, p);
    p->at->n_sessions--;
    owner_use(p->owner, OWNER_OUTSTANDING_JOBS, -1);
    rerun_release(&p->rerun);
    engine_grammar_release(p->compiled);
    turn_record_release(&p->stored.rec);
    token_run_release(&p->stored.tokens);
    prompt_free(p->prompt);
    free(p->log.ids);
    free(p->path);
    free(p);
}

static void drop(struct sessions *ss, struct replaying *p) {
    DL_DELETE(ss->replays, p);
    release(ss, p);
}

// code NULL: the one of rc.
static void fail(struct sessions *ss, struct replaying *p, const char *code, int rc,
                 const char *message) {
    struct asker to = {p->client, p->request_id, p->session, p->owner->number, ENGINE_IDLE};
    answer_error(ss, &to, code, rc, message);
}

static struct session_answer answer(const struct replaying *p, enum session_answer_kind kind) {
    return (struct session_answer){.kind = kind,
                                   .request_id = p->request_id,
                                   .session_id = p->session,
                                   .turn = p->stored.rec.turn};
}

static void answer_found(struct sessions *ss, struct stream *st) {
    struct replaying *p = (struct replaying *)st;
    struct session_answer a = answer(p, ANSWER_REPLAYED);
    uint64_t client = p->client;
    char instance[RECORD_INSTANCE_MAX];
    struct replay_detail detail = {.found = &p->rerun.found,
                                   .answer = &p->rerun.answer,
                                   .rec = &p->stored.rec,
                                   .build = ss->build,
                                   .instance = instance};
    record_instance(instance, p->at->info);
    a.replay = &detail;
    a.engine = p->at->engine;
    streams_answered(ss, client, streams_answer(ss, client, &a));
}

static void free_found(struct sessions *ss, struct stream *st) {
    release(ss, (struct replaying *)st);
}

// Its answer goes out in pieces: from here on it is a stream, not a replay.
static void finish(struct sessions *ss, struct replaying *p) {
    char session[SESSION_ID_MAX + 1];
    struct request r = {.client = p->client, .session = strcpy(session, p->session)};
    memcpy(r.request_id, p->request_id, sizeof r.request_id);
    DL_DELETE(ss->replays, p);
    release_sequence(ss, p);
    p->stream = (struct stream){.next = answer_found, .free = free_found};
    if (streams_begin(ss, &r, &p->stream) < 0) refuse_memory(ss, &r);
}

// --- its way through the engine ----------------------------------------------

// 0: the engine has it. Frees the turn's ids otherwise.
static int submit(struct sessions *ss, struct replaying *p, struct engine_turn *t,
                  struct err *err) {
    t->sequence = p->sequence;
    t->turn = ss->next_turn;
    t->owner = p->owner->number;
    t->priority = ENGINE_IDLE;
    t->compiled = t->sampling.grammar ? p->compiled : NULL;
    int rc = engine_turn_submit(p->at->engine, t, err);
    if (rc < 0) {
        free(t->ids);
        // "Never fits" is the session's shape, not a shortage that passes.
        return rc == E_NOMEM ? (err->code = E_INVAL) : rc;
    }
    p->turn = ss->next_turn++;
    p->at->n_turns++;
    p->running = true;
    struct session_answer a = answer(p, ANSWER_REPLAYING);
    if (!p->told) ss->cb.on_answer(ss->cb.ctx, p->client, &a);
    p->told = true;
    return 0;
}

// Gives the engine the next part, or ends the replay.
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
    if (rc == 0 && p->rerun.found.verdict != REPLAY_FAILED) {
        finish(ss, p);
        return;
    }
    if (rc < 0)
        fail(ss, p, NULL, rc, err.text);
    else
        fail(ss, p, "internal", 0, p->rerun.found.why);
    drop(ss, p);
}

// --- its record --------------------------------------------------------------

static void fail_memory(struct sessions *ss, struct replaying *p) {
    fail(ss, p, NULL, E_NOMEM, "the server is out of memory");
    drop(ss, p);
}

static void read_next(struct sessions *ss, struct replaying *p) {
    size_t left = p->n_path - p->n_read, n = left < READ_TURNS ? left : READ_TURNS;
    struct store_job *job = store_job_new(STORE_TURNS, p->key);
    if (job) job->turns = malloc(n * sizeof *job->turns);
    if (!job || !job->turns) {
        store_job_free(job);
        fail_memory(ss, p);
        return;
    }
    memcpy(job->turns, p->path + p->n_read, n * sizeof *job->turns);
    job->n_turns = n;
    job->replay = p->sequence;
    store_send(ss->store, job);
}

// The log up to where the turn's path leaves the path in use, and the turns behind that.
static int find_path(struct replaying *p, const struct session *s, int64_t turn) {
    struct err err = {0};
    size_t n_log;
    int64_t shared = tree_fork_point(s, s->turns[turn]->rec.parent, &n_log), at;
    for (at = turn; at != shared; at = s->turns[at]->rec.parent) p->n_path++;
    p->path = malloc(p->n_path * sizeof *p->path);
    if (!p->path) return E_NOMEM;
    size_t i = p->n_path;
    for (at = turn; at != shared; at = s->turns[at]->rec.parent) p->path[--i] = at;
    return replay_log_add(&p->log, s->log, n_log, &err);
}

// True: a worker compiles the turn's grammar first, or could not be asked, and the replay has ended.
static bool prepare_grammar(struct sessions *ss, struct replaying *p) {
    struct err err = {0};
    struct turn_sampling *sampling = &p->rerun.sampling;
    if (!ss->o.workers || p->rerun.stage != RERUN_ANSWER ||
        rerun_sampling(&p->stored.rec, p->at->info->n_vocab, sampling, &err) < 0)
        return false; // rerun_next says what is wrong with the parameters
    const struct grammar_text *grammar = sampling->params.grammar;
    if (!grammar) return false;
    p->compiled = engine_grammar_find(p->at->engine, p->owner->number, grammar);
    if (p->compiled) return false;
    int rc = preparing_replay(ss, p->sequence, p->key, p->owner->name, p->at->model, grammar, &err);
    if (rc == 0) return true;
    fail(ss, p, NULL, rc, err.text);
    drop(ss, p);
    return true;
}

static void begin(struct sessions *ss, struct replaying *p) {
    struct replay_window window;
    struct stored_session turns = {.rec = p->shape, .turns = &p->stored, .n_turns = 1};
    replay_window(&turns, false, &window); // the turn's log is the longest there is
    window.prompt = p->prompt;
    rerun_begin(&p->rerun, &p->stored, p->log.ids, &window, true);
    if (!prepare_grammar(ss, p)) advance(ss, p);
}

int replays_start(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    const struct prompt *prompt;
    struct err err = {0};
    if (r->client == CLIENT_GONE || limits_refuse_job(ss, r)) return 0;
    if (prompts_find(s, &prompt, &err) < 0) return refuse_err(ss, r, &err);
    struct instance *at = routing_for_replay(s);
    if (!at) return refuse(ss, r, "overloaded", "no instance of the model takes turns now");
    struct replaying *p = calloc(1, sizeof *p);
    if (!p) return E_NOMEM;
    DL_APPEND(ss->replays, p);
    p->sequence = REPLAY_SEQUENCES | ++ss->next_replay;
    p->prompt = prompt_hold(prompt);
    p->client = r->client;
    p->owner = s->owner;
    owner_use(p->owner, OWNER_OUTSTANDING_JOBS, 1);
    p->key = s->rec.key;
    memcpy(p->request_id, r->request_id, sizeof p->request_id);
    strcpy(p->session, s->rec.id);
    p->stored.rec.turn = r->turn;
    p->at = at;
    at->n_sessions++;
    rerun_init(&p->rerun, at->info, REPLAY_TOP);
    p->shape.session_len = s->rec.session_len;
    p->shape.memory_len = s->rec.memory_len;
    p->shape.sink_len = s->rec.sink_len;
    if (find_path(p, s, r->turn) < 0)
        fail_memory(ss, p);
    else
        read_next(ss, p);
    return 0;
}

// Keeps the ids of the turns before the last one, and all of the last one.
static int take_record(struct replaying *p, struct store_job *job) {
    struct stored_session *got = job->loaded;
    int rc = job->rc;
    if (rc == 0 && got->n_turns != job->n_turns) rc = E_CORRUPT;
    if (rc == E_NOMEM) return err_set(&job->err, rc, "the server is out of memory");
    if (rc == E_CORRUPT) return err_set(&job->err, rc, "the record of this session is damaged");
    TRY(rc);
    for (size_t i = 0; i < got->n_turns; i++)
        TRY(replay_log_add_turn(&p->log, &got->turns[i], &job->err));
    p->n_read += got->n_turns;
    if (p->n_read < p->n_path) return 0;
    struct stored_turn *last = &got->turns[got->n_turns - 1];
    p->stored = *last;
    *last = (struct stored_turn){0};
    return 0;
}

static struct replaying *find(const struct sessions *ss, uint64_t sequence) {
    struct replaying *p;
    DL_SEARCH_SCALAR(ss->replays, p, sequence, sequence);
    return p;
}

void replays_read(struct sessions *ss, struct store_job *job) {
    struct replaying *p = find(ss, job->replay);
    if (!p) return;
    if (p->stopped) {
        drop(ss, p);
    } else if (take_record(p, job) < 0) {
        fail(ss, p, "store_failed", job->err.code == E_NOMEM ? E_NOMEM : 0, job->err.text);
        drop(ss, p);
    } else if (p->n_read < p->n_path) {
        read_next(ss, p);
    } else if (turn_was_edited(&p->stored.rec)) { // a slim turn does not know
        fail(ss, p, "invalid", 0, REPLAY_EDITED);
        drop(ss, p);
    } else {
        begin(ss, p);
    }
}

void replays_prepared(struct sessions *ss, struct preparation *done) {
    struct replaying *p = find(ss, done->replay);
    if (!p) return;
    if (p->stopped) {
        drop(ss, p);
    } else if (done->rc < 0) {
        fail(ss, p, NULL, done->rc, done->err.text);
        drop(ss, p);
    } else {
        p->compiled = done->compiled;
        done->compiled = NULL;
        advance(ss, p);
    }
}

bool replays_engine_event(struct sessions *ss, const struct engine_event *e) {
    struct replaying *p;
    if (!(e->sequence & REPLAY_SEQUENCES)) return false;
    DL_FOREACH(ss->replays, p) {
        if (p->sequence == e->sequence && p->turn == e->turn) break;
    }
    if (!p || !p->running || e->kind == ENGINE_RELEASED || e->kind == ENGINE_PARKED) return true;
    if (e->kind == ENGINE_DONE)
        owner_charge_tokens(p->owner, e->n_prefilled + e->n_generated, service_now(ss));
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

bool replays_has(const struct sessions *ss, uint64_t client) {
    const struct replaying *p;
    DL_FOREACH(ss->replays, p) {
        if (p->client == client && !p->stopped) return true;
    }
    return false;
}

#define ANY_CLIENT CLIENT_GONE
#define ANY_SESSION (-1)

// Ends the replays of this client and this session. code NULL: without an answer.
static void stop(struct sessions *ss, uint64_t client, int64_t key, const char *code,
                 const char *message) {
    struct replaying *p;
    DL_FOREACH(ss->replays, p) {
        if (p->stopped || (client != ANY_CLIENT && p->client != client) ||
            (key != ANY_SESSION && p->key != key))
            continue;
        p->stopped = true;
        if (p->running) engine_turn_cancel(p->at->engine, p->sequence, p->turn);
        if (code) fail(ss, p, code, 0, message);
    }
}

void replays_client_gone(struct sessions *ss, uint64_t client) {
    stop(ss, client, ANY_SESSION, NULL, NULL);
}

void replays_cancel(struct sessions *ss, uint64_t client, int64_t key) {
    stop(ss, client, key, "cancelled", "the replay was cancelled");
}

void replays_session_gone(struct sessions *ss, int64_t key) {
    stop(ss, ANY_CLIENT, key, "session_not_found", "the session has been deleted");
}

void replays_drain(struct sessions *ss) {
    stop(ss, ANY_CLIENT, ANY_SESSION, "shutting_down", "the server is shutting down");
}

void replays_free(struct sessions *ss) {
    struct replaying *p, *next;
    DL_FOREACH_SAFE(ss->replays, p, next) {
        if (p->running) engine_turn_cancel(p->at->engine, p->sequence, p->turn);
        drop(ss, p);
    }
}
