// A compiled grammar, for grammars.c and matcher.c.
#pragma once
#include "engine/grammar/grammars.h"
#include "engine/grammar/mask.h"
#include <pthread.h>
#include <stdatomic.h>

struct grammar {
    atomic_int n_holders;
    const struct grammar_text *text; // held
    struct token_trie *vocab;        // held
    uint64_t vocabulary;             // its hash
    struct net net;
    int32_t least_tokens;
    int64_t fixed_bytes; // of all but the machine
    atomic_llong bytes;  // memory, as of the last use
    int32_t n_keepers; // owners for whom the table keeps it, each a holder; under the table's lock

    pthread_mutex_t lock; // of all below
    struct machine machine;
    // One mask at a time is made in slices. Any matcher that needs one goes on with it first.
    struct grammar_matcher *maker; // NULL: none
    struct mask_making making;
    int32_t making_close; // as for grammar_matcher's is_ready
};

// Collects the machine if it has grown too large: not while a mask is being made, which would begin again. The
// caller holds the lock.
void grammar_tidy(struct grammar *g);
