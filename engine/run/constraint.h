// The constraints on an answer: a budget that closes the model's thinking, and a grammar that the text after
// the thinking must match. The state follows from the log and the accepted tokens alone. Part of a sampler,
// on its thread.
#pragma once
#include "engine/grammar/grammars.h"
#include "engine/grammar/matcher.h"
#include "engine/run/thinking.h"

struct constraint {
    struct grammar_matcher *matcher; // owned; NULL: no grammar
    struct grammar *grammar;         // the matcher's
    int64_t most, left; // tokens of the answer, its end included: the limit; how many are left
    int64_t keeps;      // how many of `most` the thinking must leave
    struct thinking thinking;
    int32_t budget; // tokens of thinking; -1: no limit
};

// A zeroed constraint constrains nothing. `most`: tokens of the answer, its end included. E_NOMEM.
int constraint_grammar(struct constraint *c, struct grammar *g, int64_t most, struct err *err);
// Call after constraint_grammar. Watches the thinking in the answer that follows log (n_log). marks:
// borrowed. goes_on: as for thinking_begin.
void constraint_thinking(struct constraint *c, const struct thinking_marks *marks, int32_t budget,
                         const int32_t *log, int64_t n_log, bool goes_on);
void constraint_release(struct constraint *c);
// Copies the state of `from` to `to`. E_NOMEM: only if `from` has another grammar than `to`.
int constraint_copy(struct constraint *to, const struct constraint *from, struct err *err);

// Records the answer's next token. ends: it ends the answer.
void constraint_accept(struct constraint *c, int32_t id, bool ends);

bool constraint_holds(const struct constraint *c); // some tokens may not come next
// The next token if there is no choice, else -1.
int32_t constraint_forced(const struct constraint *c);
// Whether the token after `ahead` more tokens may be a forced one.
bool constraint_may_force(const struct constraint *c, int32_t ahead);
// Under a grammar: the cached mask of the tokens that may come next, borrowed (grammar_matcher_kept). NULL: no
// such mask is cached; constraint_allow computes it.
const uint64_t *constraint_kept(const struct constraint *c, bool *may_end, uint64_t *serial);
// Computes what constraint_allow needs, until *effort is spent (grammar_matcher_prepare). True: complete.
bool constraint_prepare(const struct constraint *c, int64_t *effort);
// Under a grammar: writes the mask of the tokens that may come next (a bit for each of n_vocab), without the
// tokens that end the answer. *may_end: the answer may end here. E_* of grammar_matcher_mask.
int constraint_allow(const struct constraint *c, uint64_t *bits, int32_t n_vocab, bool *may_end,
                     struct err *err);
