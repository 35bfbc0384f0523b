// A network as a deterministic automaton over bytes, built lazily.
//
// A configuration is the set of all (state, stack) pairs that a text may lead to; a stack holds the places that
// calls return to. Stacks are interned as linked nodes that share their tails. Configurations are interned as
// sorted sets. So equal configurations have the same number, and a step is one table look-up:
//
//   row[config][class of the byte] -> config, MACHINE_DEAD, or not known yet (closure() finds it)
//
// Making a configuration follows empty edges, calls and returns; the configuration keeps only pairs whose
// state takes a byte. This ends, because net_finish refuses left recursion.
//
// Memory grows with the texts walked. Roots are configurations that users of the machine hold; machine_collect
// keeps these and frees all others. One thread at a time uses a machine (its owner locks).
//
// Transitions are kept, so work on a mask can stop when its effort is used up, and go on later (mask.h).
#pragma once
#include "engine/grammar/net.h"

enum { MACHINE_DEAD = -1, MACHINE_UNKNOWN = -2, MACHINE_MAX_PAIRS = 8192 };
#define MACHINE_BYTES (32 << 20)       // above it, machine_collect is due
#define MACHINE_MOST_BYTES (256 << 20) // above it, the machine fails
#define MACHINE_MOST_WORK 3000000      // pairs that one mask may reach: some 50 ms
#define MACHINE_FREE INT64_MAX         // effort without a bound

struct machine_pair {
    int32_t state, stack;
};
struct machine_stack {
    int32_t state, below; // state: where the call returns to; -1: the end of the root rule
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
    // The configuration that every harmless character leads to (token_trie.h), or DEAD; UNKNOWN: not computed.
    int32_t uniform;
    // The class of characters (plain.h) that its own chain is of, PLAIN_UNKNOWN or PLAIN_NONE.
    int8_t plain_own;
    // The class that was followed from here last, also within the chain of another configuration; and the
    // configuration that all of its characters lead to, negative if they lead to none or to several.
    int8_t plain;
    int32_t plain_to;
    int32_t cost;      // tokens to an end; -1: not counted yet
    struct mask *mask; // of the vocabulary; NULL: not made yet
};

enum { PLAIN_UNKNOWN = -1, PLAIN_NONE = -2, MACHINE_PLAIN = 6 };
enum { MACHINE_SPENT = 1 }; // of machine.error

// A held configuration; machine_collect renumbers it.
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
    int64_t work;           // pairs reached since the caller set it to 0
    int64_t reached_in_all; // pairs
    // What may still be spent, in the time that a pair takes (some 16 ns); the caller sets it. At 0 no new
    // transition is found, and error becomes MACHINE_SPENT. The caller resets both.
    int64_t effort;
    uint32_t n_collected; // calls of machine_collect
    bool explored;        // all configurations have been found, so what is left to find is little
    bool crowded;         // a set had more than MACHINE_MAX_PAIRS pairs, so it was left out
    int error; // E_NOMEM, or E_LIMIT (bytes, work): sticky until machine_collect; or MACHINE_SPENT
};

int machine_init(struct machine *m, const struct net *net, struct err *err); // E_NOMEM
void machine_release(struct machine *m); // a zeroed one is allowed

int32_t machine_start(struct machine *m);  // the configuration before the first byte
bool machine_may_spend(struct machine *m); // false: no effort is left, and m->error says so
// MACHINE_DEAD: no text continues with this byte, or it continues in more than MACHINE_MAX_PAIRS ways, or
// m->error is set.
int32_t machine_step(struct machine *m, int32_t config, uint8_t byte);
// One step of the completion that machine_shortest writes: its byte, and the configuration behind it. Negative: there
// is none, or m->error is set. Of m->effort it takes only new transitions.
int32_t machine_shorten(struct machine *m, int32_t config, uint8_t *byte);
// Writes the bytes of a shortest completion into out (most) and returns their number. -1: more than most, or
// out of memory.
int32_t machine_shortest(struct machine *m, int32_t config, uint8_t *out, int32_t most);

// r: the caller's storage, in the machine's list until machine_drop. Afterwards read the configuration from
// r->config only, because machine_collect renumbers it.
void machine_hold(struct machine *m, struct machine_root *r, int32_t config);
void machine_drop(struct machine *m, struct machine_root *r);
// Frees all configurations but the roots and their masks. After E_NOMEM the roots are MACHINE_DEAD.
int machine_collect(struct machine *m);
