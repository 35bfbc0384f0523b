// Maps byte strings to numbers, one byte at a time: one pass over a text finds all keys that are its
// prefixes. The children of a node are adjacent, in the order of their bytes. Read-only after
// building.
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct trie_key {
    const char *bytes;
    uint32_t len;
    int32_t value; // >= 0
};
struct trie_node {
    uint32_t first; // its children
    uint32_t n;
    int32_t value; // the value of the key that ends here, or -1
};
struct trie {
    struct trie_node *nodes; // the root first
    unsigned char *labels;   // [n_nodes] the byte that leads to each node
    uint32_t n_nodes;
    uint32_t roots[256]; // the root's child for each byte, or 0
    uint32_t longest;    // length of the longest key
};

// Sorts keys in place. Of equal keys the last one wins; empty keys are skipped. E_NOMEM.
int trie_build(struct trie *t, struct trie_key *keys, size_t n, struct err *err);
void trie_release(struct trie *t);
// The node that a byte leads to; 0 (the root) if there is none.
static inline uint32_t trie_step(const struct trie *t, uint32_t node, unsigned char byte) {
    if (node == 0) return t->roots[byte];
    const struct trie_node *n = &t->nodes[node];
    const unsigned char *labels = t->labels + n->first, *found;
    if (n->n == 1) return *labels == byte ? n->first : 0;
    if (n->n == 0 || !(found = memchr(labels, byte, n->n))) return 0;
    return n->first + (uint32_t)(found - labels);
}
