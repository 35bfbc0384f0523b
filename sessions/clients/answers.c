// Refusals. See answers.h.
#include "sessions/clients/answers.h"
#include "base/err.h"
#include "sessions/caches/routing.h"
#include "sessions/state/service.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RETRY_AFTER_MS 500 // where memory is short

const char *answer_code(int err_code) {
    switch (err_code) {
    case E_INVAL:
    case E_FORMAT:
    case E_LIMIT:
        return "invalid";
    case E_FULL:
        return "session_full";
    case E_BUSY:
    case E_NOMEM:
        return "overloaded";
    case E_UNSUPPORTED:
        return "unsupported";
    case E_EXISTS:
        return "session_exists";
    case E_NOTFOUND:
        return "session_not_found";
    default:
        return "internal";
    }
}

static void answer(struct sessions *ss, const struct asker *to, const char *code,
                   int64_t retry_after_ms, const char *message, const struct err_facts *facts) {
    struct session_answer a = {.kind = ANSWER_ERROR,
                               .request_id = to->request_id,
                               .code = code,
                               .message = message,
                               .session_id = to->session,
                               .retry_after_ms = retry_after_ms,
                               .facts = facts};
    ss->cb.on_answer(ss->cb.ctx, to->client, &a);
}

void answer_later(struct sessions *ss, const struct asker *to, const char *code,
                  int64_t retry_after_ms, const char *message) {
    answer(ss, to, code, retry_after_ms, message, NULL);
}

struct session_answer answer_of(const struct request *r, enum session_answer_kind kind) {
    return (struct session_answer){
        .kind = kind, .request_id = r->request_id, .session_id = r->session, .turn = r->turn};
}

struct asker asker_of(const struct request *r) {
    return (struct asker){.client = r->client, .request_id = r->request_id, .session = r->session};
}

void answer_fail(struct sessions *ss, const struct asker *to, const char *code, const char *fmt,
                 ...) {
    char message[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    answer_later(ss, to, code, 0, message);
}

static void answer_err(struct sessions *ss, const struct asker *to, const char *code, int err_code,
                       const char *message, const struct err_facts *facts) {
    int64_t retry_ms = 0;
    if (err_code == E_BUSY) retry_ms = (routing_retry_us(ss, to->owner, to->priority) + 999) / 1000;
    if (err_code == E_NOMEM) {
        ss->memory_short = true;
        retry_ms = RETRY_AFTER_MS;
        message = "the server is out of memory";
    }
    answer(ss, to, err_code == E_NOMEM || !code ? answer_code(err_code) : code, retry_ms, message,
           facts);
}

void answer_error(struct sessions *ss, const struct asker *to, const char *code, int err_code,
                  const char *message) {
    answer_err(ss, to, code, err_code, message, NULL);
}

const char *job_code(const struct store_job *job) {
    const char *code = answer_code(job->rc);
    return strcmp(code, "internal") == 0 ? "store_failed" : code;
}

void answer_job_failed(struct sessions *ss, const struct store_job *job) {
    // The same sentence as for a missing session: an owner must not learn that another one's exists.
    const char *message = job->rc == E_NOTFOUND ? "there is no such session" : job->err.text;
    struct asker to = {.client = job->client, .request_id = job->request_id, .session = job->id};
    answer_error(ss, &to, job_code(job), job->rc, message);
}

int refuse(struct sessions *ss, const struct request *r, const char *code, const char *fmt, ...) {
    char message[512];
    struct asker to = asker_of(r);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    answer_later(ss, &to, code, 0, message);
    return 0;
}

int refuse_err(struct sessions *ss, const struct request *r, const struct err *err) {
    struct asker to = asker_of(r);
    const struct owner *owner = err->code == E_BUSY ? owners_get(ss->owners, r->owner) : NULL;
    if (owner) to.owner = owner->number;
    answer_err(ss, &to, NULL, err->code, err->text, &err->facts);
    return 0;
}

void refuse_memory(struct sessions *ss, const struct request *r) {
    struct asker to = asker_of(r);
    answer_error(ss, &to, NULL, E_NOMEM, NULL);
}

int refuse_not_found(struct sessions *ss, const struct request *r) {
    return refuse(ss, r, "session_not_found", "there is no such session");
}
