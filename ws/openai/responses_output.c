// Items and events of a response. See responses_output.h.
//
//     created, in_progress                                      begin
//     output_item.added, content_part.added                     the first words of an item
//     output_text.delta ...                                     its words
//     output_text.done, content_part.done, output_item.done     the first words of another, or the end
//     (thinking: reasoning_text, or reasoning_summary_part and reasoning_summary_text)
//     completed | incomplete | failed                           the end
#include "ws/openai/responses_output.h"
#include "base/array.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/json_form.h"
#include "ws/openai/failure.h"
#include "ws/openai/logprobs.h"
#include "ws/openai/responses_items.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_MAX_BYTES ((size_t)256 << 20)
#define ITEM_MAX_BYTES ((size_t)64 << 20)

static const char *const status_names[] = {"in_progress", "completed", "incomplete", "cancelled",
                                           "failed"};
// How each kind of item and its events are named. part_*: NULL for calls, which have no parts.
static const struct item_form {
    const char *id_prefix, *type, *text_key;
    const char *text_delta, *text_done;
    const char *part_type, *part_added, *part_done, *part_index;
} forms[] = {
    [ITEM_REASONING] = {.id_prefix = "rs",
                        .type = "reasoning",
                        .text_key = "text",
                        .text_delta = "response.reasoning_text.delta",
                        .text_done = "response.reasoning_text.done",
                        .part_type = "reasoning_text",
                        .part_added = "response.content_part.added",
                        .part_done = "response.content_part.done",
                        .part_index = "content_index"},
    [ITEM_SUMMARY] = {.id_prefix = "rs",
                      .type = "reasoning",
                      .text_key = "text",
                      .text_delta = "response.reasoning_summary_text.delta",
                      .text_done = "response.reasoning_summary_text.done",
                      .part_type = "summary_text",
                      .part_added = "response.reasoning_summary_part.added",
                      .part_done = "response.reasoning_summary_part.done",
                      .part_index = "summary_index"},
    [ITEM_MESSAGE] = {.id_prefix = "msg",
                      .type = "message",
                      .text_key = "text",
                      .text_delta = "response.output_text.delta",
                      .text_done = "response.output_text.done",
                      .part_type = "output_text",
                      .part_added = "response.content_part.added",
                      .part_done = "response.content_part.done",
                      .part_index = "content_index"},
    [ITEM_CALL] = {.id_prefix = "fc",
                   .type = "function_call",
                   .text_key = "arguments",
                   .text_delta = "response.function_call_arguments.delta",
                   .text_done = "response.function_call_arguments.done"},
    [ITEM_CUSTOM_CALL] = {.id_prefix = "ctc",
                          .type = "custom_tool_call",
                          .text_key = "input",
                          .text_delta = "response.custom_tool_call_input.delta",
                          .text_done = "response.custom_tool_call_input.done"},
};

bool responses_asks_summary(const cJSON *reasoning) {
    return json_string(reasoning, "summary") || json_string(reasoning, "generate_summary");
}

void responses_output_init(struct responses_output *o, const char *echo, responses_emit_fn emit,
                           void *ctx) {
    memset(o, 0, sizeof *o);
    o->echo = echo;
    o->emit = emit;
    o->ctx = ctx;
    o->after = -1;
}

void responses_output_release(struct responses_output *o) {
    for (size_t i = 0; i < o->n_items; i++) {
        buf_release(&o->items[i].text);
        buf_release(&o->items[i].logprobs);
        free(o->items[i].name);
    }
    free(o->items);
    o->items = NULL;
    o->n_items = o->cap_items = 0;
}

// --- objects ---------------------------------------------------------------

static const struct item_form *form_of(const struct responses_item *item) {
    return &forms[item->kind];
}

static bool is_call(const struct responses_item *item) {
    return !form_of(item)->part_type;
}

static void put_item_id(const struct responses_output *o, struct json_writer *w, const char *key,
                        const char *prefix, size_t index) {
    char id[RESPONSES_ID_MAX];
    responses_id_item(id, prefix, o->session, o->turn, (int64_t)index, false);
    json_put_string(w, key, id);
}

static void put_logprobs(struct json_writer *w, const char *elements, size_t len) {
    json_open(w, "logprobs", '[');
    if (len) json_put_raw(w, NULL, elements, len);
    json_close(w, ']');
}

static void put_part(struct json_writer *w, const char *key, const struct responses_item *item,
                     bool begun) {
    bool message = item->kind == ITEM_MESSAGE;
    json_open(w, key, '{');
    json_put_string(w, "type", form_of(item)->part_type);
    json_put_text(w, "text", buf_z(&item->text), begun ? item->text.len : 0);
    if (message) {
        json_form(w, "annotations:[]");
        put_logprobs(w, buf_z(&item->logprobs), begun ? item->logprobs.len : 0);
    }
    json_close(w, '}');
}

static void put_parts(struct json_writer *w, const char *key, const struct responses_item *item,
                      bool here) {
    json_open(w, key, '[');
    if (here) put_part(w, NULL, item, true);
    json_close(w, ']');
}

// See RESPONSES_ENCRYPTED.
static void put_encrypted(struct json_writer *w, const struct responses_item *item) {
    struct buf out;
    buf_init(&out, 2 * ITEM_MAX_BYTES);
    buf_addz(&out, RESPONSES_ENCRYPTED);
    if (base64_encode(&out, item->text.data, item->text.len) < 0) w->buf->error = E_NOMEM;
    json_put_text(w, "encrypted_content", buf_z(&out), out.len);
    buf_release(&out);
}

// The name that the model has called (RESPONSES_TOOL_NAME_MAX), taken apart.
static void put_call_name(struct json_writer *w, const char *name) {
    const char *dot = strchr(name, '.');
    json_put_string(w, "name", dot ? dot + 1 : name);
    if (dot) json_put_text(w, "namespace", name, (size_t)(dot - name));
}

// whole: with its content so far; else as a new item, without content.
static void put_item(const struct responses_output *o, struct json_writer *w, const char *key,
                     size_t index, bool whole) {
    const struct responses_item *item = &o->items[index];
    json_open(w, key, '{');
    put_item_id(o, w, "id", form_of(item)->id_prefix, index);
    json_form(w, "type:%s,status:%s", form_of(item)->type, status_names[item->status]);
    if (is_call(item)) {
        put_item_id(o, w, "call_id", "call", index);
        put_call_name(w, item->name);
        json_put_text(w, form_of(item)->text_key, buf_z(&item->text), whole ? item->text.len : 0);
    } else {
        if (item->kind == ITEM_MESSAGE) json_put_string(w, "role", "assistant");
        if (item->kind != ITEM_MESSAGE)
            put_parts(w, "summary", item, whole && item->kind == ITEM_SUMMARY);
        put_parts(w, "content", item, whole && item->kind != ITEM_SUMMARY);
        if (item->kind != ITEM_MESSAGE && o->thinking.encrypted && whole) put_encrypted(w, item);
    }
    json_close(w, '}');
}

void responses_output_write_items(const struct responses_output *o, struct json_writer *w) {
    for (size_t i = 0; i < o->n_items; i++) put_item(o, w, NULL, i, true);
}

static void put_usage(struct json_writer *w, const struct completion_usage *u) {
    json_form(w, "usage:{input_tokens:%ld,input_tokens_details:{cached_tokens:%ld",
              u->prompt_tokens, u->cached_tokens);
    json_put_int(w, "cache_write_tokens", 0); // no token costs more because it is cached
    json_close(w, '}');
    json_form(w, "output_tokens:%ld,output_tokens_details:{reasoning_tokens:%ld},total_tokens:%ld}",
              u->completion_tokens, u->reasoning_tokens, u->prompt_tokens + u->completion_tokens);
}

static void put_ending(const struct responses_output *o, struct json_writer *w) {
    if (o->status == RESPONSES_FAILED) {
        json_form(w, "error:{code:%s,message:%s}", o->error_code, o->error_message);
    } else {
        json_put_null(w, "error");
    }
    if (o->status == RESPONSES_INCOMPLETE) {
        json_form(w, "incomplete_details:{reason:%s}",
                  o->finish == COMPLETION_DEADLINE ? "deadline" : "max_output_tokens");
    } else {
        json_put_null(w, "incomplete_details");
    }
}

static void put_response(const struct responses_output *o, struct json_writer *w, const char *key) {
    bool ended = o->status != RESPONSES_IN_PROGRESS;
    json_form(w, "%s:{id:%s,object:'response',status:%s", key, o->id, status_names[o->status]);
    buf_addz(w->buf, ",");
    buf_addz(w->buf, o->echo);
    put_ending(o, w);
    json_put_int_or_null(w, "completed_at", o->status == RESPONSES_COMPLETED ? o->completed_s : -1);
    json_open(w, "output", '[');
    responses_output_write_items(o, w);
    json_close(w, ']');
    if (ended && o->status != RESPONSES_FAILED)
        put_usage(w, &o->usage);
    else
        json_put_null(w, "usage");
    json_close(w, '}');
}

void responses_output_write(const struct responses_output *o, struct buf *out) {
    struct json_writer w;
    json_writer_init(&w, out);
    put_response(o, &w, NULL);
}

void responses_output_write_compaction(const struct responses_output *o, const cJSON *said,
                                       struct buf *out) {
    struct responses_item summary = {0};
    struct json_writer w;
    const cJSON *item;
    int64_t i = 0;
    json_writer_init(&w, out);
    buf_init(&summary.text, ITEM_MAX_BYTES);
    for (size_t k = 0; k < o->n_items; k++)
        if (o->items[k].kind == ITEM_MESSAGE)
            buf_add(&summary.text, buf_z(&o->items[k].text), o->items[k].text.len);
    json_form(&w, "{id:%s,object:'response.compaction',created_at:%ld,output:[", o->id,
              clock_wall_us(&clock_system) / 1000000);
    cJSON_ArrayForEach(item, said) {
        char id[RESPONSES_ID_MAX];
        responses_id_item(id, "msg", o->session, o->turn, i++, true);
        responses_item_put(&w, item, id);
    }
    json_open(&w, NULL, '{');
    put_item_id(o, &w, "id", "cmp", 0);
    json_put_string(&w, "type", "compaction");
    put_encrypted(&w, &summary);
    json_form(&w, "}]");
    put_usage(&w, &o->usage);
    json_close(&w, '}');
    buf_release(&summary.text);
}

// --- events ----------------------------------------------------------------

// Opens the next event; false: it is not emitted, but has its number.
static bool begin_event(struct responses_output *o, struct json_writer *w, struct buf *out,
                        const char *type) {
    int64_t number = o->sequence++;
    if (!o->emit || number <= o->after) return false;
    buf_init(out, EVENT_MAX_BYTES);
    json_writer_init(w, out);
    json_form(w, "{type:%s,sequence_number:%ld,stream_id?:%s", type, number, o->stream_id);
    return true;
}

static void end_event(struct responses_output *o, struct json_writer *w, const char *type) {
    json_close(w, '}');
    if (w->buf->error) o->failed = true;
    if (!w->buf->error) o->emit(o->ctx, type, w->buf);
    buf_release(w->buf);
}

static void emit_response(struct responses_output *o, const char *type) {
    struct json_writer w;
    struct buf out;
    if (!begin_event(o, &w, &out, type)) return;
    put_response(o, &w, "response");
    end_event(o, &w, type);
}

static void emit_item(struct responses_output *o, const char *type, bool whole) {
    struct json_writer w;
    struct buf out;
    if (!begin_event(o, &w, &out, type)) return;
    json_put_int(&w, "output_index", (int64_t)o->n_items - 1);
    put_item(o, &w, "item", o->n_items - 1, whole);
    end_event(o, &w, type);
}

static void put_place(const struct responses_output *o, struct json_writer *w) {
    const struct responses_item *item = &o->items[o->n_items - 1];
    put_item_id(o, w, "item_id", form_of(item)->id_prefix, o->n_items - 1);
    json_put_int(w, "output_index", (int64_t)o->n_items - 1);
    if (!is_call(item)) json_put_int(w, form_of(item)->part_index, 0);
}

static void emit_part(struct responses_output *o, const char *type, bool whole) {
    struct json_writer w;
    struct buf out;
    if (!begin_event(o, &w, &out, type)) return;
    put_place(o, &w);
    put_part(&w, "part", &o->items[o->n_items - 1], whole);
    end_event(o, &w, type);
}

// Writes a piece of an item's text, or (whole) all of it, with the item's tokens from `tokens` on.
static void emit_text(struct responses_output *o, const char *text, size_t len, size_t tokens,
                      bool whole) {
    const struct responses_item *item = &o->items[o->n_items - 1];
    const struct item_form *form = form_of(item);
    const char *type = whole ? form->text_done : form->text_delta;
    const char *key = whole ? form->text_key : "delta";
    struct json_writer w;
    struct buf out;
    if (!begin_event(o, &w, &out, type)) return;
    put_place(o, &w);
    if (whole && item->kind == ITEM_CALL) put_call_name(&w, item->name);
    json_put_text(&w, key, text, len);
    if (item->kind == ITEM_MESSAGE)
        put_logprobs(&w, buf_z(&item->logprobs) + tokens, item->logprobs.len - tokens);
    end_event(o, &w, type);
}

// --- items -----------------------------------------------------------------

static void close_item(struct responses_output *o, enum responses_status status) {
    if (!o->open) return;
    struct responses_item *item = &o->items[o->n_items - 1];
    o->open = false;
    emit_text(o, buf_z(&item->text), item->text.len, 0, true);
    if (!is_call(item)) emit_part(o, form_of(item)->part_done, true);
    item->status = status;
    emit_item(o, "response.output_item.done", true);
}

static bool open_item(struct responses_output *o, enum responses_item_kind kind, const char *name) {
    close_item(o, RESPONSES_COMPLETED);
    char *copy = name ? strdup(name) : NULL;
    if ((name && !copy) || ARRAY_RESERVE(o->items, o->cap_items, o->n_items + 1) < 0) {
        free(copy);
        o->failed = true;
        return false;
    }
    struct responses_item *item = &o->items[o->n_items++];
    *item = (struct responses_item){.kind = kind, .name = copy};
    buf_init(&item->text, ITEM_MAX_BYTES);
    buf_init(&item->logprobs, EVENT_MAX_BYTES);
    o->open = true;
    emit_item(o, "response.output_item.added", false);
    if (!is_call(item)) emit_part(o, form_of(item)->part_added, false);
    return true;
}

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Whether a text may begin with this token. White space before a text is dropped.
static bool begins_with(const char *text, size_t len, const struct completion_token *t) {
    size_t at = 0;
    while (at < t->len && is_space(t->bytes[at])) at++;
    size_t n = t->len - at < len ? t->len - at : len;
    return n > 0 && memcmp(t->bytes + at, text, n) == 0;
}

// Appends the event's tokens to the open message. The tokens that end the thinking or a call come with the
// first words after it, and do not belong to these words. Returns where the new elements begin.
static size_t add_tokens(struct responses_output *o, const struct completion_event *e, bool first) {
    struct responses_item *item = &o->items[o->n_items - 1];
    const struct completion_token *tokens = e->tokens;
    size_t from = item->logprobs.len, n = o->logprobs ? e->n_tokens : 0;
    struct json_writer w;
    while (first && n > 0 && !begins_with(e->text, e->text_len, tokens)) tokens++, n--;
    json_writer_init(&w, &item->logprobs);
    w.comma = from > 0;
    openai_put_logprobs(&w, tokens, n);
    if (item->logprobs.error) o->failed = true;
    return from > 0 && item->logprobs.len > from ? from + 1 : from; // after the comma
}

static void add_words(struct responses_output *o, const struct completion_event *e) {
    if (e->text_len == 0) return;
    bool same = o->open && o->items[o->n_items - 1].kind == ITEM_MESSAGE;
    if (!same && !open_item(o, ITEM_MESSAGE, NULL)) return;
    if (buf_add(&o->items[o->n_items - 1].text, e->text, e->text_len) < 0) o->failed = true;
    emit_text(o, e->text, e->text_len, add_tokens(o, e, !same), false);
}

static void add_text(struct responses_output *o, enum responses_item_kind kind, const char *text,
                     size_t len) {
    if (len == 0) return;
    bool same = o->open && o->items[o->n_items - 1].kind == kind;
    if (!same && (kind >= ITEM_CALL || !open_item(o, kind, NULL))) return;
    struct responses_item *item = &o->items[o->n_items - 1];
    if (buf_add(&item->text, text, len) < 0) o->failed = true;
    emit_text(o, text, len, 0, false);
}

// --- beginning and end -----------------------------------------------------

void responses_output_begin(struct responses_output *o, const char *session, int64_t turn) {
    if (*o->id) return;
    snprintf(o->session, sizeof o->session, "%s", session);
    o->turn = turn;
    responses_id_response(o->id, session, turn);
    emit_response(o, "response.created");
    emit_response(o, "response.in_progress");
}

static void end(struct responses_output *o, enum responses_status status) {
    static const char *const types[] = {NULL, "response.completed", "response.incomplete",
                                        "response.incomplete", "response.failed"};
    bool whole = status == RESPONSES_COMPLETED;
    // An answer without words is a message without words.
    if (whole && o->n_items == 0 && !o->silent) open_item(o, ITEM_MESSAGE, NULL);
    close_item(o, whole ? RESPONSES_COMPLETED : RESPONSES_INCOMPLETE);
    if (!o->completed_s && whole) o->completed_s = clock_wall_us(&clock_system) / 1000000;
    o->status = status;
    emit_response(o, types[status]);
}

static void fail(struct responses_output *o, const struct completion_failure *f) {
    // A code of the closed set of OpenAI.
    const char *code = strcmp(f->code, "rate_limited") == 0 || strcmp(f->code, "limit_reached") == 0
                           ? "rate_limit_exceeded"
                           : "server_error";
    snprintf(o->error_code, sizeof o->error_code, "%s", code);
    snprintf(o->error_message, sizeof o->error_message, "%s", f->message);
    end(o, RESPONSES_FAILED);
}

static enum responses_status status_of(enum completion_finish finish) {
    if (finish == COMPLETION_CANCELLED) return RESPONSES_CANCELLED;
    bool cut = finish == COMPLETION_LENGTH || finish == COMPLETION_DEADLINE;
    return cut ? RESPONSES_INCOMPLETE : RESPONSES_COMPLETED;
}

void responses_output_take(struct responses_output *o, const struct completion_event *e) {
    bool words = e->kind >= COMPLETION_THINKING && e->kind <= COMPLETION_TOOL_END;
    if (o->silent && words) return;
    switch (e->kind) {
    case COMPLETION_STARTED:
        o->usage = e->usage;
        responses_output_begin(o, e->session, e->turn);
        break;
    case COMPLETION_THINKING:
        add_text(o, o->thinking.summary ? ITEM_SUMMARY : ITEM_REASONING, e->text, e->text_len);
        break;
    case COMPLETION_TEXT:
        add_words(o, e);
        break;
    case COMPLETION_TOOL_BEGIN:
        open_item(o, e->tool_is_custom ? ITEM_CUSTOM_CALL : ITEM_CALL, e->tool_name);
        break;
    case COMPLETION_TOOL_ARGUMENTS:
        add_text(o, e->tool_is_custom ? ITEM_CUSTOM_CALL : ITEM_CALL, e->text, e->text_len);
        break;
    case COMPLETION_TOOL_END:
        close_item(o, RESPONSES_COMPLETED);
        break;
    case COMPLETION_ANSWER:
        o->finish = e->finish;
        break;
    case COMPLETION_DONE:
        o->usage = e->usage;
        if (o->silent) o->usage.completion_tokens = o->usage.reasoning_tokens = 0;
        end(o, o->silent && o->finish == COMPLETION_LENGTH ? RESPONSES_COMPLETED
                                                           : status_of(o->finish));
        break;
    case COMPLETION_FAILED:
        fail(o, e->failure);
        break;
    }
}

void responses_write_stream_error(struct buf *out, int64_t sequence,
                                  const struct completion_failure *f) {
    json_form_to(out, "{type:'error',code:%s,message:%s,param:%s,sequence_number:%ld}",
                 openai_code(f->status, f->code), f->message, f->param[0] ? f->param : NULL,
                 sequence);
}
