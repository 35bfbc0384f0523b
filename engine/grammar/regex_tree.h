// The tree of a regular expression, between regex_parse.c and regex.c.
#pragma once
#include "engine/grammar/regex.h"

enum regex_kind {
    NODE_EMPTY,
    NODE_SET,
    NODE_SEQUENCE,
    NODE_CHOICE,
    NODE_REPEAT,
    NODE_START,
    NODE_END,
    NODE_LOOKAHEAD // within the last sequences only: what follows it ends with the whole expression
};

struct regex_node {
    enum regex_kind kind;
    int32_t child, next; // the first part; the next part of its own parent; -1: none
    int32_t set;         // NODE_SET
    int32_t min, max;    // NODE_REPEAT; max -1: no bound
    bool negated;        // NODE_LOOKAHEAD
};

struct regex {
    struct regex_node *nodes;
    struct char_set *sets;
    int32_t n_nodes, cap_nodes, n_sets, cap_sets, root;
    bool search, property; // property: it has a \p
};
