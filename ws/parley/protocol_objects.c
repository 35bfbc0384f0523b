// The objects of PROTOCOL.md: sessions, turns, and what both have. See protocol.h, protocol_objects.h.
#include "ws/parley/protocol_objects.h"
#include "base/json_form.h"
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
    json_form(w, "forked_from:{session:%s,turn:%+ld}", session, turn);
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
    json_form(w, "found:{turn:%ld,parts:[", turn);
    for (bool word = false;; word = !word) {
        size_t len = strcspn(p, word ? "\2" : "\1");
        json_put_text(w, NULL, p, len);
        p += len;
        if (!*p) break;
        p++;
    }
    json_form(w, "]}");
}

void protocol_put_session_as(struct json_writer *w, const char *key, const struct session_view *v,
                             enum system_form form) {
    const struct session_record *r = &v->rec;
    json_form(w,
              "%s:{id:%s,title:%s,auto_title:%hhd,pinned?:%hhd,archived?:%hhd,folder?:%s,"
              "shared?:%hhd",
              key, r->id, r->title ? r->title : "", r->auto_title, r->pinned, r->archived,
              r->folder, r->share != NULL);
    json_form(w,
              "model:%s,state:%s,created_ms:%ld,updated_ms:%ld,n_turns:%ld,n_tokens:%ld,"
              "session_len:%ld,memory_len:%d,sink_len:%d,cached_tokens:%ld,snapshot:%hhd",
              r->model, session_state_name(v->state), r->created_ms, r->updated_ms, r->n_turns,
              r->n_tokens, r->session_len, r->memory_len, r->sink_len, v->cached_tokens,
              v->snapshot);
    put_system(w, r->system, form);
    if (v->found_text) put_found(w, v->found_turn, v->found_text);
    if (r->prompt_hash) {
        json_form(w, "prompt:{task:%s,hash:%s,n_virtual:%ld}", r->prompt_task, r->prompt_hash,
                  r->prompt_rows);
    }
    protocol_put_json(w, "sampling", r->sampling);
    if (r->cancel_after_ms) {
        json_form(w, "on_disconnect:{cancel_after_ms:%ld}", r->cancel_after_ms);
    } else {
        json_put_string(w, "on_disconnect", "finish");
    }
    json_form(w, "seq:%ld,turn:%+ld,head:%+ld", r->seq, v->turn, r->head);
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
    json_form(w, "cache:{source:%s,kept_tokens:%ld,computed_tokens:%ld,resume_ms:%g,refused?:%s}",
              engine_cache_source_name(n->source), n->kept_tokens, n->computed_tokens,
              ms(n->resume_us), refused);
}

void protocol_put_error(struct json_writer *w, const char *code, const char *message) {
    json_form(w, "error:{code:%s,message:%s}", code, message ? message : "");
}

void protocol_put_result(struct json_writer *w, const struct turn_view *t, const char *refused) {
    const struct turn_numbers *n = &t->numbers;
    json_form(w,
              "usage:{input_tokens:%ld,output_tokens:%ld,log_tokens:%ld},timings:{queue_ms:%g,"
              "prefill_ms:%g,first_token_ms:%g,decode_ms:%g,paused_ms:%g",
              n->input_tokens, n->output_tokens, n->log_tokens, ms(n->queue_us), ms(n->prefill_us),
              ms(n->first_token_us), ms(n->decode_us), ms(n->paused_us));
    // The first token is the prefill's: between n tokens lie n - 1 decode steps.
    double steps = n->output_tokens > 1 && n->decode_us > 0 ? (double)(n->output_tokens - 1) : 0;
    json_form(w, "tokens_per_second:%g}", steps > 0 ? steps * 1e6 / (double)n->decode_us : 0);
    protocol_put_cache(w, n, refused);
    if (t->context) json_put_raw(w, "context", t->context, strlen(t->context));
    if (t->branch) json_put_raw(w, "branch", t->branch, strlen(t->branch));
    if (t->error_code) protocol_put_error(w, t->error_code, t->error_message);
}

const char *protocol_turn_state(enum turn_state s) {
    return s == TURN_QUEUED ? "queued" : s == TURN_RUNNING ? "running" : "done";
}

void protocol_put_place(struct json_writer *w, const struct turn_view *t) {
    json_form(w, "turn:%ld,parent:%+ld", t->turn, t->parent);
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
    json_form(w, "thinking?:%hhd,finish_reason:%s,n_input:%ld,n_output:%ld,seed:%lu", t->thinking,
              t->finish_reason, t->numbers.input_tokens, t->numbers.output_tokens, t->seed);
    protocol_put_json(w, "sampling", t->sampling);
    json_put_int(w, "created_ms", t->created_ms);
    if (t->state == TURN_DONE) protocol_put_result(w, t, NULL);
    json_form(w, "seq_first:%ld,seq_last:%ld", t->seq_first, t->seq_last);
}

void protocol_put_turn(struct json_writer *w, const char *key, const struct turn_view *t) {
    json_open(w, key, '{');
    protocol_put_turn_begin(w, t);
    protocol_put_input(w, &t->input);
    json_put_text(w, "text", t->text ? t->text : "", t->text ? t->text_len : 0);
    protocol_put_turn_end(w, t);
    json_close(w, '}');
}
