// Errors: filling struct err, and the words for its codes. See err.h.
#include "base/err.h"
#include "base/utf8.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// The text is built in another buffer, so that a caller may wrap the sentence that it received:
//     return err_set(err, rc, "%s: %s", path, err->text);
static void err_fill(struct err *err, int code, const char *text, size_t len) {
    if (len >= sizeof err->text) len = utf8_complete_len(text, sizeof err->text - 1);
    memcpy(err->text, text, len);
    err->text[len] = '\0';
    // File names and messages may contain line breaks; a sentence must not.
    for (char *p = err->text; *p; p++)
        if ((unsigned char)*p < 0x20) *p = ' ';
    err->code = code;
    err->facts = (struct err_facts){0};
}

static void err_format(struct err *err, int code, const char *fmt, va_list ap) {
    char text[sizeof err->text + 4];
    int n = vsnprintf(text, sizeof text, fmt, ap);
    if (n < 0) n = 0;
    err_fill(err, code, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

int err_set(struct err *err, int code, const char *fmt, ...) {
    if (!err) return code;
    va_list ap;
    va_start(ap, fmt);
    err_format(err, code, fmt, ap);
    va_end(ap);
    return code;
}

int err_key(struct err *err, int code, const char *key, const char *fmt, ...) {
    if (!err) return code;
    va_list ap;
    va_start(ap, fmt);
    err_format(err, code, fmt, ap);
    va_end(ap);
    size_t len = strlen(key);
    if (len < sizeof err->facts.key) memcpy(err->facts.key, key, len + 1);
    return code;
}

int err_full(struct err *err, const struct err_facts *facts, const char *fmt, ...) {
    if (!err) return E_FULL;
    va_list ap;
    va_start(ap, fmt);
    err_format(err, E_FULL, fmt, ap);
    va_end(ap);
    err->facts = *facts;
    return E_FULL;
}

static int errno_code(int e) {
    switch (e) {
    case ENOMEM:
        return E_NOMEM;
    case ENOSPC:
    case EDQUOT:
        return E_FULL;
    case ENOENT:
        return E_NOTFOUND;
    case EACCES:
    case EPERM:
        return E_DENIED;
    default:
        return E_IO;
    }
}

int err_errno(struct err *err, const char *fmt, ...) {
    int e = errno; // before anything below may change it
    int code = errno_code(e);
    if (!err) return code;
    char text[sizeof err->text + 4], words[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(err, code, "%s: %s%s", text, strerror_r(e, words, sizeof words),
                   e == EMFILE ? "; raise the limit with `ulimit -n 1024`" : "");
}

const char *err_name(int code) {
    // Indexed by -code. A code of err.h without a word here is "unknown" and fails test_err.
    static const char *const names[] = {
        "ok",      "no_memory", "invalid", "io",        "not_found",   "exists",
        "busy",    "full",      "limit",   "format",    "unsupported", "closed",
        "timeout", "denied",    "corrupt", "cancelled", "device",      "internal",
    };
    return code <= 0 && code > -(int)(sizeof names / sizeof *names) ? names[-code] : "unknown";
}
