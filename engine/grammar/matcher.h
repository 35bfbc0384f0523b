// The position of one answer in its grammar, and the tokens that may come next. One thread at a time uses a
// matcher; matchers of one grammar share its machine and masks, under its lock.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct grammar;
struct grammar_matcher;

// Begins an answer. Holds a reference to the grammar.
int grammar_matcher_new(struct grammar_matcher **out, struct grammar *g, struct err *err);
void grammar_matcher_free(struct grammar_matcher *m); // NULL is allowed
// Moves `to` to the position of `from`, a matcher of the same grammar.
void grammar_matcher_copy(struct grammar_matcher *to, const struct grammar_matcher *from);

// Writes the tokens that may come next into bits (a bit for each token of the vocabulary, 64 to a word), and
// into *may_end whether the answer may end here. left: how many tokens may still be drawn, the one that ends the
// answer included. A token is allowed only if the answer can be completed and ended after it. E_LIMIT: the
// grammar takes too much memory or work here; E_NOMEM; E_INVAL: the answer does not match the grammar.
int grammar_matcher_mask(struct grammar_matcher *m, int64_t left, uint64_t *bits, bool *may_end,
                         struct err *err);
// The same tokens as a cached mask, without a copy. The result is valid until the next call for a matcher of this
// grammar; no other thread may use such a matcher meanwhile. *serial identifies the mask. NULL: no mask is cached,
// or it is not valid for `left`; call grammar_matcher_mask.
const uint64_t *grammar_matcher_kept(struct grammar_matcher *m, int64_t left, bool *may_end,
                                     uint64_t *serial);
// Makes what the next grammar_matcher_mask with this `left` needs, so that it only copies. Reduces *effort, in the
// time that a pair of the machine takes (machine.h); 0: only looks. False: more is to be done. Work that fails is
// done: grammar_matcher_mask then returns the error.
bool grammar_matcher_prepare(struct grammar_matcher *m, int64_t left, int64_t *effort);
bool grammar_matcher_lives(struct grammar_matcher *m);   // the answer matches so far
void grammar_matcher_restart(struct grammar_matcher *m); // goes back to the beginning
// Advances by the answer's next token; the next call of another function takes the time for it. Not called for the
// token that ends the answer.
void grammar_matcher_accept(struct grammar_matcher *m, int32_t id);
