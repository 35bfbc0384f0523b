// Log: logfmt lines to stderr, one write() each. See log.h.
#include "base/log.h"
#include "base/clock.h"
#include "base/utf8.h"
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096

static const char *const names[] = {"debug", "info", "warn", "error", "off"};
static int threshold = LOG_INFO; // atomic: any thread reads it while one sets it

void log_set_level(enum log_level level) {
    __atomic_store_n(&threshold, (int)level, __ATOMIC_RELAXED);
}

enum log_level log_level(void) {
    return (enum log_level)__atomic_load_n(&threshold, __ATOMIC_RELAXED);
}

static size_t add_head(char *line, size_t cap, enum log_level level, const char *event) {
    int64_t now = clock_wall_us(&clock_system);
    time_t seconds = (time_t)(now / 1000000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    size_t n = strftime(line, cap, "ts=%Y-%m-%dT%H:%M:%S", &tm);
    return n + (size_t)snprintf(line + n, cap - n, ".%03dZ level=%s event=%.100s",
                                (int)(now / 1000 % 1000), names[level], event);
}

void log_write(enum log_level level, const char *event, const char *fmt, ...) {
    if (level < log_level() || level >= LOG_OFF) return;
    int saved = errno; // logging between a failure and its err_errno() must not hide the reason
    char line[LINE_MAX_BYTES];
    size_t n = add_head(line, sizeof line - 1, level, event);
    va_list ap;
    va_start(ap, fmt);
    if (fmt[0] != ' ') line[n++] = ' '; // the macros begin with one
    int more = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
    va_end(ap);
    if (more > 0) n += (size_t)more;
    if (n > sizeof line - 2) n = utf8_complete_len(line, sizeof line - 2);
    // An unquoted value must not be able to forge a second line.
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20) line[i] = ' ';
    while (line[n - 1] == ' ') n--;
    line[n++] = '\n';
    while (write(STDERR_FILENO, line, n) < 0 && errno == EINTR) {}
    errno = saved;
}

char *log_quote(char *out, size_t cap, const char *s) {
    if (cap == 0) return out;
    if (cap < 3) { // no room for two quotes
        out[0] = '\0';
        return out;
    }
    size_t n = 0, len = strlen(s), take;
    out[n++] = '"';
    for (; len > 0; s += take, len -= take) {
        unsigned char c = (unsigned char)*s;
        bool valid;
        take = utf8_next(s, len, &valid);
        bool raw = valid && c >= 0x20 && c != 0x7f, backslash = c == '"' || c == '\\';
        size_t need = !raw ? 4 * take : take + backslash;
        if (n + need + 2 > cap) break; // the closing quote and the NUL
        if (backslash) out[n++] = '\\';
        for (size_t i = 0; i < take; i++) {
            if (raw)
                out[n++] = s[i];
            else
                n += (size_t)sprintf(out + n, "\\x%02x", (unsigned char)s[i]);
        }
    }
    out[n++] = '"';
    out[n] = '\0';
    return out;
}
