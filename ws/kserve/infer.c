// Inferences, from their sessions to their reply. See infer.h.
#include "ws/kserve/infer.h"
#include "ws/kserve/infer_turn.h"
#include "ws/kserve/kserve.h"
#include "ws/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_TEXT_BYTES 4096
#define FIND_PAGE 200
#define CANCEL_AFTER_MS 1 // of a session without a sequence, once its client has gone

static void fail(struct infer *i, enum kserve_code code, const char *message) {
    if (i->code) return; // the first is the cause
    i->code = code;
    snprintf(i->message, sizeof i->message, "%s", message);
}

static void fail_no_memory(struct turn_batch *b) {
    fail((struct infer *)b, KSERVE_UNAVAILABLE, "the server is out of memory");
}

// Whether its sessions are new ones.
static bool is_fresh(const struct infer *i) {
    return !i->sequence || i->request->start;
}

// --- requests to the session service ---

static struct request request_for(const struct infer *i, enum request_kind kind, const char *id) {
    struct request r = service_request(&i->batch.follower, kind, i->batch.owner, id);
    r.accepted = i->accepted;
    return r;
}

static void close_session(struct infer *i, const char *id, bool delete_it) {
    struct request r = request_for(i, REQUEST_CLOSE, id);
    r.client = CLIENT_GONE;
    r.close.delete_it = delete_it;
    service_submit(i->batch.service, &r);
}

static struct request start_of(const struct infer *i, size_t row) {
    const struct infer_row *input = &i->request->rows[row];
    struct request r = request_for(i, REQUEST_START, i->turns[row].batch.id);
    r.turn = TURN_HEAD;
    r.input = infer_turn_input(input);
    r.sampling = &input->sampling;
    r.start.open.served = i->request->served;
    return r;
}

static void start_turn(struct infer *i, size_t row, const struct request *r) {
    i->turns[row].state = ROW_STARTED;
    service_submit(i->batch.service, r);
}

// --- the end ---

static void infer_free(struct infer *i) {
    struct service *s = i->batch.service;
    s->kserve->n_infers -= i->accepted;
    for (size_t row = 0; row < i->request->n_rows; row++) infer_turn_release(&i->turns[row]);
    turn_batch_release(&i->batch);
    infer_request_free(i->request);
    free(i);
}

// In the queue of its sequence. It is pushed there too, when its client has room.
static bool waits_for_others(const struct infer *i) {
    return i->sequence && i->sequence->running != i;
}

// The sequence's next exchange runs. Without one, a sequence that has no session is forgotten.
static void leave_sequence(struct infer *i) {
    struct sequence *q = i->sequence;
    if (waits_for_others(i)) sequence_leave_queue(q, i);
    if (!q || q->running != i) return;
    bool over = i->request->end || (i->code && is_fresh(i));
    if (i->request->end && !i->code)
        for (size_t row = 0; row < i->request->n_rows; row++)
            close_session(i, i->turns[row].batch.id, false);
    if (over) q->session[0] = '\0';
    struct infer *next = sequence_next(q);
    q->used_us = net_now_us();
    if (next)
        turn_batch_push_later(&next->batch);
    else if (!q->session[0])
        sequences_remove(&i->batch.service->kserve->sequences, q);
}

static void end(struct infer *i) {
    if (!i->sequence || (is_fresh(i) && i->code))
        for (size_t row = 0; row < i->request->n_rows; row++)
            if (i->turns[row].state != ROW_ABSENT) close_session(i, i->turns[row].batch.id, true);
    leave_sequence(i);
    infer_free(i);
}

static void count(struct infer *i) {
    kserve_count(i->batch.service->kserve, i->request->model, i->code != KSERVE_OK, i->begun_us,
                 i->started_us);
}

static void reply(struct infer *i) {
    const struct infer_client_ops *ops = i->ops;
    i->ops = NULL;
    i->step = SIZE_MAX;
    count(i);
    if (ops) ops->reply(i->ctx, i);
}

// --- undoing ---

static void undo_row(struct infer *i, struct infer_turn *t) {
    if (t->state == ROW_ABSENT || t->state == ROW_OPEN) t->state = ROW_UNDONE;
    if (t->state != ROW_ENDED) return;
    struct request r = request_for(i, REQUEST_REWIND, t->batch.id);
    r.turn = t->before;
    t->state = ROW_MOVING;
    service_submit(i->batch.service, &r);
}

static void begin_undo(struct infer *i) {
    i->state = INFER_UNDOING;
    for (size_t row = 0; !is_fresh(i) && row < i->request->n_rows; row++) {
        if (i->turns[row].state != ROW_STARTED) continue;
        struct request r = request_for(i, REQUEST_CANCEL, i->turns[row].batch.id);
        r.turn = TURN_HEAD;
        service_submit(i->batch.service, &r);
    }
}

static bool all_rows(const struct infer *i, enum row_state state) {
    for (size_t row = 0; row < i->request->n_rows; row++)
        if (i->turns[row].state != state) return false;
    return true;
}

// --- running ---

static void send_text(struct infer *i, const char *text, size_t len, int64_t drawn_us) {
    bool is_text = i->request->form == FORM_TEXT || i->request->form == FORM_STREAM;
    if (len && is_text && i->ops) i->ops->text(i->ctx, i, text, len, drawn_us);
}

static bool has_room(const struct turn_batch *b) {
    const struct infer *i = (const struct infer *)b;
    bool streams = i->request->form == FORM_STREAM || i->request->form == FORM_PIECES;
    return !streams || !i->ops || i->ops->has_room(i->ctx);
}

// --- an answer for each token ---

// All rows advance together, as in FasterTransformer's batch: its clients count one answer for each token.
// Beams come in one answer.
static void send_pieces(struct infer *i) {
    if (i->request->form != FORM_PIECES) return;
    while (!i->code && i->ops && i->step < infer_steps(i) && has_room(&i->batch)) {
        i->step = i->request->n_beams > 1 ? SIZE_MAX : i->step + 1;
        i->ops->piece(i->ctx, i, i->drawn_us);
        i->drawn_us = 0;
    }
}

static bool has_sent_pieces(const struct infer *i) {
    return i->request->form != FORM_PIECES || !i->ops || i->step >= infer_steps(i);
}

// Whether the session has room for all tokens. Requests of text are not checked: their answer ends where the
// session is full.
static bool fits(struct infer *i, int64_t session_len) {
    char text[128];
    if (i->request->form == FORM_TEXT || i->request->form == FORM_STREAM) return true;
    for (size_t row = 0; row < i->request->n_rows; row++) {
        const struct infer_row *r = &i->request->rows[row];
        int64_t total = i->turns[row].n_before + (int64_t)r->n_ids + r->sampling.params.max_tokens;
        if (session_len == 0 || total <= session_len) continue;
        snprintf(text, sizeof text, "Session size too low (%lld) vs. total output size (%lld)",
                 (long long)session_len, (long long)total);
        fail(i, KSERVE_INVALID, text);
        return false;
    }
    return true;
}

static void begin_turns(struct infer *i) {
    i->state = INFER_RUNNING;
    i->started_us = net_now_us();
}

static void start_turns(struct infer *i) {
    begin_turns(i);
    for (size_t row = 0; row < i->request->n_rows && !i->code; row++) {
        const struct request r = start_of(i, row);
        start_turn(i, row, &r);
    }
}

static void start_fresh(struct infer *i) {
    const struct infer_request *q = i->request;
    char title[SESSION_TITLE_BYTES], base[SESSION_ID_MAX + 1];
    if (i->sequence && !q->session_len) {
        fail(i, KSERVE_INVALID, "input 'session_len' is missing: a sequence is started with it");
        return;
    }
    if (!fits(i, q->session_len)) return;
    sequence_draw(i->batch.owner, q->sequence, q->n_rows, base);
    if (i->sequence) sequence_title(q->sequence, title);
    begin_turns(i);
    for (size_t row = 0; row < q->n_rows && !i->code; row++) {
        struct infer_turn *t = &i->turns[row];
        sequence_row_id(base, row, t->batch.id);
        struct request r = start_of(i, row);
        struct request_open *open = &r.start.open;
        r.start.in = START_IN_NEW;
        open->session_len = q->session_len;
        open->memory_len = q->memory_len ? q->memory_len : q->session_len;
        // FasterTransformer's window has no sinks; here they keep the virtual tokens of a table.
        const struct infer_row *row_in = &q->rows[row];
        int64_t n_table = row_in->prompt ? row_in->prompt->n_rows : 0;
        open->sink_len = open->memory_len == 0 || n_table < open->memory_len ? n_table : 0;
        open->prompt_task = row_in->prompt_task;
        open->prompt = row_in->prompt_task ? NULL : row_in->prompt;
        r.title = i->sequence ? title : NULL;
        r.temporary = !i->sequence;
        r.cancel_after_ms = i->sequence ? 0 : CANCEL_AFTER_MS;
        t->before = TURN_NONE;
        start_turn(i, row, &r);
    }
}

static void attach(struct infer *i) {
    struct sequence *q = i->sequence;
    char text[128];
    if (q->n_rows != i->request->n_rows) {
        snprintf(text, sizeof text, "the sequence was started with %zu rows, this request has %zu",
                 q->n_rows, i->request->n_rows);
        fail(i, KSERVE_INVALID, text);
        return;
    }
    i->state = INFER_OPENING;
    for (size_t row = 0; row < q->n_rows; row++) {
        sequence_row_id(q->session, row, i->turns[row].batch.id);
        struct request r = request_for(i, REQUEST_ATTACH, i->turns[row].batch.id);
        r.after = -1;
        service_submit(i->batch.service, &r);
    }
}

static void find(struct infer *i) {
    char title[SESSION_TITLE_BYTES];
    struct request r = request_for(i, REQUEST_LIST, NULL);
    sequence_title(i->request->sequence, title);
    r.list.query = title;
    r.limit = FIND_PAGE;
    r.list.cursor = i->cursor[0] ? i->cursor : NULL;
    i->state = INFER_FINDING;
    service_submit(i->batch.service, &r);
}

// The exchange is the first of its sequence, or has no sequence.
static void proceed(struct infer *i) {
    struct sequence *q = i->sequence;
    char id[SESSION_ID_MAX + 1];
    if (!is_fresh(i)) {
        if (q->session[0])
            attach(i);
        else
            find(i);
        return;
    }
    if (q && q->session[0]) // START without an END before it
        for (size_t row = 0; row < q->n_rows; row++) {
            sequence_row_id(q->session, row, id);
            close_session(i, id, false);
        }
    start_fresh(i);
    if (!q) return;
    q->n_rows = i->request->n_rows;
    snprintf(q->session, sizeof q->session, "%s", i->turns[0].batch.id);
}

static void step(struct infer *i) {
    if (waits_for_others(i)) return;
    if (i->state == INFER_WAITING && !i->code) proceed(i);
    if (i->state == INFER_OPENING && !i->code && all_rows(i, ROW_OPEN) &&
        fits(i, i->request->session_len))
        start_turns(i);
    if (i->code && i->state != INFER_UNDOING) {
        reply(i);
        begin_undo(i);
    }
    if (i->state == INFER_UNDOING) {
        for (size_t row = 0; !is_fresh(i) && row < i->request->n_rows; row++)
            undo_row(i, &i->turns[row]);
        if (is_fresh(i) || all_rows(i, ROW_UNDONE)) end(i);
        return;
    }
    if (i->state == INFER_RUNNING && all_rows(i, ROW_ENDED) && has_sent_pieces(i)) {
        reply(i);
        end(i);
    }
}

// --- events ---

// false: rc is an error, which is recorded.
static bool taken(struct infer *i, int rc) {
    if (rc == E_NOMEM) fail_no_memory(&i->batch);
    if (rc == E_BUSY) fail(i, KSERVE_UNAVAILABLE, "the session was changed meanwhile");
    return rc == 0;
}

static void take_end(struct infer *i, struct infer_turn *t, const struct turn_view *v) {
    t->state = ROW_ENDED;
    if (v->error_code)
        fail(i, kserve_code_of_session(v->error_code),
             v->error_message ? v->error_message : "the turn failed");
    if (i->code) return;
    const char *reason = v->finish_reason ? v->finish_reason : "";
    if (strcmp(reason, "eos") != 0 && strcmp(reason, "length") != 0 &&
        strcmp(reason, "stop") != 0) {
        fail(i, KSERVE_UNAVAILABLE, "the turn was cut off");
        return;
    }
    if (taken(i, infer_turn_log(i, t, (size_t)v->numbers.log_tokens)) &&
        taken(i, infer_turn_context(i, t, v->context)) && taken(i, infer_turn_beams(i, t, v)))
        send_text(i, v->text, v->text_len, 0);
}

static void take_event(struct turn_batch *b, struct batch_turn *turn,
                       const struct session_event *ev) {
    struct infer *i = (struct infer *)b;
    struct infer_turn *t = (struct infer_turn *)turn;
    switch (ev->kind) {
    case EVENT_DELTA:
        if (t->state != ROW_STARTED) break;
        if (!taken(i, infer_turn_delta(i, t, ev))) break;
        if (ev->drawn_us) i->drawn_us = ev->drawn_us;
        send_text(i, ev->text, ev->text_len, ev->drawn_us);
        break;
    case EVENT_DONE:
        if (t->state == ROW_STARTED) take_end(i, t, &ev->turn);
        break;
    case EVENT_REWOUND:
        if (t->state == ROW_MOVING) t->state = ROW_UNDONE;
        break;
    default:
        break;
    }
}

static void push(struct follower *f) {
    struct infer *i = (struct infer *)f;
    turn_batch_pull(&i->batch, EVENT_TEXT_BYTES, has_room, take_event);
    send_pieces(i);
    step(i);
}

// --- answers ---

static void refuse_unstarted(struct infer *i) {
    char text[512];
    char title[SESSION_TITLE_BYTES];
    sequence_title(i->request->sequence, title);
    snprintf(text, sizeof text,
             "inference request for sequence %s to model '%s' must specify the START flag on the "
             "first request of the sequence",
             title + strlen("Sequence "), i->request->name);
    fail(i, KSERVE_INVALID, text);
}

// Finds the newest session of the sequence, such as one from before a restart. A closed one is refused.
static void take_list(struct infer *i, const struct session_answer *a) {
    struct sequence *q = i->sequence;
    char prefix[SESSION_ID_MAX + 1];
    sequence_prefix(i->batch.owner, i->request->sequence, prefix);
    for (size_t n = 0; n < a->n_sessions && !q->session[0]; n++) {
        const struct session_view *v = &a->sessions[n];
        size_t n_rows = sequence_rows_of(v->rec.id);
        if (n_rows == 0 || strncmp(v->rec.id, prefix, strlen(prefix)) != 0) continue;
        if (v->state == SESSION_CLOSED) {
            refuse_unstarted(i);
            return;
        }
        snprintf(q->session, sizeof q->session, "%s", v->rec.id);
        q->n_rows = n_rows;
    }
    // Other sequences match the search too ("Sequence 420" for 42), so all pages are read.
    snprintf(i->cursor, sizeof i->cursor, "%s", a->cursor ? a->cursor : "");
    if (q->session[0] || i->cursor[0])
        i->state = INFER_WAITING; // proceeds
    else
        refuse_unstarted(i);
}

static void take_refusal(struct infer *i, struct infer_turn *t, const struct session_answer *a) {
    if (t && t->state == ROW_MOVING) t->state = ROW_UNDONE;
    if (t && t->state == ROW_STARTED) t->state = ROW_OPEN;
    enum kserve_code code = kserve_code_of_session(a->code);
    bool lost = i->state == INFER_OPENING && code == KSERVE_INVALID;
    if (lost && i->sequence) {
        i->sequence->session[0] = '\0'; // closed or deleted by its owner
        refuse_unstarted(i);
    } else {
        if (!i->code) i->retry_after_ms = a->retry_after_ms;
        fail(i, code, a->message);
    }
}

// A later request may repeat the sequence's table, but not bring another one.
static void check_table(struct infer *i, const struct infer_turn *t, const char *hash) {
    const struct prompt *p = i->request->rows[t - i->turns].prompt;
    if (p && (!hash || strcmp(hash, p->digits) != 0))
        fail(i, KSERVE_INVALID,
             hash ? "the sequence was started with another table of virtual tokens"
                  : "the sequence was started without a table of virtual tokens");
}

static void on_answer(struct follower *f, const struct session_answer *a) {
    struct infer *i = (struct infer *)f;
    struct infer_turn *t = (struct infer_turn *)turn_batch_find(&i->batch, a->session_id);
    if (a->kind == ANSWER_LIST) {
        take_list(i, a);
    } else if (a->kind == ANSWER_ATTACHED && t) {
        t->state = ROW_OPEN;
        t->before = a->session.rec.head;
        t->n_before = a->session.rec.n_tokens;
        check_table(i, t, a->session.rec.prompt_hash);
        i->request->session_len = a->session.rec.session_len;
    } else if (a->kind == ANSWER_REWOUND && t && t->state == ROW_MOVING) {
        t->state = ROW_UNDONE;
    } else if (a->kind == ANSWER_ERROR) {
        take_refusal(i, t, a);
    } else {
        return;
    }
    turn_batch_push_later(&i->batch);
}

static void on_store_failed(struct follower *f, const char *message) {
    struct infer *i = (struct infer *)f;
    fail(i, KSERVE_UNAVAILABLE, message);
    turn_batch_push_later(&i->batch);
}

static void on_gone(struct follower *f, struct session *s) {
    struct infer *i = (struct infer *)f;
    struct infer_turn *t = (struct infer_turn *)turn_batch_find(&i->batch, session_id(s));
    if (t) {
        t->batch.session = NULL;
        t->state = ROW_UNDONE;
    }
    fail(i, KSERVE_INTERNAL, "the session was deleted");
    turn_batch_push_later(&i->batch);
}

static void on_end(struct follower *f) {
    struct infer *i = (struct infer *)f;
    fail(i, KSERVE_UNAVAILABLE, "the server is shutting down");
    reply(i);
    leave_sequence(i);
    infer_free(i);
}

// A request that waits behind others of its sequence fails after its timeout.
static void on_later(struct follower *f, int64_t now_us) {
    struct infer *i = (struct infer *)f;
    if (!waits_for_others(i) || !i->request->timeout_us) return;
    int64_t left_us = i->begun_us + i->request->timeout_us - now_us;
    if (left_us > 0) {
        service_later(i->batch.service, left_us / 1000 + 1);
        return;
    }
    fail(i, KSERVE_INVALID, "timeout of the corresponding sequence has been expired");
    reply(i);
    end(i);
}

static const struct follower_ops follower_ops = {.on_answer = on_answer,
                                                 .on_ready = turn_batch_on_ready,
                                                 .on_store_failed = on_store_failed,
                                                 .on_gone = on_gone,
                                                 .push = push,
                                                 .later = on_later,
                                                 .drained = turn_batch_is_drained,
                                                 .end = on_end,
                                                 .sole = true};

// --- the client ---

// The turns of a sequence go on without it, as those of any session; others end.
void infer_client_gone(struct infer *i) {
    i->ops = NULL;
    if (i->sequence && i->sequence->running == i) {
        turn_batch_push_later(&i->batch);
        return;
    }
    fail(i, KSERVE_CANCELLED, "the client is gone");
    count(i);
    end(i);
}

void infer_go_on(struct infer *i) {
    push(&i->batch.follower);
}

static bool enter_sequence(struct infer *i) {
    struct sequences *all = &i->batch.service->kserve->sequences;
    struct sequence *q = sequences_find(all, i->batch.owner, i->request->sequence);
    if (!q) q = sequences_add(all, i->batch.owner, i->request->sequence);
    if (!q) return false;
    i->sequence = q;
    sequence_enter(q, i);
    return true;
}

struct infer *infer_new(struct service *s, const char *owner, struct infer_request *r,
                        const struct infer_client_ops *ops, void *ctx) {
    struct infer *i = calloc(1, sizeof *i);
    if (!i) goto fail;
    i->batch = (struct turn_batch){.follower.ops = &follower_ops,
                                   .service = s,
                                   .n = r->n_rows,
                                   .n_started = r->n_rows,
                                   .turn_bytes = sizeof *i->turns,
                                   .no_memory = fail_no_memory};
    if (turn_batch_init(&i->batch, owner) < 0) goto fail;
    i->turns = i->batch.turns;
    i->ops = ops;
    i->ctx = ctx;
    i->request = r;
    i->accepted = s->state == SERVICE_RUNNING || r->promised;
    i->begun_us = i->started_us = net_now_us();
    i->step = r->form == FORM_PIECES ? 0 : SIZE_MAX;
    s->kserve->n_infers += i->accepted;
    return i;
fail:
    free(i);
    infer_request_free(r);
    return NULL;
}

void infer_begin(struct infer *i) {
    if (i->request->sequence[0] && !enter_sequence(i))
        fail(i, KSERVE_UNAVAILABLE, "the server is out of memory");
    if (waits_for_others(i) && i->request->timeout_us)
        service_later(i->batch.service, i->request->timeout_us / 1000 + 1);
    step(i);
}
