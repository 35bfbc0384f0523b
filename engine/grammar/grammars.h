// The compiled grammars of an engine: found by their text, shared by turns, the least recently used dropped
// when they take too much memory. Compiling takes from microseconds to about a second (a bound of states
// and of work), so it is done on a worker's thread (grammars_get), and turns that follow find the result.
//
//   text.h --grammars_get--> struct grammar: net (constant) + machine and masks (grow, under its lock)
//                                 ^
//          sampler --> struct grammar_matcher: where one answer stands
//
// Any thread.
#pragma once
#include "engine/grammar/text.h"
#include "engine/grammar/token_trie.h"
#include <stdbool.h>

struct grammars;
struct grammar;

// bytes is called during the first grammars_get; ctx stays valid.
int grammars_new(struct grammars **out, int32_t n_vocab, token_bytes_fn bytes, void *ctx,
                 struct err *err);
void grammars_free(struct grammars *g); // no grammar of it is held any more; NULL is allowed

// Finds or compiles: *out is held. E_INVAL: the text is no grammar, with a place in it; E_UNSUPPORTED: it
// uses what is not supported, by its path; E_NOMEM; E_LIMIT: it is too costly to follow.
int grammars_get(struct grammars *g, const struct grammar_text *text, struct grammar **out,
                 struct err *err);
bool grammars_has(struct grammars *g,
                  const struct grammar_text *text); // grammars_get would be quick
struct grammar *grammar_hold(struct grammar *g);    // NULL gives NULL
void grammar_free(struct grammar *g);               // NULL is allowed
// The fewest tokens of an answer, its end not counted.
int32_t grammar_least_tokens(const struct grammar *g);

// Only the notations, without a vocabulary: what the tests and the fuzzers use too.
struct net;
int grammar_compile(struct net *net, enum grammar_kind kind, const char *text, size_t len,
                    const bool *writes, struct err *err);
