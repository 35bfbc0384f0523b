// Refusals of requests, whichever part is read. See messages_request.h.
#include "ws/anthropic/messages_request.h"
#include <stdarg.h>
#include <stdio.h>

bool messages_refuse(struct messages_request *r, const char *fmt, ...) {
    va_list ap;
    r->in.failure = (struct completion_failure){.status = 400, .code = "invalid"};
    va_start(ap, fmt);
    vsnprintf(r->in.failure.message, sizeof r->in.failure.message, fmt, ap);
    va_end(ap);
    return false;
}

bool messages_no_memory(struct messages_request *r) {
    r->in.failure = (struct completion_failure){.status = 503, .code = "overloaded"};
    snprintf(r->in.failure.message, sizeof r->in.failure.message, "the server is out of memory");
    return false;
}
