// Where one answer stands in its grammar, and which tokens may come next. One thread at a time for each
// matcher; matchers of one grammar share its machine and masks, under its lock.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct grammar;
struct grammar_matcher;

// At the beginning of an answer. Takes a hold of the grammar.
int grammar_matcher_new(struct grammar_matcher **out, struct grammar *g, struct err *err);
void grammar_matcher_free(struct grammar_matcher *m); // NULL is allowed
// `to`, of the same grammar, stands where `from` stands.
void grammar_matcher_copy(struct grammar_matcher *to, const struct grammar_matcher *from);

// The tokens that may come next into bits (a bit for each token of the vocabulary, 64 to a word), and
// whether the answer may end here. left: how many tokens may still be drawn, the one that ends the answer
// counted: a token is allowed only if the answer can be closed and ended after it. E_LIMIT: the grammar
// takes too much memory or work here; E_NOMEM; E_INVAL: the answer has left the grammar.
int grammar_matcher_mask(struct grammar_matcher *m, int64_t left, uint64_t *bits, bool *may_end,
                         struct err *err);
// The same tokens where they are kept, without a copy, until the next call for a matcher of this grammar on this
// thread; no other thread may use such a matcher meanwhile. *serial: equal for equal ones. NULL: grammar_matcher_mask
// makes them.
const uint64_t *grammar_matcher_kept(struct grammar_matcher *m, int64_t left, bool *may_end,
                                     uint64_t *serial);
bool grammar_matcher_lives(const struct grammar_matcher *m); // the answer has not left the grammar
void grammar_matcher_restart(struct grammar_matcher *m);     // at the beginning of an answer again
// The token is the answer's next one; not called for one that ends it.
void grammar_matcher_accept(struct grammar_matcher *m, int32_t id);
