// Errors: a negative code for programs and one sentence for people.
//
// Every function that can fail returns 0 or a negative E_*. If a person may read the reason, the
// last parameter is a struct err *, which is set once, at the point of failure. Callers pass it on
// unchanged.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum err_code {
    E_NOMEM = -1,        // memory, cache blocks or another sized resource is exhausted
    E_INVAL = -2,        // a value is outside its range or of the wrong kind
    E_IO = -3,           // the operating system refused: text carries strerror
    E_NOTFOUND = -4,     // a named thing (file, tensor, session, key) does not exist
    E_EXISTS = -5,       // the name is taken
    E_BUSY = -6,         // try again after the running operation has ended
    E_FULL = -7,         // a bounded container (queue, session, disk) has no room
    E_LIMIT = -8,        // larger than a configured cap
    E_FORMAT = -9,       // a file or message is malformed
    E_UNSUPPORTED = -10, // well formed, but this build does not support it
    E_CLOSED = -11,      // the other end has closed or is closing
    E_TIMEOUT = -12,
    E_DENIED = -13,  // not allowed
    E_CORRUPT = -14, // stored data contradicts itself
    E_CANCELLED = -15,
    E_DEVICE = -16,   // an accelerator failed
    E_INTERNAL = -17, // one of our own invariants does not hold
};

// What a program may need beside the code, so that it does not read the sentence. All zero: nothing.
struct err_facts {
    char key[32]; // the name of the wrong value, as the caller spelled it; "": none
    // E_FULL: how much was to be put in (at_least: a lower bound), how much fits now, and how much fits
    // into the empty container. most 0: not said.
    int64_t need, left, most;
    bool at_least;
};

struct err {
    int code;       // 0 or an E_*
    char text[512]; // one sentence without a trailing full stop or newline; "" when code is 0
    struct err_facts facts;
};

// Fills *err (which may be NULL) and returns code, so that a failure is one statement:
//     return err_set(err, E_NOTFOUND, "%s: no tensor named '%s'", path, name);
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// As err_set, with the name of the wrong value. A name that is too long is left out.
int err_key(struct err *err, int code, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

// As err_set with E_FULL, with the figures of facts. facts: borrowed for the call.
int err_full(struct err *err, const struct err_facts *facts, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// As err_set, with ": " and strerror(errno) after the text. Returns E_NOMEM for ENOMEM, E_FULL for
// ENOSPC and EDQUOT, E_NOTFOUND for ENOENT, E_DENIED for EACCES and EPERM, E_IO otherwise.
int err_errno(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// "no_memory", "invalid", ... the lower-case words used on the wire and in logs. Never NULL.
const char *err_name(int code);

#define TRY(call)                                                                                  \
    do {                                                                                           \
        int try_rc_ = (call);                                                                      \
        if (try_rc_ < 0) return try_rc_;                                                           \
    } while (0)

// Needs `int rc` in scope; stores the code there and jumps to the cleanup ladder.
#define TRY_GOTO(label, call)                                                                      \
    do {                                                                                           \
        rc = (call);                                                                               \
        if (rc < 0) goto label;                                                                    \
    } while (0)
