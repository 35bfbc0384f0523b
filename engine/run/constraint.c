// See constraint.h.
#include "engine/run/constraint.h"
#include <string.h>

// The thinking leaves this part of an answer's tokens to the text under a grammar, and at most so many.
#define ANSWER_SHARE 4
#define ANSWER_TOKENS 1024

int constraint_grammar(struct constraint *c, struct grammar *g, int64_t most, struct err *err) {
    grammar_matcher_free(c->matcher);
    *c = (struct constraint){.grammar = g, .most = most, .left = most};
    return grammar_matcher_new(&c->matcher, g, err);
}

void constraint_release(struct constraint *c) {
    grammar_matcher_free(c->matcher);
    *c = (struct constraint){0};
}

int constraint_copy(struct constraint *to, const struct constraint *from, struct err *err) {
    if (to->grammar != from->grammar) constraint_release(to);
    if (from->matcher && !to->matcher) TRY(constraint_grammar(to, from->grammar, from->most, err));
    if (from->matcher) grammar_matcher_copy(to->matcher, from->matcher);
    struct grammar_matcher *matcher = to->matcher;
    *to = *from;
    to->matcher = matcher;
    return 0;
}

// --- thinking ------------------------------------------------------------------------------------

static int64_t kept_for_answer(const struct constraint *c) {
    int64_t needed =
        (int64_t)c->thinking.marks->longest_close + grammar_least_tokens(c->grammar) + 1;
    int64_t share = c->most / ANSWER_SHARE < ANSWER_TOKENS ? c->most / ANSWER_SHARE : ANSWER_TOKENS;
    return share > needed ? share : needed;
}

static void close_in_time(struct constraint *c) {
    struct thinking *t = &c->thinking;
    if (t->state != THINKING_OPEN || t->forced.n > 0) return;
    bool spent = c->budget >= 0 && t->n_drawn >= c->budget;
    if (spent || (c->matcher && c->left <= c->keeps)) thinking_close(t);
}

void constraint_thinking(struct constraint *c, const struct thinking_marks *marks, int32_t budget,
                         const int32_t *log, int64_t n_log, bool goes_on) {
    thinking_begin(&c->thinking, marks, log, n_log, goes_on);
    c->budget = budget;
    c->keeps = c->matcher ? kept_for_answer(c) : 0;
    close_in_time(c);
}

// --- tokens --------------------------------------------------------------------------------------

// The grammar sees only tokens outside of the thinking and its marks.
static void follow_grammar(struct constraint *c, enum thinking_state was, bool forced, int32_t id) {
    struct thinking *t = &c->thinking;
    if (was == THINKING_OPEN && t->state == THINKING_OVER && !forced)
        t->forced = thinking_gap(t->marks);
    if (was == THINKING_OPEN || forced) return;
    grammar_matcher_accept(c->matcher, id);
    if (was != THINKING_MAY_BEGIN || t->state != THINKING_OPEN) return;
    if (grammar_matcher_lives(c->matcher))
        t->state = THINKING_OVER; // the grammar describes the thinking too
    else
        grammar_matcher_restart(c->matcher);
}

void constraint_accept(struct constraint *c, int32_t id, bool ends) {
    struct thinking *t = &c->thinking;
    enum thinking_state was = t->state;
    bool forced = constraint_forced(c) == id;
    bool watched = was != THINKING_UNWATCHED && (was != THINKING_OVER || t->forced.n > 0);
    c->left--;
    if (watched) thinking_accept(t, id);
    if (c->matcher && !ends) follow_grammar(c, was, forced, id);
    close_in_time(c);
}

bool constraint_holds(const struct constraint *c) {
    return c->matcher || c->thinking.forced.n > 0;
}

int32_t constraint_forced(const struct constraint *c) {
    return c->thinking.forced.n > 0 ? c->thinking.forced.ids[0] : -1;
}

bool constraint_may_force(const struct constraint *c, int32_t ahead) {
    const struct thinking *t = &c->thinking;
    bool inside = t->state == THINKING_OPEN || t->state == THINKING_MAY_BEGIN;
    return inside && c->budget >= 0 && t->n_drawn + ahead >= c->budget;
}

// --- what may come next --------------------------------------------------------------------------

static void set(uint64_t *bits, struct thinking_ids ids, bool is_allowed) {
    for (int32_t i = 0; i < ids.n; i++) {
        uint64_t bit = (uint64_t)1 << ids.ids[i] % 64;
        uint64_t *word = &bits[ids.ids[i] / 64];
        *word = is_allowed ? *word | bit : *word & ~bit;
    }
}

// Thinking is free text, except for tokens whose text goes on after the closing mark.
static void allow_thinking(const struct constraint *c, uint64_t *bits, size_t n_bytes) {
    const struct thinking *t = &c->thinking;
    memset(bits, 0xff, n_bytes);
    set(bits, thinking_spills(t->marks, t->matched), false);
}

// Adds the tokens of the opening mark to those that the grammar allows. If the answer has begun with a mark
// that the grammar does not allow, the rest of it always fits: room was left for its bytes, and each token has
// at least one.
static void allow_opening(const struct constraint *c, uint64_t *bits) {
    const struct thinking *t = &c->thinking;
    bool room = c->left - c->keeps > t->marks->open.len - t->matched && c->budget != 0;
    if (grammar_matcher_lives(c->matcher) && !room) return;
    set(bits, thinking_openings(t->marks, t->matched), true);
}

bool constraint_prepare(const struct constraint *c, int64_t *effort) {
    enum thinking_state state = c->thinking.state;
    if (!c->matcher || c->thinking.forced.n > 0 || state == THINKING_OPEN) return true;
    if (state == THINKING_MAY_BEGIN && !grammar_matcher_lives(c->matcher)) return true;
    return grammar_matcher_prepare(c->matcher, c->left, effort);
}

const uint64_t *constraint_kept(const struct constraint *c, bool *may_end, uint64_t *serial) {
    enum thinking_state state = c->thinking.state;
    bool free = state == THINKING_UNWATCHED || state == THINKING_OVER;
    if (!c->matcher || !free || c->thinking.forced.n > 0) return NULL;
    return grammar_matcher_kept(c->matcher, c->left, may_end, serial);
}

int constraint_allow(const struct constraint *c, uint64_t *bits, int32_t n_vocab, bool *may_end,
                     struct err *err) {
    size_t n_bytes = (size_t)(n_vocab + 63) / 64 * sizeof *bits;
    *may_end = false;
    if (c->thinking.state == THINKING_OPEN) {
        allow_thinking(c, bits, n_bytes);
        return 0;
    }
    bool may_open = c->thinking.state == THINKING_MAY_BEGIN;
    if (may_open && !grammar_matcher_lives(c->matcher))
        memset(bits, 0, n_bytes);
    else
        TRY(grammar_matcher_mask(c->matcher, c->left, bits, may_end, err));
    if (may_open) allow_opening(c, bits);
    return 0;
}
