// The compiled grammars of a vocabulary. Turns find them by their text and share them. Compiling takes from
// microseconds to about a second (states and work are bounded), so a worker's thread does it (grammars_get), and
// later turns find the result.
//
// All engines of a process with equal vocabularies have one table. So a turn runs with the grammar that a worker
// compiled, whichever engine of its model takes it.
//
// A grammar is kept for the owner whose request compiled it. When the kept grammars take more than 256 MiB, the owner
// that has most loses its least recently used one that no turn uses, until the rest fits. An owner whose grammars take
// no more than its share (256 MiB divided by the number of owners with grammars) loses none.
//
// Two owners with equal texts share one grammar and its masks:
//   - Each owner's first request with a text compiles it. So it takes as long and fails in the same way whether or
//     not another owner has this grammar. The second owner's result is then freed, and it uses the first one's.
//   - The grammar counts in full for each of its owners, so no owner's count depends on another.
//   - Dropped for one owner, it stays for the other. The last one frees it.
// What is shared still shows in one way: an answer finds masks that the other owner's answers have made, and saves the
// time of making them (at most 50 ms each).
//
//   text.h --grammars_get--> struct grammar: net (constant) + machine and masks (grow, under its lock)
//                                 ^
//          sampler --> struct grammar_matcher: the position of one answer
//
// Any thread.
#pragma once
#include "engine/grammar/text.h"
#include "engine/grammar/token_trie.h"
#include <stdbool.h>

struct grammars; // an engine's access to the table
struct grammar;

// Calls `bytes` for every token, and again in grammars_get; ctx must stay valid. grammars_free: a grammar may be held
// longer. NULL is allowed.
int grammars_new(struct grammars **out, int32_t n_vocab, token_bytes_fn bytes, void *ctx,
                 struct err *err);
void grammars_free(struct grammars *g);
uint64_t grammars_vocabulary(const struct grammars *g); // equal for equal vocabularies

// Finds or compiles a grammar for the owner (engine_turn.owner); the caller holds a reference to *out. E_INVAL:
// malformed text, with the place; E_UNSUPPORTED: an unsupported feature, with its path; E_NOMEM; E_LIMIT: its masks
// cost too much.
int grammars_get(struct grammars *g, uint64_t owner, const struct grammar_text *text,
                 struct grammar **out, struct err *err);
// Never compiles. The caller holds the result; NULL: none is kept for the owner.
struct grammar *grammars_find(const struct grammars *g, uint64_t owner,
                              const struct grammar_text *text);
// Whether the grammar is of this text and vocabulary.
bool grammars_fit(const struct grammars *g, const struct grammar *made,
                  const struct grammar_text *text);
struct grammar *grammar_hold(struct grammar *g); // NULL gives NULL
void grammar_free(struct grammar *g);            // NULL is allowed
// The number of tokens in the shortest answer, without the token that ends it.
int32_t grammar_least_tokens(const struct grammar *g);

// Compiles a text without a vocabulary. The tests and the fuzzers use it too.
struct net;
int grammar_compile(struct net *net, enum grammar_kind kind, const char *text, size_t len,
                    const bool *writes, struct err *err);
