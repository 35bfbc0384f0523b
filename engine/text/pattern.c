// See pattern.h.
#include "engine/text/pattern.h"
#include "base/buf.h"
#include "engine/text/char_class.h"
#include "engine/text/onig_pattern.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHORT_LITERAL                                                                              \
    16 // bytes: the time of char_find grows with both lengths, but memmem costs more to begin

int pattern_literal(struct pattern *p, const char *string, struct err *err) {
    *p = (struct pattern){.literal_len = strlen(string)};
    if (p->literal_len == 0) return err_set(err, E_FORMAT, "a pattern is an empty string");
    p->literal = strdup(string);
    return p->literal ? 0 : err_set(err, E_NOMEM, "no memory for a pattern");
}

static int compile(struct pattern *p, const char *shown, const char *regex, size_t len,
                   struct err *err) {
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return err_set(err, E_NOMEM, "no memory for the pattern '%.60s'", shown);
    int code, rc = 0;
    PCRE2_SIZE at;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    p->code = pcre2_compile((PCRE2_SPTR)regex, len, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code,
                            &at, context);
    if (!p->code) {
        char why[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        rc = err_set(err, E_UNSUPPORTED, "pattern '%.60s' is not understood: %s", shown, why);
    } else {
        p->jit =
            // without it the result is the same, slower
            pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    }
    pcre2_compile_context_free(context);
    return rc;
}

int pattern_regex(struct pattern *p, const char *oniguruma, struct err *err) {
    struct buf translated;
    *p = (struct pattern){0};
    buf_init(&translated, 64 * ONIG_PATTERN_MAX);
    int rc = onig_pattern_translate(oniguruma, &translated, err);
    if (rc == 0) rc = compile(p, oniguruma, buf_z(&translated), translated.len, err);
    buf_release(&translated);
    return rc;
}

int pattern_pcre2(struct pattern *p, const char *regex, struct err *err) {
    *p = (struct pattern){0};
    return compile(p, regex, regex, strlen(regex), err);
}

void pattern_release(struct pattern *p) {
    pcre2_code_free(p->code);
    free(p->literal);
    *p = (struct pattern){0};
}

int matcher_init(struct matcher *m, const struct pattern *p, size_t text_len, struct err *err) {
    *m = (struct matcher){.pattern = p};
    if (!p->code) return 0;
    m->data = pcre2_match_data_create(1, NULL);
    m->limits = pcre2_match_context_create(NULL);
    if (!m->data || !m->limits) {
        matcher_release(m);
        return err_set(err, E_NOMEM, "no memory for the tokenizer's patterns");
    }
    // A sane pattern steps back over a run of spaces once; one that takes the text apart again and
    // again meets this bound instead of the end of time.
    size_t steps = 1000000 + 64 * (text_len < UINT32_MAX / 128 ? text_len : UINT32_MAX / 128);
    pcre2_set_match_limit(m->limits, (uint32_t)steps);
    pcre2_set_heap_limit(m->limits, 262144); // KiB, of the interpreter
    m->allowed_us = 500000 + 10 * (int64_t)text_len;
    return 0;
}

void matcher_release(struct matcher *m) {
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->limits);
    *m = (struct matcher){0};
}

// Matches that each stay within the limit of steps may together take the square of the text's
// length (a+b|a over many a). PCRE2 does not count over matches, so the clock does, now and then.
static int check_time(struct matcher *m, struct err *err) {
    struct timespec t;
    if (++m->n_finds % 64 != 0) return 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    int64_t now = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    if (m->n_finds == 64) m->began_us = now;
    if (now - m->began_us <= m->allowed_us) return 0;
    return err_set(err, E_LIMIT, "the tokenizer's pattern takes too long over this text");
}

// Finds the first match that begins at or after start: 1 with [*from, *to), 0 for none.
static int find_match(struct matcher *m, const char *text, size_t len, size_t start, size_t *from,
                      size_t *to, struct err *err) {
    const struct pattern *p = m->pattern;
    if (p->literal) {
        const char *found = p->literal_len > SHORT_LITERAL
                                ? memmem(text + start, len - start, p->literal, p->literal_len)
                                : char_find(text + start, len - start, p->literal, p->literal_len);
        if (!found) return 0;
        *from = (size_t)(found - text);
        *to = *from + p->literal_len;
        return 1;
    }
    TRY(check_time(m, err));
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (p->jit) rc = pcre2_jit_match(p->code, subject, len, start, 0, m->data, m->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter keeps its state on the heap
        rc = pcre2_match(p->code, subject, len, start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data,
                         m->limits);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc == PCRE2_ERROR_NOMEMORY) return err_set(err, E_NOMEM, "no memory for a pattern's match");
    if (rc < 0)
        return err_set(err, E_LIMIT,
                       "the tokenizer's pattern backtracks too far in this text (PCRE2 code %d)",
                       rc);
    *from = pcre2_get_ovector_pointer(m->data)[0];
    *to = pcre2_get_ovector_pointer(m->data)[1];
    return 1;
}

int match_walk_next(struct match_walk *w, size_t *from, size_t *to, struct err *err) {
    while (w->start <= w->len) {
        int rc = find_match(w->matcher, w->text, w->len, w->start, from, to, err);
        if (rc <= 0) return rc;
        if (*from == *to && w->matched && *to == w->last) {
            w->start = *to < w->len ? *to + char_utf8_len(w->text + *to) : w->len + 1;
            continue;
        }
        w->matched = true;
        w->start = w->last = *to;
        return 1;
    }
    return 0;
}
