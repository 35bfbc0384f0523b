// POST /v1/completions: a session and a turn for each choice, followed until all have ended. The prompt is the
// session's first input, as plain text or ids. The sessions stay in the store: the first one under the
// completion's id, the others with their choice's number behind it. Choices of one prompt share its cache,
// as all sessions of an owner whose logs begin alike. See openai.h.
//
// Log-probabilities of the prompt come with the end of the turn of each prompt's first choice. So such a
// completion is written when all choices have ended, by a worker, since prompts are long.
#include "ws/completion/drawn_text.h"
#include "ws/completion/event_tokens.h"
#include "ws/openai/completions_request.h"
#include "ws/openai/completions_write.h"
#include "ws/openai/prompted.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_TEXT_BYTES 4096       // of one joined delta
#define ANSWER_MAX_BYTES (64 << 20) // of a whole answer
#define LANE_COMPLETIONS ((uint64_t)11 << 59)

struct choice {
    struct batch_turn turn;          // first
    struct buf text;                 // of an answer that is not streamed
    struct completions_logprobs log; // likewise; streamed, of one chunk
    struct drawn_text drawn;
    struct event_tokens waiting;  // tokens that begin behind the delivered text
    const char *finish;           // when its turn has ended
    struct engine_scores *scores; // of its prompt; NULL: not wanted, or another choice has them
    struct completions_logprobs prompt_log; // made of them
};

struct completions {
    struct prompted p; // first. Its turns are those of the first prompt, of the second ...
    int64_t created_s;
    struct completions_usage usage;
    bool written; // a worker has filled `out`
    struct service_job job;
    struct buf out;
};

static const struct completions_request *request_of(const struct completions *c) {
    return (const struct completions_request *)c->p.request;
}

static struct choice *choice_at(const struct completions *c, size_t i) {
    return (struct choice *)turn_batch_at(&c->p.batch, i);
}

static void release(struct prompted *p) {
    struct completions *c = (struct completions *)p;
    for (size_t i = 0; i < p->batch.n; i++) {
        struct choice *ch = choice_at(c, i);
        buf_release(&ch->text);
        completions_logprobs_release(&ch->log);
        drawn_text_release(&ch->drawn);
        event_tokens_release(&ch->waiting);
        completions_logprobs_release(&ch->prompt_log);
        free(ch->scores);
    }
    buf_release(&c->out);
}

// --- what is written ---

static struct answer_head head_of(const struct completions *c) {
    const struct served_model *m = c->p.request->served;
    return (struct answer_head){.id = choice_at(c, 0)->turn.id,
                                .model = m->name,
                                .fingerprint = m->info->fingerprint,
                                .created_s = c->created_s,
                                .include_usage = request_of(c)->include_usage};
}

static size_t index_of(const struct completions *c, const struct choice *ch) {
    return (size_t)(ch - choice_at(c, 0));
}

static const struct completions_logprobs *prompt_log_of(const struct completions *c,
                                                        const struct choice *ch) {
    size_t i = index_of(c, ch);
    return request_of(c)->scores ? &choice_at(c, i - i % request_of(c)->n)->prompt_log : NULL;
}

static struct completions_choice part_of(struct completions *c, struct choice *ch) {
    return (struct completions_choice){.text = buf_z(&ch->text),
                                       .len = ch->text.len,
                                       .index = index_of(c, ch),
                                       .prompt = prompt_log_of(c, ch),
                                       .logprobs = request_of(c)->logprobs ? &ch->log : NULL,
                                       .finish_reason = ch->finish};
}

// Sends what a choice has so far as a chunk.
static void write_chunk(struct completions *c, struct choice *ch) {
    struct answer_head head = head_of(c);
    struct completions_choice part = part_of(c, ch);
    struct buf out;
    buf_init(&out, ANSWER_MAX_BYTES);
    completions_write_chunk(&out, &head, &part);
    http_stream_buf(c->p.http, &out);
    buf_reset(&ch->text);
    completions_logprobs_clear(&ch->log);
}

static const struct prompted_ops ops;

// Streamed: the head, and the prompt of each choice where it is wanted.
static void begin_stream(struct completions *c) {
    if (!request_of(c)->stream || c->p.streaming) return;
    c->p.streaming = true;
    http_stream(c->p.http, "text/event-stream", HTTP_EVENTS_HEADERS, &ops.waiter, c);
    bool prompts_first = request_of(c)->echo && !request_of(c)->scores;
    for (size_t i = 0; i < c->p.batch.n && prompts_first; i++) write_chunk(c, choice_at(c, i));
}

static void finish_stream(struct completions *c) {
    struct answer_head head = head_of(c);
    struct buf out;
    buf_init(&out, 8192);
    completions_write_last(&out, &head, &c->usage);
    http_stream_buf(c->p.http, &out);
    http_stream_end(c->p.http);
}

static void write_whole(struct completions *c, struct buf *out) {
    struct answer_head head = head_of(c);
    struct json_writer w;
    json_writer_init(&w, out);
    completions_write_begin(&w, &head);
    for (size_t i = 0; i < c->p.batch.n; i++) {
        struct completions_choice part = part_of(c, choice_at(c, i));
        if (choice_at(c, i)->text.error && !out->error) out->error = choice_at(c, i)->text.error;
        completions_write_choice(&w, &part);
    }
    completions_write_end(&w, &c->usage);
}

static void reply_whole(struct completions *c) {
    struct buf out;
    buf_init(&out, ANSWER_MAX_BYTES);
    write_whole(c, &out);
    http_reply_json(c->p.http, 200, &out);
}

// --- with the log-probabilities of prompts ---

// On a worker: writes the whole reply.
static void write_scored(struct follower *f) {
    struct completions *c = (struct completions *)f;
    const struct completions_request *q = request_of(c);
    for (size_t i = 0; i < c->p.batch.n; i += q->n) {
        const struct openai_prompt *p = &q->in.prompts[i / q->n];
        struct choice *ch = choice_at(c, i);
        completions_logprobs_add_prompt(&ch->prompt_log, q->in.served->engine, ch->scores, p->text,
                                        p->len);
    }
    if (!c->p.streaming) {
        write_whole(c, &c->out);
        return;
    }
    struct answer_head head = head_of(c);
    for (size_t i = 0; i < c->p.batch.n; i++) {
        struct completions_choice part = part_of(c, choice_at(c, i));
        if (choice_at(c, i)->text.error && !c->out.error)
            c->out.error = choice_at(c, i)->text.error;
        completions_write_chunk(&c->out, &head, &part);
    }
    completions_write_last(&c->out, &head, &c->usage);
}

static void scored_written(struct follower *f) {
    struct completions *c = (struct completions *)f;
    c->p.working = false;
    c->written = true;
    if (c->p.http)
        turn_batch_push_later(&c->p.batch);
    else
        prompted_free(&c->p);
}

static void begin_scored(struct completions *c) {
    struct prompted *p = &c->p;
    buf_init(&c->out, ANSWER_MAX_BYTES);
    c->job = (struct service_job){.run = write_scored, .done = scored_written};
    p->working = true;
    if (service_work(p->batch.service, &p->batch.follower, p->batch.owner, LANE_COMPLETIONS,
                     &c->job) == 0)
        return;
    p->working = false;
    openai_fail(&p->failure, 503, "overloaded", NULL, "too many requests are being written");
    turn_batch_push_later(&p->batch);
}

static void reply_scored(struct completions *c) {
    if (!c->p.streaming) {
        http_reply_json(c->p.http, 200, &c->out);
    } else if (c->out.error) {
        openai_no_memory(&c->p.failure);
        prompted_refuse(&c->p);
        return;
    } else {
        http_stream_buf(c->p.http, &c->out);
        http_stream_end(c->p.http);
    }
    prompted_free(&c->p);
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
        completions_logprobs_add(&ch->log, c->p.request->served->engine, t->id, t->logprob, a,
                                 t->n_alternatives);
    }
    event_tokens_drop(&ch->waiting, n);
}

static void take_tokens(struct completions *c, struct choice *ch, const struct session_event *ev) {
    const struct served_model *m = c->p.request->served;
    size_t n_alt = ev->alternatives ? (size_t)ev->n_alternatives : 0;
    for (size_t i = 0; ev->logprobs && i < ev->n_ids; i++) {
        uint64_t start = drawn_text_add(&ch->drawn, m->engine, ev->ids[i]);
        const struct engine_alternative *a = n_alt ? ev->alternatives + i * n_alt : NULL;
        // Harnesses that score a prompt expect one more token after the prompt, even a token that ends the answer.
        if (request_of(c)->scores)
            completions_logprobs_add(&ch->log, m->engine, ev->ids[i], ev->logprobs[i], a,
                                     (int32_t)n_alt);
        else if (event_tokens_add(&ch->waiting, m, ev->ids[i], ev->logprobs[i], start, a, n_alt) <
                 0)
            openai_no_memory(&c->p.failure);
    }
    drawn_text_give(&ch->drawn, ev->text, ev->text_len);
    log_tokens(c, ch, drawn_text_end(&ch->drawn));
}

static void take_delta(struct completions *c, struct choice *ch, const struct session_event *ev) {
    begin_stream(c);
    if (request_of(c)->nothing) return;
    buf_add(&ch->text, ev->text, ev->text_len);
    if (request_of(c)->logprobs) take_tokens(c, ch, ev);
    // Tokens whose text is held back may turn out to be a stop sequence, so they wait too.
    if (!c->p.streaming || request_of(c)->scores || ch->text.len == 0) return;
    write_chunk(c, ch);
    service_count_token(c->p.batch.service, ev->drawn_us);
}

// A prompt's tokens count once, not for each of its choices: the client sent it once.
static void count(struct completions *c, const struct choice *ch, const struct turn_numbers *n) {
    if (index_of(c, ch) % request_of(c)->n == 0) {
        c->usage.prompt_tokens += n->input_tokens;
        c->usage.cached_tokens += n->kept_tokens;
    }
    if (!request_of(c)->nothing) c->usage.completion_tokens += n->output_tokens;
}

// The first choice of a prompt has the prompt's scores for all choices.
static bool has_scores(const struct completions *c, const struct choice *ch) {
    return request_of(c)->scores && index_of(c, ch) % request_of(c)->n == 0;
}

static void take_scores(struct completions *c, struct choice *ch, const struct turn_view *t) {
    if (t->scores) ch->scores = engine_scores_copy(t->scores);
    if (t->scores && !ch->scores) openai_no_memory(&c->p.failure);
    if (!t->scores) // it was cancelled, or its end was read again from the store
        openai_fail(&c->p.failure, 500, "server_error", NULL,
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
        completion_failure_set(&c->p.failure, t->error_code, t->error_message);
        return;
    }
    begin_stream(c);
    if (!request_of(c)->nothing) buf_add(&ch->text, t->text, t->text_len);
    if (request_of(c)->logprobs) take_last_tokens(c, ch, t);
    ch->finish = request_of(c)->nothing ? "length" : completions_finish(t->finish_reason);
    count(c, ch, &t->numbers);
    ch->turn.ended = true;
    if (has_scores(c, ch)) take_scores(c, ch, t);
    if (c->p.streaming && !request_of(c)->scores) write_chunk(c, ch);
}

static void take(struct prompted *p, struct batch_turn *t, const struct session_event *ev) {
    struct completions *c = (struct completions *)p;
    struct choice *ch = (struct choice *)t;
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
static size_t event_bytes(const struct prompted *p) {
    return request_of((const struct completions *)p)->logprobs ? 0 : EVENT_TEXT_BYTES;
}

// --- from the beginning to the end ---

// Choices of one prompt draw other numbers: with seed S, the seeds S, S + 1 ...
static void start_all(struct completions *c) {
    struct sampling_params *p = &c->p.request->sampling.params;
    size_t n = request_of(c)->n;
    uint64_t seed = p->seed;
    for (size_t i = 0; i < c->p.batch.n && !c->p.failure.status; i++) {
        if (p->has_seed) p->seed = seed + i % n;
        prompted_start(&c->p, &c->p.request->prompts[i / n], false, has_scores(c, choice_at(c, i)));
    }
}

static void step(struct prompted *p) {
    struct completions *c = (struct completions *)p;
    if (p->batch.n_started == 0) {
        start_all(c);
    } else if (c->written) {
        reply_scored(c);
    } else if (p->n_ended == p->batch.n && request_of(c)->scores) {
        begin_scored(c);
    } else if (p->n_ended == p->batch.n) {
        if (p->streaming)
            finish_stream(c);
        else
            reply_whole(c);
        prompted_free(p);
    }
}

// Empty answers, or the prompts where they are to be repeated.
static bool begin(struct prompted *p) {
    struct completions *c = (struct completions *)p;
    const struct completions_request *q = request_of(c);
    char id[RANDOM_ID_LEN + 1];
    c->created_s = clock_wall_us(&clock_system) / 1000000;
    random_id(id);
    for (size_t i = 0; i < p->batch.n; i++) {
        struct choice *ch = choice_at(c, i);
        const struct openai_prompt *prompt = &q->in.prompts[i / q->n];
        if (i == 0)
            snprintf(ch->turn.id, sizeof ch->turn.id, "cmpl-%s", id);
        else
            snprintf(ch->turn.id, sizeof ch->turn.id, "cmpl-%s-%u", id, (unsigned)i);
        buf_init(&ch->text, ANSWER_MAX_BYTES);
        completions_logprobs_init(&ch->log,
                                  q->echo ? completions_chars(prompt->text, prompt->len) : 0);
        completions_logprobs_init(&ch->prompt_log, 0);
        drawn_text_init(&ch->drawn, NULL);
        if (q->echo && buf_add(&ch->text, prompt->text, prompt->len) < 0) return false;
    }
    return true;
}

static const struct prompted_ops ops = {
    .waiter = {prompted_client_gone, prompted_push, HTTP_EVENTS_PING},
    .begin = begin,
    .take = take,
    .event_bytes = event_bytes,
    .step = step,
    .release = release,
    .bytes = sizeof(struct completions),
    .turn_bytes = sizeof(struct choice)};

void openai_completions_handle(void *user, struct http *h) {
    const struct completions_request *q = http_decoded(h);
    prompted_handle(user, h, &ops, q->in.n * q->n);
}
