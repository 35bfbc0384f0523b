// Encoding for a debugger: a turn as it is on record, a session's events, a replayed turn. See protocol.h,
// sessions/replay/debug.h.
#include "base/json_form.h"
#include "base/utf8.h"
#include "sessions/replay/debug.h"
#include "ws/parley/protocol.h"
#include <math.h>
#include <string.h>

// A token's bytes may be part of a character: invalid UTF-8 becomes U+FFFD.
static void put_text(struct json_writer *w, const char *key, int32_t id,
                     const struct engine *engine) {
    size_t len = 0;
    const char *bytes = id >= 0 && engine ? engine_token_bytes(engine, id, &len) : NULL;
    json_put_text(w, key, bytes ? bytes : "", bytes ? len : 0);
}

// Within an object that is open. id -1: no token.
static void put_token(struct json_writer *w, int32_t id, double logprob,
                      const struct engine *engine) {
    json_put_int_or_null(w, "id", id);
    put_text(w, "text", id, engine);
    json_put_double(w, "logprob", id >= 0 ? logprob : NAN); // NAN: null
}

static void put_top(struct json_writer *w, const struct engine_alternative *top, int32_t n,
                    const struct engine *engine) {
    json_open(w, "top", '[');
    for (int32_t i = 0; i < n && top[i].id >= 0; i++) {
        json_open(w, NULL, '{');
        put_token(w, top[i].id, (double)top[i].logprob, engine);
        json_close(w, '}');
    }
    json_close(w, ']');
}

// --- what comes in pieces ---

typedef void put_element_fn(struct json_writer *w, const struct session_answer *a,
                            const struct engine *engine, size_t i);

// The elements of an array from *at on.
static bool put_elements(struct json_writer *w, const char *key, size_t n, put_element_fn *put,
                         const struct session_answer *a, const struct engine *engine, size_t *at) {
    size_t end = w->buf->len + PROTOCOL_PIECE_BYTES;
    if (*at == 0) json_open(w, key, '[');
    for (; *at < n && w->buf->len < end && !w->buf->error; ++*at) put(w, a, engine, *at);
    if (*at < n) return false;
    json_close(w, ']');
    return true;
}

// The characters of a text from *at on.
static bool put_characters(struct json_writer *w, const char *key, const char *text, size_t len,
                           size_t *at) {
    size_t left = len - *at, n = left;
    if (n > PROTOCOL_PIECE_BYTES) n = utf8_complete_len(text + *at, PROTOCOL_PIECE_BYTES);
    if (*at == 0) json_open(w, key, '"');
    json_escape(w->buf, text + *at, n);
    *at += n;
    if (n < left) return false;
    json_close(w, '"');
    return true;
}

// --- turn.state ---

static bool put_turn_begin(struct json_writer *w, const struct session_answer *a,
                           const struct engine *engine, size_t *at) {
    json_open(w, "turn", '{');
    protocol_put_turn_begin(w, &a->detail->turn);
    return true;
}

static bool put_input(struct json_writer *w, const struct session_answer *a,
                      const struct engine *engine, size_t *at) {
    const struct turn_input *in = &a->detail->turn.input;
    if (!turn_input_has_text(in->kind)) {
        protocol_put_input(w, in);
        return true;
    }
    if (*at == 0) json_open(w, "input", '{');
    if (!put_characters(w, turn_input_kind_name(in->kind), in->text ? in->text : "", in->text_len,
                        at))
        return false;
    json_close(w, '}');
    return true;
}

static bool put_answer(struct json_writer *w, const struct session_answer *a,
                       const struct engine *engine, size_t *at) {
    const struct turn_view *t = &a->detail->turn;
    return put_characters(w, "text", t->text, t->text_len, at);
}

static bool put_turn_end(struct json_writer *w, const struct session_answer *a,
                         const struct engine *engine, size_t *at) {
    const struct turn_record *t = a->detail->rec;
    protocol_put_turn_end(w, &a->detail->turn);
    json_close(w, '}');
    json_put_raw(w, "request", t->request ? t->request : "{}", t->request ? strlen(t->request) : 2);
    json_form(w, "build:%s,instance:%s,started_ms:%ld,ended_ms:%ld", t->build, t->instance,
              t->started_ms, t->ended_ms);
    json_put_int_or_null(w, "log_first", t->log_first); // its place in the log, once it has started
    return true;
}

static void put_input_id(struct json_writer *w, const struct session_answer *a,
                         const struct engine *engine, size_t i) {
    json_put_int(w, NULL, a->detail->rec->input_ids[i]);
}

static bool put_input_ids(struct json_writer *w, const struct session_answer *a,
                          const struct engine *engine, size_t *at) {
    return put_elements(w, "input_ids", a->detail->rec->n_input_ids, put_input_id, a, engine, at);
}

static void put_input_token(struct json_writer *w, const struct session_answer *a,
                            const struct engine *engine, size_t i) {
    put_text(w, NULL, a->detail->rec->input_ids[i], engine);
}

static bool put_input_tokens(struct json_writer *w, const struct session_answer *a,
                             const struct engine *engine, size_t *at) {
    size_t n = a->detail->rec->n_input_ids;
    return put_elements(w, "input_tokens", n, put_input_token, a, engine, at);
}

static void put_output_token(struct json_writer *w, const struct session_answer *a,
                             const struct engine *engine, size_t i) {
    const struct turn_detail *d = a->detail;
    int32_t n_top = d->rec->n_alternatives;
    json_open(w, NULL, '{');
    put_token(w, d->ids[i], (double)d->logprobs[i], engine);
    if (d->alternatives) put_top(w, d->alternatives + i * (size_t)n_top, n_top, engine);
    json_close(w, '}');
}

static bool put_output_tokens(struct json_writer *w, const struct session_answer *a,
                              const struct engine *engine, size_t *at) {
    return put_elements(w, "tokens", a->detail->n_ids, put_output_token, a, engine, at);
}

const struct protocol_part protocol_record_parts[] = {
    {put_turn_begin, "", ""},     {put_input, "}", "\"}}"}, {put_answer, "}", "\"}"},
    {put_turn_end, "}", ""},      {put_input_ids, "", "]"}, {put_input_tokens, "", "]"},
    {put_output_tokens, "", "]"}, {NULL, "", ""},
};

// --- session.events ---

// A page has at most 1,000 events, of some 150 bytes each.
void protocol_put_events(struct json_writer *w, const struct session_answer *a) {
    json_open(w, "events", '[');
    for (size_t i = 0; i < a->n_events; i++) {
        const struct listed_event *listed = &a->events[i];
        const struct event_record *e = &listed->rec;
        json_form(w, "{seq:%ld,n?:%ld,kind:%s,turn?:%+ld,reason?:%s", e->seq,
                  e->n > 1 ? (int64_t)e->n : 0, event_kind_name(e->kind), e->turn,
                  e->kind != EVENT_DONE ? e->reason : NULL);
        if (listed->resumed)
            protocol_put_cache(w, listed->resumed, e->reason[0] ? e->reason : NULL);
        if (listed->forked_from)
            protocol_put_forked_from(w, listed->forked_from, listed->forked_turn);
        json_form(w, "at_ms:%ld}", e->at_ms);
    }
    json_form(w, "],before?:%+ld,more:%hhd", a->before, a->more);
}

// --- turn.replayed ---

static void put_divergence(struct json_writer *w, const char *key,
                           const struct replay_divergence *d, const struct engine *engine) {
    json_form(w, "%s:{kind:%s,position:%ld,index:%ld,recorded:{", key, replay_kind_name(d->kind),
              d->position, d->index);
    put_token(w, d->recorded.id, (double)d->recorded.logprob, engine);
    json_put_double(w, "logprob_now", d->recorded_id_logprob); // NAN: null
    json_close(w, '}');
    json_open(w, "replayed", '{');
    put_token(w, d->now.id, (double)d->now.logprob, engine);
    put_top(w, d->top, d->n_top, engine);
    json_form(w, "}}");
}

static void put_difference(struct json_writer *w, const char *what, const char *recorded,
                           const char *now) {
    json_form(w, "{what:%s,recorded:%s,now:%s}", what, recorded, now);
}

static void put_differences(struct json_writer *w, const struct replay_detail *d) {
    const char *build = replay_or_unknown(d->rec->build),
               *instance = replay_or_unknown(d->rec->instance);
    json_open(w, "differs", '[');
    if (strcmp(build, d->build)) put_difference(w, "build", build, d->build);
    if (!replay_instance_equal(instance, d->instance))
        put_difference(w, "instance", instance, d->instance);
    json_close(w, ']');
}

static bool ended_alike(const struct replay_detail *d) {
    const struct replay_turn *f = d->found;
    return f->n_compared == d->rec->n_output && (int64_t)d->answer->n == d->rec->n_output &&
           !strcmp(f->recorded_finish, f->finish);
}

// A turn that was cut off before its first token has nothing to compare, and a replay of it nothing
// that differs. An edited answer has tokens, which were not sampled.
static bool equal(const struct replay_detail *d) {
    bool nothing = d->rec->n_output == 0 && d->answer->n == 0;
    return d->found->verdict == REPLAY_EQUAL || (d->found->verdict == REPLAY_EMPTY && nothing);
}

static bool put_verdict(struct json_writer *w, const struct session_answer *a,
                        const struct engine *engine, size_t *at) {
    const struct replay_turn *f = a->replay->found;
    json_form(w, "equal:%hhd,compared_tokens:%ld,logprobs_differ:%ld,cut_short:%hhd",
              equal(a->replay), f->n_compared, f->n_logprobs_differ, f->cut_short);
    if (f->cut_short) // its end came from outside: there is nothing to compare
        json_put_null(w, "ended_alike");
    else
        json_put_bool(w, "ended_alike", ended_alike(a->replay));
    json_form(w, "finish_reason:{recorded:%s,replayed:%s}", f->recorded_finish,
              f->cut_short ? NULL : f->finish);
    if (f->first.index >= 0) put_divergence(w, "divergence", &f->first, engine);
    if (f->token.index > f->first.index) put_divergence(w, "other_token", &f->token, engine);
    put_differences(w, a->replay);
    return true;
}

static void put_replayed_token(struct json_writer *w, const struct session_answer *a,
                               const struct engine *engine, size_t i) {
    const struct answer *now = a->replay->answer;
    json_open(w, NULL, '{');
    put_token(w, now->ids[i], (double)now->logprobs[i], engine);
    put_top(w, now->top + i * (size_t)now->n_top, now->n_top, engine);
    json_close(w, '}');
}

static bool put_replayed_tokens(struct json_writer *w, const struct session_answer *a,
                                const struct engine *engine, size_t *at) {
    return put_elements(w, "tokens", a->replay->answer->n, put_replayed_token, a, engine, at);
}

const struct protocol_part protocol_replayed_parts[] = {
    {put_verdict, "", ""}, {put_replayed_tokens, "", "]"}, {NULL, "", ""}};
