// A pattern of a tokenizer's file, a fixed string or a regular expression in Oniguruma's dialect,
// and finding its matches in order. The pattern is read-only after building; a call's memory is a
// matcher.
#pragma once
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/err.h"
#include <pcre2.h>
#include <stdbool.h>
#include <stddef.h>

struct pattern {
    char *literal; // or
    size_t literal_len;
    pcre2_code *code;
    bool jit;
};
struct matcher {
    const struct pattern *pattern;
    pcre2_match_data *data;
    pcre2_match_context *limits;
    uint32_t n_finds;
    int64_t began_us, allowed_us; // processor time of this thread: see matcher_find.
};

// E_FORMAT where it is empty
int pattern_literal(struct pattern *p, const char *string, struct err *err);
// E_UNSUPPORTED names the construct
int pattern_regex(struct pattern *p, const char *oniguruma, struct err *err);
// Our own, in PCRE2's dialect
int pattern_pcre2(struct pattern *p, const char *regex, struct err *err);
int pattern_unicode_scripts(struct pattern *p, struct err *err); // see unicode_scripts.c
void pattern_release(struct pattern *p);

// text_len bounds the later texts. It limits how far a regular expression may backtrack and how
// long all matches together may take: half a second and 10 us a byte, a hundredth of the usual
// speed.
int matcher_init(struct matcher *m, const struct pattern *p, size_t text_len, struct err *err);
void matcher_release(struct matcher *m);
// The first match that begins at or after start: 1 with [*from, *to), 0 for none, E_LIMIT if it
// backtracks too far or matches have taken too long.
int matcher_find(struct matcher *m, const char *text, size_t len, size_t start, size_t *from,
                 size_t *to, struct err *err);

// All matches of one text in order, as Hugging Face iterates them: an empty match directly after
// the last one is skipped.
struct match_walk {
    struct matcher *matcher;
    const char *text;
    size_t len, start, last;
    bool matched;
};
// 1, 0 at the end, or an error
int match_walk_next(struct match_walk *w, size_t *from, size_t *to, struct err *err);
