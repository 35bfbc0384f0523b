// See trie.h. Built level by level from the sorted keys: a node is the range of keys that share its
// path, and a queue of ranges gives children numbers side by side.
#include "engine/text/trie.h"
#include <stdlib.h>

struct range {
    uint32_t from, to; // keys
    uint32_t depth;
};
struct building {
    struct trie *trie;
    const struct trie_key *keys;
    struct range *ranges; // [n_nodes] as nodes
    uint32_t cap;
};

static int by_bytes(const void *a, const void *b) {
    const struct trie_key *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);
    if (order == 0) order = (x->len > y->len) - (x->len < y->len);
    return order ? order : (x->value > y->value) - (x->value < y->value);
}

static int add_node(struct building *b, unsigned char label, struct range range) {
    struct trie *t = b->trie;
    if (t->n_nodes == b->cap) {
        if (b->cap > UINT32_MAX / 4) return E_NOMEM;
        uint32_t cap = b->cap ? 2 * b->cap : 1024;
        void *nodes = realloc(t->nodes, cap * sizeof *t->nodes);
        if (nodes) t->nodes = nodes;
        void *labels = realloc(t->labels, cap);
        if (labels) t->labels = labels;
        void *ranges = realloc(b->ranges, cap * sizeof *b->ranges);
        if (ranges) b->ranges = ranges;
        if (!nodes || !labels || !ranges) return E_NOMEM;
        b->cap = cap;
    }
    t->nodes[t->n_nodes] = (struct trie_node){.value = -1};
    t->labels[t->n_nodes] = label;
    b->ranges[t->n_nodes++] = range;
    return 0;
}

// The node's own value, and its children: keys in its range with the same next byte.
static int expand(struct building *b, uint32_t node) {
    struct range r = b->ranges[node];
    while (r.from < r.to && b->keys[r.from].len == r.depth)
        b->trie->nodes[node].value = b->keys[r.from++].value;
    b->trie->nodes[node].first = b->trie->n_nodes;
    while (r.from < r.to) {
        unsigned char byte = (unsigned char)b->keys[r.from].bytes[r.depth];
        uint32_t end = r.from;
        while (end < r.to && (unsigned char)b->keys[end].bytes[r.depth] == byte) end++;
        TRY(add_node(b, byte, (struct range){r.from, end, r.depth + 1}));
        b->trie->nodes[node].n++;
        r.from = end;
    }
    return 0;
}

int trie_build(struct trie *t, struct trie_key *keys, size_t n, struct err *err) {
    struct building b = {.trie = t, .keys = keys};
    *t = (struct trie){0};
    if (n > UINT32_MAX) return err_set(err, E_LIMIT, "%zu pieces are too many", n);
    if (n) qsort(keys, n, sizeof *keys, by_bytes);
    size_t empty = 0;
    while (empty < n && keys[empty].len == 0) empty++;
    int rc = add_node(&b, 0, (struct range){(uint32_t)empty, (uint32_t)n, 0});
    for (uint32_t node = 0; rc == 0 && node < t->n_nodes; node++) rc = expand(&b, node);
    for (size_t i = 0; i < n; i++)
        if (keys[i].len > t->longest) t->longest = keys[i].len;
    for (uint32_t i = 0; rc == 0 && i < t->nodes[0].n; i++)
        t->roots[t->labels[t->nodes[0].first + i]] = t->nodes[0].first + i;
    free(b.ranges);
    if (rc == 0) return 0;
    trie_release(t);
    return err_set(err, rc, "no memory for a trie of %zu pieces", n);
}

void trie_release(struct trie *t) {
    free(t->nodes);
    free(t->labels);
    *t = (struct trie){0};
}
