// Log: writes one logfmt line per event to stderr: `ts=... level=info event=session.evicted
// session=... idle_ms=...`. Lines at info or above never contain a user's text. Callable from any
// thread; a line is one write().
#pragma once
#include <stddef.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_OFF };

void log_set_level(enum log_level level); // the least that is written; LOG_INFO at the start
enum log_level log_level(void);           // from any thread

// fmt makes the `key=value key=value` part; pass strings that may contain blanks through log_quote.
// The macros take an event alone, or with a format and its arguments. errno is preserved.
void log_write(enum log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define log_debug(event, ...) log_write(LOG_DEBUG, event, " " __VA_ARGS__)
#define log_info(event, ...) log_write(LOG_INFO, event, " " __VA_ARGS__)
#define log_warn(event, ...) log_write(LOG_WARN, event, " " __VA_ARGS__)
#define log_error(event, ...) log_write(LOG_ERROR, event, " " __VA_ARGS__)

// Writes s as a logfmt value ("..." with escapes, control bytes as \xNN) into out, cut to fit.
// Returns out.
char *log_quote(char *out, size_t cap, const char *s);
