// Encoding chat completions. See chat_write.h.
#include "ws/openai/chat_write.h"
#include "base/array.h"
#include "base/json_form.h"
#include "ws/openai/logprobs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MAX_BYTES ((size_t)64 << 20)

static const char *finish_reason(enum completion_finish f) {
    if (f == COMPLETION_LENGTH || f == COMPLETION_DEADLINE) return "length";
    return f == COMPLETION_TOOL_CALLS ? "tool_calls" : "stop";
}

static void put_usage(struct json_writer *w, const struct completion_usage *u) {
    answer_usage_open(w, u->prompt_tokens, u->cached_tokens, u->completion_tokens);
    json_form(w, "completion_tokens_details:{reasoning_tokens:%ld", u->reasoning_tokens);
    if (u->predicted) {
        json_put_int(w, "accepted_prediction_tokens", u->accepted_tokens);
        json_put_int(w, "rejected_prediction_tokens", u->rejected_tokens);
    }
    json_form(w, "}}");
}

// --- whole ---

void chat_answer_init(struct chat_answer *a, bool wants_logprobs) {
    *a = (struct chat_answer){.wants_logprobs = wants_logprobs};
    buf_init(&a->text, ANSWER_MAX_BYTES);
    buf_init(&a->thinking, ANSWER_MAX_BYTES);
    buf_init(&a->logprobs, ANSWER_MAX_BYTES);
}

void chat_answer_release(struct chat_answer *a) {
    buf_release(&a->text);
    buf_release(&a->thinking);
    buf_release(&a->logprobs);
    for (size_t i = 0; i < a->n_calls; i++) {
        free(a->calls[i].name);
        buf_release(&a->calls[i].arguments);
    }
    free(a->calls);
}

static int begin_call(struct chat_answer *a, const struct completion_event *ev) {
    TRY(ARRAY_RESIZE(a->calls, a->n_calls + 1));
    struct chat_call *call = &a->calls[a->n_calls++];
    *call = (struct chat_call){.name = strdup(ev->tool_name), .is_custom = ev->tool_is_custom};
    snprintf(call->id, sizeof call->id, "%s", ev->tool_id);
    buf_init(&call->arguments, ANSWER_MAX_BYTES);
    return call->name ? 0 : E_NOMEM;
}

int chat_answer_take(struct chat_answer *a, const struct completion_event *ev) {
    struct json_writer w;
    if (ev->n_tokens) {
        json_writer_init(&w, &a->logprobs);
        w.comma = a->logprobs.len > 0;
        openai_put_logprobs(&w, ev->tokens, ev->n_tokens);
    }
    switch (ev->kind) {
    case COMPLETION_TEXT:
        return buf_add(&a->text, ev->text, ev->text_len);
    case COMPLETION_THINKING:
        return buf_add(&a->thinking, ev->text, ev->text_len);
    case COMPLETION_TOOL_BEGIN:
        return begin_call(a, ev);
    case COMPLETION_TOOL_ARGUMENTS:
        return buf_add(&a->calls[a->n_calls - 1].arguments, ev->text, ev->text_len);
    case COMPLETION_ANSWER:
        a->finish = ev->finish;
        return a->logprobs.error;
    default:
        return 0;
    }
}

static const char *call_type(bool is_custom) {
    return is_custom ? "custom" : "function";
}

static const char *arguments_key(bool is_custom) {
    return is_custom ? "input" : "arguments";
}

static void put_call(struct json_writer *w, const struct chat_call *call) {
    json_form(w, "{id:%s,type:%s,%s:{name:%s,%s:%.*s}}", call->id, call_type(call->is_custom),
              call_type(call->is_custom), call->name, arguments_key(call->is_custom),
              (int)call->arguments.len, buf_z(&call->arguments));
}

// Thinking has two names: llama.cpp, DeepSeek and SGLang write the first, vLLM and OpenRouter the second. A client
// reads one of the names, also if it knows both.
static void put_thinking(struct json_writer *w, const char *text, size_t len) {
    json_form(w, "reasoning_content:%.*s,reasoning:%.*s", (int)len, text, (int)len, text);
}

static void put_message(struct json_writer *w, const struct chat_answer *a) {
    json_form(w, "message:{role:'assistant'");
    if (a->n_calls && a->text.len == 0)
        json_put_null(w, "content");
    else
        json_put_text(w, "content", buf_z(&a->text), a->text.len);
    json_put_null(w, "refusal");
    if (a->thinking.len) put_thinking(w, buf_z(&a->thinking), a->thinking.len);
    if (a->n_calls) {
        json_open(w, "tool_calls", '[');
        for (size_t i = 0; i < a->n_calls; i++) put_call(w, &a->calls[i]);
        json_close(w, ']');
    }
    json_close(w, '}');
}

static void put_logprobs(struct json_writer *w, const char *elements, size_t len) {
    json_form(w, "logprobs:{content:[");
    if (len) json_put_raw(w, NULL, elements, len);
    json_form(w, "],refusal:null}");
}

void chat_write_whole(struct buf *out, const struct answer_head *h,
                      const struct chat_answer *answers, size_t n,
                      const struct completion_usage *u) {
    struct json_writer w;
    json_writer_init(&w, out);
    answer_head_open(&w, h, "chat.completion");
    json_open(&w, "choices", '[');
    for (size_t i = 0; i < n; i++) {
        const struct chat_answer *a = &answers[i];
        json_form(&w, "{index:%zu", i);
        put_message(&w, a);
        if (a->wants_logprobs)
            put_logprobs(&w, buf_z(&a->logprobs), a->logprobs.len);
        else
            json_put_null(&w, "logprobs");
        json_form(&w, "finish_reason:%s}", finish_reason(a->finish));
    }
    json_close(&w, ']');
    put_usage(&w, u);
    json_close(&w, '}');
}

// --- streamed ---

static void begin_chunk(struct buf *out, struct json_writer *w, const struct answer_head *h) {
    buf_addz(out, "data: ");
    json_writer_init(w, out);
    answer_head_open(w, h, "chat.completion.chunk");
    json_open(w, "choices", '[');
}

static void open_delta(struct json_writer *w, int32_t answer) {
    json_form(w, "{index:%d,delta:{", answer);
}

static void end_chunk(struct buf *out, struct json_writer *w, const struct answer_head *h) {
    json_close(w, ']');
    if (h->include_usage) json_put_null(w, "usage");
    json_close(w, '}');
    buf_addz(out, "\n\n");
}

void chat_write_role(struct buf *out, const struct answer_head *h, int32_t answer) {
    struct json_writer w;
    begin_chunk(out, &w, h);
    open_delta(&w, answer);
    json_form(&w, "role:'assistant',content:''},logprobs:null,finish_reason:null}");
    end_chunk(out, &w, h);
}

static void put_call_part(struct json_writer *w, const struct completion_event *ev) {
    bool begins = ev->kind == COMPLETION_TOOL_BEGIN;
    json_form(w, "tool_calls:[{index:%d", ev->tool);
    if (begins) json_put_string(w, "id", ev->tool_id);
    if (begins) json_put_string(w, "type", call_type(ev->tool_is_custom));
    json_open(w, call_type(ev->tool_is_custom), '{');
    if (begins) json_put_string(w, "name", ev->tool_name);
    json_form(w, "%s:%.*s}}]", arguments_key(ev->tool_is_custom), (int)(begins ? 0 : ev->text_len),
              begins ? "" : ev->text);
}

void chat_write_event(struct buf *out, const struct answer_head *h,
                      const struct completion_event *ev) {
    struct json_writer w;
    struct buf tokens;
    struct json_writer elements;
    if (ev->kind == COMPLETION_TOOL_END && ev->n_tokens == 0) return;
    begin_chunk(out, &w, h);
    open_delta(&w, ev->answer);
    if (ev->kind == COMPLETION_TEXT) json_put_text(&w, "content", ev->text, ev->text_len);
    if (ev->kind == COMPLETION_THINKING) put_thinking(&w, ev->text, ev->text_len);
    if (ev->kind == COMPLETION_TOOL_BEGIN || ev->kind == COMPLETION_TOOL_ARGUMENTS)
        put_call_part(&w, ev);
    json_close(&w, '}');
    buf_init(&tokens, ANSWER_MAX_BYTES);
    json_writer_init(&elements, &tokens);
    openai_put_logprobs(&elements, ev->tokens, ev->n_tokens);
    if (tokens.len)
        put_logprobs(&w, buf_z(&tokens), tokens.len);
    else
        json_put_null(&w, "logprobs");
    buf_release(&tokens);
    json_form(&w, "finish_reason:%s}",
              ev->kind == COMPLETION_ANSWER ? finish_reason(ev->finish) : NULL);
    end_chunk(out, &w, h);
}

void chat_write_end(struct buf *out, const struct answer_head *h,
                    const struct completion_usage *u) {
    struct json_writer w;
    if (h->include_usage) {
        begin_chunk(out, &w, h);
        json_close(&w, ']');
        put_usage(&w, u);
        json_close(&w, '}');
        buf_addz(out, "\n\n");
    }
    buf_addz(out, "data: [DONE]\n\n");
}
