// Encoding messages. See messages_write.h.
#include "ws/anthropic/messages_write.h"
#include "base/json_form.h"
#include <stdio.h>
#include <string.h>

void message_writer_init(struct message_writer *w, size_t max_bytes) {
    *w = (struct message_writer){.open = MESSAGE_NO_BLOCK};
    buf_init(&w->content, max_bytes);
    buf_init(&w->arguments, max_bytes);
}

void message_writer_release(struct message_writer *w) {
    thinking_seal_release(&w->seal);
    buf_release(&w->content);
    buf_release(&w->arguments);
}

// --- parts of both forms ---

// Why the model stopped. An answer that is cut off below its own max_tokens has filled its context.
static const char *stop_reason(const struct message_writer *w) {
    switch (w->finish) {
    case COMPLETION_STOP_SEQUENCE:
        return "stop_sequence";
    case COMPLETION_TOOL_CALLS:
        return "tool_use";
    case COMPLETION_LENGTH:
        return w->usage.completion_tokens < w->max_tokens ? "model_context_window_exceeded"
                                                          : "max_tokens";
    case COMPLETION_DEADLINE:
        return "max_tokens";
    default:
        return "end_turn";
    }
}

static void put_stop(struct json_writer *w, const struct message_writer *m) {
    bool by_sequence = m->finish == COMPLETION_STOP_SEQUENCE;
    json_put_string(w, "stop_reason", stop_reason(m));
    json_put_string(w, "stop_sequence", by_sequence ? m->stop_sequence : NULL);
    json_put_null(w, "stop_details"); // of refusals
    json_put_null(w, "container");
}

// Anthropic's input_tokens leave out what was read from a cache. Nothing is ever counted as written to one:
// every token computed is cached, and no request pays for that.
static void put_usage(struct json_writer *w, const struct completion_usage *u) {
    json_form(w,
              "usage:{input_tokens:%ld,cache_creation_input_tokens:0,cache_read_input_tokens:%ld,"
              "output_tokens:%ld,output_tokens_details:{thinking_tokens:%ld},"
              "server_tool_use:null,service_tier:'standard'}",
              u->prompt_tokens - u->cached_tokens, u->cached_tokens, u->completion_tokens,
              u->reasoning_tokens);
}

static void put_message_head(struct json_writer *w, const struct message_writer *m) {
    json_form(w, "id:%s,type:'message',role:'assistant',model:%s", m->id, m->model);
}

// --- a stream's events ---

static void begin_event(struct buf *out, struct json_writer *w, const char *type) {
    buf_addf(out, "event: %s\ndata: ", type);
    json_writer_init(w, out);
    json_form(w, "{type:%s", type);
}

static void end_event(struct json_writer *w) {
    json_close(w, '}');
    buf_addz(w->buf, "\n\n");
}

static void write_start(const struct message_writer *m, struct buf *out) {
    struct json_writer w;
    begin_event(out, &w, "message_start");
    json_open(&w, "message", '{');
    put_message_head(&w, m);
    json_form(&w,
              "content:[],stop_reason:null,stop_sequence:null,stop_details:null,container:null");
    put_usage(&w, &m->usage);
    json_close(&w, '}');
    end_event(&w);
}

static void write_block_start(const struct message_writer *m, const struct completion_event *e,
                              struct buf *out) {
    struct json_writer w;
    begin_event(out, &w, "content_block_start");
    json_form(&w, "index:%d,content_block:{", m->n_blocks - 1);
    if (m->open == MESSAGE_TOOL) {
        json_form(&w, "type:'tool_use',id:%s,name:%s,input:{}", e->tool_id, e->tool_name);
    } else if (m->open == MESSAGE_THINKING) {
        json_form(&w, "type:'thinking',thinking:'',signature:''");
    } else {
        json_form(&w, "type:'text',text:''");
    }
    json_close(&w, '}');
    end_event(&w);
}

static void write_delta(const struct message_writer *m, const char *type, const char *key,
                        const char *text, size_t len, struct buf *out) {
    struct json_writer w;
    begin_event(out, &w, "content_block_delta");
    json_form(&w, "index:%d,delta:{type:%s,%s:%.*s}", m->n_blocks - 1, type, key, (int)len, text);
    end_event(&w);
}

static void write_block_stop(const struct message_writer *m, struct buf *out) {
    struct json_writer w;
    begin_event(out, &w, "content_block_stop");
    json_put_int(&w, "index", m->n_blocks - 1);
    end_event(&w);
}

static void write_end(const struct message_writer *m, struct buf *out) {
    struct json_writer w;
    begin_event(out, &w, "message_delta");
    json_open(&w, "delta", '{');
    put_stop(&w, m);
    json_close(&w, '}');
    put_usage(&w, &m->usage);
    end_event(&w);
    begin_event(out, &w, "message_stop");
    end_event(&w);
}

// --- blocks, in both forms ---

// The open block of a whole message is an unfinished piece of JSON text, up to where its text grows.
static void begin_whole(struct message_writer *m, const struct completion_event *e) {
    struct json_writer w;
    buf_addz(&m->content, m->n_blocks > 1 ? "," : "");
    json_writer_init(&w, &m->content);
    json_open(&w, NULL, '{');
    if (m->open == MESSAGE_TOOL) {
        json_form(&w, "type:'tool_use',id:%s,name:%s", e->tool_id, e->tool_name);
        return;
    }
    json_put_string(&w, "type", m->open == MESSAGE_THINKING ? "thinking" : "text");
    json_open(&w, m->open == MESSAGE_THINKING ? "thinking" : "text", '"');
}

// Arguments that the model did not finish are not JSON: the client gets their text under the name INVALID_JSON.
static void put_input(struct message_writer *m, struct json_writer *w) {
    const struct json_limits *limits = &json_limits_message;
    struct err err = {0};
    cJSON *input = json_parse(buf_z(&m->arguments), m->arguments.len, limits, &err);
    if (cJSON_IsObject(input)) {
        json_put_raw(w, "input", buf_z(&m->arguments), m->arguments.len);
    } else {
        json_open(w, "input", '{');
        if (m->arguments.len)
            json_put_text(w, "INVALID_JSON", buf_z(&m->arguments), m->arguments.len);
        json_close(w, '}');
    }
    cJSON_Delete(input);
    buf_reset(&m->arguments);
}

static void end_whole(struct message_writer *m, const char *signature) {
    struct json_writer w;
    json_writer_init(&w, &m->content);
    w.comma = true;
    if (m->open == MESSAGE_TOOL)
        put_input(m, &w);
    else
        json_close(&w, '"');
    if (m->open == MESSAGE_THINKING) json_put_string(&w, "signature", signature);
    json_close(&w, '}');
}

static void end_block(struct message_writer *m, struct buf *out) {
    char signature[THINKING_SIGNATURE_LEN + 1] = "";
    if (m->open == MESSAGE_NO_BLOCK) return;
    if (m->open == MESSAGE_THINKING) thinking_seal_finish(&m->seal, m->key, signature);
    if (!m->stream) {
        end_whole(m, signature);
    } else {
        if (m->open == MESSAGE_THINKING)
            write_delta(m, "signature_delta", "signature", signature, strlen(signature), out);
        write_block_stop(m, out);
    }
    m->open = MESSAGE_NO_BLOCK;
}

static void begin_block(struct message_writer *m, enum message_block block,
                        const struct completion_event *e, struct buf *out) {
    if (m->open == block && block != MESSAGE_TOOL) return;
    end_block(m, out);
    m->open = block;
    m->n_blocks++;
    if (block == MESSAGE_THINKING) thinking_seal_begin(&m->seal);
    if (m->stream)
        write_block_start(m, e, out);
    else
        begin_whole(m, e);
}

static void grow_block(struct message_writer *m, const struct completion_event *e,
                       struct buf *out) {
    static const char *const deltas[][2] = {
        [MESSAGE_THINKING] = {"thinking_delta", "thinking"},
        [MESSAGE_TEXT] = {"text_delta", "text"},
        [MESSAGE_TOOL] = {"input_json_delta", "partial_json"},
    };
    if (m->open == MESSAGE_NO_BLOCK || e->text_len == 0) return;
    if (m->open == MESSAGE_THINKING) thinking_seal_update(&m->seal, e->text, e->text_len);
    if (m->stream)
        write_delta(m, deltas[m->open][0], deltas[m->open][1], e->text, e->text_len, out);
    else if (m->open == MESSAGE_TOOL)
        buf_add(&m->arguments, e->text, e->text_len);
    else
        json_escape(&m->content, e->text, e->text_len);
}

// --- the whole ---

static void take_start(struct message_writer *m, const struct completion_event *e,
                       struct buf *out) {
    completion_id(m->id, "msg_", e->session, e->turn);
    m->usage = e->usage;
    if (m->stream) write_start(m, out);
}

static void take_finish(struct message_writer *m, const struct completion_event *e) {
    m->finish = e->finish;
    snprintf(m->stop_sequence, sizeof m->stop_sequence, "%s",
             e->stop_sequence ? e->stop_sequence : "");
}

static void take_done(struct message_writer *m, const struct completion_event *e, struct buf *out) {
    end_block(m, out);
    m->usage = e->usage;
    if (m->silent) {
        m->usage.completion_tokens = m->usage.reasoning_tokens = 0;
        m->finish = COMPLETION_LENGTH;
    }
    if (m->stream) write_end(m, out);
}

static bool is_content(enum completion_event_kind kind) {
    return kind >= COMPLETION_THINKING && kind <= COMPLETION_TOOL_END;
}

void message_write_event(struct message_writer *m, const struct completion_event *e,
                         struct buf *out) {
    if (e->answer != 0 || (m->silent && is_content(e->kind))) return;
    switch (e->kind) {
    case COMPLETION_STARTED:
        take_start(m, e, out);
        break;
    case COMPLETION_THINKING:
    case COMPLETION_TEXT:
        if (e->text_len == 0) break;
        begin_block(m, e->kind == COMPLETION_TEXT ? MESSAGE_TEXT : MESSAGE_THINKING, e, out);
        grow_block(m, e, out);
        break;
    case COMPLETION_TOOL_BEGIN:
        begin_block(m, MESSAGE_TOOL, e, out);
        break;
    case COMPLETION_TOOL_ARGUMENTS:
        grow_block(m, e, out);
        break;
    case COMPLETION_TOOL_END:
        end_block(m, out);
        break;
    case COMPLETION_ANSWER:
        take_finish(m, e);
        break;
    case COMPLETION_DONE:
        take_done(m, e, out);
        break;
    case COMPLETION_FAILED:
        break;
    }
}

void message_write_whole(struct message_writer *m, struct buf *out) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    put_message_head(&w, m);
    json_open(&w, "content", '[');
    buf_add(out, buf_z(&m->content), m->content.len);
    json_close(&w, ']');
    put_stop(&w, m);
    put_usage(&w, &m->usage);
    json_close(&w, '}');
    if (m->content.error && !out->error) out->error = m->content.error;
}

// --- errors and counts ---

static const char *error_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 409:
        return "conflict_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 408:
    case 504:
        return "timeout_error";
    case 529:
        return "overloaded_error";
    default:
        return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

// Anthropic's clients send the conversation whole after this error: the server keeps no thread.
static void put_details(struct json_writer *w, const char *code) {
    if (strcmp(code, MESSAGES_NO_THREADS) != 0) return;
    json_form(w, "details:{error_code:%s,unsupported:['thread']}", code);
}

static void put_error(struct json_writer *w, int status, const char *code, const char *message,
                      const char *request_id) {
    json_form(w, "error:{type:%s,message:%s", error_type(status), message);
    put_details(w, code);
    json_form(w, "},request_id:%s", request_id);
}

void message_write_error(struct buf *out, int status, const char *code, const char *message,
                         const char *request_id) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_form(&w, "{type:'error'");
    put_error(&w, status, code, message, request_id);
    json_close(&w, '}');
}

void message_write_stream_error(struct buf *out, int status, const char *code, const char *message,
                                const char *request_id) {
    struct json_writer w;
    begin_event(out, &w, "error");
    put_error(&w, status, code, message, request_id);
    end_event(&w);
}

void message_write_count(struct buf *out, int64_t n_tokens) {
    json_form_to(out, "{input_tokens:%ld}", n_tokens);
}
