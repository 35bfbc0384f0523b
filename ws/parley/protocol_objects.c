// The objects of PROTOCOL.md: sessions, turns, and what both have. See protocol.h, protocol_objects.h.
#include "ws/parley/protocol_objects.h"
#include "base/utf8.h"
#include <string.h>

void protocol_put_json(struct json_writer *w, const char *key, const char *json) {
    json_put_raw(w, key, json ? json : "{}", json ? strlen(json) : 2);
}

static double ms(int64_t us) {
    return (double)us / 1000.0;
}

void protocol_put_forked_from(struct json_writer *w, const char *session, int64_t turn) {
    if (!session) {
        json_put_null(w, "forked_from");
        return;
    }
    json_open(w, "forked_from", '{');
    json_put_string(w, "session", session);
    json_put_int_or_null(w, "turn", turn);
    json_close(w, '}');
}

#define SYSTEM_START_BYTES 256

static void put_system(struct json_writer *w, const char *system, enum system_form form) {
    if (form == SYSTEM_WHOLE) json_put_string(w, "system", system);
    if (form != SYSTEM_START) return;
    size_t len = system ? strnlen(system, SYSTEM_START_BYTES) : 0;
    if (system)
        json_put_text(w, "system_start", system, utf8_complete_len(system, len));
    else
        json_put_null(w, "system_start");
}

// Where a search has found its words: pieces of text, of which the second, fourth, ... are the words.
static void put_found(struct json_writer *w, int64_t turn, const char *p) {
    json_open(w, "found", '{');
    json_put_int(w, "turn", turn);
    json_open(w, "parts", '[');
    for (bool word = false;; word = !word) {
        size_t len = strcspn(p, word ? "\2" : "\1");
        json_put_text(w, NULL, p, len);
        p += len;
        if (!*p) break;
        p++;
    }
    json_close(w, ']');
    json_close(w, '}');
}

void protocol_put_session_as(struct json_writer *w, const char *key, const struct session_view *v,
                             enum system_form form) {
    const struct session_record *r = &v->rec;
    json_open(w, key, '{');
    json_put_string(w, "id", r->id);
    json_put_string(w, "title", r->title ? r->title : "");
    json_put_bool(w, "auto_title", r->auto_title);
    if (r->pinned) json_put_bool(w, "pinned", true);
    if (r->archived) json_put_bool(w, "archived", true);
    if (r->share) json_put_bool(w, "shared", true);
    json_put_string(w, "model", r->model);
    json_put_string(w, "state", session_state_name(v->state));
    json_put_int(w, "created_ms", r->created_ms);
    json_put_int(w, "updated_ms", r->updated_ms);
    json_put_int(w, "n_turns", r->n_turns);
    json_put_int(w, "n_tokens", r->n_tokens);
    json_put_int(w, "session_len", r->session_len);
    json_put_int(w, "memory_len", r->memory_len);
    json_put_int(w, "sink_len", r->sink_len);
    json_put_int(w, "cached_tokens", v->cached_tokens);
    json_put_bool(w, "snapshot", v->snapshot);
    put_system(w, r->system, form);
    if (v->found_text) put_found(w, v->found_turn, v->found_text);
    if (r->prompt_hash) {
        json_open(w, "prompt", '{');
        json_put_string(w, "task", r->prompt_task);
        json_put_string(w, "hash", r->prompt_hash);
        json_put_int(w, "n_virtual", r->prompt_rows);
        json_close(w, '}');
    }
    protocol_put_json(w, "sampling", r->sampling);
    if (r->cancel_after_ms) {
        json_open(w, "on_disconnect", '{');
        json_put_int(w, "cancel_after_ms", r->cancel_after_ms);
        json_close(w, '}');
    } else {
        json_put_string(w, "on_disconnect", "finish");
    }
    json_put_int(w, "seq", r->seq);
    json_put_int_or_null(w, "turn", v->turn);
    json_put_int_or_null(w, "head", r->head);
    if (v->below >= 0) json_put_bool(w, "below", v->below);
    protocol_put_forked_from(w, r->forked_from, r->forked_turn);
    json_close(w, '}');
}

void protocol_put_session(struct json_writer *w, const char *key, const struct session_view *v) {
    protocol_put_session_as(w, key, v, SYSTEM_WHOLE);
}

void protocol_put_input(struct json_writer *w, const struct turn_input *in) {
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

void protocol_put_error(struct json_writer *w, const char *code, const char *message) {
    json_open(w, "error", '{');
    json_put_string(w, "code", code);
    json_put_string(w, "message", message ? message : "");
    json_close(w, '}');
}

void protocol_put_result(struct json_writer *w, const struct turn_view *t, const char *refused) {
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
    json_put_double(w, "paused_ms", ms(n->paused_us));
    // The first token is the prefill's: between n tokens lie n - 1 decode steps.
    double steps = n->output_tokens > 1 && n->decode_us > 0 ? (double)(n->output_tokens - 1) : 0;
    json_put_double(w, "tokens_per_second", steps > 0 ? steps * 1e6 / (double)n->decode_us : 0);
    json_close(w, '}');
    protocol_put_cache(w, n, refused);
    if (t->context) json_put_raw(w, "context", t->context, strlen(t->context));
    if (t->branch) json_put_raw(w, "branch", t->branch, strlen(t->branch));
    if (t->error_code) protocol_put_error(w, t->error_code, t->error_message);
}

const char *protocol_turn_state(enum turn_state s) {
    return s == TURN_QUEUED ? "queued" : s == TURN_RUNNING ? "running" : "done";
}

void protocol_put_place(struct json_writer *w, const struct turn_view *t) {
    json_put_int(w, "turn", t->turn);
    json_put_int_or_null(w, "parent", t->parent);
}

void protocol_put_turn_begin(struct json_writer *w, const struct turn_view *t) {
    protocol_put_place(w, t);
    if (t->n_siblings > 0) {
        json_open(w, "siblings", '[');
        for (size_t i = 0; i < t->n_siblings; i++) json_put_int(w, NULL, t->siblings[i]);
        json_close(w, ']');
        json_put_ids(w, "inputs", t->inputs, t->n_siblings);
    }
    json_put_string(w, "state", protocol_turn_state(t->state));
}

void protocol_put_turn_end(struct json_writer *w, const struct turn_view *t) {
    if (t->thinking) json_put_bool(w, "thinking", true);
    json_put_string(w, "finish_reason", t->finish_reason);
    json_put_int(w, "n_input", t->numbers.input_tokens);
    json_put_int(w, "n_output", t->numbers.output_tokens);
    json_put_u64_string(w, "seed", t->seed);
    protocol_put_json(w, "sampling", t->sampling);
    json_put_int(w, "created_ms", t->created_ms);
    if (t->state == TURN_DONE) protocol_put_result(w, t, NULL);
    json_put_int(w, "seq_first", t->seq_first);
    json_put_int(w, "seq_last", t->seq_last);
}

void protocol_put_turn(struct json_writer *w, const char *key, const struct turn_view *t) {
    json_open(w, key, '{');
    protocol_put_turn_begin(w, t);
    protocol_put_input(w, &t->input);
    json_put_text(w, "text", t->text ? t->text : "", t->text ? t->text_len : 0);
    protocol_put_turn_end(w, t);
    json_close(w, '}');
}
