// The constraints on an answer: the grammar that it must match, and the model's thinking, which a budget closes
// and behind which the grammar applies. Its state is a function of the log and the accepted tokens. Part of a
// sampler, on its thread.
#pragma once
#include "engine/grammar/grammars.h"
#include "engine/grammar/matcher.h"
#include "engine/run/thinking.h"

struct constraint {
    struct grammar_matcher *matcher; // owned; NULL: no grammar
    struct grammar *grammar;         // the matcher's
    int64_t most, left;              // tokens of the answer with its end: at most; not drawn yet
    int64_t keeps;                   // how many of `most` thinking must leave
    struct thinking thinking;
    int32_t budget; // tokens of thinking; -1: no limit
};

// A zeroed constraint is none. `most`: tokens of the answer with its end. E_NOMEM.
int constraint_grammar(struct constraint *c, struct grammar *g, int64_t most, struct err *err);
// After that: the thinking in the answer behind log (n_log). marks: borrowed. goes_on: thinking_begin's.
void constraint_thinking(struct constraint *c, const struct thinking_marks *marks, int32_t budget,
                         const int32_t *log, int64_t n_log, bool goes_on);
void constraint_release(struct constraint *c);
// Copies the state of `from` to `to`. E_NOMEM: only if `from` has another grammar than `to`.
int constraint_copy(struct constraint *to, const struct constraint *from, struct err *err);

// The token is the answer's next one. ends: it ends the answer.
void constraint_accept(struct constraint *c, int32_t id, bool ends);

bool constraint_holds(const struct constraint *c); // not every token may come next
int32_t constraint_forced(
    const struct constraint *c); // the next token, where there is no choice; else -1
// Whether the token behind `ahead` unaccepted ones may be forced.
bool constraint_may_force(const struct constraint *c, int32_t ahead);
// Under a grammar: the kept mask of the tokens that may come next, not copied (grammar_matcher_kept). NULL: it is
// not kept, and constraint_allow makes it.
const uint64_t *constraint_kept(const struct constraint *c, bool *may_end, uint64_t *serial);
// Under a grammar: writes the mask of the tokens that may come next (a bit for each of n_vocab), without the
// tokens that end the answer.
// *may_end: it may end here. E_* of grammar_matcher_mask.
int constraint_allow(const struct constraint *c, uint64_t *bits, int32_t n_vocab, bool *may_end,
                     struct err *err);
