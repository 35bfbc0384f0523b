// Refusals: an error with a code of the wire, for one request. Below all handlers.
#pragma once
#include "sessions/sessions.h"

// The receiver of an answer, where no struct request is left.
struct asker {
    uint64_t client;
    const char *request_id, *session; // session: NULL: none
    // Whose turn was refused, and of what kind; 0: it was no turn.
    uint64_t owner;
    enum engine_priority priority;
};
// Borrows the request's strings. owner stays 0; the caller sets it for a turn.
struct asker asker_of(const struct request *r);

const char *answer_code(int err_code); // of an E_*; static
// The message is cut at 511 bytes. to: borrowed for the call, as in all functions here.
void answer_fail(struct sessions *ss, const struct asker *to, const char *code, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));
// The same for an E_*; code NULL: the code that belongs to it. Says when to try again if the engine or
// memory is full.
void answer_error(struct sessions *ss, const struct asker *to, const char *code, int err_code,
                  const char *message);

// For a job that the store refused.
struct store_job;
const char *job_code(const struct store_job *job);
void answer_job_failed(struct sessions *ss, const struct store_job *job);

// A new answer that names the request, its session and its turn.
struct session_answer answer_of(const struct request *r, enum session_answer_kind kind);

// With a retry time of the caller's.
void answer_later(struct sessions *ss, const struct asker *to, const char *code,
                  int64_t retry_after_ms, const char *message);

// All return 0, as a handler does after it has answered (service.h).
int refuse(struct sessions *ss, const struct request *r, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int refuse_err(struct sessions *ss, const struct request *r, const struct err *err);
int refuse_not_found(struct sessions *ss, const struct request *r);
void refuse_memory(struct sessions *ss, const struct request *r);
