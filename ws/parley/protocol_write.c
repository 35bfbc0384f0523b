// Encoding: events and answers of the session service to JSON text. turn.delta is written once per
// token and client, so its constant parts are copied, not built.
#include "base/utf8.h"
#include "ws/parley/protocol.h"
#include "ws/version.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADD(out, literal) buf_add(out, literal, sizeof(literal) - 1)

static void begin(struct json_writer *w, struct buf *out, const char *type,
                  const char *request_id) {
    json_writer_init(w, out);
    json_open(w, NULL, '{');
    json_put_string(w, "type", type);
    if (request_id && *request_id) json_put_string(w, "request_id", request_id);
}

static void put_object(struct json_writer *w, const char *key, const char *json) {
    json_put_raw(w, key, json ? json : "{}", json ? strlen(json) : 2);
}

static double ms(int64_t us) {
    return (double)us / 1000.0;
}

static void put_turn_or_null(struct json_writer *w, const char *key, int64_t turn) {
    if (turn >= 0)
        json_put_int(w, key, turn);
    else
        json_put_null(w, key);
}

void protocol_put_forked_from(struct json_writer *w, const char *session, int64_t turn) {
    if (!session) {
        json_put_null(w, "forked_from");
        return;
    }
    json_open(w, "forked_from", '{');
    json_put_string(w, "session", session);
    put_turn_or_null(w, "turn", turn);
    json_close(w, '}');
}

// --- objects ---

void protocol_put_session(struct json_writer *w, const char *key, const struct session_view *v) {
    json_open(w, key, '{');
    json_put_string(w, "id", v->id);
    json_put_string(w, "title", v->title ? v->title : "");
    json_put_bool(w, "auto_title", v->auto_title);
    json_put_string(w, "model", v->model);
    json_put_string(w, "state", session_state_name(v->state));
    json_put_int(w, "created_ms", v->created_ms);
    json_put_int(w, "updated_ms", v->updated_ms);
    json_put_int(w, "n_turns", v->n_turns);
    json_put_int(w, "n_tokens", v->n_tokens);
    json_put_int(w, "session_len", v->session_len);
    json_put_int(w, "memory_len", v->memory_len);
    json_put_int(w, "sink_len", v->sink_len);
    json_put_int(w, "cached_tokens", v->cached_tokens);
    json_put_bool(w, "snapshot", v->snapshot);
    json_put_string(w, "system", v->system);
    put_object(w, "sampling", v->sampling);
    if (v->cancel_after_ms) {
        json_open(w, "on_disconnect", '{');
        json_put_int(w, "cancel_after_ms", v->cancel_after_ms);
        json_close(w, '}');
    } else {
        json_put_string(w, "on_disconnect", "finish");
    }
    json_put_int(w, "seq", v->seq);
    put_turn_or_null(w, "turn", v->turn);
    put_turn_or_null(w, "head", v->head);
    if (v->below >= 0) json_put_bool(w, "below", v->below);
    protocol_put_forked_from(w, v->forked_from, v->forked_turn);
    json_close(w, '}');
}

static void put_input(struct json_writer *w, const struct turn_input *in) {
    const char *text = in->text ? in->text : "";
    json_open(w, "input", '{');
    switch (in->kind) {
    case INPUT_CONTENT:
        json_put_text(w, "content", text, in->text_len);
        break;
    case INPUT_TEXT:
        json_put_text(w, "text", text, in->text_len);
        break;
    case INPUT_IDS:
        json_put_int(w, "n_ids", (int64_t)in->n_ids);
        break;
    case INPUT_CONTINUE:
        json_put_bool(w, "continue", true);
        break;
    }
    json_close(w, '}');
}

void protocol_put_cache(struct json_writer *w, const struct turn_numbers *n, const char *refused) {
    json_open(w, "cache", '{');
    json_put_string(w, "source", engine_cache_source_name(n->source));
    json_put_int(w, "kept_tokens", n->kept_tokens);
    json_put_int(w, "computed_tokens", n->computed_tokens);
    json_put_double(w, "resume_ms", ms(n->resume_us));
    if (refused) json_put_string(w, "refused", refused);
    json_close(w, '}');
}

// usage, timings, cache, error: what is known when a turn is done.
static void put_result(struct json_writer *w, const struct turn_view *t, const char *refused) {
    const struct turn_numbers *n = &t->numbers;
    json_open(w, "usage", '{');
    json_put_int(w, "input_tokens", n->input_tokens);
    json_put_int(w, "output_tokens", n->output_tokens);
    json_put_int(w, "log_tokens", n->log_tokens);
    json_close(w, '}');
    json_open(w, "timings", '{');
    json_put_double(w, "queue_ms", ms(n->queue_us));
    json_put_double(w, "prefill_ms", ms(n->prefill_us));
    json_put_double(w, "first_token_ms", ms(n->first_token_us));
    json_put_double(w, "decode_ms", ms(n->decode_us));
    // The first token is the prefill's: between n tokens lie n - 1 decode steps.
    double steps = n->output_tokens > 1 && n->decode_us > 0 ? (double)(n->output_tokens - 1) : 0;
    json_put_double(w, "tokens_per_second", steps > 0 ? steps * 1e6 / (double)n->decode_us : 0);
    json_close(w, '}');
    protocol_put_cache(w, n, refused);
    if (!t->error_code) return;
    json_open(w, "error", '{');
    json_put_string(w, "code", t->error_code);
    json_put_string(w, "message", t->error_message ? t->error_message : "");
    json_close(w, '}');
}

static const char *turn_state_name(enum turn_state s) {
    return s == TURN_QUEUED ? "queued" : s == TURN_RUNNING ? "running" : "done";
}

static void put_place(struct json_writer *w, const struct turn_view *t) {
    json_put_int(w, "turn", t->turn);
    put_turn_or_null(w, "parent", t->parent);
}

void protocol_put_turn(struct json_writer *w, const char *key, const struct turn_view *t) {
    json_open(w, key, '{');
    put_place(w, t);
    if (t->n_siblings > 0) {
        json_open(w, "siblings", '[');
        for (size_t i = 0; i < t->n_siblings; i++) json_put_int(w, NULL, t->siblings[i]);
        json_close(w, ']');
        json_open(w, "inputs", '[');
        for (size_t i = 0; i < t->n_siblings; i++) json_put_int(w, NULL, t->inputs[i]);
        json_close(w, ']');
    }
    json_put_string(w, "state", turn_state_name(t->state));
    put_input(w, &t->input);
    json_put_text(w, "text", t->text ? t->text : "", t->text ? t->text_len : 0);
    json_put_string(w, "finish_reason", t->finish_reason);
    json_put_int(w, "n_input", t->numbers.input_tokens);
    json_put_int(w, "n_output", t->numbers.output_tokens);
    json_put_u64_string(w, "seed", t->seed);
    put_object(w, "sampling", t->sampling);
    json_put_int(w, "created_ms", t->created_ms);
    if (t->state == TURN_DONE) put_result(w, t, NULL);
    json_put_int(w, "seq_first", t->seq_first);
    json_put_int(w, "seq_last", t->seq_last);
    json_close(w, '}');
}

// --- the server's own words ---

static void put_model(struct json_writer *w, const struct protocol_hello *h) {
    const struct engine_info *e = h->engine;
    const struct turn_sampling defaults = {.params = h->sampling};
    json_open(w, NULL, '{');
    json_put_string(w, "name", e->model_name);
    json_put_string(w, "family", e->family);
    json_put_int(w, "n_params", e->n_params);
    json_put_int(w, "n_vocab", e->n_vocab);
    json_put_string(w, "backend", e->backend);
    json_put_bool(w, "chat", e->chat_template != NULL);
    json_put_int(w, "session_len", h->session_len);
    json_put_int(w, "max_session_len", e->max_session_len);
    json_put_int(w, "memory_len", h->memory_len);
    json_put_int(w, "max_memory_len", e->max_memory_len);
    json_put_int(w, "sink_len", h->sink_len);
    sampling_json_put(w, "sampling", &defaults, sampling_rows_in(SAMPLING_SERVER));
    json_close(w, '}');
}

void protocol_write_hello(struct buf *out, const struct protocol_hello *h, const char *request_id) {
    struct json_writer w;
    begin(&w, out, "hello", request_id);
    json_put_string(&w, "protocol", PROTOCOL_NAME);
    json_open(&w, "server", '{');
    json_put_string(&w, "name", "parley");
    json_put_string(&w, "version", PARLEY_VERSION);
    json_close(&w, '}');
    json_open(&w, "models", '[');
    put_model(&w, h);
    json_close(&w, ']');
    sampling_json_put_rows(&w, "sampling_parameters");
    json_open(&w, "limits", '{');
    json_put_int(&w, "message_bytes", h->message_bytes);
    json_put_int(&w, "messages_per_second", h->messages_per_second);
    json_put_int(&w, "rate_bytes", PROTOCOL_RATE_BYTES);
    json_put_int(&w, "title_bytes", PROTOCOL_TITLE_BYTES);
    json_put_int(&w, "system_bytes", PROTOCOL_SYSTEM_BYTES);
    json_put_int(&w, "queued_turns", h->queued_turns);
    json_close(&w, '}');
    json_put_int(&w, "idle_eviction_ms", h->idle_eviction_ms);
    json_close(&w, '}');
}

void protocol_write_pong(struct buf *out, const char *request_id) {
    struct json_writer w;
    begin(&w, out, "pong", request_id);
    json_close(&w, '}');
}

void protocol_write_watching(struct buf *out, const char *request_id) {
    struct json_writer w;
    begin(&w, out, "sessions.watching", request_id);
    json_close(&w, '}');
}

void protocol_write_error(struct buf *out, const char *code, const char *message,
                          const char *request_id, const char *session, int64_t retry_after_ms) {
    struct json_writer w;
    begin(&w, out, "error", request_id);
    json_put_string(&w, "code", code);
    json_put_string(&w, "message", message);
    if (session) json_put_string(&w, "session", session);
    if (retry_after_ms > 0) json_put_int(&w, "retry_after_ms", retry_after_ms);
    json_close(&w, '}');
}

void protocol_write_changed(struct buf *out, const struct session_view *view, bool removed) {
    struct json_writer w;
    begin(&w, out, removed ? "session.removed" : "session.changed", "");
    if (removed)
        json_put_string(&w, "session", view->id);
    else
        protocol_put_session(&w, "session", view);
    json_close(&w, '}');
}

void protocol_write_progress(struct buf *out, const char *session, int64_t turn, int64_t done,
                             int64_t total) {
    struct json_writer w;
    begin(&w, out, "turn.progress", "");
    json_put_string(&w, "session", session);
    json_put_int(&w, "turn", turn);
    json_put_int(&w, "done", done);
    json_put_int(&w, "total", total);
    json_close(&w, '}');
}

void protocol_write_stalled(struct buf *out, const char *session, const char *reason) {
    struct json_writer w;
    begin(&w, out, "session.stalled", "");
    json_put_string(&w, "session", session);
    json_put_string(&w, "message", reason);
    json_close(&w, '}');
}

// --- events ---

static void put_alternatives(struct json_writer *w, const struct session_event *ev,
                             const struct engine *engine) {
    json_open(w, "top_logprobs", '[');
    for (size_t i = 0; i < ev->n_ids; i++) {
        json_open(w, NULL, '[');
        for (int32_t k = 0; k < ev->n_alternatives; k++) {
            const struct engine_alternative *a =
                &ev->alternatives[i * (size_t)ev->n_alternatives + (size_t)k];
            if (a->id < 0) break; // fewer than asked for
            size_t len = 0;
            const char *bytes = engine_token_bytes(engine, a->id, &len);
            json_open(w, NULL, '{');
            json_put_int(w, "id", a->id);
            json_put_text(w, "text", bytes ? bytes : "", bytes ? len : 0);
            json_put_double(w, "logprob", (double)a->logprob);
            json_close(w, '}');
        }
        json_close(w, ']');
    }
    json_close(w, ']');
}

static void write_delta(struct buf *out, const struct session_event *ev, const char *session,
                        const struct engine *engine) {
    struct json_writer w;
    json_writer_init(&w, out);
    ADD(out, "{\"type\":\"turn.delta\",\"session\":\""); // an id needs no escapes
    buf_addz(out, session);
    ADD(out, "\"");
    w.comma = true;
    json_put_int(&w, "seq", ev->seq);
    json_put_int(&w, "first_seq", ev->first_seq);
    json_put_int(&w, "turn", ev->delta_turn);
    json_put_text(&w, "text", ev->text ? ev->text : "", ev->text ? ev->text_len : 0);
    json_open(&w, "ids", '[');
    for (size_t i = 0; i < ev->n_ids; i++) json_put_int(&w, NULL, ev->ids[i]);
    json_close(&w, ']');
    if (ev->logprobs) {
        json_open(&w, "logprobs", '[');
        for (size_t i = 0; i < ev->n_ids; i++) json_put_double(&w, NULL, (double)ev->logprobs[i]);
        json_close(&w, ']');
    }
    if (ev->alternatives && ev->n_alternatives > 0) put_alternatives(&w, ev, engine);
    ADD(out, "}");
}

static void put_started(struct json_writer *w, const struct turn_view *t) {
    put_input(w, &t->input);
    json_put_int(w, "n_input", t->numbers.input_tokens);
    json_put_u64_string(w, "seed", t->seed);
    put_object(w, "sampling", t->sampling);
    json_put_int(w, "created_ms", t->created_ms);
}

static const char *event_type(enum session_event_kind k) {
    switch (k) {
    case EVENT_OPENED:
        return "session.opened";
    case EVENT_UPDATED:
        return "session.updated";
    case EVENT_CLOSED:
        return "session.closed";
    case EVENT_QUEUED:
        return "turn.queued";
    case EVENT_STARTED:
        return "turn.started";
    case EVENT_DELTA:
        return "turn.delta";
    case EVENT_DONE:
        return "turn.done";
    case EVENT_EVICTED:
        return "session.evicted";
    case EVENT_REWOUND:
        return "session.rewound";
    case EVENT_PARKED:
        return "session.parked";
    }
    return "";
}

void protocol_write_event(struct buf *out, const struct session_event *ev, const char *session,
                          const struct engine *engine) {
    struct json_writer w;
    if (ev->kind == EVENT_DELTA) {
        write_delta(out, ev, session, engine);
        return;
    }
    begin(&w, out, event_type(ev->kind), ev->request_id);
    bool whole = ev->kind == EVENT_OPENED || ev->kind == EVENT_UPDATED ||
                 ev->kind == EVENT_CLOSED || ev->kind == EVENT_REWOUND;
    if (whole)
        protocol_put_session(&w, "session", &ev->session);
    else
        json_put_string(&w, "session", session);
    json_put_int(&w, "seq", ev->seq);
    switch (ev->kind) {
    case EVENT_CLOSED:
        json_put_bool(&w, "deleted", ev->deleted);
        break;
    case EVENT_REWOUND:
        put_turn_or_null(&w, "head", ev->head);
        break;
    case EVENT_QUEUED:
        put_place(&w, &ev->turn);
        put_input(&w, &ev->turn.input);
        break;
    case EVENT_STARTED:
        put_place(&w, &ev->turn);
        put_started(&w, &ev->turn);
        break;
    case EVENT_DONE:
        json_put_int(&w, "turn", ev->turn.turn);
        json_put_string(&w, "finish_reason", ev->turn.finish_reason);
        if (ev->turn.text_len > 0) json_put_text(&w, "text", ev->turn.text, ev->turn.text_len);
        put_result(&w, &ev->turn, ev->reason);
        break;
    case EVENT_EVICTED:
    case EVENT_PARKED:
        json_put_string(&w, "reason", ev->reason);
        json_put_string(
            &w, "state",
            session_state_name(ev->kind == EVENT_PARKED ? SESSION_PARKED : SESSION_COLD));
        break;
    default:
        break;
    }
    json_close(&w, '}');
}

// --- answers ---

// Turns oldest first, as many of the newest as the cap of out leaves room for. The sizes are known
// only by writing, so it writes from a later turn again until it fits; each try leaves out half of
// what is left.
static void write_state(struct buf *out, const struct session_answer *a) {
    size_t start = out->len;
    for (size_t first = 0;; first += (a->n_turns - first + 1) / 2) {
        struct json_writer w;
        begin(&w, out, "session.state", a->request_id);
        protocol_put_session(&w, "session", &a->session);
        json_open(&w, "turns", '[');
        for (size_t i = first; i < a->n_turns; i++) protocol_put_turn(&w, NULL, &a->turns[i]);
        json_close(&w, ']');
        json_put_int(&w, "seq", a->seq);
        if (a->before >= 0) json_put_int(&w, "before", a->before);
        json_put_bool(&w, "more", a->more || first > 0);
        json_close(&w, '}');
        if (out->error != E_LIMIT || first >= a->n_turns) return;
        out->error = 0;
        out->len = start;
    }
}

static void write_list(struct buf *out, const struct session_answer *a) {
    struct json_writer w;
    begin(&w, out, "session.list", a->request_id);
    json_open(&w, "sessions", '[');
    for (size_t i = 0; i < a->n_sessions; i++) protocol_put_session(&w, NULL, &a->sessions[i]);
    json_close(&w, ']');
    json_put_string(&w, "cursor", a->cursor);
    json_close(&w, '}');
}

static void write_about(struct buf *out, const char *type, const struct session_answer *a,
                        bool turn) {
    struct json_writer w;
    begin(&w, out, type, a->request_id);
    json_put_string(&w, "session", a->session_id);
    if (turn) json_put_int(&w, "turn", a->turn);
    json_close(&w, '}');
}

static void write_with_session(struct buf *out, const char *type, const struct session_answer *a) {
    struct json_writer w;
    begin(&w, out, type, a->request_id);
    protocol_put_session(&w, "session", &a->session);
    if (a->kind == ANSWER_ATTACHED) json_put_bool(&w, "reset", a->reset);
    if (a->kind != ANSWER_REWOUND || a->seq > 0) json_put_int(&w, "seq", a->session.seq);
    if (a->kind == ANSWER_REWOUND) put_turn_or_null(&w, "head", a->session.head);
    if (a->kind == ANSWER_CLOSED) json_put_bool(&w, "deleted", a->deleted);
    json_close(&w, '}');
}

static void write_exported(struct buf *out, const struct session_answer *a) {
    struct json_writer w;
    begin(&w, out, "session.exported", a->request_id);
    json_put_string(&w, "session", a->session_id);
    json_put_text(&w, "archive", a->archive, a->archive_len);
    json_close(&w, '}');
}

void protocol_write_answer(struct buf *out, const struct session_answer *a,
                           const struct engine *engine) {
    switch (a->kind) {
    case ANSWER_ERROR:
        protocol_write_error(out, a->code, a->message, a->request_id, a->session_id,
                             a->retry_after_ms);
        return;
    case ANSWER_ATTACHED:
        write_with_session(out, "session.attached", a);
        return;
    case ANSWER_DETACHED:
        write_about(out, "session.detached", a, false);
        return;
    case ANSWER_STATE:
        write_state(out, a);
        return;
    case ANSWER_LIST:
        write_list(out, a);
        return;
    case ANSWER_ACCEPTED:
        write_about(out, "turn.accepted", a, true);
        return;
    case ANSWER_CANCELLING:
        write_about(out, "turn.cancelling", a, false);
        return;
    case ANSWER_CLOSED:
        write_with_session(out, "session.closed", a);
        return;
    case ANSWER_UPDATED:
        write_with_session(out, "session.updated", a);
        return;
    case ANSWER_OPENED:
        write_with_session(out, "session.opened", a);
        return;
    case ANSWER_TURN:
    case ANSWER_EVENTS:
    case ANSWER_REPLAYING:
    case ANSWER_REPLAYED:
        protocol_write_debug(out, a, engine);
        return;
    case ANSWER_REWOUND:
        write_with_session(out, "session.rewound", a);
        return;
    case ANSWER_EXPORTED:
        write_exported(out, a);
        return;
    case ANSWER_IMPORTED:
        write_with_session(out, "session.imported", a);
        return;
    }
}
