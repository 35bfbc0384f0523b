// Failures: one table of codes. See completion.h, plan.h.
#include "ws/completion/plan.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// From the codes of the session service, and our own, to the neutral ones.
static const struct code {
    const char *from, *code;
    int status;
    int64_t retry_after_ms; // where the answer names no time
} codes[] = {
    {"invalid", "invalid", 400, 0},
    {"unsupported", "unsupported", 400, 0},
    {"session_full", "context_length_exceeded", 400, 0},
    {"context_length_exceeded", "context_length_exceeded", 400, 0},
    {"session_not_found", "not_found", 404, 0},
    {"not_found", "not_found", 404, 0},
    {"session_busy", "session_busy", 409, 0},
    {"session_exists", "session_busy", 409, 0},
    {"session_closed", "session_closed", 409, 0},
    {"rate_limited", "rate_limited", 429, 0},
    {"limit_reached", "limit_reached", 429, 0},
    {"overloaded", "overloaded", 503, 0},
    {"shutting_down", "shutting_down", 503, 1000}, // another server takes it, or this one again
    {"interrupted", "shutting_down", 503, 1000},
    {"store_failed", "store_failed", 503, 5000},
};

void completion_failure_set(struct completion_failure *f, const char *code, const char *message) {
    f->status = 500;
    snprintf(f->code, sizeof f->code, "error");
    snprintf(f->message, sizeof f->message, "%s", message ? message : "the turn failed");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (strcmp(codes[i].from, code) != 0) continue;
        f->status = codes[i].status;
        f->retry_after_ms = codes[i].retry_after_ms;
        snprintf(f->code, sizeof f->code, "%s", codes[i].code);
    }
}

void completion_failure_take(struct completion_failure *f, const struct session_answer *a) {
    if (f->status) return;
    completion_failure_set(f, a->code, a->message);
    if (a->retry_after_ms) f->retry_after_ms = a->retry_after_ms;
}

int completion_refuse(struct completion_failure *f, const char *code, const char *param,
                      const char *fmt, ...) {
    char message[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    completion_failure_set(f, code, message);
    snprintf(f->param, sizeof f->param, "%s", param);
    return E_INVAL;
}

int completion_no_memory(struct completion_failure *f) {
    completion_failure_set(f, "overloaded", "the server is out of memory");
    f->retry_after_ms = 1000;
    return E_NOMEM;
}
