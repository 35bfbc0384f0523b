// Turns: from a request to the engine, and their ends. See turns.h.
//
// A turn goes to the engine before its record is committed, so that disk and prefill work at the same
// time. Clients see it after the commit. If that fails the turn is undone (save.c).
#include "sessions/turns/turns.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random_id.h"
#include "sessions/caches/routing.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/branch_deltas.h"
#include "sessions/clients/clients.h"
#include "sessions/clients/deliver.h"
#include "sessions/clients/limits.h"
#include "sessions/matching/told.h"
#include "sessions/saving/head.h"
#include "sessions/saving/save.h"
#include "sessions/state/sampling_layers.h"
#include "sessions/state/title.h"
#include "sessions/state/tree.h"
#include "sessions/turns/edit.h"
#include "sessions/turns/input.h"
#include "sessions/turns/preparing.h"
#include "sessions/turns/prompts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define REQUEST_JSON_MAX (2 << 20)

// --- starting ----------------------------------------------------------------

// With n tokens of the session's log, or with all of it and room for n. ids NULL: no memory.
static struct engine_turn engine_turn_of(const struct session *s, size_t n) {
    struct engine_turn e = {.sequence = (uint64_t)s->rec.key,
                            .ids = malloc(n * sizeof *e.ids),
                            .n_ids = (int64_t)n,
                            .memory_len = s->rec.memory_len,
                            .sink_len = s->rec.sink_len,
                            .session_len = s->rec.session_len,
                            .share_group = s->owner->number,
                            .owner = s->owner->number,
                            .lasting_id = session_is_temporary(s) ? NULL : s->lasting,
                            .lasting_owner = s->rec.owner};
    sampling_params_init(&e.sampling);
    size_t n_log = s->n_log < n ? s->n_log : n;
    if (e.ids && n_log) memcpy(e.ids, s->log, n_log * sizeof *e.ids);
    return e;
}

// Takes e->ids.
static int submit(struct session *s, struct turn *t, struct engine_turn *e, struct err *err) {
    struct sessions *ss = s->service;
    e->turn = ss->next_turn;
    e->goes_on = t->rec.kind != INPUT_CONTENT;
    e->expected = t->expected;
    e->n_expected = (int32_t)t->n_expected;
    e->scores_input = t->scores_input;
    e->compiled = t->compiled;
    int rc = prompts_find(s, &e->prompt, err);
    if (rc == 0) rc = routing_submit(s, e, err);
    if (rc < 0) {
        free(e->ids);
        return rc;
    }
    t->number = s->engine_turn = ss->next_turn++;
    t->n_before = t->out.n;
    turn_set(t, TURN_SUBMITTED);
    if (t->stop == STOP_YIELD) t->stop = STOP_NONE;
    return 0;
}

static int hand_to_engine(struct session *s, struct turn *t, const int32_t *ids, size_t n,
                          struct err *err) {
    struct engine_turn e = engine_turn_of(s, s->n_log + n);
    if (!e.ids) return err_set(err, E_NOMEM, "the server is out of memory");
    e.n_input = (int64_t)n;
    e.sampling = t->sampling->params;
    if (n) memcpy(e.ids + s->n_log, ids, n * sizeof *ids);
    int rc = submit(s, t, &e, err);
    // "Never fits" is the session's shape, not a shortage that passes.
    return rc == E_NOMEM ? (err->code = E_INVAL) : rc;
}

int turns_go_on(struct session *s, struct turn *t, struct err *err) {
    const struct sampling_params *p = &t->sampling->params;
    bool again = p->n > 1 || p->beam_width > 1;
    struct engine_turn e = engine_turn_of(s, s->n_log - (again ? t->out.n : 0));
    if (!e.ids) return err_set(err, E_NOMEM, "the server is out of memory");
    e.n_input = t->rec.n_input;
    e.n_drawn = again ? 0 : (int64_t)t->out.n;
    e.sampling = *p;
    if (p->deadline_us > 0) { // counted from the turn's first submission
        int64_t left = p->deadline_us - (service_now(s->service) - t->submitted_us);
        e.sampling.deadline_us = left > 0 ? left : 1;
    }
    TRY(submit(s, t, &e, err));
    t->n_again = again ? t->out.n : 0;
    t->n_came_again = 0;
    branch_deltas_again(t);
    evict_stop(&s->service->idle, &s->idle);
    return 0;
}

#define PREPARE_AGAIN_US 5000000 // bounds the work that a client causes by typing

void turns_hint(struct session *s) {
    struct sessions *ss = s->service;
    int64_t now = service_now(ss);
    if (ss->draining || s->life != LIFE_LIVE || s->rec.closed_ms || s->engine_turn ||
        s->running >= 0)
        return;
    if (s->prepared_us && now - s->prepared_us < PREPARE_AGAIN_US) return;
    s->prepared_us = now;
    struct engine_turn e = engine_turn_of(s, s->n_log);
    if (prompts_find(s, &e.prompt, NULL) < 0)
        free(e.ids);
    else if (e.ids)
        routing_prepare(s, &e);
}

// The ids that the turn adds to the log; the record has raw ones already.
static const int32_t *new_ids(const struct turn *t, size_t *n) {
    bool raw = t->rec.kind == INPUT_IDS;
    *n = raw ? t->rec.n_input_ids : t->input.n;
    return raw ? t->rec.input_ids : t->input.ids;
}

// Puts the turn into the log and the engine, or changes nothing.
static int start(struct session *s, struct turn *t, struct err *err) {
    struct sessions *ss = s->service;
    size_t n;
    TRY(input_check_continue(s, t, err));
    TRY(input_make(s, t, err));
    if (input_put_virtual(s, t) < 0) return err_set(err, E_NOMEM, "the server is out of memory");
    const int32_t *ids = new_ids(t, &n);
    TRY(input_check_room(s, t, n, err));
    if (session_log_reserve(s, n) < 0 || event_log_reserve(&s->events, 2) < 0)
        return err_set(err, E_NOMEM, "the server is out of memory");
    TRY(hand_to_engine(s, t, ids, n, err));
    evict_stop(&ss->idle, &s->idle);
    if (n) memcpy(s->log + s->n_log, ids, n * sizeof *ids);
    if (t->rec.kind != INPUT_IDS) {
        t->rec.input_ids = t->input.ids;
        t->rec.n_input_ids = n;
        t->input = (struct input_ids){0};
    }
    t->rec.n_input = (int64_t)n;
    t->rec.log_first = (int64_t)s->n_log;
    s->n_log += n;
    t->rec.thinking = engine_begins_thinking(service_model(s)->engine, s->log, (int64_t)s->n_log,
                                             t->rec.kind != INPUT_CONTENT);
    owner_use(s->owner, OWNER_RUNNING_TURNS, 1);
    t->submitted_us = service_now(ss);
    t->rec.started_ms = s->rec.updated_ms = service_now_ms(ss);
    s->running = t->rec.turn;
    int64_t seq = event_log_add(&s->events, EVENT_STARTED, t->rec.turn, NULL, service_now_ms(ss));
    if (!t->rec.seq_first) t->rec.seq_first = seq;
    t->version++;
    s->version++;
    return 0;
}

static int record_request(struct turn_record *rec, const struct request *r) {
    struct buf out;
    char *sampling = r->sampling ? sampling_json_text(r->sampling, r->sampling->set, NULL) : NULL;
    if (r->sampling && !sampling) return E_NOMEM;
    struct json_writer w;
    buf_init(&out, REQUEST_JSON_MAX);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    json_put_raw(&w, "sampling", sampling, sampling ? strlen(sampling) : 0);
    json_put_bool(&w, "queue", r->start.queue);
    if (r->note) json_put_string(&w, "note", r->note);
    json_close(&w, '}');
    rec->request = buf_take(&out, NULL);
    buf_release(&out);
    free(sampling);
    return rec->request ? 0 : E_NOMEM;
}

static int record_sampling(struct turn *t) {
    struct sampling_params *p = &t->sampling->params;
    if (!p->has_seed) p->seed = random_u64();
    p->has_seed = true;
    t->rec.seed = p->seed;
    t->rec.logprobs = t->sampling->params.logprobs;
    t->rec.n_alternatives = p->top_logprobs;
    t->rec.sampling = sampling_json_text(t->sampling, SAMPLING_EVERY_KEY, NULL);
    return t->rec.sampling ? 0 : E_NOMEM;
}

static struct turn *make_turn(struct session *s, const struct request *r, struct err *err) {
    struct sessions *ss = s->service;
    bool failed = false;
    char instance[RECORD_INSTANCE_MAX];
    struct turn *t = turn_new();
    if (t) t->sampling = calloc(1, sizeof *t->sampling);
    if (!t || !t->sampling) goto no_memory;
    if (layers_turn(s, r->sampling, t->sampling, err) < 0) {
        turn_free(t);
        return NULL;
    }
    struct turn_record *rec = &t->rec;
    rec->kind = r->input.kind;
    rec->request_id = record_strdup(r->request_id, &failed);
    if (rec->kind == INPUT_IDS) {
        rec->input_ids =
            record_memdup(r->input.ids, r->input.n_ids * sizeof *r->input.ids, &failed);
        rec->n_input_ids = r->input.n_ids;
    } else {
        rec->input_text = record_memdup(r->input.text, r->input.text_len, &failed);
        rec->input_text_len = r->input.text_len;
    }
    record_instance(instance, service_model(s)->info); // refused() has looked for it
    rec->instance = record_strdup(instance, &failed);
    rec->build = record_strdup(ss->build, &failed);
    rec->created_ms = service_now_ms(ss);
    t->accepted_us = service_now(ss);
    t->version = 1;
    const struct turn *parent = session_turn(s, r->turn == TURN_HEAD ? s->head : r->turn);
    bool chat = rec->kind == INPUT_CONTENT ||
                (rec->kind == INPUT_CONTINUE && parent && tree_chat_begun(s, parent->rec.turn));
    int32_t *stop_in = &t->sampling->params.stop_in;
    if (*stop_in == STOP_IN_OLD_RECORD) *stop_in = chat ? STOP_IN_ANSWER : STOP_IN_ALL;
    t->told = told_behind(r->start.told, parent ? parent->rec.told : NULL);
    t->expected =
        record_memdup(r->start.expected, r->start.n_expected * sizeof *r->start.expected, &failed);
    t->n_expected = r->start.n_expected;
    t->scores_input = r->start.scores_input;
    if (t->told && told_begin(t->told, &rec->shown) < 0) failed = true;
    if (!failed) turn_note_input(t);
    if (!failed && record_request(rec, r) == 0 && record_sampling(t) == 0) return t;
no_memory:
    turn_free(t);
    err_set(err, E_NOMEM, "the server is out of memory");
    return NULL;
}

// --- requests ----------------------------------------------------------------

// Says why the session's model is not served.
static int no_model(const struct session *s, const struct request *r, struct err *err) {
    struct served_model *other;
    const struct served_model *held = r->start.open.served;
    if (held) TRY(placement_find_held(&s->service->placement, held, &other, err));
    return input_no_model(s, err);
}

// True: refused, because the turn cannot be taken, whatever its input is.
static bool refused(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    bool busy = session_is_busy(s);
    const struct prompt *table;
    struct err err = {0};
    if (s->awaits_turn && r->start.in != START_HERE && r->client == CLIENT_GONE)
        refuse(ss, r, "cancelled", "the client left before its turn began");
    else if (s->rec.closed_ms || session_is_closing(s))
        refuse(ss, r, "session_closed", "the session is closed: it can be read, not continued");
    else if (ss->draining && !r->accepted)
        refuse(ss, r, "shutting_down", "the server is shutting down");
    else if (!service_model(s))
        no_model(s, r, &err), refuse_err(ss, r, &err);
    else if (prompts_find(s, &table, &err) < 0)
        refuse_err(ss, r, &err);
    else if (busy && !r->start.queue)
        refuse(ss, r, "session_busy", "a turn of this session is running");
    else if (busy && s->n_queued >= ss->o.max_queued_turns)
        refuse(ss, r, "session_busy", "a turn of this session is running and %lld wait already",
               (long long)s->n_queued);
    else
        return limits_refuse_turn(ss, r);
    return true;
}

static int enqueue(struct session *s, struct turn *t, struct err *err) {
    int64_t seq =
        event_log_add(&s->events, EVENT_QUEUED, t->rec.turn, NULL, service_now_ms(s->service));
    if (seq < 0) return err_set(err, E_NOMEM, "the server is out of memory");
    turn_drop_grammar(t);
    t->rec.seq_first = seq;
    s->n_queued++;
    s->rec.updated_ms = service_now_ms(s->service);
    s->version++;
    return 0;
}

// The input is made when the turn starts; faults that show now are refused now.
static int queue_turn(struct session *s, struct turn *t, struct err *err) {
    size_t n;
    TRY(input_check_continue(s, t, err));
    if (!t->input.made) TRY(input_make(s, t, err));
    new_ids(t, &n);
    TRY(input_check_room(s, t, n, err));
    return enqueue(s, t, err);
}

// A client that does not follow the session would see nothing of its turn: it follows from here on.
static int follow(struct session *s, const struct request *r) {
    if (!r->attach || session_attachment(s, r->client)) return 0;
    return clients_attach(s, r->client, session_tellable(s));
}

// The client that starts a turn, or repeats the request, keeps it going while it is connected.
static int note_author(struct session *s, const struct request *r) {
    TRY(clients_note_author(s, r->client));
    clients_lost_end(s);
    if (r->client == CLIENT_GONE) clients_lost_begin(s); // it left before its turn began
    return 0;
}

static int answer_again(struct session *s, const struct request *r, const struct turn *t) {
    struct pending *p = save_pending(s, PENDING_TURN, r, t->rec.seq_first);
    if (!p) return E_NOMEM;
    if (follow(s, r) < 0 || note_author(s, r) < 0) {
        pending_drop(&s->pending, p);
        return E_NOMEM;
    }
    p->turn = t->rec.turn;
    p->repeated = true;
    if (t->storage == TURN_UNSAVED) return 0; // the turn's commit answers both requests
    DL_DELETE(s->pending, p);
    deliver_committed(s, p);
    return 0;
}

// Moves the head, adds the turn after it, and starts it or lets it wait; or changes nothing.
static int begin(struct session *s, struct turn *t, int64_t after, struct pending *p,
                 struct err *err) {
    bool aborted = s->preparation && s->preparation->aborted;
    bool busy = session_is_busy(s) || (!aborted && (routing_awaits(s) || !limits_place(s)));
    if (after != s->head) TRY(head_move(s, after, NULL, p));
    int rc = tree_add_turn(s, t);
    if (rc == 0) {
        rc = (aborted ? enqueue : busy ? queue_turn : start)(s, t, err);
        if (rc == E_BUSY && !busy && routing_awaits(s)) { // its instance has just failed
            *err = (struct err){0};
            rc = queue_turn(s, t, err);
        }
        if (rc < 0) tree_drop_turn(s);
    }
    if (rc < 0) head_move_back(s, p);
    return rc;
}

// A session without title and note whose only turn was refused is deleted with its last client, like a session that was
// opened for a turn: an empty session is of no use to its user.
static void note_unused(struct session *s) {
    if (s->n_turns > 0 || s->preparing || s->awaits_turn || s->life != LIFE_LIVE) return;
    if (s->rec.note || (s->rec.title && s->rec.title[0])) return;
    s->awaits_turn = true;
    s->marks |= MARK_NOTE;
    s->version++;
    save_now(s);
}

// Refuses a turn for what it asks. A refusal for the moment (no memory, a server that shuts down: see refused) leaves
// the session where its client will ask again.
static int refuse_input(struct session *s, const struct request *r, const struct err *err) {
    if (r->attach && err->code != E_BUSY && err->code != E_NOMEM) note_unused(s);
    return refuse_err(s->service, r, err);
}

// True: the request was refused, or waits for a worker to make its input. *compiled: the turn's grammar; the caller
// holds it.
static bool prepared(struct session *s, const struct request *r, int64_t parent,
                     struct grammar **compiled) {
    struct preparation *made = s->preparation;
    struct err err = {0};
    if (made && made->aborted) return false;
    if (input_check(s, &r->input, &err) == 0 && made && made->rc < 0) err = made->err;
    // A turn that will be queued takes this much room, whatever the log ends with now.
    bool suits = made && session_is_busy(s);
    bool compiles = !made && preparing_compiles(s, r->sampling, compiled);
    bool waits = err.code == 0 && !suits &&
                 (compiles || preparing_wanted(s, &r->input, parent, made ? &made->made : NULL)) &&
                 preparing_request(s, r, parent, layers_grammar(s, r->sampling), &err) == 0;
    if (err.code < 0) refuse_input(s, r, &err);
    if (waits || err.code < 0) {
        engine_grammar_release(*compiled);
        return true;
    }
    if (made && !made->aborted) {
        *compiled = made->compiled;
        made->compiled = NULL;
    }
    return false;
}

// An empty list of ids begins an empty log with the start token, if there is one. Returns its id, or
// -1 where the request has an input or nothing begins.
static int32_t start_token(struct session *s, const struct request *r, int64_t parent) {
    int32_t id = -1;
    if (r->input.kind != INPUT_IDS || r->input.n_ids > 0 || parent != TURN_NONE) return id;
    struct turn_sampling *sampling = calloc(1, sizeof *sampling); // large for a stack
    if (sampling && layers_turn(s, r->sampling, sampling, NULL) == 0)
        id = sampling->params.start_id;
    turn_sampling_free(sampling);
    return id;
}

// Puts the turn behind r->turn, with what undoes that until its commit. E_* with *err set: *t and *p are the caller's.
static int put(struct session *s, struct turn *t, const struct request *r, struct pending **p,
               struct err *err) {
    bool given = input_is_given(&r->input);
    if (given && input_given(s, &r->input, r->turn, &t->input) < 0) goto no_memory;
    *p = save_pending(s, PENDING_TURN, r, 0);
    if (!*p || follow(s, r) < 0 || clients_note_author(s, r->client) < 0) goto no_memory;
    int rc = begin(s, t, r->turn, *p, err);
    if (rc == 0 || err->code) return rc;
no_memory:
    return err_set(err, E_NOMEM, "the server is out of memory");
}

int turns_start(struct session *s, const struct request *given) {
    struct sessions *ss = s->service;
    struct err err = {0};
    struct request whole = *given;
    const struct request *r = &whole;
    const struct turn *same = session_find_request(s, r->request_id);
    if (same) return answer_again(s, r, same);
    if (refused(s, r)) return 0;
    int64_t after = r->turn == TURN_HEAD ? s->head : r->turn;
    if ((after != s->head || r->start.given) && !head_can_move(s, r, after)) return 0;
    int32_t start_id = start_token(s, r, after);
    if (start_id >= 0) {
        whole.input.ids = &start_id;
        whole.input.n_ids = 1;
    }
    struct grammar *compiled = NULL;
    if (prepared(s, r, after, &compiled)) return 0;
    struct preparation *made = s->preparation;
    struct pending *p = NULL, *edit = NULL;
    if (r->start.given && edit_given(s, r->start.given, after, &edit, &err) == 0) after = s->head;
    whole.turn = after;
    struct turn *t = err.code < 0 ? NULL : make_turn(s, r, &err);
    if (t)
        t->compiled = compiled;
    else
        engine_grammar_release(compiled);
    if (t && made) t->input = made->made, made->made = (struct input_ids){0};
    if (t && put(s, t, r, &p, &err) < 0) {
        if (p) pending_drop(&s->pending, p);
        turn_free(t);
    }
    if (err.code < 0) {
        if (edit) save_undo(s, edit);
        return refuse_input(s, r, &err);
    }
    p->seq = t->rec.seq_first;
    p->turn = t->rec.turn;
    (void)note_author(s, r); // cannot fail: it is an author already
    if (t->rec.parent == TURN_NONE || !s->rec.title[0]) title_follow(s, p);
    ss->n_active++;
    owner_use(s->owner, OWNER_OUTSTANDING_JOBS, 1);
    if (s->awaits_turn) s->marks |= MARK_NOTE; // on disk it is temporary (save.c)
    s->awaits_turn = false;
    s->marks |= MARK_WATCHERS;
    save_now(s);
    if (made && made->aborted) turns_finish(s, t, "cancelled", NULL, NULL);
    return 0;
}

void turns_prepared(struct session *s, struct preparation *p) {
    struct turn *t = session_turn(s, p->turn);
    if (!t || t->state != TURN_PREPARING || t->preparation != p) return; // it was cancelled
    t->preparation = NULL;
    turn_set(t, TURN_QUEUED);
    service_touch(s);
    if (p->rc < 0) {
        turns_finish(s, t, "error", answer_code(p->rc), p->err.text);
        return;
    }
    input_ids_release(&t->input); // made when it was queued
    t->input = p->made;
    p->made = (struct input_ids){0};
    t->compiled = p->compiled;
    p->compiled = NULL;
}

// --- ends --------------------------------------------------------------------

// Sets the turn's `told` and `shown`. Without memory for them, the conversation's next turn is computed
// from its start.
static void note_told(const struct session *s, struct turn *t) {
    char *told, *shown;
    const struct served_model *m = t->told && t->out.n > 0 ? service_model(s) : NULL;
    if (!m) return;
    if (told_end(t->told, m->engine, buf_z(&t->out.text), t->out.text.len, t->out.ids, t->out.n,
                 &told, &shown) < 0)
        return;
    free(t->rec.told);
    free(t->rec.shown);
    t->rec.told = told;
    t->rec.shown = shown;
}

void turns_finish(struct session *s, struct turn *t, const char *reason, const char *code,
                  const char *message) {
    struct sessions *ss = s->service;
    struct turn_record *r = &t->rec;
    bool failed = false;
    if (t->stop == STOP_ABANDONED && !code && strcmp(reason, "cancelled") == 0)
        code = "client_lost", message = "no connection follows this session any more";
    if (turn_waits(t)) s->n_queued--;
    if (s->running == r->turn) routing_wait_end(s);
    limits_turn_ends(s, t);
    turn_set(t, TURN_DONE);
    t->number = 0;
    turn_sampling_free(t->sampling);
    t->sampling = NULL;
    turn_drop_grammar(t);
    snprintf(r->finish_reason, sizeof r->finish_reason, "%s", reason);
    if (code) snprintf(r->error_code, sizeof r->error_code, "%s", code);
    if (message) r->error_message = record_strdup(message, &failed);
    r->n_output = (int64_t)t->out.n;
    note_told(s, t);
    service_add_bytes(s, turn_bytes(r));
    r->numbers.log_tokens = (int64_t)s->n_log;
    r->ended_ms = s->rec.updated_ms = service_now_ms(ss);
    if (s->running == r->turn) s->running = -1;
    int64_t now_ms = service_now_ms(ss);
    int64_t seq = event_log_add(&s->events, EVENT_DONE, r->turn, t->file_refused, now_ms);
    if (seq < 0) { // room was made at the turn's start; only a queue of them could get here
        log_error("session.memory", "session=%s turn=%lld", s->rec.id, (long long)r->turn);
        seq = event_log_seq(&s->events);
    }
    r->seq_last = seq;
    t->version++;
    s->version++;
    s->marks |= MARK_WATCHERS;
    service_count_finish(ss, reason);
    save_now(s);
}

void turns_cancel(struct session *s, int64_t turn) {
    for (size_t i = 0; s->n_queued > 0 && i < s->n_turns; i++) {
        struct turn *t = s->turns[i];
        if (turn_waits(t) && (turn < 0 || turn == t->rec.turn))
            turns_finish(s, t, "cancelled", NULL, NULL);
    }
    struct turn *running = session_turn(s, s->running);
    if (!running || (turn >= 0 && turn != running->rec.turn)) return;
    turn_stop(running, STOP_CANCEL);
    if (s->awaiting_prev)
        turns_finish(s, running, "cancelled", NULL, NULL);
    else
        routing_cancel(s, running->number);
}

// Starts it, or gives its input to a worker.
static int start_queued(struct session *s, struct turn *t, struct err *err) {
    const struct turn_record *r = &t->rec;
    struct turn_input in = {.kind = r->kind, .text = r->input_text, .text_len = r->input_text_len};
    if (!service_model(s)) return placement_unloaded(&s->service->placement, s->rec.model, err);
    bool compiles = !t->compiled && preparing_compiles(s, t->sampling, &t->compiled);
    if (compiles || preparing_wanted(s, &in, r->parent, &t->input))
        return preparing_turn(s, t, err);
    TRY(start(s, t, err));
    s->n_queued--;
    s->marks |= MARK_WATCHERS;
    save_now(s);
    return 0;
}

void turns_start_next(struct session *s) {
    struct err err = {0};
    struct turn *t;
    if (s->awaiting_prev) return; // failover.c has the timer
    s->retry_us = 0;
    if (s->n_queued == 0 || session_is_closing(s)) limits_leave(s);
    while (s->running < 0 && !s->engine_turn && !session_is_closing(s) &&
           (t = session_next_queued(s)) && t->state == TURN_QUEUED && limits_place(s)) {
        int rc = start_queued(s, t, &err);
        if (!turn_runs(t)) turn_drop_grammar(t); // it may wait for long
        if (rc == E_BUSY && service_model(s)) {
            service_wait_for_room(s);
            break;
        }
        if (rc < 0) turns_finish(s, t, "error", answer_code(err.code), err.text);
    }
    service_timers_changed(s);
}

void turns_interrupt(struct session *s) {
    struct turn *t;
    if (s->engine_turn) routing_cancel(s, s->engine_turn);
    if ((t = session_turn(s, s->running))) turns_finish(s, t, "interrupted", NULL, NULL);
    while ((t = session_next_queued(s))) turns_finish(s, t, "interrupted", NULL, NULL);
}
