// Cuts text into words, which the tokenizer's model then encodes one by one. Each step of a chain cuts
// every piece that the previous step made. Read-only after building; each call has a pre_run of its
// own.
#pragma once
#include "base/buf.h"
#include "engine/text/pattern.h"

#define PRE_MAX_STEPS 16

enum pre_kind {
    PRE_PATTERN,     // a regular expression
    PRE_LITERAL,     // a fixed string
    PRE_NUMERIC,     // single characters of the Unicode categories Nd, Nl, No
    PRE_WHITE_SPACE, // single characters
    PRE_PUNCTUATION, // single characters: ASCII's and the Unicode categories P
    PRE_WORDS,       // cuts into runs of word characters and runs of others; white space is dropped
    PRE_FIXED_LENGTH, // cuts into pieces of n characters
    PRE_PREFIX_SPACE, // cuts nothing; adds a space before a piece that does not begin with one
    // replaces spaces by the symbol in `pattern`, may add one in front (pre_prepend), and if `split`
    // begins a piece at each
    PRE_METASPACE,
    PRE_BYTE_ALPHABET // cuts nothing; writes each byte as a character of byte_alphabet.h
};
// How a match and the text between matches become pieces (Hugging Face's SplitDelimiterBehavior).
enum pre_behavior { PRE_ISOLATED, PRE_REMOVED, PRE_WITH_PREVIOUS, PRE_WITH_NEXT, PRE_CONTIGUOUS };

// Where Metaspace puts its symbol in front of a piece that does not begin with it.
enum pre_prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct pre_step {
    enum pre_kind kind;
    enum pre_behavior behavior;
    bool invert; // the text between matches counts as the match
    struct pattern pattern;
    size_t length;            // FIXED_LENGTH
    enum pre_prepend prepend; // METASPACE: FIRST is the piece at the start of the text
    bool split;               // METASPACE
};
struct pre_tokenizer {
    struct pre_step steps[PRE_MAX_STEPS];
    int n_steps;
};

// Appends a step. pattern: an Oniguruma pattern (PRE_PATTERN) or a string (PRE_LITERAL,
// PRE_METASPACE).
int pre_tokenizer_add(struct pre_tokenizer *p, enum pre_kind kind, const char *pattern,
                      enum pre_behavior behavior, bool invert, struct err *err);
// Appends a step, which the caller fills in; NULL with *err when there are too many.
struct pre_step *pre_tokenizer_add_step(struct pre_tokenizer *p, enum pre_kind kind,
                                        struct err *err);
void pre_tokenizer_release(struct pre_tokenizer *p);
bool pre_tokenizer_puts_space(const struct pre_tokenizer *p); // before a text

// Takes one word; a negative code ends the run and becomes its result.
typedef int (*pre_word_fn)(void *ctx, const char *word, size_t len);

struct pre_run {
    const struct pre_tokenizer *pre;
    pre_word_fn word;
    void *ctx;
    struct err *err;
    bool bare; // set before a run: no prefix before its first piece
    struct matcher matchers[PRE_MAX_STEPS];
    struct buf changed[PRE_MAX_STEPS]; // for each step, the piece that it has rewritten
};
// text_len: the most bytes of the run's texts; it limits how far a pattern may backtrack.
int pre_run_init(struct pre_run *r, const struct pre_tokenizer *p, size_t text_len,
                 pre_word_fn word, void *ctx, struct err *err);
void pre_run_release(struct pre_run *r);
// text must be valid UTF-8. at_start: it begins where the user's text begins.
int pre_run(struct pre_run *r, const char *text, size_t len, bool at_start);
