// A network as a deterministic automaton over bytes, made as far as it is walked.
//
// A configuration is where a text may stand: a set of (state, stack) pairs, where a stack is the places
// that calls return to. Stacks are interned as linked nodes that share their tails, configurations as
// sorted sets, so that equal ones are one number and a step is one look into a table:
//
//   row[config][class of the byte] -> config, MACHINE_DEAD, or not known yet (closure() finds it)
//
// Empty edges, calls and returns are followed when a configuration is made; it keeps only pairs whose
// state takes a byte. Left recursion is refused before (net_finish), so this ends.
//
// Memory grows with the texts walked. Roots are numbers that live outside; machine_collect keeps these
// and forgets all others. A machine is used by one thread at a time (its owner locks).
#pragma once
#include "engine/grammar/net.h"

enum { MACHINE_DEAD = -1, MACHINE_UNKNOWN = -2, MACHINE_MAX_PAIRS = 8192 };
#define MACHINE_BYTES (32 << 20)       // above it, machine_collect is due
#define MACHINE_MOST_BYTES (256 << 20) // above it, the machine fails
#define MACHINE_MOST_WORK 3000000      // pairs that one mask may reach: some 50 ms

struct machine_pair {
    int32_t state, stack;
};
struct machine_stack {
    int32_t state, below; // where the call returns to; -1: the root's own end
    int32_t least;        // bytes from `state` to the end of the whole text
    int32_t next;         // in its bucket
};
struct machine_config {
    int64_t first; // of its pairs
    int32_t n;
    bool accepts;  // the text may end here
    int32_t least; // bytes to an end
    int32_t *row;  // (n_classes), or NULL
    int32_t next;  // in its bucket
    // Where every harmless character leads (token_trie.h), or DEAD; UNKNOWN: not looked at.
    int32_t uniform;
    // The class of characters that it was looked at with (plain.h), and where all of them lead; negative: they
    // lead nowhere, or apart. PLAIN_UNKNOWN, PLAIN_NONE.
    int8_t plain;
    int32_t plain_to;
    int32_t cost;      // tokens to an end; -1: not counted yet
    struct mask *mask; // of the vocabulary; NULL: not made yet
};

enum { PLAIN_UNKNOWN = -1, PLAIN_NONE = -2, MACHINE_PLAIN = 6 };

// A number of a configuration that machine_collect keeps up to date.
struct machine_root {
    int32_t config;
    struct machine_root *prev, *next;
};

struct machine {
    const struct net *net; // borrowed
    struct machine_config *configs;
    struct machine_pair *pairs;
    struct machine_stack *stacks;
    int32_t n_configs, cap_configs, n_stacks, cap_stacks;
    int64_t n_pairs, cap_pairs;
    int32_t *config_buckets, *stack_buckets; // (n_buckets)
    int32_t n_config_buckets, n_stack_buckets;
    struct machine_root *roots;
    // the set under construction: pairs that were reached, and those still to be followed
    struct machine_pair *reached, *kept;
    int32_t *reached_buckets;
    uint32_t *reached_stamp, stamp;
    int32_t n_reached, n_kept;
    bool accepts;
    int64_t bytes; // of all this and the masks
    // Kept by machine_collect, and not counted in bytes.
    struct plain_class *plain[MACHINE_PLAIN]; // (n_plain)
    int n_plain;
    int64_t plain_bytes;
    int64_t work; // pairs reached since the caller set it to 0
    int error;    // E_NOMEM, or E_LIMIT (bytes, work): sticky until machine_collect
};

int machine_init(struct machine *m, const struct net *net, struct err *err); // E_NOMEM
void machine_release(struct machine *m); // a zeroed one is allowed

int32_t machine_start(struct machine *m); // the configuration before the first byte
// MACHINE_DEAD: no text goes on so, or it goes on in more ways than MACHINE_MAX_PAIRS, or m->error.
int32_t machine_step(struct machine *m, int32_t config, uint8_t byte);
// The bytes of a shortest end from here, into out (most): how many they are. -1: more than most, or
// memory is out.
int32_t machine_shortest(struct machine *m, int32_t config, uint8_t *out, int32_t most);

void machine_hold(struct machine *m, struct machine_root *r, int32_t config);
void machine_drop(struct machine *m, struct machine_root *r);
// Forgets everything but the roots. E_NOMEM: then the roots are dead.
int machine_collect(struct machine *m);
