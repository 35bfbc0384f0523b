// Which tokens may follow a configuration: one bit for each token of the vocabulary.
//
// A mask without a limit holds wherever enough tokens are left to close the text after any of its tokens
// (most_least); it is kept with its configuration. Near the end of what a turn may draw the mask is made
// for the tokens that are left, and freed after its use.
#pragma once
#include "engine/grammar/machine.h"
#include "engine/grammar/token_trie.h"

struct mask {
    uint64_t serial;    // of this process: no two masks have one
    int32_t most_least; // the most bytes to an end after one of its tokens
    uint64_t bits[];    // (n_words)
};

void mask_free(struct mask *m); // NULL is allowed

// The kept mask of a configuration, made if it is not there yet. NULL: no memory.
const struct mask *mask_of(struct machine *m, const struct token_trie *v, int32_t config);
// Makes the tables of the classes of characters (plain.h) that answers meet, which would take a step some milliseconds
// each: follows the texts from config on, the shortest first, for a bounded time.
void mask_prepare(struct machine *m, const struct token_trie *v, int32_t config);
// The tokens after which the text can be closed with `left` further tokens, an end of answer not counted.
// bits (n_words) is written. False: no memory.
bool mask_within(struct machine *m, const struct token_trie *v, int32_t config, int32_t left,
                 uint64_t *bits);

// The fewest tokens that a shortest end takes; INT32_MAX: no memory, or it cannot be written.
int32_t mask_cost(struct machine *m, const struct token_trie *v, int32_t config);
// The tokens of that end (n), which the caller frees. NULL: as INT32_MAX above.
int32_t *mask_plan(struct machine *m, const struct token_trie *v, int32_t config, int32_t *n);
