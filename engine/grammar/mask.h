// Which tokens may follow a configuration: one bit for each token of the vocabulary.
//
// A mask without a limit is valid while enough tokens are left to complete the text after any of its tokens
// (most_least); it is cached with its configuration. Near the end of a turn's max_tokens, a mask is made for the
// tokens left, and freed after use.
#pragma once
#include "engine/grammar/machine.h"
#include "engine/grammar/token_trie.h"
#include <stdlib.h>

struct mask {
    uint64_t serial;    // unique in this process
    int32_t most_least; // the largest `least` (bytes to an end) after one of its tokens
    int32_t bytes;      // of memory
    uint64_t bits[];    // (n_words)
};

static inline void mask_free(struct mask *m) { // NULL is allowed
    free(m);
}

// A mask that is being made, as far as the machine's effort went. Zeroed: nothing is done yet.
struct mask_making {
    struct mask *mask;
    int32_t *path; // (depth + 1) the configurations on the way to node `at` of the trie
    int32_t at;
    uint32_t collected; // machine.n_collected, which the path is valid for
    int64_t work;       // pairs reached before
};
// Goes on with the mask of config, with `left` as for mask_within; -1: no limit. 0: k->mask is complete, and the
// caller takes it; MACHINE_SPENT: call again; E_NOMEM, E_LIMIT. All calls for a making have the same arguments,
// except that machine_collect may renumber config.
int mask_make(struct machine *m, const struct token_trie *v, int32_t config, int32_t left,
              struct mask_making *k);
void mask_making_release(struct mask_making *k); // and zeroes it
// Keeps a mask without a limit with its configuration.
void mask_keep(struct machine *m, int32_t config, struct mask *mask);

// The cached mask of a configuration; makes it on first use. NULL: the machine's memory or work is used up.
const struct mask *mask_of(struct machine *m, const struct token_trie *v, int32_t config);
// Makes the tables of the character classes (plain.h) that answers may meet; making one during a step would delay
// it by some ten milliseconds. Follows the texts from config on, the shortest first, for a bounded time.
void mask_prepare(struct machine *m, const struct token_trie *v, int32_t config);
// Writes into bits (n_words) the tokens after which `left` further tokens can complete the text; the token that
// ends the answer does not count. False: as NULL above.
bool mask_within(struct machine *m, const struct token_trie *v, int32_t config, int32_t left,
                 uint64_t *bits);

// The fewest tokens that write a shortest completion; INT32_MAX: no memory, or the vocabulary cannot write it.
int32_t mask_cost(struct machine *m, const struct token_trie *v, int32_t config);
// The tokens of that completion (n), which the caller frees. NULL: as INT32_MAX above.
int32_t *mask_plan(struct machine *m, const struct token_trie *v, int32_t config, int32_t *n);
