// See failure.h.
#include "ws/openai/failure.h"
#include <stdio.h>
#include <string.h>

int openai_fail(struct openai_failure *f, int status, const char *code, const char *param,
                const char *message) {
    if (f->status) return E_INVAL;
    f->status = status;
    f->param = param;
    snprintf(f->code, sizeof f->code, "%s", code);
    snprintf(f->message, sizeof f->message, "%s", message);
    return E_INVAL;
}

int openai_bad(struct openai_failure *f, const char *param, const char *what) {
    char text[200];
    snprintf(text, sizeof text, "%s %s", param, what);
    return openai_fail(f, 400, "invalid_value", param, text);
}

int openai_fail_model(struct openai_failure *f, const char *name) {
    char text[200];
    snprintf(text, sizeof text,
             "The model '%.64s' does not exist; GET /v1/models lists those of this server.", name);
    return openai_fail(f, 404, "model_not_found", "model", text);
}

int openai_no_memory(struct openai_failure *f) {
    if (!f->status) f->retry_after_ms = 1000;
    return openai_fail(f, 503, "overloaded", NULL, "the server is out of memory");
}

static const struct {
    const char *code; // of the session service
    int status;
    const char *theirs;
} known[] = {
    {"invalid", 400, "invalid_value"},
    {"session_full", 400, "context_length_exceeded"},
    {"unsupported", 400, "unsupported"},
    {"overloaded", 503, "overloaded"},
    {"rate_limited", 429, "rate_limit_exceeded"},
    {"limit_reached", 429, "insufficient_quota"},
    {"shutting_down", 503, "shutting_down"},
    {"store_failed", 503, "store_failed"},
    {"error", 500, "server_error"},
    {"interrupted", 503, "shutting_down"},
};

const char *openai_code(int status, const char *code) {
    if (status == 401) return "invalid_api_key";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].code, code) == 0 && known[i].status == status) return known[i].theirs;
    return code;
}

// Their names of a neutral request's members.
static const char *param_of(const char *name) {
    static const char *const params[][2] = {
        {"messages", "messages"},         {"tools", "tools"},
        {"tool_choice", "tool_choice"},   {"format", "response_format"},
        {"thinking", "reasoning_effort"}, {"n", "n"}};
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        if (strcmp(params[i][0], name) == 0) return params[i][1];
    return NULL;
}

void openai_fail_completion(struct openai_failure *f, const struct completion_failure *from) {
    const char *param = param_of(from->param);
    if (strcmp(from->code, "context_length_exceeded") == 0) param = "messages";
    if (!f->status) f->retry_after_ms = from->retry_after_ms;
    openai_fail(f, from->status, openai_code(from->status, from->code), param, from->message);
}

void openai_fail_session(struct openai_failure *f, const struct session_answer *a) {
    int status = 500;
    const char *code = a->code;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].code, a->code) != 0) continue;
        status = known[i].status;
        code = known[i].theirs;
    }
    if (!f->status) f->retry_after_ms = a->retry_after_ms;
    openai_fail(f, status, code, NULL, a->message);
}

static const char *error_type(int status) {
    if (status == 429) return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

void openai_write_failure(struct buf *out, const struct openai_failure *f) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_open(&w, "error", '{');
    json_put_string(&w, "message", f->message);
    json_put_string(&w, "type", error_type(f->status));
    json_put_string(&w, "param", f->param);
    json_put_string(&w, "code", f->code);
    json_close(&w, '}');
    json_close(&w, '}');
}

void openai_reply_failure(struct http *h, const struct openai_failure *f) {
    struct buf out;
    buf_init(&out, 8192);
    openai_write_failure(&out, f);
    http_reply_buf(h, f->status, "application/json", "cache-control: no-store\r\n", &out);
    buf_release(&out);
}
