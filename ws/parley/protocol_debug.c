// Encoding what a debugger asks for: a turn as it is on record, a session's events, a turn run
// again. See protocol.h, sessions/debug.h.
#include "sessions/debug.h"
#include "ws/parley/protocol.h"
#include <math.h>
#include <string.h>

// A token's bytes may be part of a character: what is no UTF-8 becomes U+FFFD.
static void put_text(struct json_writer *w, const char *key, int32_t id,
                     const struct engine *engine) {
    size_t len = 0;
    const char *bytes = id >= 0 ? engine_token_bytes(engine, id, &len) : NULL;
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

// --- turn.state ---

static void put_input(struct json_writer *w, const struct turn_record *t,
                      const struct engine *engine) {
    json_put_ids(w, "input_ids", t->input_ids, t->n_input_ids);
    json_open(w, "input_tokens", '[');
    for (size_t i = 0; i < t->n_input_ids; i++) put_text(w, NULL, t->input_ids[i], engine);
    json_close(w, ']');
}

// With the alternatives of each token, unless cut.
bool protocol_put_record(struct json_writer *w, const struct session_answer *a,
                         const struct engine *engine, int cut) {
    const struct turn_detail *d = a->detail;
    const struct turn_record *t = d->rec;
    protocol_put_turn(w, "turn", &d->turn);
    json_put_raw(w, "request", t->request ? t->request : "{}", t->request ? strlen(t->request) : 2);
    json_put_string(w, "build", t->build);
    json_put_string(w, "instance", t->instance);
    json_put_int(w, "started_ms", t->started_ms);
    json_put_int(w, "ended_ms", t->ended_ms);
    json_put_int_or_null(w, "log_first", t->log_first); // its place in the log, once it has started
    put_input(w, t, engine);
    json_open(w, "tokens", '[');
    for (size_t i = 0; i < d->n_ids && !w->buf->error; i++) {
        json_open(w, NULL, '{');
        put_token(w, d->ids[i], (double)d->logprobs[i], engine);
        if (!cut && d->alternatives)
            put_top(w, d->alternatives + i * (size_t)t->n_alternatives, t->n_alternatives, engine);
        json_close(w, '}');
    }
    json_close(w, ']');
    return !cut;
}

// --- session.events ---

bool protocol_put_events(struct json_writer *w, const struct session_answer *a,
                         const struct engine *engine, int cut) {
    json_open(w, "events", '[');
    for (size_t i = 0; i < a->n_events; i++) {
        const struct listed_event *listed = &a->events[i];
        const struct event_record *e = &listed->rec;
        json_open(w, NULL, '{');
        json_put_int(w, "seq", e->seq);
        if (e->n > 1) json_put_int(w, "n", e->n);
        json_put_string(w, "kind", event_kind_name(e->kind));
        if (e->turn >= 0) json_put_int(w, "turn", e->turn);
        if (e->reason[0] && e->kind != EVENT_DONE) json_put_string(w, "reason", e->reason);
        if (listed->resumed)
            protocol_put_cache(w, listed->resumed, e->reason[0] ? e->reason : NULL);
        if (listed->forked_from)
            protocol_put_forked_from(w, listed->forked_from, listed->forked_turn);
        json_put_int(w, "at_ms", e->at_ms);
        json_close(w, '}');
    }
    json_close(w, ']');
    if (a->before >= 0) json_put_int(w, "before", a->before);
    json_put_bool(w, "more", a->more);
    return false;
}

// --- turn.replayed ---

static void put_divergence(struct json_writer *w, const char *key,
                           const struct replay_divergence *d, const struct engine *engine) {
    json_open(w, key, '{');
    json_put_string(w, "kind", replay_kind_name(d->kind));
    json_put_int(w, "position", d->position);
    json_put_int(w, "index", d->index);
    json_open(w, "recorded", '{');
    put_token(w, d->recorded.id, (double)d->recorded.logprob, engine);
    json_put_double(w, "logprob_now", d->recorded_id_logprob); // NAN: null
    json_close(w, '}');
    json_open(w, "replayed", '{');
    put_token(w, d->now.id, (double)d->now.logprob, engine);
    put_top(w, d->top, d->n_top, engine);
    json_close(w, '}');
    json_close(w, '}');
}

static void put_difference(struct json_writer *w, const char *what, const char *recorded,
                           const char *now) {
    json_open(w, NULL, '{');
    json_put_string(w, "what", what);
    json_put_string(w, "recorded", recorded);
    json_put_string(w, "now", now);
    json_close(w, '}');
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

bool protocol_put_replayed(struct json_writer *w, const struct session_answer *a,
                           const struct engine *engine, int cut) {
    const struct replay_turn *f = a->replay->found;
    const struct answer *now = a->replay->answer;
    json_put_bool(w, "equal", f->verdict == REPLAY_EQUAL);
    json_put_int(w, "compared_tokens", f->n_compared);
    json_put_int(w, "logprobs_differ", f->n_logprobs_differ);
    json_put_bool(w, "cut_short", f->cut_short);
    if (f->cut_short) // its end came from outside: there is nothing to compare
        json_put_null(w, "ended_alike");
    else
        json_put_bool(w, "ended_alike", ended_alike(a->replay));
    json_open(w, "finish_reason", '{');
    json_put_string(w, "recorded", f->recorded_finish);
    json_put_string(w, "replayed", f->cut_short ? NULL : f->finish);
    json_close(w, '}');
    json_open(w, "tokens", '[');
    for (size_t i = 0; i < now->n && !w->buf->error; i++) {
        json_open(w, NULL, '{');
        put_token(w, now->ids[i], (double)now->logprobs[i], engine);
        if (!cut) put_top(w, now->top + i * (size_t)now->n_top, now->n_top, engine);
        json_close(w, '}');
    }
    json_close(w, ']');
    if (f->first.index >= 0) put_divergence(w, "divergence", &f->first, engine);
    if (f->token.index > f->first.index) put_divergence(w, "other_token", &f->token, engine);
    put_differences(w, a->replay);
    return !cut;
}
