// See token_trie.h.
#include "engine/grammar/token_trie.h"
#include "base/utf8.h"
#include "engine/grammar/tails.h"
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 256 * 256 };

struct entry {
    const uint8_t *bytes;
    int32_t len, id;
};

static int compare(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    int32_t len = x->len < y->len ? x->len : y->len;
    int c = memcmp(x->bytes, y->bytes, (size_t)len);
    if (c) return c;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

// The bytes of the leading harmless characters, and their number.
static int32_t leading_harmless(const uint8_t *s, int32_t len, int32_t *chars) {
    int32_t at = 0;
    for (int32_t n; at < len; at += n, (*chars)++) {
        for (n = 1; at + n < len && n < 4 && (s[at + n] & 0xc0) == 0x80; n++) continue;
        if (s[at] < 0x80) n = 1;
        if (s[at] < 0x20 || s[at] == 0x7f || s[at] == '"' || s[at] == '\\') break;
        if (!utf8_valid((const char *)s + at, (size_t)n)) break;
    }
    return at;
}

// Sorted entries become nodes: each entry adds those behind the beginning that it shares with the one
// before it. A node's `after` is set when its subtree is complete.
static int build(struct trie_part *t, const struct entry *e, int32_t n, int32_t *same) {
    int64_t most = 1;
    int32_t depth = 0, last_id = -1;
    const struct entry *last = NULL;
    for (int32_t i = 0; i < n; i++) most += e[i].len;
    t->nodes = malloc((size_t)most * sizeof *t->nodes);
    int32_t *open = calloc((size_t)UINT16_MAX + 1, sizeof *open); // the node of each depth
    if (!t->nodes || !open) {
        free(open);
        return E_NOMEM;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t shared = 0;
        while (last && shared < last->len && shared < e[i].len &&
               last->bytes[shared] == e[i].bytes[shared])
            shared++;
        if (last && shared == e[i].len && shared == last->len) { // the same bytes
            same[last_id] = e[i].id;
            last_id = e[i].id;
            continue;
        }
        for (; depth > shared; depth--) t->nodes[open[depth]].after = t->n;
        for (; depth < e[i].len; depth++) {
            open[depth + 1] = t->n;
            t->nodes[t->n++] = (struct trie_node){
                .token = -1, .depth = (uint16_t)(depth + 1), .byte = e[i].bytes[depth]};
        }
        t->nodes[t->n - 1].token = e[i].id;
        if (depth > t->depth) t->depth = depth;
        last = &e[i];
        last_id = e[i].id;
    }
    for (; depth > 0; depth--) t->nodes[open[depth]].after = t->n;
    free(open);
    struct trie_node *less = realloc(t->nodes, (size_t)(t->n + 1) * sizeof *less);
    if (less) t->nodes = less;
    return 0;
}

// Where the nodes of the first byte and of the first two are.
static void index_nodes(struct token_trie *v) {
    memset(v->singles, 0xff, sizeof v->singles);
    memset(v->pairs, 0xff, PAIRS * sizeof *v->pairs);
    const struct trie_node *nodes = v->all.nodes;
    for (int32_t i = 0; i < v->all.n; i = nodes[i].after) {
        v->singles[nodes[i].byte] = i;
        for (int32_t k = i + 1; k < nodes[i].after; k = nodes[k].after)
            v->pairs[nodes[i].byte << 8 | nodes[k].byte] = k;
    }
}

static void set_bit(uint64_t *row, int32_t id) {
    row[id >> 6] |= (uint64_t)1 << (id & 63);
}

static void mark_harmless(struct token_trie *v, int32_t id, struct tail_lead *lead) {
    int32_t chars = 0, bytes = leading_harmless(v->bytes[id], v->len[id], &chars);
    *lead = (struct tail_lead){(uint16_t)chars, (uint16_t)bytes};
    if (bytes < v->len[id] || chars > HARMLESS_CHARS) return;
    set_bit(v->harmless + (size_t)chars * (size_t)v->n_words, id);
    for (int32_t k = chars; k <= HARMLESS_CHARS; k++)
        set_bit(v->any_harmless + (size_t)k * (size_t)v->n_words, id);
}

// The token's bytes; NULL: it stands for no text.
static const char *text_of(token_bytes_fn bytes, void *ctx, int32_t id, size_t *len) {
    *len = 0;
    const char *s = bytes(ctx, id, len);
    return s && *len > 0 && *len <= UINT16_MAX ? s : NULL;
}

// leads: (v->n) scratch.
static int fill(struct token_trie *v, struct entry *entries, struct tail_lead *leads,
                token_bytes_fn bytes, void *ctx) {
    int32_t n = 0;
    size_t len, n_bytes = 0;
    for (int32_t id = 0; id < v->n; id++)
        if (text_of(bytes, ctx, id, &len)) n_bytes += len;
    uint8_t *to = v->text = malloc(n_bytes + 1);
    if (!to) return E_NOMEM;
    for (int32_t id = 0; id < v->n; id++, to += len) {
        const char *s = text_of(bytes, ctx, id, &len);
        v->same[id] = -1;
        if (!s) {
            len = 0;
            continue;
        }
        memcpy(to, s, len);
        entries[n++] = (struct entry){.bytes = to, .len = (int32_t)len, .id = id};
        if (len == 1) v->writes[to[0]] = true;
        v->bytes[id] = to;
        v->len[id] = (int32_t)len;
        if ((int32_t)len > v->longest) v->longest = (int32_t)len;
        mark_harmless(v, id, &leads[id]);
    }
    qsort(entries, (size_t)n, sizeof *entries, compare);
    TRY(build(&v->all, entries, n, v->same));
    index_nodes(v);
    v->tails = tails_new(v, leads, HARMLESS_CHARS);
    return v->tails ? 0 : E_NOMEM;
}

int token_trie_new(struct token_trie **out, int32_t n, token_bytes_fn bytes, void *ctx,
                   struct err *err) {
    struct token_trie *v = calloc(1, sizeof *v);
    struct entry *entries = calloc((size_t)n + 1, sizeof *entries);
    struct tail_lead *leads = calloc((size_t)n + 1, sizeof *leads);
    int rc = E_NOMEM;
    *out = NULL;
    if (v) {
        atomic_init(&v->n_holders, 1);
        v->n = n;
        v->n_words = (n + 63) / 64;
        v->pairs = malloc(PAIRS * sizeof *v->pairs);
        v->same = calloc((size_t)n + 1, sizeof *v->same);
        v->bytes = calloc((size_t)n + 1, sizeof *v->bytes);
        v->len = calloc((size_t)n + 1, sizeof *v->len);
        v->harmless =
            calloc((size_t)(HARMLESS_CHARS + 1) * (size_t)v->n_words, sizeof *v->harmless);
        v->any_harmless =
            calloc((size_t)(HARMLESS_CHARS + 1) * (size_t)v->n_words, sizeof *v->any_harmless);
    }
    if (v && entries && leads && v->pairs && v->same && v->bytes && v->len && v->harmless &&
        v->any_harmless)
        rc = fill(v, entries, leads, bytes, ctx);
    free(entries);
    free(leads);
    if (rc == 0) {
        *out = v;
        return 0;
    }
    token_trie_free(v);
    return err_set(err, rc, "no memory for the trie of a vocabulary of %d tokens", n);
}

struct token_trie *token_trie_hold(struct token_trie *v) {
    atomic_fetch_add(&v->n_holders, 1);
    return v;
}

void token_trie_free(struct token_trie *v) {
    if (!v || atomic_fetch_sub(&v->n_holders, 1) > 1) return;
    free(v->text);
    free(v->all.nodes);
    tails_free(v->tails);
    free(v->pairs);
    free(v->same);
    free(v->bytes);
    free(v->len);
    free(v->harmless);
    free(v->any_harmless);
    free(v);
}

void token_trie_prefixes(const struct token_trie *v, const uint8_t *text, int32_t len,
                         void (*each)(void *ctx, int32_t id, int32_t n_bytes), void *ctx) {
    const struct trie_node *nodes = v->all.nodes;
    int32_t i = len > 0 ? v->singles[text[0]] : -1, depth = 3;
    if (i >= 0 && nodes[i].token >= 0) each(ctx, nodes[i].token, 1);
    i = len > 1 ? v->pairs[text[0] << 8 | text[1]] : -1;
    if (i < 0) return;
    if (nodes[i].token >= 0) each(ctx, nodes[i].token, 2);
    for (i++; i < v->all.n && depth <= len;) {
        const struct trie_node *node = &nodes[i];
        if (node->depth < depth) return;
        if (node->byte != text[depth - 1]) {
            i = node->after;
            continue;
        }
        if (node->token >= 0) each(ctx, node->token, depth);
        depth++;
        i++;
    }
}
