// Encoding chat completions. See chat_write.h.
#include "ws/openai/chat_write.h"
#include "base/json.h"
#include <string.h>

// Their words for why an answer ended.
static const char *finish_reason(const struct turn_view *t) {
    return t->finish_reason && strcmp(t->finish_reason, "length") == 0 ? "length" : "stop";
}

static void open_object(struct json_writer *w, const struct chat_head *h, const char *object) {
    json_open(w, NULL, '{');
    json_put_string(w, "id", h->id);
    json_put_string(w, "object", object);
    json_put_int(w, "created", h->created_s);
    json_put_string(w, "model", h->model);
    json_put_string(w, "system_fingerprint", h->fingerprint);
}

static void put_usage(struct json_writer *w, const struct turn_numbers *n) {
    json_open(w, "usage", '{');
    json_put_int(w, "prompt_tokens", n->input_tokens);
    json_put_int(w, "completion_tokens", n->output_tokens);
    json_put_int(w, "total_tokens", n->input_tokens + n->output_tokens);
    json_open(w, "prompt_tokens_details", '{');
    json_put_int(w, "cached_tokens", n->kept_tokens);
    json_close(w, '}');
    json_close(w, '}');
}

static void open_choice(struct json_writer *w) {
    json_open(w, "choices", '[');
    json_open(w, NULL, '{');
    json_put_int(w, "index", 0);
}

static void close_choice(struct json_writer *w, const char *reason) {
    json_put_null(w, "logprobs");
    json_put_string(w, "finish_reason", reason);
    json_close(w, '}');
    json_close(w, ']');
}

void chat_write_whole(struct buf *out, const struct chat_head *h, const char *text, size_t len,
                      const struct turn_view *t) {
    struct json_writer w;
    json_writer_init(&w, out);
    open_object(&w, h, "chat.completion");
    open_choice(&w);
    json_open(&w, "message", '{');
    json_put_string(&w, "role", "assistant");
    json_put_text(&w, "content", text, len);
    json_put_null(&w, "refusal");
    json_close(&w, '}');
    close_choice(&w, finish_reason(t));
    put_usage(&w, &t->numbers);
    json_close(&w, '}');
}

// --- streamed ---

static void begin_event(struct buf *out, struct json_writer *w) {
    buf_addz(out, "data: ");
    json_writer_init(w, out);
}

static void write_chunk(struct buf *out, const struct chat_head *h, const char *role,
                        const char *text, size_t len, const char *reason) {
    struct json_writer w;
    begin_event(out, &w);
    open_object(&w, h, "chat.completion.chunk");
    open_choice(&w);
    json_open(&w, "delta", '{');
    if (role) json_put_string(&w, "role", role);
    if (text) json_put_text(&w, "content", text, len);
    json_close(&w, '}');
    close_choice(&w, reason);
    if (h->include_usage) json_put_null(&w, "usage");
    json_close(&w, '}');
    buf_addz(out, "\n\n");
}

void chat_write_role(struct buf *out, const struct chat_head *h) {
    write_chunk(out, h, "assistant", "", 0, NULL);
}

void chat_write_delta(struct buf *out, const struct chat_head *h, const char *text, size_t len) {
    write_chunk(out, h, NULL, text, len, NULL);
}

void chat_write_end(struct buf *out, const struct chat_head *h, const struct turn_view *t) {
    struct json_writer w;
    write_chunk(out, h, NULL, NULL, 0, finish_reason(t));
    if (h->include_usage) {
        begin_event(out, &w);
        open_object(&w, h, "chat.completion.chunk");
        json_open(&w, "choices", '[');
        json_close(&w, ']');
        put_usage(&w, &t->numbers);
        json_close(&w, '}');
        buf_addz(out, "\n\n");
    }
    buf_addz(out, "data: [DONE]\n\n");
}

// --- errors ---

static const char *error_type(int status) {
    if (status == 429) return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

// Ours where they have another one.
static const char *error_code(int status, const char *code) {
    return status == 401 ? "invalid_api_key" : code;
}

void chat_write_error(struct buf *out, int status, const char *code, const char *message,
                      const char *param) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_open(&w, "error", '{');
    json_put_string(&w, "message", message);
    json_put_string(&w, "type", error_type(status));
    json_put_string(&w, "param", param);
    json_put_string(&w, "code", error_code(status, code));
    json_close(&w, '}');
    json_close(&w, '}');
}

void chat_write_stream_error(struct buf *out, int status, const char *code, const char *message) {
    buf_addz(out, "data: ");
    chat_write_error(out, status, code, message, NULL);
    buf_addz(out, "\n\n");
}
