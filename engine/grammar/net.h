// A network of rules over bytes; every notation compiles to one. A rule is a graph of states with one start and
// one end. An edge takes a byte of a range, takes nothing, or calls a rule and continues after it.
//
//   value  ::=  (s0) --call object--> (end)          object ::= (s1) --'{'--> (s2) --call members--> ...
//               (s0) --call string--> (end)
//
// A builder emits between two states that the caller names, so that alternatives, options and loops are
// edges and need no operators of their own. Failures (memory, too many states) are sticky: the caller need not
// check before net_finish. One thread builds it; then it is constant.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_MAX_STATES = 200000, NET_MAX_EDGES = 600000, NET_MAX_RULES = 50000 };
#define NET_NEVER (1 << 30) // `least` of a state that leads to no end

enum net_edge_kind { NET_BYTES, NET_EMPTY, NET_CALL };

struct net_edge {
    int32_t to, rule; // rule: of NET_CALL
    int32_t next;     // of the same state; -1: the last. net_finish puts those of bytes last
    uint8_t kind, lo, hi;
};
struct net_state {
    int32_t first; // edge; -1: none
    int32_t least; // bytes from here to the end of its rule
    bool end;      // of its rule
    // An end without edges, or a state that reaches only such an end, by empty edges. A call that returns here
    // pushes nothing on the stack.
    bool pops;
};
struct net_rule {
    int32_t start, end, least;
    char *name; // for messages; NULL: none
};

struct net {
    struct net_state *states;
    struct net_edge *edges;
    struct net_rule *rules;
    int32_t n_states, n_edges, n_rules;
    int32_t cap_states, cap_edges, cap_rules;
    int32_t root;            // set by the notation
    uint8_t byte_class[256]; // bytes that no edge distinguishes are one class
    uint8_t class_byte[256]; // (n_classes) one byte of each
    int32_t n_classes;
    int64_t bytes;          // memory
    int32_t product_states; // made by product_emit
    bool matches_nothing;   // net_finish failed because no text matches
    struct err failed;
};

// Each frees or forgets all, and leaves an empty network without a root.
void net_init(struct net *n);
void net_begin(struct net *n); // as net_init, and its root is a new rule without a name
void net_release(struct net *n);

int32_t net_rule_new(struct net *n, const char *name, size_t name_len); // with its start and end
// After a failure net_state_new and net_rule_new return 0, and edges are not added: a builder may go on with
// what it got. Edges of one state may overlap; `text` may be empty and becomes states of its own.
int32_t net_state_new(struct net *n);
void net_byte_range(struct net *n, int32_t from, uint8_t lo, uint8_t hi, int32_t to);
void net_empty(struct net *n, int32_t from, int32_t to);
void net_call(struct net *n, int32_t from, int32_t rule, int32_t to);
void net_text(struct net *n, int32_t from, const char *text, size_t len, int32_t to);
// `rule`, min to max times; max -1: no bound.
void net_repeat(struct net *n, int32_t from, int32_t rule, int64_t min, int64_t max, int32_t to);
// Reports a notation's own failure; the first one stays.
void net_fail(struct net *n, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool net_failed(const struct net *n);

// Completes the network: cuts edges of bytes that the vocabulary cannot write (writes (256); NULL: it can write
// all), finds the fewest bytes to each end, cuts edges that lead to no end, makes the classes of bytes. E_INVAL:
// no text matches, or a rule is left-recursive; E_NOMEM.
int net_finish(struct net *n, const bool *writes, struct err *err);
