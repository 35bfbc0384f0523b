// The branches of one turn: n samples drawn independently, or the beams of a search. All begin with the
// turn's log; each has a ring of its own that shares blocks with the others (copy on write).
//
//   prompt computed by the first ring -> shared by all -> a row of each running branch in every step
//
//   samples   branch b draws with random numbers (seed, position, b). Branch 0 is the turn's answer: its
//             tokens are in the turn's log as in a turn without branches.
//   beams     after each step, each beam's ring shares the blocks of the beam that it continues. The log has
//             the tokens in which all running and ended beams agree; the best beam's other tokens follow at
//             the end. One more ring keeps the cache of the best ended beam, which may become the session's.
//
// A pause keeps only the tokens of the branches. After it, the log's cache is resumed like any other and
// shared again, and the branches' own tokens are computed once more (the same bits).
//
// Engine thread only, except branches_new and freeing an event's branches.
#pragma once
#include "engine/run/turn_slot.h"
#include "engine/sampling/beams.h"
#include "kvcache/ring.h"

struct live_turn;

struct branch_sample {
    int32_t *ids;    // (cap) n of them are drawn
    float *logprobs; // (cap)
    int32_t n;
    double sum; // of its log-probabilities
    bool over;
    enum engine_finish finish; // once it is over
    struct turn_slot slot;     // unused by the first sample, which has the turn's slot
};

struct branches {
    struct engine_branches result; // first member: the turn's last event points to it
    int32_t n, cap;                // branches; most tokens of each
    bool beams;
    bool begun;                    // the samplers have the log's history
    bool forked;                   // every running branch has its ring
    struct branch_sample *samples; // (n), or NULL
    struct beam_search search;
    struct sampler *samplers;      // (n) for the running beams, or NULL
    struct stop_texts *stop_texts; // of beams; NULL: none
    bool best_is_held;             // the last ring is that of search.ended[0]
    int32_t n_ranked;              // running beams that were ranked in this step
    struct buf texts;              // the texts of `result`
    uint32_t *text_ends;           // where each of its tokens' texts ends
};

// How many branches a turn with these parameters has; 1: an ordinary turn.
int32_t branches_wanted(const struct sampling_params *p);
// E_INVAL, E_UNSUPPORTED: parameters that exclude each other.
int branches_check(const struct engine_turn *t, int32_t n_eos, struct err *err);
// The most blocks that the turn can hold.
int64_t branches_reserve(const struct engine_turn *t, const struct kv_groups *groups,
                         int32_t chunk_tokens, int32_t block_tokens, int64_t max_log);
// Allocates everything that the turn needs until it ends, except rings. Owner's thread. spec is borrowed
// until branches_free; eos_ids (n_eos) end an answer. max_log: the longest log. E_NOMEM.
int branches_new(struct branches **out, const struct engine_turn *spec, int64_t max_log,
                 int32_t n_vocab, const int32_t *eos_ids, int32_t n_eos, struct err *err);
void branches_free(struct branches *b); // NULL is allowed

// After the turn was admitted and its slot begun: makes the rings. E_NOMEM.
int branches_begin(struct live_turn *t, const struct tokenizer *tokenizer, struct err *err);
// The turn is paused: cuts its first ring to the tokens that the log has.
void branches_pause(struct live_turn *t);

// How many tokens of the log all branches share.
int64_t branches_base(const struct live_turn *t);
bool branches_have_drawn(const struct branches *b);
// Tokens to be computed before the next draw, if n_cached of the log are in the cache.
int64_t branches_uncomputed(const struct live_turn *t, int64_t n_cached);
int32_t branches_n_running(const struct branches *b); // a step has a row of each
bool branch_runs(const struct branches *b, int32_t branch);
struct sampler *branch_sampler(const struct live_turn *t, int32_t branch);
struct kv_ring *branch_ring(const struct live_turn *t, int32_t branch);
// The tokens that the branch has generated after the turn's input.
const int32_t *branch_ids(const struct branches *b, int32_t branch, int32_t *n);
// Call when the first ring has computed the log: the other rings then share it.
void branches_fork(struct live_turn *t);

// Adds a sample's drawn token, which is not in the turn's log yet. True: the sample has no room for more.
bool branch_take(struct branches *b, int32_t branch, const struct sampled *s);
void branch_end(struct live_turn *t, int32_t branch,
                enum engine_finish finish); // gives its ring back

// After every running beam was ranked: makes the next step's beams, with their rings and samplers.
void branches_advance(struct live_turn *t);
// How many tokens after the turn's input all beams share; at most all but the last of a running beam's.
int32_t branches_agreed(const struct branches *b, int32_t from);

// Call at the turn's end: makes result, best first (samples: in their order), and gives the winner's ring
// to the sequence. ran: the rings are in use. finish: for branches that still run.
void branches_settle(struct live_turn *t, enum engine_finish finish, bool ran);
enum engine_finish branches_finish(const struct branches *b); // the winner's, once all are over
// Fills in the texts of result, using a slot whose own text is no longer needed.
int branches_texts(struct live_turn *t, struct turn_slot *slot, const struct tokenizer *tokenizer,
                   struct buf *scratch);
