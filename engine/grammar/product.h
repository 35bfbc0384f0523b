// Several networks followed at once, written into another network as one automaton. It matches the texts that
// all of them match, or it ends in a state that says which of them matched: for a pattern with a length, and for
// the names of properties. Bounded: a product of many states, or many products of one network, are refused.
#pragma once
#include "engine/grammar/net.h"

enum { PRODUCT_MAX_PARTS = 32, PRODUCT_MAX_STATES = 20000, PRODUCT_MOST_OF_ALL = 60000 };

// Where a text leads that the parts with a bit in `matched` match: a state of the target, or -1: nowhere.
typedef int32_t (*product_target_fn)(void *ctx, uint32_t matched);

// parts (n_parts) are finished. A text that one of the first n_needed parts cannot match any more is given
// up. E_NOMEM; E_INVAL: too many states; failures of the target network are its own.
int product_emit(struct net *n, int32_t from, const struct net *parts, int n_parts, int n_needed,
                 product_target_fn target, void *ctx, struct err *err);
