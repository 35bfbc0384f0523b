// A pattern of a tokenizer's file (a fixed string or a regular expression in Oniguruma's dialect) and
// the search for its matches in order. A pattern is read-only after building; each call has a matcher
// of its own.
#pragma once
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/err.h"
#include <pcre2.h>
#include <stdbool.h>
#include <stddef.h>

struct pattern {
    char *literal; // the fixed string; NULL: code is set instead
    size_t literal_len;
    pcre2_code *code;
    bool jit;
};
struct matcher {
    const struct pattern *pattern;
    pcre2_match_data *data;
    pcre2_match_context *limits;
    uint32_t n_finds;
    int64_t began_us, allowed_us; // processor time of this thread: see find_match.
};

// E_FORMAT where it is empty
int pattern_literal(struct pattern *p, const char *string, struct err *err);
// E_UNSUPPORTED names the construct
int pattern_regex(struct pattern *p, const char *oniguruma, struct err *err);
// A pattern of our own, in PCRE2's dialect
int pattern_pcre2(struct pattern *p, const char *regex, struct err *err);
int pattern_unicode_scripts(struct pattern *p, struct err *err); // see unicode_scripts.c
void pattern_release(struct pattern *p);

// text_len: the most bytes of the texts that follow. It limits how far a regular expression may
// backtrack, and how long all matches together may take: half a second plus 10 us a byte, a hundredth
// of the usual speed.
int matcher_init(struct matcher *m, const struct pattern *p, size_t text_len, struct err *err);
void matcher_release(struct matcher *m);

// All matches of one text in order. As in Hugging Face, an empty match directly after the previous
// match is skipped.
struct match_walk {
    struct matcher *matcher;
    const char *text;
    size_t len, start, last;
    bool matched;
};
// 1 with the match [*from, *to), 0 at the end. E_LIMIT: the match backtracks too far, or all matches
// together took too long; E_NOMEM.
int match_walk_next(struct match_walk *w, size_t *from, size_t *to, struct err *err);
