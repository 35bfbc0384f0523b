// See volatile_text.h.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "sessions/matching/volatile_text.h"
#include <pcre2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEXT_BYTES ((size_t)64 << 20)

struct volatile_text {
    pcre2_code *codes[VOLATILE_PATTERNS_MAX];
    size_t n;
};

// --- the setting ---

// A pattern that matches the empty text removes nothing, or is a mistake.
static int check_matches_something(const pcre2_code *code, const char *shown, struct err *err) {
    uint32_t empty = 0;
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (!empty) return 0;
    return err_set(err, E_INVAL,
                   "volatile_patterns: /%.60s/ matches the empty text: write a pattern that does "
                   "not",
                   shown);
}

static int compile(struct volatile_text *v, const char *regex, size_t len, struct err *err) {
    char shown[64], why[128];
    int code;
    PCRE2_SIZE at;
    snprintf(shown, sizeof shown, "%.*s", (int)(len < 60 ? len : 60), regex);
    if (len == 0 || len > VOLATILE_PATTERN_BYTES)
        return err_set(err, E_INVAL, "volatile_patterns: a pattern has 1 to %d bytes, /%s/ has %zu",
                       VOLATILE_PATTERN_BYTES, shown, len);
    if (v->n == VOLATILE_PATTERNS_MAX)
        return err_set(err, E_INVAL, "volatile_patterns: at most %d patterns",
                       VOLATILE_PATTERNS_MAX);
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_MATCH_INVALID_UTF;
    pcre2_code *made = pcre2_compile((PCRE2_SPTR)regex, len, options, &code, &at, NULL);
    if (!made) {
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(err, E_INVAL, "volatile_patterns: /%s/ is not understood at byte %zu: %s",
                       shown, (size_t)at, why);
    }
    v->codes[v->n++] = made;
    pcre2_jit_compile(made, PCRE2_JIT_COMPLETE); // without it the result is the same, slower
    return check_matches_something(made, shown, err);
}

// The slash that ends the pattern.
static const char *end_of(const char *p) {
    for (; *p && *p != '/'; p++)
        if (p[0] == '\\' && p[1]) p++;
    return *p ? p : NULL;
}

static int read_all(struct volatile_text *v, const char *p, struct err *err) {
    for (p += strspn(p, " "); *p; p += strspn(p, " ")) {
        const char *end = *p == '/' ? end_of(p + 1) : NULL;
        if (!end || (end[1] && end[1] != ' '))
            return err_set(err, E_INVAL,
                           "volatile_patterns: write each pattern between slashes, and a space "
                           "between two of them: /REGEX/ /REGEX/ (not '%.60s')",
                           p);
        TRY(compile(v, p + 1, (size_t)(end - p - 1), err));
        p = end + 1;
    }
    return 0;
}

int volatile_text_new(struct volatile_text **out, const char *patterns, struct err *err) {
    struct volatile_text *v = NULL;
    int rc = 0;
    *out = NULL;
    if (!patterns || patterns[strspn(patterns, " ")] == '\0') return 0;
    v = calloc(1, sizeof *v);
    if (!v) return err_set(err, E_NOMEM, "no memory for volatile_patterns");
    rc = read_all(v, patterns, err);
    if (rc == 0)
        *out = v;
    else
        volatile_text_free(v);
    return rc;
}

void volatile_text_free(struct volatile_text *v) {
    if (!v) return;
    for (size_t i = 0; i < v->n; i++) pcre2_code_free(v->codes[i]);
    free(v);
}

// --- removing ---

struct finder {
    pcre2_match_data *data;
    pcre2_match_context *limits;
    int64_t until_us; // processor time of this thread
};

static int64_t thread_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int finder_init(struct finder *f, size_t len) {
    f->data = pcre2_match_data_create(1, NULL);
    f->limits = pcre2_match_context_create(NULL);
    f->until_us = thread_us() + 100000 + (int64_t)len;
    if (!f->data || !f->limits) return E_NOMEM;
    pcre2_set_match_limit(f->limits, (uint32_t)(100000 + (len < 1000000 ? len : 1000000) * 16));
    pcre2_set_heap_limit(f->limits, 65536); // KiB
    return 0;
}

static void finder_release(struct finder *f) {
    pcre2_match_data_free(f->data);
    pcre2_match_context_free(f->limits);
}

// 1: found; 0: no more; E_LIMIT.
static int find(struct finder *f, const pcre2_code *code, const char *text, size_t len, size_t from,
                size_t *begin, size_t *end) {
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    if (thread_us() > f->until_us) return E_LIMIT;
    int rc = pcre2_match(code, subject, len, from, PCRE2_NOTEMPTY, f->data, f->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter keeps its state on the heap
        rc = pcre2_match(code, subject, len, from, PCRE2_NOTEMPTY | PCRE2_NO_JIT, f->data,
                         f->limits);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc < 0) return E_LIMIT;
    *begin = pcre2_get_ovector_pointer(f->data)[0];
    *end = pcre2_get_ovector_pointer(f->data)[1];
    return *begin >= from && *end > *begin ? 1 : 0; // \K may put the end before the begin
}

// 1: *out is the text without its matches; 0: there are none, or the pattern reached its limits.
static int remove_one(const pcre2_code *code, const char *text, size_t len, struct buf *out) {
    struct finder f;
    size_t from = 0, begin, end;
    int rc = finder_init(&f, len);
    bool any = false;
    while (rc == 0 && (rc = find(&f, code, text, len, from, &begin, &end)) == 1) {
        any = true;
        rc = buf_add(out, text + from, begin - from) < 0 ? E_NOMEM : 0;
        from = end;
    }
    finder_release(&f);
    if (rc == 0 && any) rc = buf_add(out, text + from, len - from) < 0 ? E_NOMEM : 1;
    return rc == E_LIMIT ? 0 : rc;
}

int volatile_text_remove(const struct volatile_text *v, const char *text, size_t len,
                         struct buf *out) {
    struct buf now, next;
    bool any = false;
    buf_init(&now, TEXT_BYTES);
    buf_init(&next, TEXT_BYTES);
    int rc = buf_add(&now, text, len) < 0 ? E_NOMEM : 0;
    for (size_t i = 0; i < v->n && rc >= 0; i++) {
        buf_reset(&next);
        rc = remove_one(v->codes[i], buf_z(&now), now.len, &next);
        if (rc != 1) continue;
        struct buf swap = now;
        now = next;
        next = swap;
        any = true;
    }
    if (rc >= 0) rc = buf_add(out, buf_z(&now), now.len) < 0 ? E_NOMEM : any;
    buf_release(&now);
    buf_release(&next);
    return rc;
}
