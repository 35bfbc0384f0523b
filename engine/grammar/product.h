// The product of several networks, written into another network as one automaton. After a text, the automaton is
// in a target state that the caller chooses by the networks that match the text. Used for a pattern with a length
// (all must match) and for the names of properties (which one matches). Bounded: too many states of one product,
// or of all products of a network, are refused.
#pragma once
#include "engine/grammar/net.h"

enum { PRODUCT_MAX_PARTS = 32, PRODUCT_MAX_STATES = 20000, PRODUCT_MOST_OF_ALL = 60000 };

// `matched` has a bit for each part that matches the text. Returns the state of the target network that the text
// leads to, or -1: none.
typedef int32_t (*product_target_fn)(void *ctx, uint32_t matched);

// parts (n_parts) are finished networks. The product drops a text as soon as one of the first n_needed parts cannot
// match it any more. E_NOMEM; E_INVAL: too many states. Failures of the target network show in net_finish.
int product_emit(struct net *n, int32_t from, const struct net *parts, int n_parts, int n_needed,
                 product_target_fn target, void *ctx, struct err *err);
