// Cuts text into the words that the model's vocabulary then encodes one by one: a chain of steps,
// each of which cuts every piece that the step before it left. Read-only after building; the calls'
// memory is a pre_run.
#pragma once
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/buf.h"
#include "base/err.h"
#include <pcre2.h>
#include <stdbool.h>

#define PRE_MAX_STEPS 16

enum pre_kind {
    PRE_PATTERN,     // a regular expression
    PRE_LITERAL,     // a fixed string
    PRE_NUMERIC,     // single characters of the Unicode categories Nd, Nl, No
    PRE_PREFIX_SPACE // cuts nothing: a piece that does not begin with a space gets one
};
// What becomes of a match and of the text between matches (Hugging Face's SplitDelimiterBehavior).
enum pre_behavior { PRE_ISOLATED, PRE_REMOVED, PRE_WITH_PREVIOUS, PRE_WITH_NEXT, PRE_CONTIGUOUS };

struct pre_step {
    enum pre_kind kind;
    enum pre_behavior behavior;
    bool invert; // what lies between matches counts as the match
    pcre2_code *code;
    bool jit;
    char *literal;
    size_t literal_len;
};
struct pre_tokenizer {
    struct pre_step steps[PRE_MAX_STEPS];
    int n_steps;
};

// Appends a step. pattern: an Oniguruma pattern (PRE_PATTERN) or the string (PRE_LITERAL).
int pre_tokenizer_add(struct pre_tokenizer *p, enum pre_kind kind, const char *pattern,
                      enum pre_behavior behavior, bool invert, struct err *err);
void pre_tokenizer_release(struct pre_tokenizer *p);

// Takes one word; a negative code ends the run and becomes its result.
typedef int (*pre_word_fn)(void *ctx, const char *word, size_t len);

struct pre_run {
    const struct pre_tokenizer *pre;
    pre_word_fn word;
    void *ctx;
    struct err *err;
    pcre2_match_context *limits;
    pcre2_match_data *matches[PRE_MAX_STEPS];
    struct buf prefixed[PRE_MAX_STEPS];
};
// text_len bounds the texts that the run will see: it sets how far a pattern may backtrack.
int pre_run_init(struct pre_run *r, const struct pre_tokenizer *p, size_t text_len,
                 pre_word_fn word, void *ctx, struct err *err);
void pre_run_release(struct pre_run *r);
int pre_run(struct pre_run *r, const char *text, size_t len); // valid UTF-8
