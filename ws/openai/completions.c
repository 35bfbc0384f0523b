// POST /v1/completions: a session and a turn for each choice, followed until all have ended. The prompt is the
// session's first input, as plain text or ids. The sessions stay in the store: the first one under the
// completion's id, the others with their choice's number behind it. Choices of one prompt share its cache,
// as all sessions of an owner whose logs begin alike. See openai.h.
//
// Log-probabilities of the prompt come with the end of the turn of each prompt's first choice. So such a
// completion is written when all choices have ended, by a worker, since prompts are long.
#include "base/random_id.h"
#include "base/workers.h"
#include "ws/completion/drawn_text.h"
#include "ws/completion/event_tokens.h"
#include "ws/openai/completions_request.h"
#include "ws/openai/completions_write.h"
#include "ws/openai/openai.h"
#include "ws/service.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_TEXT_BYTES 4096       // of one joined delta
#define ANSWER_MAX_BYTES (64 << 20) // of a whole answer
#define CANCEL_AFTER_MS 1
#define LANE_COMPLETIONS ((uint64_t)11 << 59)

struct choice {
    char id[24 + RANDOM_ID_LEN];     // of its session
    struct session *session;         // while its events wait; NULL: none do
    struct buf text;                 // of an answer that is not streamed
    struct completions_logprobs log; // likewise; streamed, of one chunk
    struct drawn_text drawn;
    struct event_tokens waiting;  // tokens that begin behind the delivered text
    const char *finish;           // NULL: its turn has not ended
    struct engine_scores *scores; // of its prompt; NULL: not wanted, or another choice has them
    struct completions_logprobs prompt_log; // made of them
};

struct completions {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    struct http *http;
    struct completions_request *request;
    int64_t created_s;
    struct choice *choices; // (n_choices) those of the first prompt, of the second ...
    size_t n_choices, n_ended;
    struct completions_usage usage;
    bool streaming;
    bool working; // a worker has it
    bool written; // it has filled `out`
    struct work work;
    struct buf out;
    struct completion_failure failure;
};

// --- the end ---

static void completions_free(struct completions *c) {
    service_drop_follower(c->service, &c->follower);
    for (size_t i = 0; i < c->n_choices; i++) {
        buf_release(&c->choices[i].text);
        completions_logprobs_release(&c->choices[i].log);
        drawn_text_release(&c->choices[i].drawn);
        event_tokens_release(&c->choices[i].waiting);
        completions_logprobs_release(&c->choices[i].prompt_log);
        free(c->choices[i].scores);
    }
    buf_release(&c->out);
    free(c->choices);
    completions_request_free(c->request);
    free(c);
}

static void on_client_gone(void *ctx) {
    struct completions *c = ctx;
    c->http = NULL;
    if (!c->working) completions_free(c);
}

static void reply_failure(struct completions *c) {
    const struct completion_failure *f = &c->failure;
    if (c->streaming)
        openai_stream_failure(c->http, f);
    else
        openai_reply_failure(c->http, f);
    completions_free(c);
}

// --- what is written ---

static struct answer_head head_of(const struct completions *c) {
    const struct served_model *m = c->request->served;
    return (struct answer_head){.id = c->choices[0].id,
                                .model = m->name,
                                .fingerprint = m->info->fingerprint,
                                .created_s = c->created_s,
                                .include_usage = c->request->include_usage};
}

static const struct completions_logprobs *prompt_log_of(const struct completions *c,
                                                        const struct choice *ch) {
    size_t i = (size_t)(ch - c->choices);
    return c->request->scores ? &c->choices[i - i % c->request->n].prompt_log : NULL;
}

static struct completions_choice part_of(struct completions *c, struct choice *ch) {
    return (struct completions_choice){.text = buf_z(&ch->text),
                                       .len = ch->text.len,
                                       .index = (size_t)(ch - c->choices),
                                       .prompt = prompt_log_of(c, ch),
                                       .logprobs = c->request->logprobs ? &ch->log : NULL,
                                       .finish_reason = ch->finish};
}

// Sends what a choice has so far as a chunk.
static void write_chunk(struct completions *c, struct choice *ch) {
    struct answer_head head = head_of(c);
    struct completions_choice part = part_of(c, ch);
    struct buf out;
    buf_init(&out, ANSWER_MAX_BYTES);
    completions_write_chunk(&out, &head, &part);
    http_stream_buf(c->http, &out);
    buf_reset(&ch->text);
    completions_logprobs_clear(&ch->log);
}

static void on_room(void *ctx);
static const struct http_waiter waiter = {
    .client_gone = on_client_gone, .writable = on_room, .ping = HTTP_EVENTS_PING};

// Streamed: the head, and the prompt of each choice where it is wanted.
static void begin_stream(struct completions *c) {
    if (!c->request->stream || c->streaming) return;
    c->streaming = true;
    http_stream(c->http, "text/event-stream", HTTP_EVENTS_HEADERS, &waiter, c);
    bool prompts_first = c->request->echo && !c->request->scores;
    for (size_t i = 0; i < c->n_choices && prompts_first; i++) write_chunk(c, &c->choices[i]);
}

static void finish_stream(struct completions *c) {
    struct answer_head head = head_of(c);
    struct buf out;
    buf_init(&out, 8192);
    completions_write_last(&out, &head, &c->usage);
    http_stream_buf(c->http, &out);
    http_stream_end(c->http);
}

static void write_whole(struct completions *c, struct buf *out) {
    struct answer_head head = head_of(c);
    struct json_writer w;
    json_writer_init(&w, out);
    completions_write_begin(&w, &head);
    for (size_t i = 0; i < c->n_choices; i++) {
        struct completions_choice part = part_of(c, &c->choices[i]);
        if (c->choices[i].text.error && !out->error) out->error = c->choices[i].text.error;
        completions_write_choice(&w, &part);
    }
    completions_write_end(&w, &c->usage);
}

static void reply_whole(struct completions *c) {
    struct buf out;
    buf_init(&out, ANSWER_MAX_BYTES);
    write_whole(c, &out);
    http_reply_json(c->http, 200, &out);
}

// --- with the log-probabilities of prompts ---

// On a worker: writes the whole reply.
static void write_scored(struct work *work) {
    struct completions *c =
        (struct completions *)((char *)work - offsetof(struct completions, work));
    const struct completions_request *q = c->request;
    for (size_t i = 0; i < c->n_choices; i += q->n) {
        const struct openai_prompt *p = &q->prompts[i / q->n];
        struct choice *ch = &c->choices[i];
        completions_logprobs_add_prompt(&ch->prompt_log, q->served->engine, ch->scores, p->text,
                                        p->len);
    }
    if (!c->streaming) {
        write_whole(c, &c->out);
        return;
    }
    struct answer_head head = head_of(c);
    for (size_t i = 0; i < c->n_choices; i++) {
        struct completions_choice part = part_of(c, &c->choices[i]);
        if (c->choices[i].text.error && !c->out.error) c->out.error = c->choices[i].text.error;
        completions_write_chunk(&c->out, &head, &part);
    }
    completions_write_last(&c->out, &head, &c->usage);
}

static void push_later(struct completions *c);

static void scored_written(struct work *work) {
    struct completions *c =
        (struct completions *)((char *)work - offsetof(struct completions, work));
    c->working = false;
    c->written = true;
    if (c->http)
        push_later(c);
    else
        completions_free(c);
}

static void begin_scored(struct completions *c) {
    buf_init(&c->out, ANSWER_MAX_BYTES);
    c->work = (struct work){.run = write_scored, .done = scored_written};
    c->working = true;
    if (service_work(c->service, &c->follower, http_owner(c->http), LANE_COMPLETIONS, &c->work) ==
        0)
        return;
    c->working = false;
    openai_fail(&c->failure, 503, "overloaded", NULL, "too many requests are being written");
    push_later(c);
}

static void reply_scored(struct completions *c) {
    if (!c->streaming) {
        http_reply_json(c->http, 200, &c->out);
    } else if (c->out.error) {
        openai_no_memory(&c->failure);
        reply_failure(c);
        return;
    } else {
        http_stream_buf(c->http, &c->out);
        http_stream_end(c->http);
    }
    completions_free(c);
}

// --- events ---

// Moves the tokens that begin before byte `end` of the text into the log.
static void log_tokens(struct completions *c, struct choice *ch, uint64_t end) {
    struct engine_alternative a[SAMPLING_MAX_TOP_LOGPROBS];
    struct completion_event e = {0};
    size_t n = event_tokens_put(&ch->waiting, end, &e);
    for (size_t i = 0; i < n; i++) {
        const struct completion_token *t = &e.tokens[i];
        for (int32_t k = 0; k < t->n_alternatives; k++)
            a[k] = (struct engine_alternative){t->alternatives[k].id, t->alternatives[k].logprob};
        completions_logprobs_add(&ch->log, c->request->served->engine, t->id, t->logprob, a,
                                 t->n_alternatives);
    }
    event_tokens_drop(&ch->waiting, n);
}

static void take_tokens(struct completions *c, struct choice *ch, const struct session_event *ev) {
    const struct served_model *m = c->request->served;
    size_t n_alt = ev->alternatives ? (size_t)ev->n_alternatives : 0;
    for (size_t i = 0; ev->logprobs && i < ev->n_ids; i++) {
        uint64_t start = drawn_text_add(&ch->drawn, m->engine, ev->ids[i]);
        const struct engine_alternative *a = n_alt ? ev->alternatives + i * n_alt : NULL;
        // Harnesses that score a prompt expect one more token after it, also one that ends the answer.
        if (c->request->scores)
            completions_logprobs_add(&ch->log, m->engine, ev->ids[i], ev->logprobs[i], a,
                                     (int32_t)n_alt);
        else if (event_tokens_add(&ch->waiting, m, ev->ids[i], ev->logprobs[i], start, a, n_alt) <
                 0)
            openai_no_memory(&c->failure);
    }
    drawn_text_give(&ch->drawn, ev->text, ev->text_len);
    log_tokens(c, ch, drawn_text_end(&ch->drawn));
}

static void take_delta(struct completions *c, struct choice *ch, const struct session_event *ev) {
    begin_stream(c);
    if (c->request->nothing) return;
    buf_add(&ch->text, ev->text, ev->text_len);
    if (c->request->logprobs) take_tokens(c, ch, ev);
    // Tokens whose text is held back may turn out to be a stop sequence, so they wait too.
    if (!c->streaming || c->request->scores || ch->text.len == 0) return;
    write_chunk(c, ch);
    service_count_token(c->service, ev->drawn_us);
}

// A prompt's tokens count once, not for each of its choices: the client sent it once.
static void count(struct completions *c, const struct choice *ch, const struct turn_numbers *n) {
    if ((size_t)(ch - c->choices) % c->request->n == 0) {
        c->usage.prompt_tokens += n->input_tokens;
        c->usage.cached_tokens += n->kept_tokens;
    }
    if (!c->request->nothing) c->usage.completion_tokens += n->output_tokens;
}

// Those of a prompt's first choice count for all of its choices.
static bool has_scores(const struct completions *c, const struct choice *ch) {
    return c->request->scores && (size_t)(ch - c->choices) % c->request->n == 0;
}

static void take_scores(struct completions *c, struct choice *ch, const struct turn_view *t) {
    if (t->scores) ch->scores = engine_scores_copy(t->scores);
    if (t->scores && !ch->scores) openai_no_memory(&c->failure);
    if (!t->scores) // it was cancelled, or its end was read again from the store
        openai_fail(&c->failure, 500, "server_error", NULL,
                    "the log-probabilities of the prompt were not computed");
}

// The rest of an answer's tokens, but those of a stop sequence alone.
static void take_last_tokens(struct completions *c, struct choice *ch, const struct turn_view *t) {
    bool stopped = t->finish_reason && strcmp(t->finish_reason, "stop") == 0;
    drawn_text_give(&ch->drawn, t->text, t->text_len);
    log_tokens(c, ch, stopped ? drawn_text_end(&ch->drawn) : UINT64_MAX);
}

static void take_end(struct completions *c, struct choice *ch, const struct turn_view *t) {
    if (t->error_code) {
        openai_fail(&c->failure, 500, t->error_code, NULL,
                    t->error_message ? t->error_message : "the turn failed");
        return;
    }
    begin_stream(c);
    if (!c->request->nothing) buf_add(&ch->text, t->text, t->text_len);
    if (c->request->logprobs) take_last_tokens(c, ch, t);
    ch->finish = c->request->nothing ? "length" : completions_finish(t->finish_reason);
    count(c, ch, &t->numbers);
    c->n_ended++;
    if (has_scores(c, ch)) take_scores(c, ch, t);
    if (c->streaming && !c->request->scores) write_chunk(c, ch);
}

static void take_event(struct completions *c, struct choice *ch, const struct session_event *ev) {
    switch (ev->kind) {
    case EVENT_STARTED:
        begin_stream(c);
        break;
    case EVENT_DELTA:
        take_delta(c, ch, ev);
        break;
    case EVENT_DONE:
        take_end(c, ch, &ev->turn);
        break;
    default:
        break;
    }
}

// With log-probabilities a token at a time, so that a chunk has the tokens of its text; one without text comes with the
// next.
static size_t event_bytes(const struct completions *c) {
    return c->request->logprobs ? 0 : EVENT_TEXT_BYTES;
}

// Sends as far as the client's socket has room: the rest stays in the sessions, after the cursors.
static void push(struct follower *f) {
    struct completions *c = (struct completions *)f;
    struct session_event ev;
    if (c->working) return;
    for (size_t i = 0; i < c->n_choices && !c->failure.status; i++) {
        struct choice *ch = &c->choices[i];
        while (ch->session && !c->failure.status) {
            if (c->streaming && !http_stream_has_room(c->http)) return;
            if (session_next_event(ch->session, f->client, event_bytes(c), &ev) == 1)
                take_event(c, ch, &ev);
            else
                ch->session = NULL; // on_ready comes
        }
    }
    if (c->failure.status) {
        reply_failure(c);
    } else if (c->written) {
        reply_scored(c);
    } else if (c->n_ended == c->n_choices && c->request->scores) {
        begin_scored(c);
    } else if (c->n_ended == c->n_choices) {
        if (c->streaming)
            finish_stream(c);
        else
            reply_whole(c);
        completions_free(c);
    }
}

static void on_room(void *ctx) {
    push(ctx);
}

// --- as a follower ---

static void push_later(struct completions *c) {
    if (!follower_push_later(&c->service->followers, &c->follower))
        openai_no_memory(&c->failure); // the next event takes it further
}

static void on_answer(struct follower *f, const struct session_answer *a) {
    struct completions *c = (struct completions *)f;
    if (a->kind != ANSWER_ERROR) return;
    completion_failure_take(&c->failure, a);
    push_later(c);
}

static struct choice *choice_of(struct completions *c, const struct session *s) {
    size_t i = 0;
    while (i < c->n_choices && strcmp(c->choices[i].id, session_id(s)) != 0) i++;
    return i < c->n_choices ? &c->choices[i] : NULL;
}

static void on_ready(struct follower *f, struct session *s) {
    struct completions *c = (struct completions *)f;
    struct choice *ch = choice_of(c, s);
    if (ch) ch->session = s;
    push_later(c);
}

static void on_store_failed(struct follower *f, const char *message) {
    struct completions *c = (struct completions *)f;
    if (c->working || c->failure.status) return;
    completion_failure_set(&c->failure, "store_failed", message);
    push_later(c);
}

static void on_gone(struct follower *f, struct session *s) {
    struct completions *c = (struct completions *)f;
    struct choice *ch = choice_of(c, s);
    if (ch) ch->session = NULL;
    if (!ch || !ch->finish)
        openai_fail(&c->failure, 500, "session_closed", NULL,
                    "the completion's session was deleted");
    push_later(c);
}

static bool is_drained(const struct follower *f) {
    const struct completions *c = (const struct completions *)f;
    for (size_t i = 0; i < c->n_choices; i++)
        if (c->choices[i].session) return false;
    return true;
}

static void on_end(struct follower *f) {
    struct completions *c = (struct completions *)f;
    if (c->working) return; // the reply is sent when the worker is done
    openai_fail(&c->failure, 503, "shutting_down", NULL, "the server is shutting down");
    reply_failure(c);
}

static const struct follower_ops follower_ops = {.on_answer = on_answer,
                                                 .on_ready = on_ready,
                                                 .on_store_failed = on_store_failed,
                                                 .on_gone = on_gone,
                                                 .push = push,
                                                 .drained = is_drained,
                                                 .end = on_end};

// --- the beginning ---

static void submit(struct completions *c, const char *owner, struct choice *ch) {
    struct sessions *ss = c->service->sessions;
    const struct completions_request *q = c->request;
    const struct openai_prompt *p = &q->prompts[(size_t)(ch - c->choices) / q->n];
    struct request r = service_request(&c->follower, REQUEST_OPEN, owner, ch->id);
    r.open.model = q->served->name;
    r.for_turn = true;
    r.cancel_after_ms = CANCEL_AFTER_MS;
    sessions_submit(ss, &r);
    if (c->failure.status) return;
    r = service_request(&c->follower, REQUEST_START, owner, ch->id);
    r.turn = TURN_HEAD;
    r.input = openai_prompt_input(p);
    r.sampling = &q->sampling;
    r.start.scores_input = has_scores(c, ch);
    r.for_turn = true;
    sessions_submit(ss, &r);
}

// Choices of one prompt draw other numbers: with seed S, the seeds S, S + 1 ...
static void submit_all(struct completions *c, const char *owner) {
    struct sampling_params *p = &c->request->sampling.params;
    uint64_t seed = p->seed;
    for (size_t i = 0; i < c->n_choices && !c->failure.status; i++) {
        if (p->has_seed) p->seed = seed + i % c->request->n;
        submit(c, owner, &c->choices[i]);
    }
}

static size_t count_text_chars(const char *s, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

// Empty answers, or the prompts where they are to be repeated.
static int make_choices(struct completions *c) {
    struct completions_request *q = c->request;
    char id[RANDOM_ID_LEN + 1];
    c->choices = calloc(q->n_prompts * q->n, sizeof *c->choices);
    if (!c->choices) return E_NOMEM;
    c->n_choices = q->n_prompts * q->n;
    random_id(id);
    for (size_t i = 0; i < c->n_choices; i++) {
        struct choice *ch = &c->choices[i];
        const struct openai_prompt *p = &q->prompts[i / q->n];
        if (i == 0)
            snprintf(ch->id, sizeof ch->id, "cmpl-%s", id);
        else
            snprintf(ch->id, sizeof ch->id, "cmpl-%s-%u", id, (unsigned)i);
        buf_init(&ch->text, ANSWER_MAX_BYTES);
        completions_logprobs_init(&ch->log, q->echo ? count_text_chars(p->text, p->len) : 0);
        completions_logprobs_init(&ch->prompt_log, 0);
        drawn_text_init(&ch->drawn, NULL);
        if (q->echo && buf_add(&ch->text, p->text, p->len) < 0) return E_NOMEM;
    }
    return 0;
}

// Takes the request. NULL: no memory, the request is freed.
static struct completions *completions_new(struct service *s, struct http *h,
                                           struct completions_request *q) {
    struct completions *c = calloc(1, sizeof *c);
    if (!c) {
        completions_request_free(q);
        return NULL;
    }
    c->follower.ops = &follower_ops;
    c->service = s;
    c->http = h;
    c->request = q;
    c->created_s = clock_wall_us(&clock_system) / 1000000;
    if (followers_add(&s->followers, &c->follower) < 0) {
        completions_request_free(q);
        free(c);
        return NULL;
    }
    if (make_choices(c) == 0) return c;
    completions_free(c);
    return NULL;
}

void openai_completions_handle(void *user, struct http *h) {
    struct service *s = user;
    const struct completions_request *q = http_decoded(h);
    if (q->failure.status) {
        openai_reply_failure(h, &q->failure);
        return;
    }
    struct completions *c = completions_new(s, h, http_take_decoded(h));
    if (!c) {
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    http_wait(h, &waiter, c);
    submit_all(c, http_owner(h));
    service_poll_soon(s);
}

void *openai_completions_decode(void *user, const struct http_payload *p) {
    const struct service *s = user;
    return completions_request_read(s, p->body, p->len);
}

void openai_completions_release(void *decoded) {
    completions_request_free(decoded);
}
