// Encoding: events and answers of the session service to JSON text. Their objects: protocol_objects.c. Sampled
// tokens: protocol_tokens.c.
#include "base/json_form.h"
#include "base/utf8.h"
#include "ws/parley/protocol_objects.h"
#include "ws/version.h"
#include <string.h>

static void begin(struct json_writer *w, struct buf *out, const char *type,
                  const char *request_id) {
    json_writer_init(w, out);
    json_form(w, "{type:%s,request_id?:%s", type, request_id);
}

// --- the server's own words ---

// What a session costs: the layers' windows, and the bytes of a session of the default lengths that is full.
static void put_cache(struct json_writer *w, const struct served_model *m) {
    const struct engine_info *e = m->info;
    const int64_t most = m->session_len < m->memory_len ? m->session_len : m->memory_len;
    if (e->n_kv_windows == 0) return;
    json_form(w, "cache:{session_bytes:%ld,windows:[", engine_cache_bytes(e, most));
    for (int32_t i = 0; i < e->n_kv_windows; i++)
        json_form(w, "{window:%d,bytes_per_token:%ld}", e->kv_windows[i].window,
                  e->kv_windows[i].bytes_per_token);
    json_form(w, "]}");
}

static void put_model(struct json_writer *w, const struct served_model *m) {
    const struct engine_info *e = m->info;
    const struct turn_sampling defaults = {.params = m->sampling};
    json_form(w,
              "{name:%s,family:%s,n_params:%ld,n_vocab:%d,backend:%s,chat:%hhd,session_len:%ld,"
              "max_session_len:%ld,memory_len:%d,max_memory_len:%d,sink_len:%d,"
              "first_virtual_id:%d,prompt_tasks:[",
              m->name, e->family, e->n_params, e->n_vocab, e->backend, e->chat_template != NULL,
              m->session_len, e->max_session_len, m->memory_len, e->max_memory_len, m->sink_len,
              PROMPT_ID_FIRST);
    for (size_t i = 0; i < e->n_prompt_tasks; i++) {
        const struct prompt_task *t = &e->prompt_tasks[i];
        json_form(w, "{task:%s,kind:%s,hash:%s,n_virtual:%d}", t->name,
                  prompt_kind_name(t->prompt->kind), t->prompt->digits, t->prompt->n_rows);
    }
    json_close(w, ']');
    put_cache(w, m);
    if (m->suggestions) json_put_raw(w, "suggestions", m->suggestions, strlen(m->suggestions));
    sampling_json_put(w, "sampling", &defaults, sampling_rows_in(SAMPLING_SERVER));
    json_close(w, '}');
}

void protocol_write_hello(struct buf *out, const struct protocol_hello *h, const char *request_id) {
    struct json_writer w;
    begin(&w, out, "hello", request_id);
    json_form(&w,
              "protocol:%s,server:{name:'parley',version:%s,id?:%s},user:{name?:%s,admin:%hhd},"
              "models:[",
              PROTOCOL_NAME, PARLEY_VERSION, h->server_name, h->user, h->admin);
    for (const struct served_model *m = h->models; m; m = m->next) put_model(&w, m);
    json_close(&w, ']');
    sampling_json_put_rows(&w, "sampling_parameters");
    json_form(&w,
              "limits:{message_bytes:%ld,messages_per_second:%ld,rate_bytes:%ld,title_bytes:%d,"
              "system_bytes:%d,queued_turns:%ld},idle_eviction_ms:%ld,sharing?:%hhd}",
              h->message_bytes, h->messages_per_second, h->rate_bytes, PROTOCOL_TITLE_BYTES,
              PROTOCOL_SYSTEM_BYTES, h->queued_turns, h->idle_eviction_ms, h->sharing);
}

void protocol_write_plain(struct buf *out, const char *type, const char *request_id) {
    struct json_writer w;
    begin(&w, out, type, request_id);
    json_close(&w, '}');
}

void protocol_write_importing(struct buf *out, int64_t bytes, const char *request_id) {
    struct json_writer w;
    begin(&w, out, "session.importing", request_id);
    json_form(&w, "bytes:%ld}", bytes);
}

void protocol_write_error(struct buf *out, const char *code, const char *message,
                          const char *request_id, const char *session, int64_t retry_after_ms,
                          const struct err_facts *facts) {
    struct json_writer w;
    begin(&w, out, "error", request_id);
    json_form(&w, "code:%s,message:%s,session?:%s,retry_after_ms?:%ld,key?:%s", code, message,
              session ? session : "", retry_after_ms, facts ? facts->key : "");
    if (facts && facts->most > 0)
        json_form(&w, "room:{need:%ld,at_least?:%hhd,left:%ld,most:%ld}", facts->need,
                  facts->at_least, facts->left, facts->most);
    json_close(&w, '}');
}

void protocol_write_changed(struct buf *out, const struct session_view *view, bool removed) {
    struct json_writer w;
    begin(&w, out, removed ? "session.removed" : "session.changed", "");
    if (removed)
        json_put_string(&w, "session", view->rec.id);
    else
        protocol_put_session_as(&w, "session", view, SYSTEM_NONE);
    json_close(&w, '}');
}

void protocol_write_progress(struct buf *out, const char *session, int64_t turn, int64_t done,
                             int64_t total) {
    struct json_writer w;
    begin(&w, out, "turn.progress", "");
    json_form(&w, "session:%s,turn:%ld,done:%ld,total:%ld}", session, turn, done, total);
}

void protocol_write_stalled(struct buf *out, const char *session, const struct err *why) {
    struct json_writer w;
    const char *reason = why->code == E_FULL     ? "disk_full"
                         : why->code == E_DENIED ? "read_only"
                                                 : "disk_error";
    begin(&w, out, "session.stalled", "");
    json_form(&w, "session:%s,reason:%s,message:%s}", session, reason, why->text);
}

void protocol_write_moved(struct buf *out, const char *session, int64_t turn, const char *reason) {
    struct json_writer w;
    begin(&w, out, "session.moved", "");
    json_form(&w, "session:%s,turn:%ld,reason:%s}", session, turn, reason);
}

// --- events ---

static void put_started(struct json_writer *w, const struct turn_view *t) {
    protocol_put_input(w, &t->input);
    json_form(w, "thinking?:%hhd,n_input:%ld,seed:%lu", t->thinking, t->numbers.input_tokens,
              t->seed);
    protocol_put_json(w, "sampling", t->sampling);
    json_put_int(w, "created_ms", t->created_ms);
}

static const struct {
    const char *type;
    bool whole; // has the session, not its id alone
} events[] = {
    [EVENT_OPENED] = {"session.opened", true},    [EVENT_UPDATED] = {"session.updated", true},
    [EVENT_CLOSED] = {"session.closed", true},    [EVENT_REWOUND] = {"session.rewound", true},
    [EVENT_QUEUED] = {"turn.queued", false},      [EVENT_STARTED] = {"turn.started", false},
    [EVENT_DELTA] = {"turn.delta", false},        [EVENT_DONE] = {"turn.done", false},
    [EVENT_EVICTED] = {"session.evicted", false}, [EVENT_PARKED] = {"session.parked", false},
};

void protocol_write_event(struct buf *out, struct json_gaps *gaps, const struct session_event *ev,
                          const char *session, const struct engine *engine) {
    struct json_writer w;
    if (ev->kind == EVENT_DELTA) {
        protocol_write_delta(out, ev, session, engine);
        return;
    }
    if (ev->kind == EVENT_SAMPLE) {
        protocol_write_sample(out, ev, session, engine);
        return;
    }
    begin(&w, out, events[ev->kind].type, ev->request_id);
    w.gaps = gaps;
    if (events[ev->kind].whole)
        protocol_put_session(&w, "session", &ev->session);
    else
        json_put_string(&w, "session", session);
    json_put_int(&w, "seq", ev->seq);
    switch (ev->kind) {
    case EVENT_CLOSED:
        json_put_bool(&w, "deleted", ev->deleted);
        break;
    case EVENT_REWOUND:
        json_form(&w, "head:%+ld,reason?:%s", ev->head, ev->reason);
        break;
    case EVENT_QUEUED:
        protocol_put_place(&w, &ev->turn);
        protocol_put_input(&w, &ev->turn.input);
        break;
    case EVENT_STARTED:
        protocol_put_place(&w, &ev->turn);
        put_started(&w, &ev->turn);
        break;
    case EVENT_DONE:
        json_form(&w, "turn:%ld,finish_reason:%s", ev->turn.turn, ev->turn.finish_reason);
        if (ev->turn.text_len > 0) json_put_text(&w, "text", ev->turn.text, ev->turn.text_len);
        protocol_put_result(&w, &ev->turn, ev->reason);
        break;
    case EVENT_EVICTED:
    case EVENT_PARKED:
        json_form(&w, "reason:%s,state:%s", ev->reason,
                  session_state_name(ev->kind == EVENT_PARKED ? SESSION_PARKED : SESSION_COLD));
        break;
    default:
        break;
    }
    json_close(&w, '}');
}

// --- answers ---

// Writes the fields of an answer behind the type.
typedef void put_fn(struct json_writer *w, const struct session_answer *a);

// The last n turns, oldest first.
static void put_newest_turns(struct json_writer *w, const struct session_answer *a, size_t n) {
    size_t first = a->n_turns - n;
    protocol_put_session(w, "session", &a->session);
    json_open(w, "turns", '[');
    for (size_t i = first; i < a->n_turns; i++) protocol_put_turn(w, NULL, &a->turns[i]);
    json_form(w, "],seq:%ld,before?:%+ld,more:%hhd", a->seq, a->before, a->more || first > 0);
}

// The sizes of turns are known only by writing them: while they do not fit, the older half is left out
// and the rest is written again.
static void put_state(struct json_writer *w, const struct session_answer *a) {
    struct json_writer start = *w;
    size_t len = w->buf->len, n_gaps = w->gaps ? w->gaps->n : 0;
    put_newest_turns(w, a, a->n_turns);
    for (size_t n = a->n_turns; n > 0 && w->buf->error == E_LIMIT;) {
        *w = start;
        w->buf->error = 0;
        w->buf->len = len;
        if (w->gaps) w->gaps->n = n_gaps;
        put_newest_turns(w, a, n /= 2);
    }
}

#define OUTLINE_BYTES 160 // of a message, and of its answer

static void put_start(struct json_writer *w, const char *key, const char *text, size_t len) {
    if (len > OUTLINE_BYTES) len = utf8_complete_len(text, OUTLINE_BYTES);
    json_put_text(w, key, text ? text : "", text ? len : 0);
}

static void put_outline(struct json_writer *w, const struct session_answer *a) {
    json_form(w, "head:%+ld,turns:[", a->session.rec.head);
    for (size_t i = 0; i < a->n_turns; i++) {
        const struct turn_view *t = &a->turns[i];
        json_open(w, NULL, '{');
        protocol_put_place(w, t);
        json_put_string(w, "state", protocol_turn_state(t->state));
        put_start(w, "input_start", t->input.text, t->input.text_len);
        put_start(w, "text_start", t->text, t->text_len);
        json_form(w, "n_output:%ld,finish_reason:%s", t->numbers.output_tokens, t->finish_reason);
        if (t->branch) json_put_raw(w, "branch", t->branch, strlen(t->branch));
        json_form(w, "created_ms:%ld}", t->created_ms);
    }
    json_form(w, "],next:%+ld", a->before);
}

static void put_list(struct json_writer *w, const struct session_answer *a) {
    if (a->first) json_open(w, "sessions", '[');
    for (size_t i = 0; i < a->n_sessions; i++)
        protocol_put_session_as(w, NULL, &a->sessions[i], SYSTEM_START);
    if (!a->last) return;
    json_form(w, "],cursor:%s", a->cursor);
}

static void put_session(struct json_writer *w, const struct session_answer *a) {
    protocol_put_session(w, "session", &a->session);
    if (a->kind == ANSWER_ATTACHED) json_put_bool(w, "reset", a->reset);
    if (a->kind != ANSWER_REWOUND || a->seq > 0) json_put_int(w, "seq", a->session.rec.seq);
    if (a->kind == ANSWER_REWOUND) json_put_int_or_null(w, "head", a->session.rec.head);
    if (a->kind == ANSWER_CLOSED) json_put_bool(w, "deleted", a->deleted);
    if (a->kind == ANSWER_SHARED) json_put_string(w, "token", a->token);
}

static void put_archive(struct json_writer *w, const struct session_answer *a) {
    if (a->first) json_open(w, "archive", '"');
    json_escape(w->buf, a->archive, a->archive_len);
    if (!a->last) return;
    json_close(w, '"');
    if (a->code) protocol_put_error(w, a->code, a->message);
}

static const struct {
    const char *type;
    enum { NAMES_NOTHING, NAMES_SESSION, NAMES_TURN } names; // a turn by its session too
    put_fn *put;                                             // NULL: no further fields
    const struct protocol_part *parts;                       // in its place
} answers[] = {
    [ANSWER_ATTACHED] = {"session.attached", NAMES_NOTHING, put_session},
    [ANSWER_DETACHED] = {"session.detached", NAMES_SESSION, NULL},
    [ANSWER_STATE] = {"session.state", NAMES_NOTHING, put_state},
    [ANSWER_OUTLINE] = {"session.outline", NAMES_SESSION, put_outline},
    [ANSWER_LIST] = {"session.list", NAMES_NOTHING, put_list},
    [ANSWER_ACCEPTED] = {"turn.accepted", NAMES_TURN, NULL},
    [ANSWER_CANCELLING] = {"turn.cancelling", NAMES_SESSION, NULL},
    [ANSWER_CLOSED] = {"session.closed", NAMES_NOTHING, put_session},
    [ANSWER_UPDATED] = {"session.updated", NAMES_NOTHING, put_session},
    [ANSWER_OPENED] = {"session.opened", NAMES_NOTHING, put_session},
    [ANSWER_REWOUND] = {"session.rewound", NAMES_NOTHING, put_session},
    [ANSWER_TURN] = {"turn.state", NAMES_SESSION, .parts = protocol_record_parts},
    [ANSWER_EVENTS] = {"session.events", NAMES_SESSION, protocol_put_events},
    [ANSWER_REPLAYING] = {"turn.replaying", NAMES_TURN, NULL},
    [ANSWER_REPLAYED] = {"turn.replayed", NAMES_TURN, .parts = protocol_replayed_parts},
    [ANSWER_EXPORTED] = {"session.exported", NAMES_SESSION, put_archive},
    [ANSWER_SHARED] = {"session.shared", NAMES_NOTHING, put_session},
    [ANSWER_IMPORTED] = {"session.imported", NAMES_NOTHING, put_session},
};

// Writes one piece, from a->position on. A record whose rest cannot be read ends with an error.
static void put_parts(struct json_writer *w, const struct protocol_part *parts,
                      const struct session_answer *a, const struct engine *engine) {
    struct answer_position *at = a->position;
    size_t end = w->buf->len + PROTOCOL_PIECE_BYTES;
    if (a->code) {
        buf_addz(w->buf, at->at ? parts[at->part].inside : parts[at->part].before);
        w->comma = true;
        protocol_put_error(w, a->code, a->message);
        return;
    }
    while (parts[at->part].put && w->buf->len < end && !w->buf->error) {
        if (!parts[at->part].put(w, a, engine, &at->at)) continue;
        at->part++;
        at->at = 0;
    }
    at->more = parts[at->part].put;
}

void protocol_write_answer(struct buf *out, struct json_gaps *gaps,
                           const struct session_answer *a) {
    struct json_writer w = {.buf = out, .comma = true}; // a first piece that is not all has values
    bool in_pieces = a->kind == ANSWER_LIST || a->kind == ANSWER_EXPORTED || a->position;
    if (a->kind == ANSWER_ERROR) {
        protocol_write_error(out, a->code, a->message, a->request_id, a->session_id,
                             a->retry_after_ms, a->facts);
        return;
    }
    if (a->kind == ANSWER_CHANGED) {
        protocol_write_changed(out, &a->session, false);
        return;
    }
    if (!in_pieces || a->first) {
        begin(&w, out, answers[a->kind].type, a->request_id);
        w.gaps = gaps;
        if (answers[a->kind].names != NAMES_NOTHING) json_put_string(&w, "session", a->session_id);
        if (answers[a->kind].names == NAMES_TURN) json_put_int(&w, "turn", a->turn);
    }
    if (answers[a->kind].put) answers[a->kind].put(&w, a);
    if (answers[a->kind].parts) put_parts(&w, answers[a->kind].parts, a, a->engine);
    bool is_last = a->position ? !a->position->more : !in_pieces || a->last;
    if (is_last) json_close(&w, '}');
}
