// See failure.h.
#include "ws/openai/failure.h"
#include "base/json_form.h"
#include <stdio.h>
#include <string.h>

int openai_fail(struct completion_failure *f, int status, const char *code, const char *param,
                const char *message) {
    if (f->status) return E_INVAL;
    f->status = status;
    snprintf(f->code, sizeof f->code, "%s", code);
    snprintf(f->param, sizeof f->param, "%s", param ? param : "");
    snprintf(f->message, sizeof f->message, "%s", message);
    return E_INVAL;
}

int openai_refuse(struct completion_failure *f, const char *code, const char *param,
                  const char *what) {
    char text[256];
    snprintf(text, sizeof text, "%s %s", param, what);
    return openai_fail(f, 400, code, param, text);
}

int openai_bad(struct completion_failure *f, const char *param, const char *what) {
    return openai_refuse(f, "invalid_value", param, what);
}

int openai_no_memory(struct completion_failure *f) {
    if (!f->status) f->retry_after_ms = 1000;
    openai_fail(f, 503, "overloaded", NULL, "the server is out of memory");
    return E_NOMEM;
}

int openai_fail_model(struct completion_failure *f, const char *name) {
    char text[200];
    snprintf(text, sizeof text,
             "The model '%.64s' does not exist; GET /v1/models lists those of this server.", name);
    return openai_fail(f, 404, "model_not_found", "model", text);
}

void openai_name_param(struct completion_failure *f, const char *const names[][2]) {
    for (; (*names)[0]; names++)
        if (strncmp((*names)[0], f->param, strlen((*names)[0])) == 0 &&
            strchr("[", f->param[strlen((*names)[0])])) {
            snprintf(f->param, sizeof f->param, "%s", (*names)[1]);
            return;
        }
}

const char *openai_code(int status, const char *code) {
    static const struct {
        const char *neutral;
        int status;
        const char *theirs;
    } codes[] = {
        {"invalid", 400, "invalid_value"},
        {"rate_limited", 429, "rate_limit_exceeded"},
        {"limit_reached", 429, "insufficient_quota"},
        {"error", 500, "server_error"},
    };
    if (status == 401) return "invalid_api_key";
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].status == status && strcmp(codes[i].neutral, code) == 0)
            return codes[i].theirs;
    return code;
}

static const char *error_type(int status) {
    if (status == 429) return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

void openai_write_failure(struct buf *out, const struct completion_failure *f) {
    json_form_to(out, "{error:{message:%s,type:%s,param:%s,code:%s}}", f->message,
                 error_type(f->status), f->param[0] ? f->param : NULL,
                 openai_code(f->status, f->code));
}
